from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoselect.study.proposing.mask import Mask, Units, bits, indicator

SETS = st.integers(0, (1 << 70) - 1)
"""More units than a machine word has bits."""
MASKS = st.builds(Mask, SETS, st.lists(SETS, max_size=3), st.booleans())


@given(SETS)
def test_bits_are_the_set_bits_in_order(units: Units) -> None:
    found = bits(units)
    assert found == sorted(set(found))
    assert sum(1 << i for i in found) == units


@given(st.lists(SETS, max_size=5))
def test_an_indicator_has_a_1_for_each_unit_of_a_set(rows: list[Units]) -> None:
    found = indicator(rows, 70)
    assert found.shape == (len(rows), 70)
    assert set(np.unique(found)) <= {0.0, 1.0}
    assert [np.flatnonzero(row == 1.0).tolist() for row in found] == [bits(units) for units in rows]


@given(SETS, SETS, st.integers(0, 2))
def test_only_what_is_left_out_is_float_however_a_mask_is_made(left_out: Units, in_float: Units, repairs: int) -> None:
    mask = Mask(left_out, [in_float], repairs)
    assert (mask.left_out, mask.within(1), mask.repairs) == (left_out, in_float & left_out, repairs)
    assert Mask(left_out)._replace(further=[in_float], repairs=repairs) == mask
    assert Mask(-1, [in_float], repairs)._replace(left_out=left_out) == mask
    assert pickle.loads(pickle.dumps(mask)) == mask


@given(MASKS, SETS)
def test_without_some_units_the_others_stay_as_they_are(mask: Mask, units: Units) -> None:
    less = mask.without(units)
    assert less.left_out == mask.left_out & ~units
    assert [less.within(place) for place in range(4)] == [mask.within(place) & ~units for place in range(4)]


@given(MASKS, SETS, st.integers(0, 3))
def test_units_that_are_put_in_a_state_are_in_no_other(mask: Mask, units: Units, state: int) -> None:
    found = mask.put(units, state)
    for place in range(5):
        assert found.within(place) == mask.within(place) & ~units | (units if place == state else 0)
    assert sum(found.within(place) for place in range(5)) == found.left_out == mask.left_out | units
    assert mask.put(0, state) == mask
