"""How much worse a model scores than another on the same samples, and how sure that is; runs no model.

Samples are paired, so that what is hard for both models does not count as noise. A score that is no mean of its rows
becomes one by the jackknife: its pseudo-values (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993,
chapter 11) are what each sample adds to it. If samples have groups, all this is said of groups
(:mod:`autoselect.scoring.dependent`).
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoselect.domain.objectives import drop_from
from autoselect.errors import MetricError
from autoselect.scoring.dependent import Grouping, Groups, grouping
from autoselect.scoring.mean_bounds import largest_difference, upper_bound
from autoselect.scoring.metric_base import Metric, Row, as_matrix

Rows = Sequence[Row] | np.ndarray

_TAIL = 0.05
"""Intervals and bounds hold with a confidence of 95 %."""
_LATELY: dict[tuple[Metric, tuple[int, ...], bytes], np.ndarray] = {}
"""Pseudo-values by metric and rows, the latest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDrop:
    """How much worse than a reference a model scores.

    Attributes:
        drop: Loss of the score on the same samples, in the metric's units; negative where the model is better.
        error: Its standard error, above 0; where no sample differs, that of one that differs as much as can be.
        low: Lower end of the two-sided interval.
        high: Upper end of the two-sided interval.
        bound: One-sided upper bound on the drop.
    """

    drop: float
    error: float
    low: float
    high: float
    bound: float


def paired_drop(
    metric: Metric, rows: Rows, reference_rows: Rows, *, comparisons: int = 1, groups: Groups | None = None
) -> PairedDrop:
    """Say how much worse than a reference a model scores on samples of this kind.

    The bounds are those of :mod:`autoselect.scoring.mean_bounds` on the differences of the rows, or of the
    pseudo-values. A difference that was not seen is at most 1 for hits and misses, else at most the range of all rows.

    Args:
        metric: The metric that made both.
        rows: Shape (n_samples, row_length), float64.
        reference_rows: Rows of the same samples, in the same order.
        comparisons: So many models whose intervals hold together with this coverage (Bonferroni).
        groups: The group of each sample, of which only whole ones are independent; None where all samples are.

    Returns:
        The drop; NaN for fewer than two samples or groups, or where the metric is undefined on all samples or
        without some.

    Raises:
        ValueError: If the rows or groups differ in length, or the number of comparisons is none.
    """
    if comparisons < 1:
        raise ValueError(f"expected at least one comparison, got {comparisons}")
    evidence = _evidence(metric, rows, reference_rows, groups)
    if evidence is None:
        return PairedDrop(drop=math.nan, error=math.nan, low=math.nan, high=math.nan, bound=math.nan)
    tail = _TAIL / (2.0 * comparisons)
    return PairedDrop(
        drop=float(evidence.differences.mean()),
        error=evidence.error(),
        low=-replace(evidence, differences=-evidence.differences).bound(tail),
        high=evidence.bound(tail),
        bound=evidence.bound(_TAIL),
    )


def resampled_drops(
    metric: Metric, rows: Rows, reference_rows: Rows, *, resamples: int, groups: Groups | None = None
) -> np.ndarray:
    """What :func:`paired_drop` finds on resamples, which are the same for all models of one reference.

    A score that is no mean is resampled by its pseudo-values.

    Args:
        metric: The metric that made both.
        rows: Shape (n_samples, row_length), float64.
        reference_rows: Rows of the same samples, in the same order.
        resamples: How many.
        groups: As for :func:`paired_drop`; whole groups are drawn.

    Returns:
        Drop, error and bound of each resample, shape (n_resamples, 3); no rows where :func:`paired_drop` is NaN.

    Raises:
        ValueError: As :func:`paired_drop`.
    """
    evidence = _evidence(metric, rows, reference_rows, groups)
    if evidence is None:
        return np.zeros((0, 3))
    rng, count = np.random.default_rng(0), len(evidence.differences)
    drawn = (evidence.drawn(rng.integers(count, size=count)) for _ in range(resamples))
    return np.array([(draw.differences.mean(), draw.error(), draw.bound(_TAIL)) for draw in drawn]).reshape(-1, 3)


