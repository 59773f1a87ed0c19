from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoselect.study.proposing.mask import Atoms, Mask, bits, indicator

SETS = st.integers(0, (1 << 70) - 1)
"""More atoms than a machine word has bits."""
MASKS = st.builds(Mask, SETS, SETS, st.booleans())


@given(SETS)
def test_bits_are_the_set_bits_in_order(atoms: Atoms) -> None:
    found = bits(atoms)
    assert found == sorted(set(found))
    assert sum(1 << i for i in found) == atoms


@given(st.lists(SETS, max_size=5))
def test_an_indicator_has_a_0_for_each_atom_left_out(rows: list[Atoms]) -> None:
    found = indicator(rows, 70)
    assert found.shape == (len(rows), 70)
    assert set(np.unique(found)) <= {0.0, 1.0}
    assert [np.flatnonzero(row == 0.0).tolist() for row in found] == [bits(atoms) for atoms in rows]


@given(SETS, SETS, st.booleans())
def test_only_what_is_left_out_is_float_however_a_mask_is_made(left_out: Atoms, in_float: Atoms, refined: bool) -> None:
    mask = Mask(left_out, in_float, refined)
    assert mask == (left_out, in_float & left_out, refined)
    assert Mask(left_out)._replace(in_float=in_float, refined=refined) == mask
    assert Mask(-1, in_float, refined)._replace(left_out=left_out) == mask
    assert pickle.loads(pickle.dumps(mask)) == mask


@given(MASKS, SETS)
def test_without_some_atoms_the_others_stay_as_they_are(mask: Mask, atoms: Atoms) -> None:
    assert mask.without(atoms) == (mask.left_out & ~atoms, mask.in_float & ~atoms, mask.refined)
