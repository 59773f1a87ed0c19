from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoselect.domain.pareto import hypervolume, non_dominated, whole_steps

# Few distinct values, so that ties and duplicates are common.
VALUES = st.integers(0, 6).map(lambda i: i / 2)
SHAPES = st.tuples(st.integers(0, 7), st.integers(1, 4))
TABLES = SHAPES.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=VALUES))


def inclusion_exclusion(losses: np.ndarray, reference: np.ndarray) -> float:
    """The union's volume from the volumes of all intersections of boxes."""
    total = 0.0
    for count in range(1, len(losses) + 1):
        for rows in combinations(losses, count):
            sides = reference - np.max(rows, axis=0)
            total += (-1) ** (count + 1) * float(np.prod(np.maximum(sides, 0.0)))
    return total


@pytest.mark.parametrize(
    ("losses", "mask"),
    [
        pytest.param([[1.0, 1.0]], [True], id="one row"),
        pytest.param([[1.0, 2.0], [2.0, 1.0]], [True, True], id="a trade"),
        pytest.param([[1.0, 1.0], [2.0, 2.0]], [True, False], id="worse in both"),
        pytest.param([[1.0, 1.0], [1.0, 2.0]], [True, False], id="equal in one, worse in the other"),
        pytest.param([[1.0, 1.0], [1.0, 1.0]], [True, True], id="equal rows are both kept"),
        pytest.param([[3.0], [1.0], [1.0]], [False, True, True], id="one objective"),
        pytest.param([[1, 2, 3], [3, 2, 1], [2, 2, 2], [3, 2, 3]], [True, True, True, False], id="three objectives"),
        pytest.param([[np.inf, 0.0], [0.0, np.inf], [1.0, np.inf]], [True, True, False], id="infinite losses"),
        pytest.param(np.zeros((0, 2)), [], id="no rows"),
    ],
)
def test_the_front(losses: object, mask: list[bool]) -> None:
    assert non_dominated(np.asarray(losses)).tolist() == mask


@pytest.mark.parametrize("losses", [np.zeros(3), np.zeros((1, 2, 1)), np.array([[0.0, np.nan]])])
def test_what_has_no_order_is_refused(losses: np.ndarray) -> None:
    with pytest.raises(ValueError, match="losses must"):
        non_dominated(losses)
    with pytest.raises(ValueError, match="losses must"):
        hypervolume(losses, np.ones(2))


@given(TABLES)
def test_the_front_is_what_no_row_dominates(losses: np.ndarray) -> None:
    expected = [not any(all(b <= a) and any(b < a) for b in losses) for a in losses]
    assert non_dominated(losses).tolist() == expected


@pytest.mark.parametrize(("values", "columns"), [(8, 3), (1000, 3), (1000, 5)])
def test_the_front_of_many_rows_is_what_no_row_dominates(values: int, columns: int) -> None:
    losses = np.random.default_rng(0).integers(0, values, (700, columns)).astype(np.float64)
    expected = [not np.any(np.all(losses <= row, axis=1) & np.any(losses < row, axis=1)) for row in losses]
    assert 0 < sum(expected) < 700
    assert non_dominated(losses).tolist() == expected


@given(TABLES, st.randoms(use_true_random=False))
def test_the_front_does_not_depend_on_order(losses: np.ndarray, random: object) -> None:
    order = list(range(len(losses)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert non_dominated(losses[order]).tolist() == non_dominated(losses)[order].tolist()


@given(TABLES)
def test_the_front_does_not_depend_on_duplicates(losses: np.ndarray) -> None:
    once = non_dominated(losses).tolist()
    assert non_dominated(np.concatenate([losses, losses])).tolist() == once * 2


@pytest.mark.parametrize(
    ("losses", "reference", "volume"),
    [
        pytest.param(np.zeros((0, 2)), [1.0, 1.0], 0.0, id="no rows"),
        pytest.param([[0.0]], [2.0], 2.0, id="a length"),
        pytest.param([[1.0, 1.0]], [3.0, 2.0], 2.0, id="a rectangle"),
        pytest.param([[0.0, 1.0], [1.0, 0.0]], [2.0, 2.0], 3.0, id="two rectangles that overlap in a square"),
        pytest.param([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [2.0, 2.0], 3.0, id="a dominated row adds nothing"),
        pytest.param([[0.0, 2.0], [5.0, 0.0]], [2.0, 2.0], 0.0, id="rows on or beyond the reference add nothing"),
        pytest.param([[0, 0, 1], [0, 1, 0], [1, 0, 0]], [2.0, 2.0, 2.0], 7.0, id="a cube without a corner"),
    ],
)
def test_the_hypervolume_by_hand(losses: object, reference: list[float], volume: float) -> None:
    assert hypervolume(np.asarray(losses, dtype=float), np.array(reference)) == pytest.approx(volume)


@given(TABLES)
def test_the_hypervolume_by_inclusion_and_exclusion(losses: np.ndarray) -> None:
    reference = np.full(losses.shape[1], 2.5)
    assert hypervolume(losses, reference) == pytest.approx(inclusion_exclusion(losses, reference), abs=1e-9)


@given(TABLES, st.data())
def test_the_hypervolume_never_falls(losses: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(losses)))
    reference = np.full(losses.shape[1], 2.5)
    assert hypervolume(losses, reference) >= hypervolume(losses[:count], reference) - 1e-12


@given(TABLES)
def test_only_the_front_has_volume(losses: np.ndarray) -> None:
    reference = np.full(losses.shape[1], 2.5)
    front = losses[non_dominated(losses)]
    assert hypervolume(front, reference) == pytest.approx(hypervolume(losses, reference))


def test_values_go_down_to_whole_steps_and_stay_where_a_column_has_none() -> None:
    values = np.array([[0.3, 1.04, 7.7], [0.29, 0.99, -0.5]])
    assert whole_steps(values, [0.1, 0.5, 0.0]) == pytest.approx(np.array([[0.3, 1.0, 7.7], [0.2, 0.5, -0.5]]))
