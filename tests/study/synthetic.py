"""Searches whose truth is known: a chain of units, each with an error power of its own, and exact costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.domain.objectives import Constraints
from autoselect.domain.pareto import hypervolume
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.rule import Rule
from autoselect.domain.states import STATES
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.proposers import Proposer

CORNER = np.array([1.0, 450.0, 3.0])
"""Beyond the worst loss, size and penalty that a chain can have."""
BOUND = 0.01
"""How far above a measured loss its bound lies."""


def chain_of(
    sensitivities: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    hybrid: bool = False,
    mixed: bool = False,
    repair_sets: Sequence[Repairs] = ((),),
    added_noise: Sequence[float] = (),
    constraints: Constraints | None = None,
    idle: frozenset[int] = frozenset(),
    allowed_loss: float = math.inf,
    clipped: Collection[int] = (),
) -> Problem:
    """Units ``n0``, ``n1``, … in a row; size 100 to 400 by weight, penalty 0 to 2.5 by count and islands.

    By the rule of the recommendation the float model has all units left out.

    Units in ``idle`` are built the same whether they are left out or not.
    """
    count = len(sensitivities)
    weight = np.ones(count) if weights is None else np.asarray(weights)

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], repairs: Repairs) -> Forecast:
        if not count:
            return Forecast(100, 0.0, repairs)
        out = np.array([f"n{i}" in nodes and i not in idle for i in range(count)])
        islands = int((np.diff(np.concatenate([[0], out.astype(int)])) == 1).sum())
        in_float = [f"n{i}" in further.get("float", ()) for i in range(count)]
        size = 100 + round(300 * float(weight[out].sum() / weight.sum())) + sum(in_float)
        return Forecast(
            size, float(out.mean()) + 3.0 * islands / count, (tuple(out.tolist()), tuple(in_float), repairs)
        )

    everything = forecast(frozenset(f"n{i}" for i in range(count)), {}, ())
    rule = Rule(
        allowed_drop=allowed_loss, float_penalty=everything.penalty, float_size_bytes=float(everything.size_bytes)
    )
    return Problem(
        [
            Unit(
                nodes=frozenset({f"n{i}"}),
                op_type=("CONV_2D", "ADD", "MEAN")[i % 3],
                position=i,
                sensitivity=s,
                is_clipped=i in clipped,
            )
            for i, s in enumerate(sensitivities)
        ],
        [frozenset(j for j in (i - 1, i + 1) if 0 <= j < count) for i in range(count)],
        forecast,
        states=STATES["search" if mixed else "drq" if hybrid else "float"],
        repair_sets=repair_sets,
        added_noise=added_noise,
        constraints=constraints or Constraints(),
        rule=rule,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """A problem with its truth: each unit adds its term to the divergence, a smaller one where it is left out."""

    problem: Problem
    terms: np.ndarray
    left: np.ndarray

    def log_divergence(self, mask: Mask) -> float:
        left_out = np.array([mask.left_out >> i & 1 for i in range(len(self.terms))], dtype=bool)
        return math.log(float(np.where(left_out, self.left, self.terms).sum()) + 1e-6)

    def seen(self, mask: Mask) -> Seen:
        """Score one candidate; what a measurement adds by chance depends on the candidate alone."""
        chance = np.random.default_rng(mask.left_out).normal(0.0, 0.03)
        divergence = self.log_divergence(mask) + chance
        found = self.problem.forecast(mask)
        loss = 0.8 / (1.0 + math.exp(-1.5 * (divergence + 2.0)))
        violations = self.problem.constraints.violations(drop=loss, size_bytes=found.size_bytes, penalty=found.penalty)
        return Seen(
            mask=mask,
            loss=loss,
            bound=loss + BOUND,
            log_divergence=divergence,
            share=1.0,
            size_bytes=found.size_bytes,
            penalty=found.penalty,
            feasible=max(violations.values()) <= 0.0,
        )

    def run(self, proposer: Proposer, trials: int, *, ahead: int = 0) -> list[Seen]:
        """Let a proposer search, with up to ``ahead`` candidates under way while it is asked."""
        seen: list[Seen] = []
        pending: list[Mask] = []
        for _ in range(trials):
            mask = proposer.propose(seen, pending)
            if mask is None:
                break
            pending.append(mask)
            if len(pending) > ahead:
                seen.append(self.seen(pending.pop(0)))
        return [*seen, *map(self.seen, pending)]


def synthetic(
    count: int,
    seed: int,
    *,
    spread: float = 1.5,
    prior_error: float = 0.7,
    redundant: int = 0,
    hybrid: bool = False,
    constraints: Constraints | None = None,
    allowed_loss: float = math.inf,
) -> Synthetic:
    """Draw terms around exp(-5); the first ``redundant`` of a random order each ruin the model alone.

    Args:
        count: Of units.
        seed: Of the terms and of the errors of the priors.
        spread: Standard deviation of the terms' logs.
        prior_error: Standard deviation of the logs of the priors around the terms.
        redundant: How many units have a term of about 2, far beyond all others.
        hybrid: As in a problem.
        constraints: As in a problem.
        allowed_loss: By the rule of a problem.
    """
    rng = np.random.default_rng(seed)
    terms = np.exp(rng.normal(-5.0, spread, count))
    terms[rng.permutation(count)[:redundant]] = 2.0
    priors = terms * np.exp(rng.normal(0.0, prior_error, count))
    weights = rng.lognormal(0.0, 1.0, count)
    problem = chain_of(
        [float(p) for p in priors],
        weights=list(weights),
        hybrid=hybrid,
        constraints=constraints,
        allowed_loss=allowed_loss,
    )
    left = terms * 0.1 * np.exp(rng.normal(0.0, 0.5, count)) if hybrid else np.zeros(count)
    return Synthetic(problem=problem, terms=terms, left=left)


def volume(seen: Sequence[Seen]) -> float:
    """Hypervolume of what was scored, as a share of the box up to the corner."""
    losses = np.array([[s.loss, s.size_bytes, s.penalty] for s in seen], dtype=np.float64)
    return hypervolume(losses / CORNER, np.ones(3))
