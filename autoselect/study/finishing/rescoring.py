"""Measures the front's members again: held-out scores, whom the recommended one harms, latencies in turns."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from autoselect.cases import build_jobs, effect_jobs, evidence_jobs, score_jobs
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.files import FLOAT
from autoselect.cases.prepare import Case
from autoselect.domain.objectives import Direction, drop_from
from autoselect.errors import AutoselectError, PreparationError, ScoreError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.preparing.converter import CHECK_VALUES
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Heldout, TrialRecord
from autoselect.scoring.paired import PairedDrop
from autoselect.study.references import Reference


def score_heldout(
    shas: Sequence[str],
    recommended: str,
    case: Case,
    direction: Direction,
    pool: Workers,
    timeout_seconds: float,
    listener: Listener,
) -> tuple[dict[str, Heldout], list[str]]:
    """Score models on the untouched part, with intervals; one that fails is left out, and the reason returned.

    Args:
        shas: Of the models; the float model's among them.
        recommended: The one that was chosen before: its interval stands alone, those of all others hold together.
        case: With its samples.
        direction: Of the metric.
        pool: Where they run.
        timeout_seconds: For each.
        listener: Is told of each.
    """
    if not case.has_heldout:
        return {}, []
    unique = list(dict.fromkeys(shas))
    try:
        case.references.wait("heldout", pool, listener)
    except PreparationError as exc:
        return {}, [f"No model could be scored on the held-out samples. {exc}"]
    listener(StageStarted(stage="heldout", total=len(unique)))
    running = [
        (sha, pool.submit(score_jobs.score, case.files.root, sha, "heldout", True, timeout_seconds=timeout_seconds))
        for sha in unique
    ]
    scores, failed = dict[str, Heldout](), dict[str, AutoselectError]()
    for sha, future in running:
        try:
            reply = result_of(future)
            scores[sha] = Heldout(score=reply.value, low=_known(reply.low), high=_known(reply.high))
        except AutoselectError as exc:
            failed[sha] = exc
        listener(StepFinished(stage="heldout"))
    if not scores and FLOAT in failed:
        remedy = f" {CHECK_VALUES}" if isinstance(failed[FLOAT], ScoreError) else ""
        return {}, [f"No model could be scored on the held-out samples, not even float. {failed[FLOAT]}{remedy}"]
    failures = [f"{sha[:10]} could not be scored on the held-out samples. {exc}" for sha, exc in failed.items()]
    others = max(len(scores) - 1 - (recommended in scores), 1)
    comparing = {
        sha: pool.submit(evidence_jobs.paired, case.files.root, sha, "heldout", 1 if sha == recommended else others)
        for sha in scores
        if FLOAT in scores and sha != FLOAT
    }
    for sha, comparison in comparing.items():
        try:
            scores[sha] = _compared(scores[sha], scores[FLOAT], result_of(comparison), direction)
        except TrialError as exc:
            failures.append(f"What {sha[:10]} loses on the held-out samples could not be measured. {exc}")
    return scores, failures


def write_effects(sha256: str, case: Case, folder: RunFolder, pool: Workers) -> list[str]:
    """Write which classes a model harms on the held-out samples, and on which of these it is furthest from float.

    Returns:
        Why that could not be measured; empty if it was, or where nothing is to be measured.
    """
    try:
        effects = pool.call(effect_jobs.effects, case.files.root, sha256, "heldout") if case.has_heldout else None
    except TrialError as exc:
        return [f"What the recommended model changes by class and by sample could not be measured. {exc}"]
    if effects is None:
        return []
    for path, rows in ((folder.heldout_classes, effects.classes), (folder.heldout_samples, effects.samples)):
        if rows:
            write_table(path, [f.name for f in fields(rows[0])], [asdict(row) for row in rows])
    return []


def _compared(model: Heldout, reference: Heldout, paired: PairedDrop | None, direction: Direction) -> Heldout:
    if model.score is None or reference.score is None:
        return model
    drop = drop_from(reference.score, model.score, direction)
    if paired is None:  # An evaluator gives one number: there is nothing to pair.
        return replace(model, drop=drop)
    return replace(model, drop=drop, drop_low=_known(paired.low), drop_high=_known(paired.high))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def time_again(
    front: Sequence[TrialRecord],
    references: Sequence[Reference],
    root: Path,
    pool: Workers,
    timeout_seconds: float,
    listener: Listener,
) -> tuple[list[TrialRecord], list[Reference]]:
    """The front and the references with their latency measured again, one after the other and nothing beside it.

    What cannot be run a second time keeps what was measured first.
    """
    shas = dict.fromkeys([*(r.sha256 for r in references), *(r.scores.sha256 for r in front if r.scores)])
    listener(StageStarted(stage="latency", total=len(shas)))
    times: dict[str, dict[str, float]] = {}
    for sha in shas:
        with contextlib.suppress(TrialError):
            times[sha] = pool.call(build_jobs.latency, root, sha, timeout_seconds=timeout_seconds)
        listener(StepFinished(stage="latency"))
    timed = [
        replace(r, scores=replace(r.scores, quantities={**r.scores.quantities, **times.get(r.scores.sha256, {})}))
        for r in front
        if r.scores is not None
    ]
    return timed, [replace(r, quantities={**r.quantities, **times.get(r.sha256, {})}) for r in references]
