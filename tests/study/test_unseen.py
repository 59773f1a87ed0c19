"""What no trial shows: the fewer groups of candidates are as far from float, the more a candidate may lose."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoselect.study.proposing.unseen import Unseen

GROUPS = np.array([0, 0, 0, 1, 2, 2, 3])
DIVERGENCES = np.array([-8.0, -7.0, -6.0, -4.0, -3.0, -2.0, 0.0])
LOSSES = np.array([0.0, -0.1, 0.1, 1.0, 2.0, 3.0, 8.0])
USUAL = np.array([4.0, 4.0])


def unseen(most: float = math.inf) -> Unseen:
    return Unseen(GROUPS, DIVERGENCES, LOSSES, most)


def chance(divergence: float, limit: float, most: float = math.inf) -> float:
    return float(unseen(most).chances(np.array([divergence]), USUAL[:1], limit)[0])


@pytest.mark.parametrize(
    ("divergence", "groups"), [(1.0, 0), (0.0, 1), (-1.5, 1), (-2.5, 2), (-4.0, 3), (-6.5, 4), (-20.0, 4)]
)
def test_the_chance_is_one_in_the_groups_as_far_and_two(divergence: float, groups: int) -> None:
    assert chance(divergence, -math.inf) == pytest.approx(1.0 / (groups + 2))
    assert chance(divergence, 4.0) == pytest.approx(1.0 / (groups + 2))


def test_an_end_is_exceeded_as_often_as_it_says() -> None:
    far = np.array([-2.0, -4.0])
    ends = unseen().ends(far, USUAL, 0.05)
    assert ends.tolist() == pytest.approx([4.0 + 5.5 * math.log(20 / 4), 4.0 + 4.0 * math.log(20 / 5)])
    for divergence, end in zip(far, ends.tolist(), strict=True):
        assert chance(divergence, end) == pytest.approx(0.05)


def test_many_groups_leave_what_is_usual() -> None:
    count = 40
    many = Unseen(np.arange(count), np.zeros(count), np.full(count, 3.0), math.inf)
    assert many.ends(np.array([-1.0]), USUAL[:1], 0.05).tolist() == [4.0]


def test_no_loss_is_beyond_what_the_metric_allows() -> None:
    far = np.array([0.5, -2.0])
    assert unseen(9.0).ends(far, USUAL, 0.05).tolist() == [9.0, 9.0]
    assert unseen(3.0).ends(far, USUAL, 0.05).tolist() == USUAL.tolist()  # What was measured is not cut.
    assert chance(0.5, 9.0, most=9.0) == 0.0


def test_groups_that_lost_nothing_threaten_with_nothing() -> None:
    harmless = Unseen(GROUPS, DIVERGENCES, np.zeros(7), math.inf)
    assert harmless.ends(np.array([0.0, -4.0]), USUAL, 0.05) == pytest.approx(USUAL)
