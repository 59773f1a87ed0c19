"""Which candidates are the front, and which members have a name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from autoselect.cases import score_jobs
from autoselect.domain.evidence import agreed
from autoselect.domain.objectives import Objective, losses
from autoselect.domain.pareto import non_dominated
from autoselect.domain.picks import DEFAULT_DROP_SHARE, FrontMember, named_picks
from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.errors import TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.runs.records import (
    TrialRecord,
)
from autoselect.study.yardstick import Yardstick


def distinct(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The first record of each distinct candidate."""
    first: dict[str, TrialRecord] = {}
    for record in records:
        if record.scores is not None:
            first.setdefault(record.scores.sha256, record)
    return list(first.values())


def front_of(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], yardstick: Yardstick
) -> tuple[list[TrialRecord], bool]:
    """The Pareto front of the feasible candidates, best metric first.

    An evaluator's score has no known noise, and one lucky candidate would dominate all that are closer to float. So
    those are members too that no other dominates once scores and closeness have learned of each other.

    Returns:
        The front and whether anything is feasible; if nothing is, the front is of the candidates that
        break the constraints least.
    """
    candidates = distinct(records)
    if not candidates:
        return [], not yardstick.constraints.any
    feasible = [r for r in candidates if r.feasible]
    if not feasible:
        excess = [_total_excess(r, yardstick) for r in candidates]
        feasible = [r for r, e in zip(candidates, excess, strict=True) if e <= min(excess)]
    feasible = [r for r in feasible if not _is_float_again(r, yardstick)] or feasible
    table = losses(np.array([_values(r, objectives) for r in feasible]), objectives)
    keep = non_dominated(table)
    if _scored_by_evaluator(feasible):
        keep |= non_dominated(np.column_stack([_corrected_losses(feasible, table[:, 0]), table[:, 1:]]))
    front = [r for r, kept in zip(feasible, keep, strict=True) if kept]
    front.sort(key=lambda r: (losses(np.array([_values(r, objectives)]), objectives).tolist()[0], r.id))
    return front, any(r.feasible for r in candidates)


def _scored_by_evaluator(records: Sequence[TrialRecord]) -> bool:
    """Whether closeness is of other samples than the score, and known of all."""
    return all(r.scores and not r.scores.samples and math.isfinite(r.scores.sqnr_db) for r in records)


def _corrected_losses(records: Sequence[TrialRecord], own: np.ndarray) -> np.ndarray:
    """Losses of the metric with what closeness says of them, shape (n,)."""
    return agreed(own, np.array([-r.scores.sqnr_db for r in records if r.scores]))


def _values(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[float, ...]:
    scores = record.scores
    if scores is None:
        raise ValueError("a failed trial has no values")
    return scores.metric, *(scores.costs[o.name] for o in objectives[1:])


def _is_float_again(record: TrialRecord, yardstick: Yardstick) -> bool:
    """True for a candidate that costs what the float model costs: nothing in it is quantized."""
    scores = record.scores
    return (
        scores is not None
        and scores.size_bytes >= yardstick.float_size_bytes
        and scores.penalty >= yardstick.float_penalty
    )


def _total_excess(record: TrialRecord, yardstick: Yardstick) -> float:
    return sum(max(v, 0.0) for v in yardstick.violations(record.scores).values()) if record.scores else math.inf


def allowed_drop(yardstick: Yardstick) -> float:
    """The drop that a pick may have: the user's limit, else one per cent of float's score."""
    if yardstick.constraints.max_drop is not None:
        return yardstick.constraints.max_drop
    return DEFAULT_DROP_SHARE * abs(yardstick.float_score)


def picks_of(
    front: Sequence[TrialRecord],
    yardstick: Yardstick,
    noise: Mapping[str, float],
    costs: Sequence[str] = DEFAULT_COSTS,
) -> dict[str, str]:
    """The named picks, by candidate id; ``costs`` are the columns of the run's objectives but the metric."""
    members = [
        FrontMember(
            id=r.id,
            drop=r.scores.drop,
            noise=noise.get(r.id, 0.0),
            fidelity=0.0 if math.isnan(r.scores.sqnr_db) else r.scores.sqnr_db,
            size_bytes=r.scores.size_bytes,
            penalty=r.scores.penalty,
        )
        for r in front
        if r.scores is not None
    ]
    picks = named_picks(
        members,
        allowed_drop=allowed_drop(yardstick),
        float_size_bytes=yardstick.float_size_bytes,
        float_penalty=yardstick.float_penalty,
        costs=None if set(costs) == set(DEFAULT_COSTS) else _relative_costs(front, yardstick, costs),
    )
    return dict(picks)


def _relative_costs(front: Sequence[TrialRecord], yardstick: Yardstick, costs: Sequence[str]) -> np.ndarray:
    """What the front's members cost beyond the least of it, shape (n_members, n_costs).

    Size and penalty are in units of the float model's, others in units of the front's spread.
    """
    units = {"size_bytes": float(yardstick.float_size_bytes), "penalty": yardstick.float_penalty}
    rows = [[r.scores.costs[c] for c in costs] for r in front if r.scores is not None]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(costs))
    beyond = table - table.min(axis=0, initial=np.inf)
    spread = beyond.max(axis=0, initial=0.0)
    scale = np.array([units.get(c, width) for c, width in zip(costs, spread, strict=True)])
    return np.asarray(beyond / np.where(scale > 0.0, scale, 1.0))


def noise_of(front: Sequence[TrialRecord], root: Path, pool: WorkerPool | None) -> dict[str, float]:
    """Standard error of each member's drop; measured now where scoring left it for later."""
    found = {r.id: r.scores.drop_noise for r in front if r.scores is not None}
    later = [r for r in front if math.isnan(found[r.id])]
    if pool is None:
        return {key: 0.0 if math.isnan(value) else value for key, value in found.items()}
    running = {r.id: pool.submit(score_jobs.noise, root, r.scores.sha256) for r in later if r.scores is not None}
    return found | {key: _noise_or_none(future) for key, future in running.items()}


def _noise_or_none(future: Future[float]) -> float:
    try:
        return result_of(future)
    except TrialError:
        return 0.0
