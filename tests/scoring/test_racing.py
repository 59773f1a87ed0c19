from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.scoring.racing import (
    Race,
    Schedule,
    expected_variances,
    schedule,
    stratified_error,
    stratified_mean,
)

EASIER = np.arange(0.0, -80.0, -1.0)
"""Eighty samples, the hardest first: twenty in each stratum. The first look is after thirty."""

BY_HAND = Schedule(order=np.array([0, 1, 4, 5, 2, 3, 6, 7]), strata=np.array([0, 0, 0, 0, 1, 1, 1, 1]), looks=(4, 8))


def column(values: object) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1, 1)


# ------------------------------------------------------------------------------------------- schedules


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([-3.0, 0.0, 0.5, 7.0]) | st.floats(-9, 9), min_size=1, max_size=90), st.integers(0, 9))
def test_every_schedule_sees_every_sample_once_and_mixes_the_strata(hardness: list[float], seed: int) -> None:
    found = schedule(np.array(hardness), seed)
    assert sorted(found.order) == list(range(len(hardness)))
    assert list(found.looks) == sorted(set(found.looks))
    assert found.looks[-1] == len(hardness)
    blocks = [found.block(look) for look in range(len(found.looks))]
    assert np.concatenate(blocks).tolist() == found.order.tolist() == found.seen(len(blocks) - 1).tolist()
    sizes = np.bincount(found.strata)
    assert sizes.max() - sizes.min() <= 1
    limits = [
        (np.array(hardness)[found.strata == k].min(), np.array(hardness)[found.strata == k].max())
        for k in range(len(sizes))
    ]
    assert all(harder[0] >= easier[1] for harder, easier in itertools.pairwise(limits))
    first = np.bincount(found.strata[blocks[0]], minlength=len(sizes))
    assert len(blocks) == 1 or (first.min() >= 2 and len(first) == 4)


LOOKS = {
    "one": (1, (1,)),
    "too few for a look": (35, (35,)),
    "at least thirty": (80, (30, 45, 80)),
    "a tenth, then half as many again": (1000, (100, 150, 225, 338, 507, 761, 1000)),
}


@pytest.mark.parametrize(("count", "looks"), LOOKS.values(), ids=LOOKS)
def test_looks(count: int, looks: tuple[int, ...]) -> None:
    assert schedule(np.zeros(count), 0).looks == looks


def test_early_blocks_hold_more_of_the_harder_strata() -> None:
    found = schedule(np.arange(1000.0), 3)
    assert np.bincount(found.strata[found.seen(0)]).tolist() == [40, 30, 20, 10]
    assert found.strata[999] == 0
    assert found.strata[0] == 3


