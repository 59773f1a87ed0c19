"""What candidates are expected to lose that nobody has scored, and how sure that is; knows numbers, no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Surrogate, learn, one_thread

_ENDS = np.array([0.05, 0.95])
_FEWEST = 4
"""Candidates that say something of how losses follow closeness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """What a score on the search samples is expected to be.

    Attributes:
        drop: The expected loss against float, in the metric's units.
        low: Lower end of an interval that holds nine in ten of such losses.
        high: Its upper end.
        log_divergence: The expected log of the outputs' error power over signal power.
    """

    drop: float
    low: float
    high: float
    log_divergence: float


class Expectation:
    """What the trials of a search tell of any other candidate: its closeness, then what that loses.

    The interval is of a score that is measured. So it holds what the surrogate does not know of the closeness, what
    losses of equally close candidates differ by, and with that the noise of the samples.
    """

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Learn; see :meth:`of` for who is enough.

        Args:
            problem: What the masks mean.
            seen: With a known divergence and a likely loss each.
        """
        self._surrogate = Surrogate(problem)
        with one_thread():
            learn(self._surrogate, seen)
        figures = np.array([(s.log_divergence, s.likely_loss, s.share) for s in seen]).T
        self._link: Link = fit_link(*figures)
        self._likeness = Likeness(problem, self._link, [s.mask for s in seen], *figures[:2])

    @classmethod
    def of(cls, problem: Problem, seen: Sequence[Seen]) -> Expectation | None:
        """What these candidates tell; None if they are too few."""
        known = [s for s in seen if math.isfinite(s.log_divergence) and math.isfinite(s.likely_loss)]
        return cls(problem, known) if len(known) >= _FEWEST else None

    def likely(self, mask: Mask) -> Likely:
        """What a candidate is expected to lose."""
        with one_thread():
            belief = self._surrogate.believe([mask])
            beyond, left = self._likeness.beyond([mask], belief.mean)
            (ends,) = self._link.loss_quantiles(belief, _ENDS, beyond, left)
        drop = float(self._link.expected(belief)[0] + beyond[0])
        low, high = map(float, ends)
        return Likely(drop=drop, low=low, high=high, log_divergence=float(belief.mean[0]))

    def chance_within(self, mask: Mask, limit: float) -> float:
        """How likely a candidate's measured loss is at most a limit."""
        with one_thread():
            belief = self._surrogate.believe([mask])
            beyond, left = self._likeness.beyond([mask], belief.mean)
            return float(self._link.chance_within(belief, limit, beyond, left)[0])
