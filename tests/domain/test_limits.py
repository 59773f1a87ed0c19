"""What would be recommended at each allowed drop, and one member for several targets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoselect.domain.limits import allowed_drops, limits, worst_ratios
from autoselect.domain.rule import Rule, Standing

RULE = Rule(allowed_drop=0.01, float_penalty=80.0, float_size_bytes=100_000)


def member(id_: str, drop: float, penalty: float, spread: float = 0.001) -> Standing:
    return Standing(id=id_, drop=drop, bound=drop + spread, fidelity=30.0, size_bytes=40_000, penalty=penalty)


SURE, CHEAP = member("sure", 0.0, 40.0), member("cheap", 0.02, 2.0)


def test_a_looser_limit_recommends_what_costs_less() -> None:
    found = limits([SURE, CHEAP], [], RULE, [0.0, 0.01, 0.03])
    assert [limit.id for limit in found] == ["sure", "sure", "cheap"]
    assert [limit.penalty for limit in found] == [40.0, 40.0, 2.0]
    assert found[-1].chance_to_break < 0.01
    assert {limit.resampled for limit in found} == {None}


def test_resamples_say_how_sure_each_choice_is() -> None:
    unlucky = member("cheap", 0.05, 2.0)
    (found,) = limits([SURE, CHEAP], [[SURE, CHEAP]] * 3 + [[SURE, unlucky]], RULE, [0.03])
    assert (found.id, found.resampled, found.penalty_low, found.penalty_high) == ("cheap", 0.75, 2.0, 40.0)


@pytest.mark.parametrize(
    ("metric", "float_score", "last"),
    [("accuracy", 0.9, 0.05), ("mse", 2.0, 0.1), ("psnr", 30.0, 1.5), ("sqnr_db", 200.0, 180.0)],
)
def test_drops_go_to_five_points_or_five_times_the_usual(metric: str, float_score: float, last: float) -> None:
    found = allowed_drops(metric, float_score, 0.0123)
    assert (found[0], found[-1]) == (0.0, pytest.approx(last))
    assert 0.0123 in found
    assert list(found) == sorted(set(found))


@pytest.mark.parametrize("most", [0.0, 0.005, 0.2])
def test_no_drop_is_above_the_limit_of_the_user(most: float) -> None:
    found = allowed_drops("accuracy", 0.9, most, most)
    assert found[-1] == most
    assert set(found) - {most} == {drop for drop in allowed_drops("accuracy", 0.9, 0.0) if drop < most}


def test_the_runs_own_drop_is_looked_at_once() -> None:
    """1 % of 26.1 is a step of the grid, but for its last bits."""
    own = 0.01 * 26.0583185502865
    found = allowed_drops("psnr", 26.0583185502865, own)
    assert own in found
    assert min(np.diff(found)) > 0.9 * found[1]


def test_the_worst_ratio_is_that_of_the_target_where_a_member_fares_worst() -> None:
    costs = {"a": {"x": 1.0, "y": 2.0, "z": math.inf}, "b": {"x": 9.0, "y": 4.0, "z": 3.0}}
    assert worst_ratios(costs) == {"x": 3.0, "y": 2.0, "z": math.inf}


def test_a_target_that_takes_no_member_counts_for_none() -> None:
    costs = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": math.inf, "y": math.inf}}
    assert worst_ratios(costs) == {"x": 1.0, "y": 2.0}
