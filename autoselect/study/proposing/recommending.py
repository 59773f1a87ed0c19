"""How much a candidate is expected to lower what the recommended one costs; knows numbers, no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.domain.quantities import stored_bytes
from autoselect.domain.rule import Standing
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Belief


@dataclass(frozen=True, slots=True)
class Recommending:
    """The recommended candidate so far: the one that is expected to cost least.

    If there is none, it is as if the exact one were recommended.

    Attributes:
        problem: With the rule of the recommendation.
        costs: What candidates cost.
        bounds: How the bound on a loss follows closeness.
        least: What the recommended candidate is expected to cost, in float's penalties.
        likeness: What like candidates tell of bounds.
    """

    problem: Problem
    costs: CostModel
    bounds: Link
    least: float
    likeness: Likeness

    @classmethod
    def of(cls, problem: Problem, costs: CostModel, scored: Sequence[Seen]) -> Recommending | None:
        """What the scored candidates say of it; None if their bounds are not known."""
        candidates = [s for s in scored if math.isfinite(s.bound) and math.isfinite(s.log_divergence)]
        if len(candidates) < 2 or not math.isfinite(problem.rule.allowed_drop):
            return None
        (exact,) = _prices(problem, costs, [problem.in_state(problem.everything, problem.by_cost[-1])])
        expected = [problem.rule.cost(_standing(s)) for s in candidates if s.feasible]
        figures = np.array([(s.log_divergence, s.bound) for s in candidates]).T
        bounds = fit_link(*figures)
        likeness = Likeness(problem, bounds, [s.mask for s in candidates], *figures)
        return cls(problem, costs, bounds, min([exact, *expected]), likeness)

    def lowering(self, masks: Sequence[Mask], belief: Belief) -> np.ndarray:
        """How much less each candidate is expected to cost than the recommended one, shape (n,), at least 0."""
        prices = np.array(_prices(self.problem, self.costs, masks))
        within = np.array([self.problem.within_limits(mask) for mask in masks])
        less = np.maximum(self.least - prices, 0.0)
        allowed, beyond = self.problem.rule.allowed_drop, self.likeness.beyond(masks, belief.mean)
        return np.asarray(np.where(within, less * self.bounds.chance_within(belief, allowed, *beyond), 0.0))


def _prices(problem: Problem, costs: CostModel, masks: Sequence[Mask]) -> list[float]:
    """What candidates cost that keep the limit, in float's penalties."""
    sizes, penalties = costs.stored(masks), costs.penalties(masks).tolist()
    return [
        problem.rule.price(penalty=penalty, size_bytes=size) for penalty, size in zip(penalties, sizes, strict=True)
    ]


def _standing(seen: Seen) -> Standing:
    """A scored candidate by its own samples alone."""
    return Standing(
        id="",
        drop=math.nan if seen.loss is None else seen.loss,
        bound=seen.bound,
        fidelity=-10.0 * seen.log_divergence / math.log(10.0),
        size_bytes=stored_bytes(seen.size_bytes, seen.quantities),
        penalty=seen.penalty,
    )
