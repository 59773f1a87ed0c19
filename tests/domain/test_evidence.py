from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.evidence import agreed

ROWS = {
    "they agree": ([1.0, 2.0, 4.0], [10.0, 20.0, 21.0], [1.0, 2.0, 4.0]),
    "they say the opposite": ([1.0, 2.0, 4.0], [3.0, 2.0, 1.0], [2.5, 2.0, 2.5]),
    "a lucky one": ([0.0, 2.0, 4.0], [3.0, 1.0, 2.0], [2.0, 1.0, 3.0]),
    "equal witnesses expect the middle": ([1.0, 2.0, 6.0], [5.0, 5.0, 5.0], [1.5, 2.0, 4.0]),
    "one": ([3.0], [7.0], [3.0]),
}


@pytest.mark.parametrize(("values", "witness", "expected"), ROWS.values(), ids=ROWS)
def test_values_go_half_way_to_what_the_witness_says(
    values: list[float], witness: list[float], expected: list[float]
) -> None:
    assert agreed(np.array(values), np.array(witness)).tolist() == expected


NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_values_stay_within_their_range_and_the_order_of_rows_means_nothing(rows: list[tuple[float, float]]) -> None:
    values, witness = np.array(rows).T
    found = agreed(values, witness)
    assert values.min() - 1e-6 <= found.min()
    assert found.max() <= values.max() + 1e-6
    assert np.array_equal(agreed(values[::-1], witness[::-1]), found[::-1])


@given(st.lists(st.tuples(NUMBERS, st.integers(-50, 50)), min_size=1, max_size=30))
def test_only_the_order_of_the_witness_counts(rows: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in rows])
    witness = np.array([w for _, w in rows], dtype=np.float64)
    assert np.array_equal(agreed(values, witness), agreed(values, np.exp(witness / 10.0)))
