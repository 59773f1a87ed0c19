"""Bounds on the mean of a population, from some of its values; knows neither metrics nor models.

The bound of Gaffke (*Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
variable*, Mathematical Methods of Statistics 14, 2005; Learned-Miller and Thomas, arXiv:1905.06208): the values seen,
and one more at the largest value that there can be, get random weights that sum to one, all sets of weights alike
likely; the bound is a quantile of their weighted mean. It assumes no distribution, is that of Clopper and Pearson for
hits and misses, and no population is known that it covers less often than it says.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

_NORMAL = NormalDist()


def upper_bound(values: np.ndarray, end: float, tail: float, weights: np.ndarray | None = None) -> float:
    """Bound a mean from above.

    If all values are equal it is the rule of three (Hanley and Lippman-Hand, JAMA 249, 1983), exactly: at most
    ``1 - tail ** (1 / n)`` of the population differs from what was seen, by as much as can be. Else the quantile comes
    from a saddlepoint approximation (Lugannani and Rice, Advances in Applied Probability 12, 1980), which is within a
    hundredth of the bound's distance from the mean.

    Args:
        values: Shape (n_values,), float.
        end: The largest value that there can be; at least the largest of ``values``.
        tail: Chance that the mean is larger than the bound, above 0 and at most 0.5.
        weights: How often each value was seen, shape (n_values,), fractions too; once each where None.

    Returns:
        The bound, at most ``end``.
    """
    from scipy.optimize import brentq

    x, places = np.unique(values, return_inverse=True)
    counts = np.bincount(places.ravel(), weights=weights)
    x, counts = x[counts > 0.0], counts[counts > 0.0]
    total = float(counts.sum())
    if len(x) == 1:
        return float(x[0] + (end - x[0]) * -math.expm1(math.log(tail) / total))
    # From here on all is told by how far it lies below the end: values there may be close to each other.
    below, counts = np.append(end - x, 0.0), np.append(counts, 1.0)
    furthest = float(below[0])

    def mean_at(place: float) -> tuple[float, np.ndarray, float]:
        """How far below ``end`` the mean is that weights in inverse proportion to the distance from a point above give.

        And these distances, with their weighted harmonic mean.
        """
        beyond = math.exp(place) * furthest
        distances = below + beyond
        middle = float((total + 1.0) / np.sum(counts / distances))
        return middle - beyond, distances, middle

    def excess(place: float) -> float:
        mean, distances, middle = mean_at(place)
        root = math.sqrt(max(2.0 * float(counts @ np.log(distances / middle)), 0.0))
        slope = math.sqrt(float(counts @ ((below - mean) / distances) ** 2))
        return 1.0 - _NORMAL.cdf(root) + _NORMAL.pdf(root) * (1.0 / slope - 1.0 / root) - tail

    most = 7.0  # Of the logarithm that is solved for.
    if excess(most) <= 0.0:  # A tail of about a half.
        return end - mean_at(most)[0]
    return end - mean_at(brentq(excess, -30.0, most, xtol=1e-9))[0]


def largest_difference(differences: np.ndarray, span: float, tail: float, differing: float | None = None) -> float:
    """How far from zero a difference may be that was not seen.

    As far as the largest one seen, times ``tail ** (-1 / k)`` for ``k`` differing ones: the confidence bound on the end
    of a uniform distribution. At most ``span``; that itself where no difference was seen.

    Args:
        differences: Shape (n_values,), float.
        span: What no difference can pass.
        tail: Chance of error, above 0 and below 1.
        differing: How many samples differ, fractions too; as many as differences are not zero where None.
    """
    differing = float(np.count_nonzero(differences)) if differing is None else differing
    largest = float(np.abs(differences).max())
    if not differing or math.log(tail) <= -differing * math.log(max(span / largest, 1.0)):
        return max(span, largest)
    return float(largest * math.exp(-math.log(tail) / differing))
