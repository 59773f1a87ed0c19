"""How sure a score is, from its rows of evidence; runs no model and draws nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autoselect.errors import MetricError
from autoselect.scoring.dependent import Grouping, Groups, grouping
from autoselect.scoring.mean_bounds import largest_difference, upper_bound
from autoselect.scoring.metric_base import Metric, Row, as_matrix


def confidence_interval(
    metric: Metric,
    rows: Sequence[Row] | np.ndarray,
    *,
    level: float = 0.95,
    seed: int = 0,
    groups: Groups | None = None,
) -> tuple[float, float]:
    """Bound a score by what other samples of the same kind would have given.

    Wilson's interval where the metric counts hits and every sample is a hit or a miss. For other means the bounds of
    :mod:`autoselect.scoring.mean_bounds`, with values as far from the median as the furthest one seen, and none better
    than the metric's best. Else the percentile bootstrap over samples (1000 resamples, 200 for a user's function), at
    the level that makes up for its being narrow with few samples; resamples on which a metric is undefined are left
    out. If samples have groups, means are those of the groups' parts, hits too, and whole groups are drawn
    (:mod:`autoselect.scoring.dependent`).

    Args:
        metric: The metric that made the rows.
        rows: Shape (n_samples, row_length), float64.
        level: Coverage, above 0 and below 1.
        seed: Seed of the resampling; equal seeds give equal intervals.
        groups: The group of each sample, of which only whole ones are independent; None where all samples are.

    Returns:
        Lower and upper bound in the metric's unit; (nan, nan) for fewer than two samples or groups, or
        where the metric is undefined on most resamples.

    Raises:
        ValueError: If the level is not between 0 and 1, or there are not as many groups as rows.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"expected a level above 0 and below 1, got {level}; give for example 0.95")
    together = grouping(len(rows), groups)
    if len(together.sizes) < 2:
        return math.nan, math.nan
    matrix = as_matrix(rows, metric.name)
    if together.is_each_alone and metric.counts_hits and np.isin(matrix, (0.0, 1.0)).all():
        return _wilson(matrix[:, 0], level)
    if metric.is_mean:
        return _possible(metric, *_of_mean(metric, matrix[:, 0], together, level))
    # User functions are resampled less often: their cost is unknown.
    count = 200 if metric.is_costly else 1000
    scores = _bootstrap(lambda chosen: metric.summarise(matrix[chosen]), together, count, seed)
    if scores.size <= count / 2:
        return math.nan, math.nan
    wide = _widened(level, len(together.sizes))
    low, high = np.quantile(scores, [(1.0 - wide) / 2.0, (1.0 + wide) / 2.0])
    return float(low), float(high)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Bound a median by two of the values, whatever their distribution, with a confidence of at least 95 %.

    Args:
        values: Independent of each other.

    Returns:
        The narrowest pair that is as far from either end; (nan, nan) for fewer than 6 values.
    """
    from scipy.stats import binom

    outside = int(binom.ppf(0.025, len(values), 0.5))
    if outside < 1:
        return math.nan, math.nan
    ordered = sorted(values)
    return ordered[outside - 1], ordered[-outside]


def _of_mean(metric: Metric, values: np.ndarray, together: Grouping, level: float) -> tuple[float, float]:
    """By the values, or by the parts of their groups where these depend on each other."""
    tail = (1.0 - level) / 2.0
    values = values if together.is_each_alone else together.parts(values)
    centre = float(np.median(values))
    aside = values - centre
    span = float(np.abs(aside).max())
    if metric.counts_hits and not together.is_each_alone:
        span = max(span, float(together.shares.max()))
    end = largest_difference(aside, span, tail, together.evenness * np.count_nonzero(aside))
    return centre - upper_bound(-aside, end, tail), centre + upper_bound(aside, end, tail)


def _possible(metric: Metric, low: float, high: float) -> tuple[float, float]:
    if metric.best is None:
        return low, high
    low, high = (max(low, metric.best), high) if metric.direction == "minimize" else (low, min(high, metric.best))
    return (max(low, 0.0), high) if metric.counts_hits else (low, high)


def _widened(level: float, count: int) -> float:
    """The level at which a percentile interval is as wide as Student's (Hesterberg, The American Statistician 69)."""
    from scipy.stats import norm, t

    return float(1.0 - 2.0 * norm.sf(math.sqrt(count / (count - 1)) * t.ppf((1.0 + level) / 2.0, count - 1)))


def _wilson(hits: np.ndarray, level: float) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)


def _bootstrap(score: Callable[[np.ndarray], float], together: Grouping, count: int, seed: int) -> np.ndarray:
    """Return the scores of up to ``count`` resamples, without those on which the score is undefined."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        # What a function has to warn of, it said when it scored all samples, not a thousand times here.
        warnings.simplefilter("ignore")
        return np.fromiter(_resampled(score, together, count, rng), dtype=np.float64)


def _resampled(
    score: Callable[[np.ndarray], float], together: Grouping, count: int, rng: np.random.Generator
) -> Iterator[float]:
    for _ in range(count):
        try:
            yield score(together.drawn(rng))
        except MetricError:  # For example a ROC curve on a resample of one class.
            continue
