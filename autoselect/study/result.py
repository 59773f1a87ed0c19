"""From records to the result: front, picks, held-out scores, and the files of the run folder."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.evidence import agreed
from autoselect.domain.objectives import Direction, Objective, drop_from, losses
from autoselect.domain.pareto import non_dominated
from autoselect.domain.picks import DEFAULT_DROP_SHARE, FrontMember, named_picks
from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.errors import AutoselectError, TrialError, UsageError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.runs.files import write_bytes, write_json, write_text
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import (
    TrialRecord,
    front_columns,
    front_row,
    measured_columns,
    trial_columns,
    trial_row,
)
from autoselect.study.loop import Yardstick

_MEMBER_FILE = re.compile(r"([0-9a-f]{10})\.(?:tflite|recipe\.json|ai-edge-quantizer\.json|build\.py)")

Heldout = tuple[float, float, float]
"""Held-out score and its 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A model that the front is compared with: float, all-integer or all-DRQ.

    Attributes:
        quantities: Values of further objectives by column, as far as they are known.
    """

    name: str
    sha256: str
    metric: float
    size_bytes: int
    penalty: float
    quantities: Mapping[str, float] = field(default_factory=dict)


def with_demanded_score(
    settings: SearchSettings, float_model: Reference, metric: str, direction: Direction
) -> SearchSettings:
    """The settings with the score that they demand as a largest drop from the float model's.

    Raises:
        UsageError: If the float model itself falls short of it.
    """
    if settings.min_score is None:
        return settings
    allowed = drop_from(float_model.metric, settings.min_score, direction)
    if allowed < 0.0:
        raise UsageError(
            f"The float model itself scores {float_model.metric:.4g} {metric} on the search samples, and falls "
            f"short of the demanded {settings.min_score:.4g}: no quantized model can be expected to reach it. "
            "Lower --min-score, or bring a better float model."
        )
    smallest = allowed if settings.max_drop is None else min(allowed, settings.max_drop)
    return settings.model_copy(update={"max_drop": smallest})


def yardstick_of(float_model: Reference, direction: Direction, settings: SearchSettings) -> Yardstick:
    """What the candidates of a run are compared with."""
    return Yardstick(
        float_score=float_model.metric,
        float_size_bytes=float_model.size_bytes,
        float_penalty=float_model.penalty,
        direction=direction,
        constraints=settings.constraints,
    )


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


def restore(records: Sequence[TrialRecord], case_root: Path, pool: WorkerPool) -> None:
    """Build again the candidates whose files an earlier process did not keep."""
    files = CaseFiles(root=case_root)
    running = [
        (record, pool.submit(build_jobs.build, case_root, record.recipe.to_json()))
        for record in records
        if record.scores and record.recipe and not files.candidate(record.scores.sha256).exists()
    ]
    for record, future in running:
        if record.scores and result_of(future).sha256 != record.scores.sha256:
            raise AutoselectError(f"Candidate {record.id} was built again and came out different; please report this.")


def materialise(front: Sequence[TrialRecord], folder: RunFolder, case_root: Path) -> None:
    """Write each member's model and recipe."""
    files = CaseFiles(root=case_root)
    for record in front:
        if record.scores is None or record.recipe is None:
            continue
        source, target = files.candidate(record.scores.sha256), folder.front / f"{record.id}.tflite"
        if source.exists():
            write_bytes(target, source.read_bytes())
        write_text(folder.front / f"{record.id}.recipe.json", record.recipe.to_json() + "\n")


def remove_former_members(front: Sequence[TrialRecord], folder: RunFolder) -> None:
    """Remove the files of earlier members, known by their names; whatever else lies there is the user's."""
    members = {r.id for r in front}
    for path in sorted(folder.front.glob("*")):
        match = _MEMBER_FILE.fullmatch(path.name)
        if match and match.group(1) not in members:
            path.unlink(missing_ok=True)


