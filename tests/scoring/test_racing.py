from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.scoring.racing import Race, Schedule, schedule, stratified_mean

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


LOOKS = {
    "one": (1, (1,)),
    "too few for a look": (35, (35,)),
    "at least thirty": (80, (30, 45, 80)),
    "a tenth, then half as many again": (1000, (100, 150, 225, 338, 507, 761, 1000)),
}


@pytest.mark.parametrize(("count", "looks"), LOOKS.values(), ids=LOOKS)
def test_looks(count: int, looks: tuple[int, ...]) -> None:
    assert schedule(np.zeros(count), 0).looks == looks


def test_harder_samples_come_sooner_by_their_shares() -> None:
    assert schedule(np.arange(1000.0), 3).strata[[999, 0]].tolist() == [0, 3]
    firsts = [found.strata[found.order[0]] for found in (schedule(np.arange(40.0), seed) for seed in range(3600))]
    assert np.bincount(firsts) == pytest.approx([1200, 1000, 800, 600], abs=120)


def test_seeds_decide() -> None:
    first, again, other = (schedule(EASIER, seed).order.tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("hardness", [[], [1.0, math.nan], [[1.0], [2.0]]], ids=["none", "nan", "matrix"])
def test_refuses_what_is_no_hardness(hardness: object) -> None:
    with pytest.raises(ValueError, match="finite hardness"):
        schedule(np.array(hardness), 0)


# ------------------------------------------------------------------------------------------- estimates


def test_mean_by_hand() -> None:
    rows = column([1, 0, math.nan, math.nan, 2, 4, math.nan, math.nan])
    assert stratified_mean(rows, BY_HAND, 0) == 0.5 * 0.5 + 0.5 * 3.0


def test_a_stratum_not_seen_counts_as_what_was() -> None:
    rows = column([1, 2, 3, math.nan, math.nan, math.nan, math.nan, math.nan])
    only_hard = Schedule(order=np.arange(8), strata=BY_HAND.strata, looks=(3, 8))
    assert stratified_mean(rows, only_hard, 0) == 2.0


def test_the_estimate_is_unbiased() -> None:
    values = np.random.default_rng(0).gamma(1.0, np.linspace(5.0, 0.5, 120))
    found = [stratified_mean(column(values), schedule(np.arange(0.0, -120.0, -1.0), seed), 0) for seed in range(1000)]
    assert np.mean(found) == pytest.approx(values.mean(), abs=4 * np.std(found) / math.sqrt(1000))
    assert np.std(found) < 1.1 * values.std() / math.sqrt(30)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60))
def test_nothing_is_unsure_at_the_last_look(values: list[float]) -> None:
    made = schedule(np.array(values), 0)
    assert stratified_mean(column(values), made, len(made.looks) - 1) == column(values)[:, 0].mean()


# --------------------------------------------------------------------------------------------- races

ONE_MISS = np.where(np.arange(80) == 0, 0.0, 1.0)
EACH_FIFTH = np.where(np.arange(80) % 5 == 0, 0.0, 1.0)
ALL_HITS, NO_HIT = np.ones(80), np.zeros(80)
RACES = {
    "always misses": (NO_HIT, "maximize", 0.9, True),
    "always hits": (ALL_HITS, "maximize", 1.0, False),
    "always errs": (ALL_HITS, "minimize", 0.2, True),
    "as its rival so far, the goal a hit away": (EACH_FIFTH, "maximize", 0.8 + 1 / 80, False),
    "as its rival so far, the goal far away": (EACH_FIFTH, "maximize", 0.99, True),
    "the goal out of reach": (ALL_HITS, "maximize", 1.0 + 1 / 80, True),
    "worse than its rival, but better than the goal": (ONE_MISS, "maximize", 0.7, False),
}


@pytest.mark.parametrize(("ours", "direction", "goal", "lost"), RACES.values(), ids=RACES)
def test_a_first_look(ours: np.ndarray, direction: Literal["maximize", "minimize"], goal: float, lost: bool) -> None:
    made = schedule(EASIER, 1)
    rows = column(ours)
    rows[made.order[made.looks[0] :]] = math.nan
    rivals = [column(EACH_FIFTH), column(ONE_MISS)]
    assert Race(made, rivals, direction, goal=goal, confidence=0.9).is_lost(rows, 0) is lost


@pytest.mark.parametrize(("best", "lost"), [(1.0, False), (None, True)], ids=["hits are known", "as seen"])
def test_a_hit_that_nobody_had_so_far_can_still_come_where_hits_are_known(best: float | None, lost: bool) -> None:
    """Neither the candidate nor its rival has hit, and one hit would do; unless no sample can be hit."""
    race = Race(schedule(EASIER, 1), [column(NO_HIT)], "maximize", goal=1 / 80, confidence=0.9, best=best)
    assert race.is_lost(column(NO_HIT), 0) is lost