def samples_needed(
    metric: Metric,
    rows: Rows,
    reference_rows: Rows | None = None,
    *,
    allowed: float,
    balanced: bool = False,
    groups: Groups | None = None,
) -> float:
    """How many samples would bound the drop of a model like this one by what is allowed.

    Args:
        metric: The metric that made the rows.
        rows: Shape (n_samples, row_length), float64.
        reference_rows: Rows of the same samples; where None, the model differs on none.
        allowed: Drop, in the metric's units.
        balanced: Whether the model counts as one that differs as much as this one but loses nothing.
        groups: As for :func:`paired_drop`; there would be more of them, as large as these.

    Returns:
        A whole number; infinite where the drop itself is not below what is allowed, NaN as for :func:`paired_drop`.
    """
    from scipy.optimize import brentq

    evidence = _evidence(metric, rows, rows if reference_rows is None else reference_rows, groups)
    if evidence is None:
        return math.nan
    evidence = evidence.balanced() if balanced else evidence
    losses = evidence.weight * len(evidence.differences)

    def excess(logarithm: float) -> float:
        return evidence.bound(_TAIL, math.exp(logarithm) / losses) - allowed

    # A larger number of samples is no answer.
    most = math.log(1e12)
    if float(np.average(evidence.differences)) >= allowed or excess(most) > 0.0:
        return math.inf
    needed = math.exp(brentq(excess, 0.0, most)) if excess(0.0) > 0.0 else 1.0
    return float(math.ceil(needed * len(rows) / losses))


