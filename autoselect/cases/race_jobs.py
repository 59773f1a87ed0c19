"""What workers do to race a candidate: score it look by look, and stop where it is sure not to reach its goal.

Each job may die without harm to the run.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import closeness, shares_of
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.cases.score_jobs import (
    UNKNOWN,
    Attempt,
    ScoreReply,
    means_of_closeness,
    score_errors,
    summary,
    summary_of_evaluated,
)
from autoselect.errors import MetricError, UsageError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate, racing
from autoselect.scoring.evaluator_parts import Evaluated


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
            outputs are far from the float model's, or with an evaluator its number is.
        seed: Of the order.

    Raises:
        UsageError: If the candidate is not scored, the case has no float outputs, or an evaluator does not return one
            number for each sample.
        StorageError: If it cannot be written.
    """
    case = open_case(root)
    made = racing.schedule(_hardness(case, sha256), seed)
    content = io.BytesIO()
    np.savez(content, order=made.order, strata=made.strata, looks=np.array(made.looks))
    write_bytes(case.files.schedule, content.getvalue())
    return made


def _hardness(case: OpenCase, sha256: str) -> np.ndarray:
    """How hard each search sample is, shape (n_samples,)."""
    if case.scoring.evaluator is None:
        path = case.files.fidelity_rows(sha256)
        if not path.exists():
            raise UsageError(
                f"expected a candidate scored against float outputs, got {sha256!r} without {path}. Score it first."
            )
        return -np.asarray(np.load(path)[:, 0])
    ours, theirs = case.rows(sha256), case.rows(FLOAT)
    if ours is None or theirs is None or len(ours) < 2 or not case.pairs().is_mean:
        raise UsageError(
            "expected an evaluator that returns one number for each sample to race by, got another. Score in full."
        )
    return np.asarray(np.abs(ours - theirs)[:, 0])


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
    attempt = Attempt(case=open_case(root), sha256=sha256, part="search")
    metric, evaluator = attempt.case.pairs(), attempt.case.scoring.evaluator
    if not metric.is_mean or (evaluator is not None and not evaluate.takes(evaluator, "samples")):
        raise UsageError(
            "expected a metric that is a mean over samples to race by, got another. Score in full instead."
        )
    with score_errors(sha256):
        attempt = attempt.running()
        schedule = _schedule(attempt.case.files)
        rows = [scored for scored in map(attempt.case.rows, rivals) if scored is not None]
        rules: racing.Race | None = None
        if rows:
            best = 1.0 if metric.counts_hits else None
            rules = racing.Race(schedule, rows, metric.direction, goal=goal, confidence=confidence, best=best)
        return _race(attempt, schedule, rules)


def _schedule(files: CaseFiles) -> racing.Schedule:
    if not files.schedule.exists():
        raise UsageError(f"expected a schedule to race by, got none at {files.schedule}. Call keep_schedule first.")
    with np.load(files.schedule) as kept:
        return racing.Schedule(order=kept["order"], strata=kept["strata"], looks=tuple(kept["looks"].tolist()))


def _race(attempt: Attempt, schedule: racing.Schedule, rules: racing.Race | None) -> ScoreReply | Dropped:
    """Look by look; without rules nothing is known to decide by."""
    last = len(schedule.looks) - 1
    for look, evidence in enumerate(_evidence_by_look(attempt, schedule)):
        if look < last and rules is not None and rules.is_lost(evidence[0], look):
            estimate = racing.stratified_mean(evidence[0], schedule, look)
            return Dropped(
                samples=schedule.looks[look],
                total=len(schedule.order),
                estimate=estimate,
                **_closeness(attempt, evidence[1:], schedule, look),
                **attempt.spent(),
            )
    if attempt.case.scoring.evaluator is None:
        return summary(attempt, evidence, interval=False)
    evaluation = Evaluated(rows=evidence[0], judging=attempt.case.judging("search"))
    assert attempt.runner is not None
    return summary_of_evaluated(attempt, evaluation, closeness(attempt.case, attempt.runner), interval=False)


def _closeness(
    attempt: Attempt, fidelity: Sequence[np.ndarray], schedule: racing.Schedule, look: int
) -> dict[str, float]:
    """Decibels and share of error: of the samples seen, with an evaluator of a few calibration samples; else NaN."""
    if attempt.case.scoring.evaluator is not None:
        assert attempt.runner is not None
        return means_of_closeness(closeness(attempt.case, attempt.runner))
    if not fidelity:
        return means_of_closeness(UNKNOWN)
    figures = {"sqnr_db": fidelity[0], "divergence": shares_of(fidelity[0])}
    return {name: racing.stratified_mean(rows, schedule, look) for name, rows in figures.items()}


def _evidence_by_look(attempt: Attempt, schedule: racing.Schedule) -> Iterator[list[np.ndarray]]:
    """What is known at each look, in sample order and NaN where nothing is; the same arrays, filled up."""
    count = 1 if attempt.case.scoring.evaluator is not None else len(attempt.metrics)
    evidence = [np.full((len(schedule.order), 1), np.nan) for _ in range(count)]
    for look in range(len(schedule.looks)):
        block = schedule.block(look)
        for rows, new in zip(evidence, _observed(attempt, block.tolist()), strict=True):
            rows[block] = new
        yield evidence


def _observed(attempt: Attempt, numbers: Sequence[int]) -> list[np.ndarray]:
    """The evidence of some samples; with an evaluator, what it says of them."""
    case, evaluator = attempt.case, attempt.case.scoring.evaluator
    if evaluator is None:
        return evaluate.observe(attempt.runner, case.part("search"), attempt.metrics, case.reference("search"), numbers)
    assert attempt.runner is not None
    evaluation = evaluate.call_evaluator(evaluator, attempt.runner, split="search", samples=numbers)
    if evaluation.judging.score is not None or evaluation.rows.shape[1] != 1:
        raise MetricError("The evaluator gave one number for each sample before, and now something else.")
    return [evaluation.rows]