@pytest.mark.parametrize("seed", range(6))
def test_a_candidate_is_believed_to_do_as_its_rival_before_samples_say_so(seed: int) -> None:
    """So that of a twin thirty samples tell, in whatever order, that it does not get nine further hits of eighty."""
    race = Race(schedule(EASIER, seed), [column(EACH_FIFTH)], "maximize", goal=0.8 + 9 / 80, confidence=0.9, best=1.0)
    assert race.is_lost(column(EACH_FIFTH), 0)


def test_the_rival_that_is_most_alike_decides() -> None:
    """Beside one that answers at random nothing is sure; beside its twin the candidate's score is known."""
    made = schedule(np.arange(0.0, -400.0, -1.0), 0)
    rng = np.random.default_rng(2)
    ours, noise = column(rng.random(400) < 0.9), column(rng.random(400) < 0.9)
    goal = float(ours.mean()) + 0.06
    lost = [
        Race(made, rivals, "maximize", goal=goal, confidence=0.9).is_lost(ours, 2)
        for rivals in ([noise], [ours], [noise, ours], [ours, noise])
    ]
    assert lost == [False, True, True, True]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_refuses_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        Race(schedule(np.zeros(1), 0), [column([0.0])], "minimize", goal=0.0, confidence=confidence)


def raced(own: np.ndarray, rivals: list[np.ndarray], goal: float, seed: int, confidence: float) -> tuple[bool, float]:
    """Whether a candidate of these losses was dropped, and the share of samples run; hardest first."""
    made = schedule(-np.arange(len(own)), seed)
    race = Race(made, [column(r) for r in rivals], "minimize", goal=goal, confidence=confidence)
    for look, seen in enumerate(made.looks[:-1]):
        if race.is_lost(column(own), look):
            return True, seen / len(own)
    return False, 1.0


def turned(rng: np.random.Generator, misses: np.ndarray, count: int, steepness: float) -> np.ndarray:
    """Misses with so many samples turned round, exp(steepness) times as often among the hardest as the easiest."""
    chances = np.exp(-steepness * np.linspace(0.0, 1.0, len(misses)))
    places = rng.choice(len(misses), count, replace=False, p=chances / chances.sum())
    found = misses.copy()
    found[places] = 1.0 - found[places]
    return found


def field(rng: np.random.Generator, count: int, own: int, apart: int, steepness: float = 4.0) -> list[np.ndarray]:
    """A candidate, and three rivals that differ from it on ``own`` samples and among themselves on ``apart``."""
    misses = (rng.random(count) < 0.15).astype(np.float64)
    common = turned(rng, misses, own, steepness)
    return [misses, *(turned(rng, common, apart, steepness) for _ in range(3))]


FIELDS = {
    "one sample differs, rivals agree": (1, 0, 4.0),
    "a few differ, rivals nearly agree": (4, 1, 4.0),
    "a few easy ones differ, rivals nearly agree": (4, 1, -4.0),
    "many differ, rivals nearly agree": (40, 1, 4.0),
    "many differ anywhere, and the rivals": (80, 8, 0.0),
}


@pytest.mark.parametrize(("own", "apart", "steepness"), FIELDS.values(), ids=FIELDS)
def test_no_candidate_that_just_reaches_its_goal_is_often_dropped(own: int, apart: int, steepness: float) -> None:
    """Each of them over many orders: 200 races at a chance of a tenth may show 32 drops (3 in 1000 more)."""
    rng = np.random.default_rng(1)
    for _ in range(4):
        candidate, *rivals = field(rng, 400, own, apart, steepness)
        drops = [raced(candidate, rivals, float(candidate.mean()), seed, 0.9)[0] for seed in range(200)]
        assert sum(drops) <= 32


def test_errors_with_heavy_tails_keep_the_chance_too() -> None:
    rng = np.random.default_rng(2)
    scale = np.linspace(5.0, 0.5, 300)
    for _ in range(4):
        rivals = [np.abs(rng.standard_t(3, 300)) * scale for _ in range(2)]
        candidate = np.abs(rivals[0] + rng.standard_t(3, 300) * scale / 4)
        drops = [raced(candidate, rivals, float(candidate.mean()), seed, 0.8)[0] for seed in range(100)]
        assert sum(drops) <= 31


SHARES = {"a fifth worse": (0.2, 0.0, 0.12), "a twentieth worse": (0.05, 0.0, 0.3), "equal": (0.0, 0.9, 1.0)}


@pytest.mark.parametrize(("gap", "least", "most"), SHARES.values(), ids=SHARES)
def test_share_of_samples_run(gap: float, least: float, most: float) -> None:
    rng = np.random.default_rng(3)
    fields = [field(rng, 1000, 60, 20) for _ in range(40)]
    shares = [raced(own, rivals, float(own.mean()) - gap, i, 0.95)[1] for i, (own, *rivals) in enumerate(fields)]
    assert least <= np.mean(shares) <= most
