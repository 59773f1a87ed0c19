"""Moments of data that arrive in pieces, in fixed memory; knows numbers, not where they come from."""

from __future__ import annotations

import numpy as np

OUTLIER_DEVIATIONS = 6.0
"""A value farther than this many standard deviations from the mean counts as an outlier."""

_MANTISSA_BITS_CUT = 18
_BINS = 1 << (32 - _MANTISSA_BITS_CUT)
_MIDDLES = ((np.arange(_BINS, dtype=np.uint32) << _MANTISSA_BITS_CUT) | (1 << (_MANTISSA_BITS_CUT - 1))).view(
    np.float32
)


class Moments:
    """Count, extremes and the first four central moments of each column.

    Powers are summed about the mean of the first piece, in float64: near enough to the final mean that the central
    moments lose no digits that matter.

    Attributes:
        count: Values of each column so far.
        minimum: Shape (columns,); ``inf`` before the first piece.
        maximum: Shape (columns,); ``-inf`` before the first piece.
    """

    def __init__(self, columns: int = 1) -> None:
        """Start without values."""
        self.count = 0
        self.minimum = np.full(columns, np.inf)
        self.maximum = np.full(columns, -np.inf)
        self._centre = np.zeros(columns)
        self._sums = np.zeros((4, columns))

    def add(self, values: np.ndarray) -> None:
        """Take in one piece of shape (n, columns); infinities and NaN make the moments NaN."""
        if values.shape[0] == 0:
            return
        # This runs on every activation of every sample: nothing is computed twice, and each column is in one piece.
        columns = np.ascontiguousarray(values.T)
        self.minimum = np.minimum(self.minimum, columns.min(axis=1))
        self.maximum = np.maximum(self.maximum, columns.max(axis=1))
        with np.errstate(invalid="ignore", over="ignore"):
            if self.count == 0:
                self._centre = columns.mean(axis=1, dtype=np.float64)
            distance = columns - self._centre[:, None]
            square = distance * distance
            self._sums[0] += distance.sum(axis=1)
            self._sums[1] += square.sum(axis=1)
            self._sums[2] += np.einsum("ji,ji->j", square, distance)
            self._sums[3] += np.einsum("ji,ji->j", square, square)
        self.count += values.shape[0]

    @property
    def mean(self) -> np.ndarray:
        """Mean of each column; 0 without values."""
        return np.asarray(self._centre + self._sums[0] / max(self.count, 1))

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each column (of the values themselves, not an estimate for more); NaN without any."""
        if self.count == 0:
            return np.full_like(self.minimum, np.nan)
        variance = np.maximum(self._central()[0], 0.0)
        return np.where(self.minimum == self.maximum, 0.0, np.sqrt(variance))

    @property
    def kurtosis(self) -> np.ndarray:
        """Excess kurtosis of each column: 0 for a normal distribution, NaN where all values are equal."""
        if self.count == 0:
            return np.full_like(self.minimum, np.nan)
        second, fourth = self._central()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = fourth / second**2 - 3.0
        return np.where(self.minimum == self.maximum, np.nan, ratio)

    def _central(self) -> tuple[np.ndarray, np.ndarray]:
        """Second and fourth central moment, from the moments about the first piece's mean."""
        first, second, third, fourth = self._sums / self.count
        return (
            second - first**2,
            fourth - 4.0 * first * third + 6.0 * first**2 * second - 3.0 * first**4,
        )


class Distances:
    """How often values lie how far from a centre, in 16,384 bins of constant relative width.

    A distance is kept as float32 of which the sign, the exponent and 5 bits of the mantissa remain. So a border between
    near and far is met to 1.6 % of the distance, whatever the values' unit and spread, in 128 kB.
    """

    def __init__(self, centre: float) -> None:
        """Start without values; the centre should lie within the values' bulk."""
        self._centre = centre
        self._counts = np.zeros(_BINS, dtype=np.int64)

    def add(self, values: np.ndarray) -> None:
        """Take in one piece, any shape."""
        with np.errstate(invalid="ignore", over="ignore"):
            bits = (values.astype(np.float64) - self._centre).astype(np.float32).view(np.uint32)
        self._counts += np.bincount(bits.reshape(-1) >> _MANTISSA_BITS_CUT, minlength=_BINS)

    def share_beyond(self, mean: float, distance: float) -> float:
        """Share of the values farther than ``distance`` from ``mean``; 0 for distance 0, NaN without values."""
        total = int(self._counts.sum())
        if total == 0 or np.isnan(mean + distance):
            return float("nan")
        if distance <= 0.0:
            return 0.0
        with np.errstate(invalid="ignore"):
            far = np.abs(_MIDDLES.astype(np.float64) + self._centre - mean) > distance
        return float(self._counts[far].sum() / total)
