from __future__ import annotations

import itertools
import math
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial, sem

from autoselect.scoring import paired
from autoselect.scoring.mean_bounds import largest_difference, upper_bound
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import paired_drop, resampled_drops, samples_needed

ACCURACY = make_metric("accuracy")
ERROR = make_metric("mae")
F1 = make_metric("f1_macro")


def column(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def hits(count: int, losses: int, wins: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a model that misses ``losses`` samples that the reference hits, and hits ``wins`` that it misses."""
    ours, theirs = np.ones(count), np.ones(count)
    ours[:losses], theirs[losses : losses + wins] = 0.0, 0.0
    return column(ours), column(theirs)


def pairs(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    return np.stack([labels, np.where(rng.random(count) < 0.7, labels, rng.integers(3, size=count))], 1) * 1.0


# --------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("tail", [0.05, 0.005])
def test_a_bound_is_the_quantile_of_randomly_weighted_means(tail: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=24)
    weights = rng.dirichlet(np.ones(25), 200_000)
    drawn = np.quantile(weights @ np.append(values, 20.0), 1.0 - tail)
    assert upper_bound(values, 20.0, tail) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize(("ones", "count"), [(0, 24), (1, 24), (5, 250), (249, 250)])
def test_of_hits_and_misses_it_is_clopper_and_pearsons(ones: int, count: int) -> None:
    expected = binomtest(ones, count, alternative="less").proportion_ci(0.95, method="exact").high
    values = np.arange(count) < ones
    assert upper_bound(values.astype(float), 1.0, 0.05) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("spread", [1e-12, 1e-6, 1.0])
def test_a_bound_moves_with_its_values_however_close_they_are(spread: float) -> None:
    """Close to float, dB of one model differ in the last digits only."""
    values = spread * np.random.default_rng(0).random(9)
    apart = upper_bound(200.0 + values, 200.0 + 2.0 * spread, 0.05) - 200.0
    assert apart == pytest.approx(upper_bound(values, 2.0 * spread, 0.05), rel=1e-6, abs=1e-13)


def test_what_was_not_seen_is_further_out_the_less_was_seen() -> None:
    seen = [np.array([0.5] * k + [0.0] * (20 - k)) for k in (0, 1, 2, 10)]
    assert [largest_difference(d, 3.0, 0.05) for d in seen] == pytest.approx(
        [3.0, 3.0, 0.5 * math.sqrt(20), 0.5 * 20**0.1]
    )


# ----------------------------------------------------------------------------------------------- hits


def test_where_no_sample_differs_the_rule_of_three_bounds_the_drop() -> None:
    found = paired_drop(ACCURACY, *hits(250, 0, 0))
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 250))
    assert (found.drop, found.error, found.low) == (0.0, 1 / 250, -found.high)


@pytest.mark.parametrize("count", [24, 50, pytest.param(250, marks=pytest.mark.slow)])
def test_the_intervals_of_hits_cover_whatever_differs(count: int) -> None:
    """Exactly: by the chances of all outcomes."""
    most = 20 + count * 9 // 40
    outcomes = [(b, c) for b, c in itertools.product(range(most), repeat=2) if b + c <= min(count, most)]
    found = {outcome: paired_drop(ACCURACY, *hits(count, *outcome)) for outcome in outcomes if sum(outcome) <= count}
    for discordance, lost in itertools.product([0.01, 0.02, 0.05, 0.1, 0.2], [0.0, 0.1, 0.5, 0.75, 1.0]):
        lose, win = discordance * lost, discordance * (1 - lost)
        chances = multinomial.pmf([(b, c, count - b - c) for b, c in outcomes], count, [lose, win, 1 - lose - win])
        true = lose - win
        assert chances.sum() > 0.999
        for covered in (
            [found[o].low - 1e-9 <= true <= found[o].high + 1e-9 for o in outcomes],
            [true <= found[o].bound + 1e-9 for o in outcomes],
        ):
            assert chances @ np.array(covered) / chances.sum() >= 0.95


# ---------------------------------------------------------------------------------------------- means

DIFFERENCES = {
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0, 0.94),
    "heavy tails": (lambda rng, size: rng.standard_t(3, size), 0.0, 0.95),
    "a tenth differs": (lambda rng, size: (rng.random(size) < 0.1) * rng.exponential(size=size), 0.1, 0.95),
    "log-normal": (lambda rng, size: rng.lognormal(size=size), math.exp(0.5), 0.92),
}
"""Their mean, and how often the interval holds it at least."""


@pytest.mark.parametrize(("draw", "mean", "least"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_the_intervals_of_skewed_means_cover(draw: Any, mean: float, least: float) -> None:
    rng = np.random.default_rng(1)
    zeros = column(np.linspace(0.0, 4.0, 24))
    found = [paired_drop(ERROR, zeros + column(draw(rng, 24)), zeros) for _ in range(600)]
    assert np.mean([one.low <= mean <= one.high for one in found]) >= least
    assert np.mean([mean <= one.bound for one in found]) >= 0.9


def test_the_error_of_a_mean_by_hand() -> None:
    # Differences 1, 0, 0, -1: variance 2/3, over 4 samples.
    assert paired_drop(ACCURACY, *hits(4, 1, 1)).error == pytest.approx(math.sqrt(2 / 3 / 4))


def test_pairing_takes_out_what_both_share() -> None:
    rng = np.random.default_rng(3)
    hard = rng.random(100) * 100
    found = paired_drop(ERROR, column(hard + rng.normal(0, 0.1, 100)), column(hard))
    assert found.error == pytest.approx(0.01, rel=0.3)
    assert found.high - found.low < 0.06


def outputs(values: np.ndarray) -> np.ndarray:
    """Rows of a user's function of one number a sample, whose targets are 0."""
    metric = make_metric(absolute_error, direction="minimize")
    return np.array([metric.observe({"y": np.array([[value]])}, np.zeros(1), None) for value in values])


def absolute_error(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(np.abs(y_true.ravel() - y_pred.ravel()).mean())


@pytest.mark.parametrize("differing", [1, 2, 10])
def test_a_mean_is_bounded_alike_whoever_wrote_it(differing: int) -> None:
    """Pseudo-values of a mean are its rows but for rounding, by which no sample comes to differ."""
    theirs = np.random.default_rng(1).random(100) * 10.0
    ours = theirs + np.where(np.arange(100) < differing, 0.1, 0.0)
    own = paired_drop(make_metric(absolute_error, direction="minimize"), outputs(ours), outputs(theirs))
    assert astuple(own) == pytest.approx(astuple(paired_drop(ERROR, column(ours), column(theirs))), rel=1e-6)


def test_samples_of_equal_answers_do_not_count_as_differing() -> None:
    """F1 gives all samples other pseudo-values where one is answered otherwise."""
    rows = pairs(0, 60)
    others = rows.copy()
    others[0, 1] = (rows[0, 1] + 1) % 3
    shown = paired._evidence(F1, others, rows)
    assert shown is not None
    assert (np.count_nonzero(shown.differences), np.count_nonzero(shown.differs)) == (60, 1)


SAME = {"errors": (ERROR, column([0.5, 2.5, 1.0])), "all zero": (ERROR, column([0.0] * 5)), "F1": (F1, pairs(0, 20))}


@pytest.mark.parametrize(("metric", "rows"), SAME.values(), ids=SAME)
def test_equal_rows_leave_doubt(metric: Any, rows: np.ndarray) -> None:
    found = paired_drop(metric, rows, rows)
    assert found.drop == 0.0
    assert found.error > 0.0
    assert found.low < 0.0 < found.bound < found.high


# --------------------------------------------------------------------------------- scores that are no means


def mean_of(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(y_pred.mean())


def rows_of(metric: Any, values: np.ndarray, labels: np.ndarray | None = None) -> list[np.ndarray]:
    labels = np.zeros(len(values)) if labels is None else labels
    return [metric.observe({"out": np.array([[v]])}, int(y), None) for v, y in zip(values, labels, strict=True)]


@pytest.mark.parametrize("count", [60, 330])
def test_a_function_that_is_a_mean_gets_a_means_error(count: int) -> None:
    rng = np.random.default_rng(4)
    ours, theirs = rng.random(count), rng.random(count)
    metric = make_metric(mean_of, direction="maximize")
    found = paired_drop(metric, rows_of(metric, ours), rows_of(metric, theirs))
    assert found.drop == pytest.approx(float(theirs.mean() - ours.mean()))
    assert found.error == pytest.approx(sem(ours - theirs), rel=0.15 if count > 200 else 1e-6)


def f1(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(2 * np.sum(y_true * y_pred[:, 0]) / max(np.sum(y_true) + np.sum(y_pred), 1))


def test_the_intervals_of_f1_cover() -> None:
    """Of a model that finds 75 of 100 against one that finds 90, both with an answer in ten wrong."""
    metric, rng = make_metric(f1, direction="maximize"), np.random.default_rng(5)
    true, held = 2 * 0.9 / (1 + 0.9 + 0.1) - 2 * 0.75 / (1 + 0.75 + 0.1), []
    for _ in range(200):
        label = rng.random(50) < 0.5
        sides = [(label & (rng.random(50) < recall)) | (~label & (rng.random(50) < 0.1)) for recall in (0.75, 0.9)]
        rows = [rows_of(metric, side * 1.0, label) for side in sides]
        found = paired_drop(metric, *rows)
        held.append(found.low <= true <= found.high)
    assert np.mean(held) >= 0.94


def test_a_metric_that_is_undefined_without_a_sample_says_nothing() -> None:
    def only_of_all(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return 1.0 if len(y_true) == 8 else math.nan

    metric = make_metric(only_of_all, direction="maximize")
    rows = rows_of(metric, np.arange(8.0))
    assert all(math.isnan(value) for value in astuple(paired_drop(metric, rows, rows)))
    assert math.isnan(samples_needed(metric, rows, allowed=0.1))


# ------------------------------------------------------------------------------------------------ laws

TWO_SIDES = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(TWO_SIDES)
def test_swapping_the_two_negates(sides: list[tuple[int, int]]) -> None:
    ours, theirs = (column(side) for side in zip(*sides, strict=True))
    found, swapped = paired_drop(ERROR, ours, theirs), paired_drop(ERROR, theirs, ours)
    assert (swapped.drop, swapped.error) == (-found.drop, found.error)
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


@settings(max_examples=60, deadline=None)
@given(TWO_SIDES, st.integers(2, 50))
def test_fewer_samples_and_more_comparisons_are_wider(sides: list[tuple[int, int]], comparisons: int) -> None:
    ours, theirs = (column(side) for side in zip(*sides, strict=True))
    found = paired_drop(ERROR, ours, theirs)
    assert found.low - 1e-9 <= found.drop <= found.bound <= found.high + 1e-9
    more = paired_drop(ERROR, np.tile(ours, (3, 1)), np.tile(theirs, (3, 1)))
    assert more.bound <= found.bound + 1e-9
    together = paired_drop(ERROR, ours, theirs, comparisons=comparisons)
    assert together.low <= found.low + 1e-9
    assert found.high <= together.high + 1e-9
    assert together.bound == found.bound


def test_the_direction_decides_what_is_a_loss() -> None:
    ours, theirs = hits(50, 5, 0)
    assert paired_drop(ACCURACY, ours, theirs).drop == pytest.approx(0.1)
    assert paired_drop(ERROR, ours, theirs).drop == pytest.approx(-0.1)


# --------------------------------------------------------------------------------------- how many samples


def test_how_many_samples_it_takes_where_nothing_differs() -> None:
    rows = hits(250, 0, 0)[0]
    assert samples_needed(ACCURACY, rows, allowed=0.01) == math.ceil(math.log(0.05) / math.log(0.99))


def test_a_model_that_differs_needs_more_samples_and_gets_what_it_was_told() -> None:
    sides = hits(250, 6, 4)
    needed = samples_needed(ACCURACY, *sides, allowed=0.02)
    times = needed / 250
    there = hits(int(needed), round(6 * times), round(4 * times))
    assert paired_drop(ACCURACY, *there).bound == pytest.approx(0.02, abs=0.001)
    assert 250 < samples_needed(ACCURACY, *sides, allowed=0.02, balanced=True) < needed


def test_no_number_of_samples_makes_a_drop_smaller() -> None:
    assert samples_needed(ACCURACY, *hits(100, 5, 0), allowed=0.05) == math.inf
    assert samples_needed(ACCURACY, *hits(100, 5, 0), allowed=0.05, balanced=True) < math.inf


# ------------------------------------------------------------------------------------------ resamples


def test_resamples_vary_as_much_as_the_error_says_and_their_bounds_with_them() -> None:
    sides = hits(250, 12, 5)
    found = paired_drop(ACCURACY, *sides)
    drops, errors, bounds = resampled_drops(ACCURACY, *sides, resamples=400).T
    assert drops.mean() == pytest.approx(found.drop, abs=3 * found.error / 20)
    assert drops.std() == pytest.approx(found.error, rel=0.15)
    assert bounds.std() > 0.8 * drops.std()
    assert np.all(bounds > drops)
    assert errors.mean() == pytest.approx(found.error, rel=0.05)


def test_resamples_are_the_same_for_all_models() -> None:
    ours, theirs = hits(100, 8, 3)
    one, other = (resampled_drops(ACCURACY, rows, theirs, resamples=50) for rows in (ours, ours.copy()))
    assert np.array_equal(one, other)
    swapped = resampled_drops(ACCURACY, theirs, ours, resamples=50)
    assert swapped[:, 0] == pytest.approx(-one[:, 0])


def test_a_score_that_is_no_mean_is_resampled_by_its_pseudo_values() -> None:
    ours, theirs = pairs(1, 300), pairs(2, 300)
    ours[:, 0] = theirs[:, 0]
    drops = resampled_drops(F1, ours, theirs, resamples=400)[:, 0]
    rng = np.random.default_rng(7)
    exact = [F1.summarise(theirs[i]) - F1.summarise(ours[i]) for i in (rng.integers(300, size=300) for _ in range(400))]
    assert drops.mean() == pytest.approx(np.mean(exact), abs=0.1 * np.std(exact))
    assert drops.std() == pytest.approx(np.std(exact), rel=0.15)


def test_what_a_score_is_without_each_sample_is_worked_out_once_for_each_model() -> None:
    calls = 0

    def f1(labels: np.ndarray, answers: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return float(np.mean(labels == answers.ravel()))

    metric = make_metric(f1, direction="maximize")
    rows = [np.stack([metric.observe({"y": a[None]}, x, None) for x, a in pairs(seed, 40)]) for seed in (1, 2, 3)]
    for ours in rows[1:]:
        paired_drop(metric, ours, rows[0])
        samples_needed(metric, ours, rows[0], allowed=0.5)
        resampled_drops(metric, ours, rows[0], resamples=10)
    distinct = sum(len(np.unique(one, axis=0)) for one in rows)
    assert distinct <= calls < distinct + 30


def labelled(count: int, classes: int = 4) -> np.ndarray:
    """Rows of a model that is always right, with classes of one size."""
    return np.stack([np.arange(count) % classes] * 2, axis=1).astype(np.float64)


@pytest.mark.parametrize("name", ["f1_macro", "balanced_accuracy", "cohen_kappa"])
@pytest.mark.parametrize("count", [100, 600, 2400])
def test_more_samples_bound_a_score_that_is_no_mean_more_closely(name: str, count: int) -> None:
    metric, rows = make_metric(name), labelled(count)
    rows[rows == 3] = 9  # The numbers of classes that do not occur count nothing.
    found, as_a_mean = paired_drop(metric, rows, rows), 1.0 - 0.05 ** (1.0 / count)
    assert as_a_mean < found.bound < 1.5 * as_a_mean
    assert 298 <= samples_needed(metric, rows, allowed=0.01) < 400


def test_resamples_of_models_of_few_and_of_many_different_answers_are_the_same() -> None:
    metric, rng = make_metric(f1, direction="maximize"), np.random.default_rng(0)
    labels = rng.random(600) < 0.5
    answers = labels ^ (rng.random(600) < 0.2)
    few, many = (rows_of(metric, values, labels) for values in (answers, answers + 1e-9 * rng.random(600)))
    theirs = rows_of(metric, labels * 1.0, labels)
    drops = [resampled_drops(metric, ours, theirs, resamples=50)[:, 0] for ours in (few, many)]
    np.testing.assert_allclose(*drops, rtol=1e-6)


def test_a_rare_class_bounds_a_score_less_closely() -> None:
    metric, rows = make_metric("balanced_accuracy"), labelled(600)
    rows[rows[:, 0] == 3] = [[0, 0]]
    rows[:6] = 3.0
    assert paired_drop(metric, rows, rows).bound > 10 * (1.0 - 0.05 ** (1.0 / 600))


def test_no_number_of_samples_proves_a_perfect_score_by_a_function() -> None:
    """Of which nobody knows how much one sample may take from it; of one that is not perfect the samples tell."""
    metric, rng = make_metric(f1, direction="maximize"), np.random.default_rng(0)
    answers = np.where(rng.random(1000) < 0.5, 1.0, 0.0) + 1e-6 * rng.random(1000)

    def rows(labels: np.ndarray) -> np.ndarray:
        return np.stack([metric.observe({"y": a[None, None]}, x, None) for x, a in zip(labels, answers, strict=True)])

    perfect = rows(answers > 0.5)
    constant = make_metric(lambda y_true, y_pred: float(len(y_true) > 0), direction="maximize")
    assert paired_drop(constant, perfect, perfect).bound == pytest.approx(1.0 - 0.05 ** (1.0 / 200))
    assert samples_needed(constant, perfect, allowed=0.01) == math.inf
    assert samples_needed(constant, perfect, allowed=0.015) == pytest.approx(993, abs=10)
    assert paired_drop(constant, perfect[:1].repeat(1000, 0), perfect[:1].repeat(1000, 0)).bound > 0.014
    seldom = rows((answers > 0.5) ^ (rng.random(1000) < 0.1))
    bound = paired_drop(metric, seldom, seldom).bound
    assert 1000 < samples_needed(metric, seldom, allowed=0.5 * bound) < 8000


def test_one_sample_has_no_resamples() -> None:
    assert resampled_drops(ACCURACY, np.ones((1, 1)), np.ones((1, 1)), resamples=5).shape == (0, 3)


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("rows", [np.empty((0, 1)), np.ones((1, 1))], ids=["none", "one"])
def test_fewer_than_two_samples_tell_nothing(rows: np.ndarray) -> None:
    assert all(math.isnan(value) for value in astuple(paired_drop(ACCURACY, rows, rows)))


REFUSED = {
    "rows of different samples": ((column([0, 1]), column([0, 1, 1])), {}, "got 2 and 3"),
    "no comparison": (hits(9, 0, 0), {"comparisons": 0}, "at least one comparison"),
}


@pytest.mark.parametrize(("sides", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(sides: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_drop(ACCURACY, *sides, **options)
