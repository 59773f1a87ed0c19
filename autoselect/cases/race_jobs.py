"""What workers do to race a candidate: score it look by look, and stop where it is sure not to reach its goal.

Each job may die without harm to the run.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import shares_of
from autoselect.cases.files import CaseFiles
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.cases.score_jobs import ScoreReply, metrics_on, score_errors, summary
from autoselect.errors import UsageError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate, racing
from autoselect.scoring.metric_base import Metric
from autoselect.tflite.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A candidate that can be said not to reach its goal, from some of the samples.

    Attributes:
        samples: How many were run.
        total: How many search samples there are.
        estimate: Of the metric on all search samples.
        sqnr_db, divergence: As in :class:`ScoreReply`; stratified means over the samples run.
        seconds: Of the whole race.
        inference_seconds: Spent in the interpreter.
    """

    samples: int
    total: int
    estimate: float
    sqnr_db: float
    divergence: float
    seconds: float
    inference_seconds: float


def keep_schedule(root: Path, sha256: str, seed: int) -> racing.Schedule:
    """Keep in which order candidates see the search samples when they race.

    Args:
        root: The case.
        sha256: A candidate scored on the search samples, at best the all-integer one; a sample is hard where its
            outputs are far from the float model's.
        seed: Of the order.

    Returns:
        What was kept for :func:`race`.

    Raises:
        UsageError: If the candidate is not scored, or the case has no float outputs.
        StorageError: If it cannot be written.
    """
    files = open_case(root).files
    path = files.fidelity_rows(sha256)
    if not path.exists():
        raise UsageError(
            f"expected a candidate scored against float outputs, got {sha256!r} without {path}. Score it first."
        )
    made = racing.schedule(-np.load(path)[:, 0], seed)
    content = io.BytesIO()
    np.savez(content, order=made.order, strata=made.strata, looks=np.array(made.looks))
    write_bytes(files.schedule, content.getvalue())
    return made


def race(root: Path, sha256: str, rivals: Sequence[str], goal: float, confidence: float) -> ScoreReply | Dropped:
    """Score a candidate on the search samples, look by look, until it is sure not to reach a goal.

    Args:
        root: A case with a schedule, see :func:`keep_schedule`.
        sha256: The candidate.
        rivals: Scored candidates that it is compared with, sample by sample; at best those that are most like it.
            Those without kept rows do not take part, and without any the candidate gets its full score.
        goal: Score that it must beat.
        confidence: With which a candidate that would reach it is not dropped, above 0 and below 1.

    Raises:
        ScoreError, MetricError: As :func:`score`.
        UsageError: If there is no schedule, or the metric is not a mean over samples.
    """
    case = open_case(root)
    start = time.perf_counter()
    metric = case.scoring.metric
    if metric is None or not metric.is_mean:
        raise UsageError(
            "expected a metric that is a mean over samples to race by, got another. Score in full instead."
        )
    with score_errors(sha256):
        runner = case.runner(sha256)
        schedule = _schedule(case.files)
        rules = _rules(case, metric, schedule, rivals, goal, confidence)
        return _race(case, metric, runner, sha256, schedule, rules, start)


def _schedule(files: CaseFiles) -> racing.Schedule:
    if not files.schedule.exists():
        raise UsageError(f"expected a schedule to race by, got none at {files.schedule}. Call keep_schedule first.")
    with np.load(files.schedule) as kept:
        return racing.Schedule(order=kept["order"], strata=kept["strata"], looks=tuple(kept["looks"].tolist()))


def _rules(
    case: OpenCase,
    metric: Metric,
    schedule: racing.Schedule,
    rivals: Sequence[str],
    goal: float,
    confidence: float,
) -> racing.Race | None:
    """What decides at each look; None where nothing is known to decide by."""
    rows = [found for found in map(case.rows, rivals) if found is not None]
    if not rows:
        return None
    best = 1.0 if metric.counts_hits else None
    return racing.Race(schedule, rows, metric.direction, goal=goal, confidence=confidence, best=best)


def _race(
    case: OpenCase,
    metric: Metric,
    runner: Runner,
    sha256: str,
    schedule: racing.Schedule,
    rules: racing.Race | None,
    start: float,
) -> ScoreReply | Dropped:
    last = len(schedule.looks) - 1
    for look, evidence in enumerate(_evidence_by_look(case, metric, runner, schedule)):
        if look < last and rules is not None and rules.is_lost(evidence[0], look):
            further = [shares_of(decibels) for decibels in evidence[1:]]
            estimates = [racing.stratified_mean(rows, schedule, look) for rows in [*evidence, *further]]
            estimate, sqnr_db, divergence = [*estimates, np.nan, np.nan][:3]
            return Dropped(
                samples=schedule.looks[look],
                total=len(schedule.order),
                estimate=estimate,
                sqnr_db=sqnr_db,
                divergence=divergence,
                seconds=time.perf_counter() - start,
                inference_seconds=runner.inference_seconds,
            )
    return summary(
        case,
        metric,
        sha256,
        "search",
        evidence,
        interval=False,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )


def _evidence_by_look(
    case: OpenCase, metric: Metric, runner: Runner, schedule: racing.Schedule
) -> Iterator[list[np.ndarray]]:
    """What is known at each look, in sample order and NaN where nothing is; the same arrays, filled up."""
    samples, metrics = case.part("search"), metrics_on(case, metric, "search")
    evidence = [np.full((len(samples), 1), np.nan) for _ in metrics]
    for look in range(len(schedule.looks)):
        block = schedule.block(look)
        observed = evaluate.observe(runner, samples, metrics, case.reference("search"), block.tolist())
        for rows, new in zip(evidence, observed, strict=True):
            rows[block] = new
        yield evidence
