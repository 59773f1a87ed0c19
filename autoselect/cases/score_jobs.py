"""What workers do to score a candidate in full: on all samples of a part, with the noise of the score.

Each job may die without harm to the run.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from autoselect.cases import clipping_jobs
from autoselect.cases.divergence import closeness, shares_of, spread_rows
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.errors import MetricError, NoScore, ScoreError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate, intervals
from autoselect.scoring.evaluator_parts import Evaluated
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.paired import paired_drop
from autoselect.tflite.runner import Runner, Running

UNKNOWN = np.zeros((0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReply:
    """A score and how sure it is.

    ``noise`` is the standard error of the drop against float, ``bound`` what that is at most with a confidence of
    95 %; NaN with a metric of the user's, where both are left for later, and where nobody can know them. With an
    evaluator ``samples`` is 0, and the noise of a single number is 0.

    ``sqnr_db`` and ``divergence`` say how close the outputs are to the float model's, as means of decibels and of
    shares of error; with an evaluator on a few calibration samples. NaN where float outputs were not at hand.
    ``inference_seconds`` is 0 where the candidate had been scored before.
    """

    value: float
    noise: float
    bound: float
    sqnr_db: float
    divergence: float
    low: float
    high: float
    samples: int
    seconds: float
    inference_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A model that is being scored on a part of the samples, from now on; without a runner nothing need be run."""

    case: OpenCase
    sha256: str
    part: str
    runner: Running | None = None
    start: float = field(default_factory=time.perf_counter)

    def spent(self) -> dict[str, float]:
        """Seconds until now, and those of them in the interpreter."""
        inference_seconds = self.runner.inference_seconds if self.runner else 0.0
        return {"seconds": time.perf_counter() - self.start, "inference_seconds": inference_seconds}

    def running(self) -> Attempt:
        """This attempt with its model ready to be run.

        Raises:
            ScoreError: If the interpreter refuses it.
        """
        return replace(self, runner=self.case.runner(self.sha256))

    @property
    def metrics(self) -> list[Metric]:
        """The metric, and fidelity where there are float outputs of the part to compare with.

        Raises:
            ScoreError: If the case has no metric.
        """
        scoring = self.case.scoring
        if scoring.metric is None:
            raise ScoreError("The case has no metric to observe.")
        return [scoring.metric] if self.case.reference(self.part) is None else [scoring.metric, scoring.fidelity]


@contextlib.contextmanager
def score_errors(sha256: str) -> Iterator[None]:
    """Make a metric without a value the failure of one candidate, unless it has none for the float model.

    Raises:
        NoScore: If the metric has no value for the candidate.
        ScoreError: If the evaluator met a kernel that fails.
        MetricError: If the metric has no value for the float model.
    """
    try:
        yield
    except MetricError as exc:
        if sha256 == FLOAT:
            raise
        words = f"The metric has no value for this candidate. {exc}"
        if isinstance(exc.__cause__, ScoreError):  # An evaluator lets it fall.
            raise ScoreError(words, op=exc.__cause__.op) from exc
        raise NoScore(words) from exc


def score(root: Path, sha256: str, part: str, interval: bool) -> ScoreReply:
    """Score a candidate (or the float model) on a part; with an interval where asked.

    Raises:
        ScoreError: If the interpreter cannot run the candidate.
        MetricError: If the metric or evaluator fails on the float model; on a candidate that is a ScoreError.
    """
    attempt = Attempt(case=open_case(root), sha256=sha256, part=part)
    with score_errors(sha256):
        if attempt.case.scoring.evaluator is not None:
            return _evaluated(attempt.running(), attempt.case.scoring.evaluator, interval)
        return _score_metric(attempt, interval)


def score_float(root: Path) -> ScoreReply:
    """Score the float model of a search on the search part, from its kept outputs where there are any.

    Raises:
        ScoreError, MetricError: As :func:`score`.
    """
    case = open_case(root)
    if case.scoring.metric is None or case.reference("search") is None:
        return score(root, FLOAT, "search", False)
    with score_errors(FLOAT):
        return _score_metric(Attempt(case=case, sha256=FLOAT, part="search"), False, is_known=True)


