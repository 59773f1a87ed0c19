"""Which candidates are the front, and which of its members are worth reading."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.domain.objectives import Objective, losses
from autoselect.domain.pareto import non_dominated, whole_steps
from autoselect.isolation.door import Workers
from autoselect.runs.records import TrialRecord, distinct, scores_of
from autoselect.scoring.metrics import METRIC_NAMES
from autoselect.study.finishing import front_files
from autoselect.study.finishing.certainty import (
    Unknown,
    expected_drops,
    standings_of,
    unknown_bounds,
    with_bounds,
    with_guessed_bounds,
)
from autoselect.study.proposing.hypervolume_gain import Link
from autoselect.study.yardstick import Yardstick


def front_of(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], yardstick: Yardstick, link: Link | None
) -> tuple[list[TrialRecord], bool]:
    """The Pareto front of the feasible candidates, best metric first.

    A model that leaves ops off the accelerator dominates none that leaves none: some have nowhere to run them.
    One lucky candidate would dominate all that are closer to float. So those are members too that no other dominates
    once scores have learned of the closeness of outputs: see :func:`autoselect.study.finishing.certainty.link_of`. And
    of two that score alike one may be surer: those are members that no other dominates by the bounds that picks go by.
    Nor does a score that does not count dominate one that does: see :meth:`autoselect.domain.rule.Rule.is_far`. A
    candidate that is the float model again is a member only if no other costs the target less.

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
    if any(r.scores and r.scores.penalty < yardstick.float_penalty for r in feasible):
        feasible = [r for r in feasible if not _is_float_again(r, yardstick)]
    table = losses(np.array([_values(r, objectives) for r in feasible]), objectives)
    table = np.column_stack([table, _leaves_ops(feasible)])
    keep = non_dominated(table)
    rule = yardstick.rule
    lost = np.array([(m.drop, m.bound, rule.loss(m)) for m in standings_of(feasible, link)])
    for column in lost.T:
        keep |= non_dominated(np.column_stack([column, table[:, 1:]]))
    front = [r for r, kept in zip(feasible, keep, strict=True) if kept]
    return _best_first(front, objectives), any(r.feasible for r in candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFront:
    """A front with noise and bounds of all drops.

    Attributes:
        members: Best metric first.
        feasible: Whether a candidate meets the limits.
        unknown: Why bounds of members are not known, by id.
        messages: What could not be measured, for the user.
    """

    members: list[TrialRecord]
    feasible: bool
    unknown: Mapping[str, Unknown]
    messages: tuple[str, ...] = ()


def measured_front(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    yardstick: Yardstick,
    link: Link | None,
    root: Path,
    pool: Workers | None,
) -> MeasuredFront:
    """As :func:`front_of`, with noise and bounds of all drops.

    With a function of the user's both are measured here, for members alone. Who is a member hangs on them: by its raw
    score a lucky candidate dominates all that are closer to float. So the front is drawn again, with what members of
    like closeness show, and who comes in by that is measured, too.

    Args:
        records: Of the search.
        objectives: The metric first.
        yardstick: With the limits.
        link: Of the search.
        root: The case.
        pool: None leaves all as it was scored.
    """
    if pool is None:
        front, feasible = front_of(records, objectives, yardstick, link)
        unknown = unknown_bounds(front, (), are_measured=objectives[0].name in METRIC_NAMES)
        return MeasuredFront(members=front, feasible=feasible, unknown=unknown)
    front, feasible, lost = _restored_front(records, objectives, yardstick, link, root, pool)
    front, failures = with_bounds(front, root, pool)
    left = [r for r in records if r.id not in lost]
    wider, _ = front_of(with_guessed_bounds(left, front), objectives, yardstick, link)
    own, member_ids = {r.id: r for r in distinct(left)}, {r.id for r in front}
    further = [own[r.id] for r in wider if r.id not in member_ids]
    lost |= (more_lost := front_files.restore(further, root, pool))
    further, more_failures = with_bounds([r for r in further if r.id not in more_lost], root, pool)
    failures |= more_failures
    members = _best_first([*front, *further], objectives)
    return MeasuredFront(
        members=members,
        feasible=feasible,
        unknown=unknown_bounds(members, failures, are_measured=True),
        messages=(
            *(f"{key} is no member of the front: it could not be built again. {why}" for key, why in lost.items()),
            *(f"How sure the score of {key} is could not be measured. {why}" for key, why in failures.items()),
        ),
    )


def _restored_front(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    yardstick: Yardstick,
    link: Link | None,
    root: Path,
    pool: Workers,
) -> tuple[list[TrialRecord], bool, dict[str, str]]:
    """The front of the trials that can be built again, see :func:`front_of`; and by id, why the others cannot."""
    lost = dict[str, str]()
    while True:
        front, feasible = front_of([r for r in records if r.id not in lost], objectives, yardstick, link)
        failures = front_files.restore(front, root, pool)
        if not failures:
            return front, feasible, lost
        lost |= failures


def _best_first(front: Sequence[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    return sorted(front, key=lambda r: (losses(np.array([_values(r, objectives)]), objectives).tolist()[0], r.id))


def _values(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[float, ...]:
    scores = record.scores
    if scores is None:
        raise ValueError("a failed trial has no values")
    return scores.metric, *(scores.costs[o.name] for o in objectives[1:])


def _leaves_ops(records: Sequence[TrialRecord]) -> np.ndarray:
    return np.array([r.scores is not None and r.scores.left_ops > 0 for r in records])


def _is_float_again(record: TrialRecord, yardstick: Yardstick) -> bool:
    """True for a candidate that costs what the float model costs, as far as sizes count: it gains nobody anything.

    Not if the chip runs it as a whole: then nothing cheaper may keep the limit, and it is what to ship.
    """
    scores, size = record.scores, yardstick.float_size_bytes - yardstick.steps(1.0)["size_bytes"]
    if scores is None or scores.off_chip == 0:
        return False
    return scores.size_bytes >= size and scores.penalty >= yardstick.float_penalty


def _total_excess(record: TrialRecord, yardstick: Yardstick) -> float:
    return sum(max(v, 0.0) for v in yardstick.violations(record.scores).values()) if record.scores else math.inf


def worth_reading(
    front: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    picks: Collection[str],
    steps: Mapping[str, float],
    link: Link | None,
) -> list[TrialRecord]:
    """The picks, and one of all others for each step of the objectives (epsilon-dominance).

    Values are rounded down to whole steps; of the members in one box that with the closest outputs stays, and it goes
    where the box of another dominates its own (Laumanns, Thiele, Deb and Zitzler, "Combining Convergence and Diversity
    in Evolutionary Multiobjective Optimization", Evolutionary Computation 10, 2002).

    Args:
        front: All members.
        objectives: The metric first.
        picks: Ids of members that stay, those that the verdict names among them.
        steps: By objective; without one, or with 0, each value is a step of its own.
        link: Of the search, see :func:`autoselect.study.finishing.certainty.link_of`.
    """
    if not any(steps.values()) or not front:
        return list(front)
    table = losses(np.array([_values(r, objectives) for r in front]), objectives)
    table[:, 0] = np.maximum(expected_drops(scores_of(front), link).drops, 0.0)
    table = whole_steps(table, [steps.get(objective.name, 0.0) for objective in objectives])
    table = np.column_stack([table, _leaves_ops(front)])
    closest: dict[tuple[float, ...], int] = {}
    for place in sorted(range(len(front)), key=lambda i: (-_closeness(front[i]), front[i].id)):
        closest.setdefault(tuple(table[place].tolist()), place)
    kept = set(np.array(list(closest.values()))[non_dominated(np.array(list(closest)))].tolist())
    return [r for i, r in enumerate(front) if i in kept or r.id in picks]


def _closeness(record: TrialRecord) -> float:
    return record.scores.sqnr_db if record.scores and math.isfinite(record.scores.sqnr_db) else -math.inf
