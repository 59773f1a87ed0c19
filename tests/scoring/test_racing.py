from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.scoring.racing import Schedule, schedule, stratified_error, stratified_mean, verdict

EASIER = np.arange(0.0, -40.0, -1.0)
"""Forty samples, the hardest first: ten in each stratum."""

BY_HAND = Schedule(order=np.array([0, 1, 4, 5, 2, 3, 6, 7]), strata=np.array([0, 0, 0, 0, 1, 1, 1, 1]), looks=(4, 8))


def column(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


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
    "too few for a look": (18, (18,)),
    "at least sixteen": (40, (16, 24, 40)),
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
    # The values 1, 0, 2, 4 with -4 and 4: a sum of 7 and of squares 53, more than the variances of 1, 0 and of 2, 4.
    pooled = (53 - 7**2 / 6) / 5
    assert stratified_error(rows, BY_HAND, 0) == pytest.approx(math.sqrt(2 * 0.5**2 * (1 - 2 / 4) * pooled / 2))


def test_a_stratum_without_differences_is_not_sure() -> None:
    rows = column([1, 0, math.nan, math.nan, 0, 0, math.nan, math.nan])
    # The hard one: 1, 0 with -1 and 1 has the variance 11/12; all with these two 0.5667; the easy one 0, 0, -1, 1: 2/3.
    pooled = (3 - 1 / 6) / 5
    assert stratified_error(rows, BY_HAND, 0) == pytest.approx(math.sqrt(2 * 0.5**2 * 0.5 * pooled / 2))


def test_the_estimate_is_unbiased_and_spreads_as_the_textbook_says() -> None:
    values = np.random.default_rng(0).gamma(1.0, np.linspace(5.0, 0.5, 40))
    seen = np.array([6, 5, 3, 2])
    strata = values.reshape(4, 10)
    error = math.sqrt(np.sum(0.25**2 * (1 - seen / 10) * strata.var(axis=1, ddof=1) / seen))
    found = [stratified_mean(column(values), schedule(EASIER, seed), 0) for seed in range(1000)]
    assert np.mean(found) == pytest.approx(values.mean(), abs=4 * error / math.sqrt(1000))
    assert np.std(found) == pytest.approx(error, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=60))
def test_nothing_is_unsure_at_the_last_look(pairs: list[tuple[float, float]]) -> None:
    ours, rival = column([p[0] for p in pairs]), column([p[1] for p in pairs])
    made = schedule(rival[:, 0], 0)
    last = len(made.looks) - 1
    assert stratified_error(ours, made, last) == 0.0
    assert stratified_mean(ours, made, last) == ours[:, 0].mean()
    assert verdict(ours, rival, made, last, "minimize", 0.9) == (not ours[:, 0].mean() < rival[:, 0].mean())
    assert verdict(ours, rival, made, last, "maximize", 0.9) == (not ours[:, 0].mean() > rival[:, 0].mean())


# -------------------------------------------------------------------------------------------- verdicts

HITS = np.zeros(40), np.ones(40)
VERDICTS = {
    "always misses": (HITS[0], HITS[1], "maximize", True),
    "always hits": (HITS[1], HITS[0], "maximize", False),
    "always errs": (HITS[1], HITS[0], "minimize", True),
    "equal so far": (HITS[1], HITS[1], "maximize", False),
    "one miss more": (np.where(np.arange(40) == 0, 0.0, 1.0), HITS[1], "maximize", False),
}


@pytest.mark.parametrize(("ours", "rival", "direction", "dropped"), VERDICTS.values(), ids=VERDICTS)
def test_verdict_of_a_first_look(ours: np.ndarray, rival: np.ndarray, direction: str, dropped: bool) -> None:
    made = schedule(EASIER, 0)
    rows = column(ours)
    rows[made.order[made.looks[0] :]] = math.nan
    assert verdict(rows, column(rival), made, 0, direction, 0.9) is dropped  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_refuses_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        verdict(column([0.0]), column([0.0]), schedule(np.zeros(1), 0), 0, "minimize", confidence)


def raced(differences: np.ndarray, seed: int, confidence: float) -> tuple[bool, float]:
    """Whether a candidate of these differences of loss was dropped, and the share of samples run; hardest first."""
    made = schedule(-np.arange(len(differences)), seed)
    ours, rival = column(differences), np.zeros((len(differences), 1))
    for look, seen in enumerate(made.looks[:-1]):
        if verdict(ours, rival, made, look, "minimize", confidence):
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
def test_a_candidate_better_by_one_sample_is_seldom_dropped(steepness: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    races = [raced(hits_lost(rng, 400, *sides, steepness), i, 0.9)[0] for i, sides in enumerate(SIDES * 500)]
    assert len(races) == 2000
    assert np.mean(races) <= 0.1


def test_errors_with_heavy_tails_keep_the_chance_too() -> None:
    rng = np.random.default_rng(2)
    scale = np.linspace(5.0, 0.5, 300)
    drawn = [rng.standard_t(4, 300) * scale for _ in range(300)]
    assert np.mean([raced(d - d.mean() - 1e-9, i, 0.8)[0] for i, d in enumerate(drawn)]) <= 0.2


SHARES = {"a fifth worse": (230, 30, 0.0, 0.12), "a tenth worse": (130, 30, 0.0, 0.2), "equal": (30, 30, 0.9, 1.0)}


@pytest.mark.parametrize(("losses", "wins", "least", "most"), SHARES.values(), ids=SHARES)
def test_share_of_samples_run(losses: int, wins: int, least: float, most: float) -> None:
    rng = np.random.default_rng(3)
    shares = [raced(hits_lost(rng, 1000, losses, wins, (4.0, 4.0)), seed, 0.95)[1] for seed in range(60)]
    assert least <= np.mean(shares) <= most