def observe(root: Path, sha256: str, part: str) -> np.ndarray:
    """The metric's evidence of a candidate (or the float model) on a part.

    Returns:
        Float64 of shape (n_samples, row_length).

    Raises:
        ScoreError: If the interpreter cannot run the candidate, or an output is not a number.
        MetricError: If the metric does not suit the candidate's outputs.
    """
    case = open_case(root)
    metric = Attempt(case=case, sha256=sha256, part=part).metrics[0]
    return evaluate.observe(case.runner(sha256), case.part(part), [metric], case.reference(part))[0]


def _score_metric(attempt: Attempt, interval: bool, *, is_known: bool = False) -> ScoreReply:
    """Score by the metric; a model that ``is_known`` is that of the part's float outputs, and need not run again."""
    case, part, metrics = attempt.case, attempt.part, attempt.metrics
    evidence = _kept_rows(case.files, attempt.sha256, len(metrics)) if part == "search" else []
    if not evidence:
        attempt = attempt if is_known else attempt.running()
        evidence = evaluate.observe(attempt.runner, case.part(part), metrics, case.reference(part))
    return summary(attempt, evidence, interval=interval)


def _evaluated(attempt: Attempt, evaluator: evaluate.Evaluator, interval: bool) -> ScoreReply:
    """What an evaluator says, and how sure it is where it gave a row for each sample."""
    assert attempt.runner is not None
    if attempt.sha256 == FLOAT and attempt.part == "search" and isinstance(attempt.runner, Runner):
        with clipping_jobs.ends_kept(attempt.runner, attempt.case.files.evaluator_ends):
            evaluation = evaluate.call_evaluator(evaluator, attempt.runner, split=attempt.part)
        _check_samples(evaluator, attempt.runner, evaluation)
    else:
        evaluation = evaluate.call_evaluator(evaluator, attempt.runner, split=attempt.part)
    near = closeness(attempt.case, attempt.runner) if attempt.part == "search" else UNKNOWN
    return summary_of_evaluated(attempt, evaluation, near, interval=interval)


