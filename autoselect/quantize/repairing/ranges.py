"""Ranges of activations, chosen from what the float model's tensors hold; one pass over samples for all methods.

TensorFlow's calibrator reads a tensor after the ops behind it have run, and where one of those works in place, it
records the range of what that left: a RELU's output that a MUL overwrites comes out many times too wide. Here every
tensor is read with all of them preserved, so ``observed`` is the range that calibration was to record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.ranges import LEAST_REACH, Range, ranged
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

NOT_FINITE = "a value of its output is not a finite number"

BINS = 4096


@dataclass(slots=True)
class Histogram:
    """Values of one tensor over samples, in bins of equal width around zero that grow with the values.

    Attributes:
        reach: The bins cover ``-reach..reach``, a power of two; 0 before there are values.
        counts: Shape (``BINS``,).
        low: Smallest value.
        high: Largest value.
        average: Moving average of the smallest and largest value of a sample.
        is_finite: False where a value was NaN or infinite.
    """

    reach: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    low: float = np.inf
    high: float = -np.inf
    average: Range | None = None
    is_finite: bool = True

    def add(self, values: np.ndarray) -> None:
        """Count the values of one sample."""
        # Weight of what was before in `moving-average`, which begins with the first sample.
        decay = 0.9
        low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        if not values.size or not np.isfinite(low) or not np.isfinite(high):
            self.is_finite = self.is_finite and not values.size
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        before = self.average or (low, high)
        self.average = (
            decay * before[0] + (1.0 - decay) * low,
            decay * before[1] + (1.0 - decay) * high,
        )
        self._grow(max(-low, high))
        if self.reach > 0.0:
            # A product with a power of two is exact, so that no value changes its bin when bins are merged.
            places = np.floor(np.ravel(values) * np.float32(BINS / (2.0 * self.reach))).astype(np.int64) + BINS // 2
            self.counts += np.bincount(np.minimum(places, BINS - 1), minlength=BINS)

    def _grow(self, peak: float) -> None:
        """Double the bins' width until they cover ``peak``, and sum the counts of what falls together."""
        if self.reach == 0.0 and peak > 0.0:
            self.reach = max(float(2.0 ** np.ceil(np.log2(peak))), LEAST_REACH)
        while self.reach < peak:
            paired = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([np.zeros(BINS // 4, np.int64), paired, np.zeros(BINS // 4, np.int64)])
            self.reach *= 2.0

    @property
    def centres(self) -> np.ndarray:
        """Middles of the bins."""
        return (np.arange(BINS) + 0.5) * (2.0 * self.reach / BINS) - self.reach


def observed(histogram: Histogram) -> Range:
    """Smallest and largest value."""
    return histogram.low, histogram.high


def moving_average(histogram: Histogram) -> Range:
    """Moving average of the smallest and largest value of a sample; what has one value a sample has no such range."""
    low, high = histogram.average or observed(histogram)
    return (low, high) if low < high else observed(histogram)


def percentile(histogram: Histogram) -> Range:
    """The values but for the outermost, as fine as the bins are."""
    # Share of the values that `percentile` leaves out in all, half of it on either side.
    tail = 1e-4
    shares = np.cumsum(histogram.counts) / max(histogram.counts.sum(), 1)
    width = 2.0 * histogram.reach / BINS
    edges = np.arange(BINS + 1) * width - histogram.reach
    low = edges[int(np.searchsorted(shares, tail / 2.0, side="right"))]
    high = edges[min(int(np.searchsorted(shares, 1.0 - tail / 2.0, side="left")) + 1, BINS)]
    return max(low, histogram.low), min(high, histogram.high)


def least_squares(histogram: Histogram) -> Range:
    """The range with the least mean squared error of clipping and rounding to 256 levels."""
    # Clipping points that `mse` tries on either side.
    trials = 40
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    shrunk = np.linspace(1.0, 1.0 / trials, trials)
    centres, counts = histogram.centres, histogram.counts.astype(np.float64)
    below = np.array([np.sum(counts * np.minimum(centres - low * s, 0.0) ** 2) for s in shrunk])
    above = np.array([np.sum(counts * np.maximum(centres - high * s, 0.0) ** 2) for s in shrunk])
    steps = (high * shrunk[None, :] - low * shrunk[:, None]) / 255
    errors = below[:, None] + above[None, :] + counts.sum() * steps**2 / 12.0
    at = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return low * shrunk[at[0]], high * shrunk[at[1]]


METHODS: dict[str, Callable[[Histogram], Range]] = {
    "ranges-moving-average": moving_average,
    "ranges-mse": least_squares,
    "ranges-observed": observed,
    "ranges-percentile": percentile,
}
"""By the name of the repair."""


def measure(
    calibrated: TfliteFile, samples: Iterable[Mapping[str, np.ndarray]], among: Collection[int] | None = None
) -> dict[str, dict[int, Range]]:
    """Choose the range of every activation by every method.

    Args:
        calibrated: The calibrated model.
        samples: Inputs by key.
        among: Only of these tensors.

    Returns:
        By name of the repair, the range by tensor index. A tensor without finite values has none.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    chosen = [index for index in ranged(calibrated.model) if among is None or index in among]
    histograms = {index: Histogram() for index in chosen}
    if histograms:
        for index, value in Runner(calibrated.content, readable=histograms).watch(samples, histograms):
            histograms[index].add(value)
    finite_histograms = {i: h for i, h in histograms.items() if h.is_finite and h.low <= h.high}
    return {name: {i: method(h) for i, h in finite_histograms.items()} for name, method in METHODS.items()}


def count_values(model: fb.Model) -> int:
    """How many values all activations have for one sample."""
    return sum(math.prod(fb.shape_of(model.subgraphs[0].tensors[i])) for i in ranged(model))


def without_range(model: fb.Model, chosen: Mapping[int, Range]) -> dict[int, str]:
    """Why the output of an op keeps the range that calibration gave it, by op index.

    Args:
        model: The calibrated model.
        chosen: One of the results of :func:`measure`, by tensor index.
    """
    left = set(ranged(model)) - set(chosen)
    ops = enumerate(model.subgraphs[0].operators)
    return {at: NOT_FINITE for at, op in ops if left & {int(i) for i in op.outputs}}