def pseudo_values(metric: Metric, rows: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """What each group of samples adds to a score; their mean is the score without its bias of first order.

    Args:
        metric: The metric that made the rows.
        rows: Shape (n_samples, row_length), float64.
        groups: Numbers of the samples of each; all samples once.

    Returns:
        Shape (n_groups,), float64.

    Raises:
        MetricError: If the metric is undefined on all samples, or without a group.
    """
    with warnings.catch_warnings():
        # What a function has to warn of, it said when it scored all samples, not two hundred times here.
        warnings.simplefilter("ignore")
        whole = metric.summarise(rows)
        if len(groups) == len(rows):  # Without either of two samples of equal rows a score is the same.
            _, first, twins = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            scores = np.array([metric.summarise(np.delete(rows, place, axis=0)) for place in first])
            without: np.ndarray = scores[twins.ravel()[np.concatenate(groups)]]
        else:
            without = np.array([metric.summarise(np.delete(rows, group, axis=0)) for group in groups])
    return len(groups) * whole - (len(groups) - 1) * without


def _remembered(metric: Metric, rows: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """:func:`pseudo_values` of a model that was asked for lately: float's are needed beside those of each other."""
    content = hashlib.sha256(rows.tobytes())
    for group in groups:
        content.update(group.tobytes())
    key = (metric, (*rows.shape, len(groups)), content.digest())
    values = _LATELY.pop(key, None)
    _LATELY[key] = pseudo_values(metric, rows, groups) if values is None else values
    # Models whose pseudo-values are remembered; the members of most fronts are fewer.
    if len(_LATELY) > 64:
        _LATELY.pop(next(iter(_LATELY)))
    return _LATELY[key]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Evidence:
    """Losses against the reference, whose mean is the drop.

    Attributes:
        differences: The losses. Of a score that is no mean those of equal samples may be other than zero too.
        differs: Which of them are of samples that the two models answer differently.
        span: What no loss can pass.
        weight: How many samples each loss is.
        evenness: So many groups of one size tell as much as one of these; 1 where each loss is of as many samples.
        is_bundled: Whether each loss is that of several samples together. More samples then make these larger, and do
            not make more losses.
        has_range: Whether ``span`` is the range of the values whose differences the losses are. If not, all these
            values are of one size, and ``span`` is that size.
    """

    differences: np.ndarray
    differs: np.ndarray
    span: float
    weight: float = 1.0
    evenness: float = 1.0
    is_bundled: bool = False
    has_range: bool = True

    def error(self) -> float:
        error = float(np.std(self.differences, ddof=1)) / math.sqrt(len(self.differences))
        return error or self.span / (self.weight * len(self.differences))

    def bound(self, tail: float, times: float = 1.0) -> float:
        """Upper bound on the mean, had there been so many times the samples."""
        if self.is_bundled and times > 1.0:
            return self._of_larger(times).bound(tail)
        weight = self.weight * times
        differing = self.evenness * weight * np.count_nonzero(self.differs)
        end = largest_difference(self.differences, self.span, tail, differing)
        return upper_bound(self.differences, end, tail, np.full(len(self.differences), weight))

    def _of_larger(self, times: float) -> _Evidence:
        """The losses of so many times larger bundles, which lie closer together."""
        middle, closer = float(self.differences.mean()), 1.0 / math.sqrt(times)
        span = self.span * closer if self.has_range else self.span
        return replace(self, differences=middle + (self.differences - middle) * closer, span=span, is_bundled=False)

    def drawn(self, places: np.ndarray) -> _Evidence:
        """The losses at these places."""
        return replace(self, differences=self.differences[places], differs=self.differs[places])

    def balanced(self) -> _Evidence:
        """Half of each loss turned round."""
        both = np.concatenate([self.differences, -self.differences])
        return replace(self, differences=both, differs=np.tile(self.differs, 2), weight=self.weight / 2.0)


def _evidence(metric: Metric, rows: Rows, reference_rows: Rows, groups: Groups | None = None) -> _Evidence | None:
    """None where nothing can be said."""
    if len(rows) != len(reference_rows):
        raise ValueError(
            f"expected rows of the same samples, got {len(rows)} and {len(reference_rows)}; pair them first"
        )
    together = grouping(len(rows), groups)
    if len(together.sizes) < 2:
        return None
    ours, theirs = as_matrix(rows, metric.name), as_matrix(reference_rows, metric.name)
    if metric.is_mean:
        evidence = _of_means(metric, ours[:, 0], theirs[:, 0])
        return evidence if together.is_each_alone else _of_groups(evidence, together)
    bundles = together.bundled(_most_values(metric, ours), np.random.default_rng(0))
    try:
        values = [_remembered(metric, side, bundles) for side in (ours, theirs)]
        drop = drop_from(metric.summarise(theirs), metric.summarise(ours), metric.direction)
    except MetricError:  # For example a ROC curve without the only sample of a class.
        return None
    evidence = _of_means(metric, *values)
    unlike = np.array([not np.array_equal(ours[bundle], theirs[bundle]) for bundle in bundles])
    shifted = evidence.differences + (drop - evidence.differences.mean())
    evidence = replace(evidence, differences=shifted, differs=evidence.differs & unlike)
    if evidence.has_range:
        return replace(evidence, is_bundled=len(bundles) < len(together.sizes))
    if (reach := metric.reach(ours)) is not None:
        return replace(evidence, span=reach)
    # Nobody knows what one sample may take from the score: it has the weight of a bundle.
    return replace(evidence, weight=min(1.0, 200 / len(bundles)), is_bundled=len(together.sizes) > 200)


def _most_values(metric: Metric, rows: np.ndarray) -> int:
    """How many pseudo-values there may be, the same for all models: each takes a score of all rows."""
    # Of a function nobody knows how long it takes; a score of our own takes about a second for so many numbers.
    return 200 if metric.is_costly else max(200, 50_000_000 // rows.size)


def _of_means(metric: Metric, ours: np.ndarray, theirs: np.ndarray) -> _Evidence:
    both = np.concatenate([ours, theirs])
    are_hits = metric.counts_hits and bool(np.isin(both, (0.0, 1.0)).all())
    # Where all rows are equal their size is all that is known of their unit.
    size, reached = float(np.abs(both).max()), float(np.ptp(both))
    has_range = reached > 1e-9 * size  # What is less is rounding.
    span = 1.0 if are_hits else (reached if has_range else size) or 1.0
    losses = ours - theirs if metric.direction == "minimize" else theirs - ours
    # Differences of so small a share of the rows' range are none: pseudo-values are sums of large numbers.
    differs = np.abs(losses) > 1e-9 * span
    return _Evidence(differences=np.where(differs, losses, 0.0), differs=differs, span=span, has_range=has_range)


def _of_groups(evidence: _Evidence, together: Grouping) -> _Evidence:
    """Losses of samples as those of their groups; the largest group may lose as much as all its samples can."""
    return _Evidence(
        differences=together.parts(evidence.differences),
        differs=together.any_of(evidence.differs),
        span=evidence.span * float(together.shares.max()),
        evenness=together.evenness,
    )
