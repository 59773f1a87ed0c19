"""How much a candidate is expected to lower the penalty of the recommended one; knows numbers, no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Belief


@dataclass(frozen=True, slots=True)
class Recommending:
    """The recommended candidate so far: the least penalty among those that keep the allowed loss for sure.

    Where there is none, it is as if the exact one were recommended.

    Attributes:
        problem: With the allowed loss.
        costs: What candidates cost.
        bounds: How the bound on a loss follows closeness.
        least: Penalty of the recommended candidate.
        exact: Of the candidate that is all in the most exact state.
        likeness: What like candidates tell of bounds.
    """

    problem: Problem
    costs: CostModel
    bounds: Link
    least: float
    exact: float
    likeness: Likeness

    @classmethod
    def of(cls, problem: Problem, costs: CostModel, scored: Sequence[Seen]) -> Recommending | None:
        """What the scored candidates say of it; None if their bounds are not known."""
        known = [s for s in scored if math.isfinite(s.bound) and math.isfinite(s.log_divergence)]
        if len(known) < 2 or not math.isfinite(problem.allowed_loss):
            return None
        exact = float(costs.penalties([problem.in_state(problem.everything, problem.by_cost[-1])])[0])
        sure = [s.penalty for s in known if s.feasible and s.bound <= problem.allowed_loss]
        figures = np.array([(s.log_divergence, s.bound) for s in known]).T
        bounds = fit_link(*figures)
        likeness = Likeness(problem, bounds, [s.mask for s in known], *figures)
        return cls(problem, costs, bounds, min([exact, *sure]), exact, likeness)

    def lowering(self, masks: Sequence[Mask], belief: Belief) -> np.ndarray:
        """By how much each candidate is expected to lower that penalty, in shares of the exact one's, shape (n,)."""
        penalties = self.costs.penalties(masks)
        within = np.array([self.problem.within_limits(mask) for mask in masks])
        less = np.maximum(self.least - penalties, 0.0) / max(self.exact, 1e-9)
        chance = self.bounds.chance_within(belief, self.problem.allowed_loss, *self.likeness.beyond(masks, belief.mean))
        return np.asarray(np.where(within, less * chance, 0.0))