def score_heldout(
    shas: Sequence[str], case: Case, pool: WorkerPool, timeout_seconds: float, listener: Listener
) -> tuple[dict[str, Heldout], list[str]]:
    """Score models on the untouched part, with intervals; one that fails is left out, and the reason returned."""
    if not case.has_heldout:
        return {}, []
    unique = list(dict.fromkeys(shas))
    listener(StageStarted(stage="heldout", total=len(unique)))
    running = [
        (sha, pool.submit(score_jobs.score, case.files.root, sha, "heldout", True, timeout_seconds=timeout_seconds))
        for sha in unique
    ]
    found, failures = {}, []
    for sha, future in running:
        try:
            reply = result_of(future)
            found[sha] = (reply.value, reply.low, reply.high)
        except AutoselectError as exc:
            failures.append(f"{sha[:10]} could not be scored on the held-out samples. {exc}")
        listener(StepFinished(stage="heldout"))
    return found, failures


def time_again(
    front: Sequence[TrialRecord],
    references: Sequence[Reference],
    root: Path,
    pool: WorkerPool,
    timeout_seconds: float,
    listener: Listener,
) -> tuple[list[TrialRecord], list[Reference]]:
    """The front and the references with their latency measured again, one after the other and nothing beside it.

    What cannot be run a second time keeps what was measured first.
    """
    shas = dict.fromkeys([*(r.sha256 for r in references), *(r.scores.sha256 for r in front if r.scores)])
    listener(StageStarted(stage="latency", total=len(shas)))
    found: dict[str, dict[str, float]] = {}
    for sha in shas:
        with contextlib.suppress(TrialError):
            found[sha] = pool.call(build_jobs.latency, root, sha, timeout_seconds=timeout_seconds)
        listener(StepFinished(stage="latency"))
    timed = [
        replace(r, scores=replace(r.scores, quantities={**r.scores.quantities, **found.get(r.scores.sha256, {})}))
        for r in front
        if r.scores is not None
    ]
    return timed, [replace(r, quantities={**r.quantities, **found.get(r.sha256, {})}) for r in references]


def write_tables(
    folder: RunFolder,
    metric: str,
    records: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    heldout: Mapping[str, Heldout],
    picks: Mapping[str, str],
    costs: Sequence[str] = DEFAULT_COSTS,
) -> None:
    """Write ``trials.csv`` and ``front.csv``; ``costs`` are the columns of the run's objectives but the metric."""
    ids = [r.id for r in front]
    folder.write_table(folder.trials, trial_columns(metric, costs), (trial_row(r, metric, ids, costs) for r in records))
    rows = []
    for record in front:
        names = [name for name, member in picks.items() if member == record.id]
        sha = record.scores.sha256 if record.scores else ""
        rows.append(front_row(record, metric, heldout.get(sha), names, costs))
    folder.write_table(folder.front_table, front_columns(metric, costs), rows)


def write_summary(folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``, after the tables that it sums up."""
    write_json(folder.summary, summary)


def reference_summary(
    references: Sequence[Reference],
    metric: str,
    heldout: Mapping[str, Heldout],
    costs: Sequence[str] = DEFAULT_COSTS,
) -> dict[str, dict[str, Any]]:
    """The references as plain values, with the columns of the run's objectives."""
    found: dict[str, dict[str, Any]] = {}
    further = [c for c in dict.fromkeys([*costs, *measured_columns(costs)]) if c not in DEFAULT_COSTS]
    for reference in references:
        value, low, high = heldout.get(reference.sha256, (None, None, None))
        found[reference.name] = {
            metric: reference.metric,
            "size_bytes": reference.size_bytes,
            "penalty": reference.penalty,
            "heldout": value,
            "heldout_low": low,
            "heldout_high": high,
            **{column: reference.quantities.get(column) for column in further},
        }
    return found


def remove_work(root: Path) -> None:
    """Remove samples and candidates; a run needs them only while it goes on."""
    shutil.rmtree(root, ignore_errors=True)
