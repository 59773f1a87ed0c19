"""What candidates lose beyond what their closeness says, as far as candidates that are like them tell.

Closeness is a mean over samples. What a few samples suffer, such as values beyond the calibrated ranges, may decide the
metric and hardly show in it: then candidates of equal closeness lose more or less by which units are in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from autoselect.study.proposing import constants
from autoselect.study.proposing.hypervolume_gain import Link
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """The fit of one share of the variance and one reach of likeness."""

    evidence: float
    share: float
    length: float
    factor: tuple[np.ndarray, bool]
    weights: np.ndarray


class Likeness:
    """A Gaussian process of what a link leaves over, in units of the spread that the link knows there."""

    def __init__(
        self, problem: Problem, link: Link, masks: Sequence[Mask], log_divergences: np.ndarray, losses: np.ndarray
    ) -> None:
        """Fit; where likeness does not explain clearly more than chance does, nothing is expected of it.

        Args:
            problem: What the masks mean.
            link: Fitted to these losses.
            masks: The candidates.
            log_divergences: Shape (n,), finite.
            losses: Shape (n,).
        """
        self._problem, self._link, self._best = problem, link, None
        newest = slice(-constants.LEARNED, None)
        self._known = self._problem.sides(masks[newest])
        beyond, spread = link.left_over(log_divergences[newest], losses[newest])
        left = np.clip(beyond / spread, -constants.FURTHEST_LEFT, constants.FURTHEST_LEFT)
        by_chance = -0.5 * float(left @ left)
        fits = [self._fit(left, share, length) for share in constants.ALIKE_SHARES for length in constants.LENGTHS]
        best = max(fits, key=lambda fit: fit.evidence)
        self._best = best if best.evidence > by_chance + constants.CLEARLY else None

    def beyond(self, masks: Sequence[Mask], log_divergences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How much more than closeness says candidates are expected to lose, and which share of the spread is left.

        Args:
            masks: The candidates.
            log_divergences: As they are expected to be, shape (n,).

        Returns:
            In the metric's units, and at most 1, each of shape (n,).
        """
        if self._best is None:
            return np.zeros(len(masks)), np.ones(len(masks))
        cross = self._best.share * _kernel(self._problem.sides(masks), self._known, self._best.length)
        explained = np.einsum("ij,ji->i", cross, cho_solve(self._best.factor, cross.T))
        _, spread = self._link.left_over(log_divergences, np.zeros(len(masks)))
        return cross @ self._best.weights * spread, np.sqrt(np.maximum(1.0 - explained, 1.0 - self._best.share))

    def _fit(self, left: np.ndarray, share: float, length: float) -> _Fit:
        system = share * _kernel(self._known, self._known, length)
        system[np.diag_indices_from(system)] += 1.0 - share
        factor = cho_factor(system, lower=True)
        weights = cho_solve(factor, left)
        evidence = -0.5 * float(left @ weights) - float(np.log(np.diag(factor[0])).sum())
        return _Fit(evidence=evidence, share=share, length=length, factor=factor, weights=weights)


def _kernel(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    """1 for equals, and less the more of their units are in other states."""
    unlike = (a @ (1.0 - b).T + (1.0 - a) @ b.T) / max(a.shape[1], 1)
    return np.asarray(np.exp(-unlike / length))