def test_seeds_decide() -> None:
    first, again, other = (schedule(EASIER, seed).order.tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("hardness", [[], [1.0, math.nan], [[1.0], [2.0]]], ids=["none", "nan", "matrix"])
def test_refuses_what_is_no_hardness(hardness: object) -> None:
    with pytest.raises(ValueError, match="finite hardness"):
        schedule(np.array(hardness), 0)


# ------------------------------------------------------------------------------------------- estimates


def test_mean_and_error_by_hand() -> None:
    rows = column([1, 0, math.nan, math.nan, 2, 4, math.nan, math.nan])
    assert stratified_mean(rows, BY_HAND, 0) == 0.5 * 0.5 + 0.5 * 3.0
    # Two samples of each stratum, of variances 0.5 and 2, with 32 more of variance 3.
    variances = (0.5 + 32 * 3) / 33, (2.0 + 32 * 3) / 33
    error = stratified_error(rows, BY_HAND, 0, np.array([3.0, 3.0]))
    assert error == pytest.approx(math.sqrt(sum(0.5**2 * (1 - 2 / 4) * v / 2 for v in variances)))


def test_a_stratum_without_differences_is_not_sure() -> None:
    rows = column([1, 0, math.nan, math.nan, 0, 0, math.nan, math.nan])
    sure = stratified_error(rows, BY_HAND, 0, np.array([0.0, 0.0]))
    assert sure == pytest.approx(math.sqrt(0.5**2 * 0.5 * (0.5 / 33) / 2))
    assert stratified_error(rows, BY_HAND, 0, np.array([0.0, 0.17])) > sure


def test_candidates_are_expected_to_differ_as_much_as_the_two_rivals_that_differ_most() -> None:
    level, hard, easy = (column(rows) for rows in ([1] * 8, [0, 1] * 2 + [1] * 4, [1] * 4 + [2, 1, 1, 1]))
    assert expected_variances([level, hard], BY_HAND).tolist() == [0.25, 0.0]
    assert expected_variances([level, hard, easy], BY_HAND).tolist() == [0.25, 0.1875]
    assert expected_variances([hard], BY_HAND).tolist() == [0.0, 0.0]


def test_the_estimate_is_unbiased_and_spreads_as_the_textbook_says() -> None:
    values = np.random.default_rng(0).gamma(1.0, np.linspace(5.0, 0.5, 80))
    seen = np.array([12, 9, 6, 3])
    strata = values.reshape(4, 20)
    error = math.sqrt(np.sum(0.25**2 * (1 - seen / 20) * strata.var(axis=1, ddof=1) / seen))
    found = [stratified_mean(column(values), schedule(EASIER, seed), 0) for seed in range(1000)]
    assert np.mean(found) == pytest.approx(values.mean(), abs=4 * error / math.sqrt(1000))
    assert np.std(found) == pytest.approx(error, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_nothing_is_unsure_at_the_last_look(values: list[float]) -> None:
    rows = column(values)
    made = schedule(rows[:, 0], 0)
    last = len(made.looks) - 1
    assert stratified_error(rows, made, last, np.ones(made.strata.max() + 1)) == 0.0
    assert stratified_mean(rows, made, last) == rows[:, 0].mean()


# --------------------------------------------------------------------------------------------- races

ONE_MISS = np.where(np.arange(80) == 0, 0.0, 1.0)
ALL_HITS, NO_HIT = np.ones(80), np.zeros(80)
RACES = {
    "always misses": (NO_HIT, "maximize", 0.9, True),
    "always hits": (ALL_HITS, "maximize", 1.0, False),
    "always errs": (ALL_HITS, "minimize", 0.2, True),
    "equal so far, the goal a hit away": (ALL_HITS, "maximize", 1.0 + 1 / 80, False),
    "equal so far, the goal far away": (ALL_HITS, "maximize", 1.5, True),
    "worse than its rival, but better than the goal": (ONE_MISS, "maximize", 0.9, False),
}


@pytest.mark.parametrize(("ours", "direction", "goal", "lost"), RACES.values(), ids=RACES)
def test_a_first_look(ours: np.ndarray, direction: Literal["maximize", "minimize"], goal: float, lost: bool) -> None:
    made = schedule(EASIER, 0)
    rows = column(ours)
    rows[made.order[made.looks[0] :]] = math.nan
    rivals = [column(ALL_HITS), column(ONE_MISS)]
    race = Race(made, rivals, expected_variances(rivals, made), direction, goal=goal, confidence=0.9)
    assert race.is_lost(rows, 0) is lost


def test_the_rival_that_is_most_alike_decides() -> None:
    """Beside one that answers at random nothing is sure; beside its twin the candidate's score is known."""
    made = schedule(EASIER, 0)
    rng = np.random.default_rng(2)
    ours, noise = column(rng.integers(0, 2, 80)), column(rng.integers(0, 2, 80))
    goal, expected = float(ours.mean()) + 0.06, np.full(4, 0.02)
    lost = [
        Race(made, rivals, expected, "maximize", goal=goal, confidence=0.9).is_lost(ours, 0)
        for rivals in ([noise], [ours], [noise, ours], [ours, noise])
    ]
    assert lost == [False, True, True, True]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_refuses_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        Race(schedule(np.zeros(1), 0), [column([0.0])], np.zeros(1), "minimize", goal=0.0, confidence=confidence)


def raced(differences: np.ndarray, goal: float, seed: int, confidence: float) -> tuple[bool, float]:
    """Whether a candidate of these differences of loss was dropped, and the share of samples run; hardest first.

    Its rivals are one of no loss at all, and one that differs from this one as much, on other samples as hard.
    """
    made = schedule(-np.arange(len(differences)), seed)
    shuffled = differences.reshape(-1, 10)
    other = np.random.default_rng(seed).permuted(shuffled, axis=1).reshape(-1, 1)
    rivals = [np.zeros((len(differences), 1)), other - other.mean()]
    race = Race(made, rivals[:1], expected_variances(rivals, made), "minimize", goal=goal, confidence=confidence)
    for look, seen in enumerate(made.looks[:-1]):
        if race.is_lost(column(differences), look):
            return True, seen / len(differences)
    return False, 1.0


def hits_lost(
    rng: np.random.Generator, count: int, losses: int, wins: int, steepness: tuple[float, float]
) -> np.ndarray:
    """Differences 1 and -1 among the hardest first, exp(steepness) times as frequent as among the easiest."""
    ease = np.linspace(0.0, 1.0, count)
    chances = [np.exp(-steep * ease) for steep in steepness]
    differences = np.zeros(count)
    lost = rng.choice(count, losses, replace=False, p=chances[0] / chances[0].sum())
    differences[lost], chances[1][lost] = 1.0, 0.0
    differences[rng.choice(count, wins, replace=False, p=chances[1] / chances[1].sum())] = -1.0
    return differences


STRUCTURES = {
    "both among the hard": (4.0, 4.0),
    "everywhere": (0.0, 0.0),
    "losses among the hard, wins among the easy": (8.0, -8.0),
}


SIDES = [(3, 4), (11, 12), (19, 20), (39, 40)]
"""Samples that only the rival hits, and that only the candidate hits."""


@pytest.mark.parametrize("steepness", STRUCTURES.values(), ids=STRUCTURES)
def test_a_candidate_that_just_reaches_its_goal_is_seldom_dropped(steepness: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    drawn = [hits_lost(rng, 400, *sides, steepness) for sides in SIDES * 250]
    races = [raced(d, float(d.mean()), i, 0.9)[0] for i, d in enumerate(drawn)]
    assert len(races) == 1000
    assert np.mean(races) <= 0.1


def test_errors_with_heavy_tails_keep_the_chance_too() -> None:
    rng = np.random.default_rng(2)
    scale = np.linspace(5.0, 0.5, 300)
    drawn = [rng.standard_t(4, 300) * scale for _ in range(300)]
    assert np.mean([raced(d, float(d.mean()), i, 0.8)[0] for i, d in enumerate(drawn)]) <= 0.2


SHARES = {"a fifth worse": (230, 30, 0.0, 0.12), "a tenth worse": (130, 30, 0.0, 0.2), "equal": (30, 30, 0.9, 1.0)}


@pytest.mark.parametrize(("losses", "wins", "least", "most"), SHARES.values(), ids=SHARES)
def test_share_of_samples_run(losses: int, wins: int, least: float, most: float) -> None:
    rng = np.random.default_rng(3)
    drawn = [hits_lost(rng, 1000, losses, wins, (4.0, 4.0)) for _ in range(60)]
    shares = [raced(d, 0.0, seed, 0.95)[1] for seed, d in enumerate(drawn)]
    assert least <= np.mean(shares) <= most