def _check_samples(evaluator: evaluate.Evaluator, runner: Running, evaluation: Evaluated) -> None:
    """Check that an evaluator with a parameter ``samples`` scores the samples that it is asked for, in that order.

    It scores a few search samples once more, the highest number first.

    Raises:
        MetricError: If one of them has another score than in the full run: races would then compare candidates on
            different samples.
    """
    if len(evaluation.rows) < 2 or not evaluate.takes(evaluator, "samples"):
        return
    first = evaluation.rows.reshape(len(evaluation.rows), -1)[:, 0]  # Samples of one score would not tell.
    some = spread_rows(len(first), max(min(len(first) // 10, 8), 2))
    chosen = sorted({*some, int(np.argmin(first)), int(np.argmax(first))}, reverse=True)
    again, expected = (
        evaluate.call_evaluator(evaluator, runner, split="search", samples=chosen),
        evaluation.rows[chosen],
    )
    if again.rows.shape != expected.shape or not np.allclose(again.rows, expected, equal_nan=True):
        raise MetricError(
            f"The evaluator must score the samples whose numbers it gets as samples, in their order. For {chosen} it "
            "gave other scores than these have among all: it scores others, or gives other scores each time. Mend "
            "that, or leave out this parameter."
        )


def summary_of_evaluated(attempt: Attempt, evaluation: Evaluated, near: np.ndarray, *, interval: bool) -> ScoreReply:
    """The score of what an evaluator said of a whole part, with its noise; keeps rows.

    Noise is measured at once, also that of a function of the user's: later only samples of a metric are known.

    Args:
        attempt: What was evaluated.
        evaluation: What the evaluator said.
        near: How close the model's outputs are to float's, in dB; without rows if that is not known.
        interval: Whether to compute ``low`` and ``high``.

    Raises:
        MetricError: If it does not fit what the evaluator said of the float model, or there is no score.
    """
    case, part, is_float = attempt.case, attempt.part, attempt.sha256 == FLOAT
    theirs = None if is_float else case.rows(FLOAT, part)
    if theirs is not None and theirs.shape != evaluation.rows.shape:
        raise MetricError(_unlike_float(evaluation.rows, theirs))
    case.keep_judging(part, evaluation.judging, anew=is_float)
    metric = case.pairs(part)
    reply = replace(_reply(attempt, metric, evaluation.rows, near, interval), samples=0)
    if len(evaluation.rows) == 1:
        return replace(reply, noise=0.0)
    if not metric.is_costly or part != "search":
        return reply
    paired = _paired(case, metric, evaluation.rows)
    return replace(reply, noise=paired["noise"], bound=paired["bound"])


def _unlike_float(rows: np.ndarray, theirs: np.ndarray) -> str:
    if len(rows) != len(theirs):
        return f"The evaluator gave {len(rows)} scores, and {len(theirs)} of the float model. Give one for each sample."
    return (
        f"The evaluator gave {rows.shape[1]} numbers for each sample, and {theirs.shape[1]} of the float model. Give "
        "rows of one shape for every model."
    )


def summary(attempt: Attempt, evidence: Sequence[np.ndarray], *, interval: bool) -> ScoreReply:
    """The score from the evidence of a whole part; keeps that of the search.

    Args:
        attempt: What was observed.
        evidence: That of each of its metrics, each of shape (n_samples, row_length).
        interval: Whether to compute ``low`` and ``high``.

    Raises:
        MetricError: If the metric has no value for this evidence.
        StorageError: If the evidence cannot be kept.
    """
    rows, *decibels = evidence
    near = decibels[0] if decibels else UNKNOWN
    return _reply(attempt, attempt.metrics[0], rows, near, interval, kept=decibels)


def _reply(
    attempt: Attempt,
    metric: Metric,
    rows: np.ndarray,
    decibels: np.ndarray,
    interval: bool,
    kept: Sequence[np.ndarray] = (),
) -> ScoreReply:
    value = _value_of(metric, rows)
    _keep_rows(attempt.case.files, attempt.sha256, attempt.part, rows, kept)
    low, high = np.nan, np.nan
    if interval:
        low, high = intervals.confidence_interval(metric, rows, groups=attempt.case.groups(attempt.part))
    now = attempt.part == "search" and not metric.is_costly
    return ScoreReply(
        value=value,
        **(_paired(attempt.case, metric, rows) if now else {"noise": np.nan, "bound": np.nan}),
        **means_of_closeness(decibels),
        low=low,
        high=high,
        samples=len(rows),
        **attempt.spent(),
    )


def _value_of(metric: Metric, rows: np.ndarray) -> float:
    """The score of all rows.

    Raises:
        MetricError: If there is no score, or if the user's function writes into its arguments. Intervals and drops are
            computed of the same arrays later.
    """
    if not metric.is_costly:
        return metric.summarise(rows)
    given = rows.copy()
    value = metric.summarise(given)
    if not np.array_equal(given, rows, equal_nan=True):
        raise MetricError(
            f"Expected a score function that leaves its arguments as they are, but {metric.name!r} wrote into them, "
            "and they are read again for intervals. Let it change a copy (array.copy())."
        )
    return value


def means_of_closeness(decibels: np.ndarray) -> dict[str, float]:
    """Means of decibels and of shares of error; NaN where there are no decibels."""
    if not len(decibels):
        return {"sqnr_db": np.nan, "divergence": np.nan}
    return {"sqnr_db": float(decibels.mean()), "divergence": float(shares_of(decibels).mean())}


def _keep_rows(files: CaseFiles, sha256: str, part: str, rows: np.ndarray, closeness: Sequence[np.ndarray]) -> None:
    # Evidence rows wider than this are not kept for the noise of the picks.
    if rows.shape[1] <= 4096:
        _write_array(files.rows(sha256, part), rows)
    for fidelity_rows in closeness:
        _write_array(files.fidelity_rows(sha256, part), fidelity_rows)


def _kept_rows(files: CaseFiles, sha256: str, metrics: int) -> list[np.ndarray]:
    """What :func:`_keep_rows` kept of a candidate, by metric; empty where something is missing."""
    paths = [files.rows(sha256), files.fidelity_rows(sha256)][:metrics]
    return [np.load(path) for path in paths] if all(path.exists() for path in paths) else []


def _write_array(path: Path, array: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, array)
    write_bytes(path, content.getvalue())


def _paired(case: OpenCase, metric: Metric, rows: np.ndarray) -> dict[str, float]:
    """Noise and bound of the drop against float; NaN where float's rows were not kept."""
    theirs = case.rows(FLOAT)
    if theirs is None:
        return {"noise": np.nan, "bound": np.nan}
    drop = paired_drop(metric, rows, theirs, groups=case.groups("search"))
    return {"noise": drop.error, "bound": drop.bound}
