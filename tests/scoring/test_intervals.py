from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, sem

from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import paired_drop

ACCURACY = make_metric("accuracy")
ERROR = make_metric("mae")
F1 = make_metric("f1_macro")


def column(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def wilson(hits: int, count: int, level: float) -> tuple[float, float]:
    """The closed form of Wilson (1927)."""
    z = norm.ppf((1 + level) / 2)
    centre = (hits + z**2 / 2) / (count + z**2)
    half = z / (count + z**2) * math.sqrt(hits * (count - hits) / count + z**2 / 4)
    return centre - half, centre + half


SHARES = {"most": (90, 100, 0.95), "none": (0, 10, 0.95), "all": (10, 10, 0.95), "narrow": (5, 20, 0.8)}


@pytest.mark.parametrize(("hits", "count", "level"), SHARES.values(), ids=SHARES)
def test_shares_get_wilsons_interval(hits: int, count: int, level: float) -> None:
    rows = column([1.0] * hits + [0.0] * (count - hits))
    assert confidence_interval(ACCURACY, rows, level=level) == pytest.approx(wilson(hits, count, level), abs=1e-9)


def test_wilson_as_published() -> None:
    # Newcombe (1998), table I: 81 of 263, method 3.
    low, high = confidence_interval(ACCURACY, column([1.0] * 81 + [0.0] * 182))
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


@pytest.mark.parametrize("name", ["kl_divergence", "mse", "mae"])
@pytest.mark.parametrize("values", [[0.0] * 20, [0.0] * 10 + [1.0] * 10], ids=["zeros", "zeros and ones"])
def test_only_shares_of_hits_get_wilsons_interval(name: str, values: list[float]) -> None:
    """An error that happens to be 0 or 1 on every sample is no count of hits: its interval is a mean's."""
    low, high = confidence_interval(make_metric(name), column(values))
    assert (low, high) != pytest.approx(wilson(int(sum(values)), 20, 0.95), abs=1e-9)
    assert low <= np.mean(values) <= high
    assert len(set(values)) > 1 or low == high == 0.0


@pytest.mark.parametrize("name", ["accuracy", "agreement", "kl_divergence", "mae", "mse", "top5_accuracy"])
def test_no_interval_passes_the_best_value_that_there_can_be(name: str) -> None:
    """Rows of dense outputs, which are no hits and misses, and errors; most samples are as good as can be."""
    metric = make_metric(name)
    best, worst = (0.0, 1.0) if metric.direction == "minimize" else (1.0, 0.0)
    low, high = confidence_interval(metric, column([best] * 14 + [(best + worst) / 2.0]))
    assert 0.0 <= low < high <= 1.0
    assert best in (low, high)


def test_of_many_samples_a_mean_is_close_to_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, size=400)
    low, high = confidence_interval(ERROR, column(values))
    half = norm.ppf(0.975) * sem(values)
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)


def test_few_skewed_errors_are_covered() -> None:
    rng = np.random.default_rng(6)
    found = [confidence_interval(ERROR, column(rng.exponential(size=24))) for _ in range(400)]
    assert np.mean([low <= 1.0 <= high for low, high in found]) >= 0.94


@pytest.mark.slow
def test_resamples_of_few_samples_are_not_too_narrow() -> None:
    """A plain percentile interval of ten samples covers 89 times in a hundred."""

    def mean(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return float(y_pred.mean())

    metric, rng = make_metric(mean, direction="maximize"), np.random.default_rng(7)
    drawn = [[metric.observe({"out": v.reshape(1, 1)}, 0, None) for v in rng.normal(size=10)] for _ in range(500)]
    found = [confidence_interval(metric, rows) for rows in drawn]
    assert np.mean([low <= 0.0 <= high for low, high in found]) >= 0.915


def test_a_function_that_warns_is_not_heard_at_each_resample() -> None:
    def mean(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        warnings.warn("Few samples.", stacklevel=2)
        return float(y_pred.mean())

    metric, values = make_metric(mean, direction="maximize"), np.random.default_rng(8).normal(size=20)
    rows, better = (
        [metric.observe({"out": v.reshape(1, 1)}, 0, None) for v in row] for row in (values, values + np.arange(20))
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        confidence_interval(metric, rows)
        paired_drop(metric, rows, better)
    assert len(heard) == 2  # The scores of both models on all samples.


def test_a_higher_level_is_wider() -> None:
    values = column(np.random.default_rng(2).random(50))
    narrow, wide = (confidence_interval(ERROR, values, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def pairs(seed: int, count: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    return np.stack([labels, np.where(rng.random(count) < 0.7, labels, rng.integers(3, size=count))], 1) * 1.0


def test_bootstrap_is_deterministic_and_holds_the_score() -> None:
    rows = pairs(0)
    first = confidence_interval(F1, rows)
    assert first == confidence_interval(F1, list(rows))
    assert first != confidence_interval(F1, rows, seed=1)
    assert first[0] < F1.summarise(rows) < first[1]


def test_a_user_function_is_called_two_hundred_times() -> None:
    calls: list[int] = []

    def median(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        calls.append(len(y_true))
        return float(np.median(y_pred))

    metric = make_metric(median, direction="maximize")
    rows = [metric.observe({"out": np.array([[value]])}, 0, None) for value in range(9)]
    low, high = confidence_interval(metric, rows)
    assert calls == [9] * 200
    assert 0.0 <= low <= 4.0 <= high <= 8.0


def auc_rows(positives: int, negatives: int):  # type: ignore[no-untyped-def]
    metric = make_metric("sklearn.metrics:roc_auc_score", direction="maximize")
    labels = [1] * positives + [0] * negatives
    rng = np.random.default_rng(0)
    return metric, [metric.observe({"out": rng.random((1, 1))}, label, None) for label in labels]


def test_resamples_without_a_score_are_left_out() -> None:
    metric, rows = auc_rows(2, 20)
    low, high = confidence_interval(metric, rows)
    assert 0.0 <= low < high <= 1.0


def test_a_score_that_is_seldom_defined_has_no_interval() -> None:
    def only_of_all(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return 1.0 if len(set(y_true)) == 8 else math.nan

    metric = make_metric(only_of_all, direction="maximize")
    rows = [metric.observe({"out": np.zeros((1, 1))}, label, None) for label in range(8)]
    assert all(math.isnan(bound) for bound in confidence_interval(metric, rows))


@pytest.mark.parametrize("rows", [[], [np.array([1.0])]], ids=["none", "one"])
def test_fewer_than_two_samples_tell_nothing(rows: list[np.ndarray]) -> None:
    assert all(math.isnan(bound) for bound in confidence_interval(ACCURACY, rows))


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_refuses_a_level_that_is_none(level: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        confidence_interval(ACCURACY, column([0.0, 1.0]), level=level)


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=2, max_size=50))
def test_wilson_holds_the_share_and_stays_between_zero_and_one(hits: list[bool]) -> None:
    low, high = confidence_interval(ACCURACY, column(hits))
    assert 0.0 <= low <= np.mean(hits) + 1e-12
    assert np.mean(hits) - 1e-12 <= high <= 1.0
