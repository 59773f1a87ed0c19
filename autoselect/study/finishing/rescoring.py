"""Measures the front's members again: held-out scores, latencies in turns."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.errors import AutoselectError, TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.runs.records import (
    TrialRecord,
)
from autoselect.study.finishing.result import Heldout
from autoselect.study.references import Reference


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
