"""What workers do to score a candidate in full: on all samples of a part, with the noise of the score.

Each job may die without harm to the run.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import closeness, shares_of
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.errors import MetricError, ScoreError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate, intervals
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.paired import paired_drop
from autoselect.tflite.runner import Runner

_UNKNOWN = np.zeros((0, 1))

_MAX_KEPT_ROW = 4096
"""Evidence rows wider than this are not kept for the noise of the picks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReply:
    """A score and how sure it is.

    ``noise`` is the standard error of the drop against float, ``bound`` what that is at most with a confidence of
    95 %; NaN where they are left for later.

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


@contextlib.contextmanager
def score_errors(sha256: str) -> Iterator[None]:
    """Make a metric without a value the failure of one candidate, unless it has none for the float model.

    Args:
        sha256: The candidate (or the float model).

    Raises:
        ScoreError: If the metric has no value for the candidate.
        MetricError: If the metric has no value for the float model.
    """
    try:
        yield
    except MetricError as exc:
        if sha256 == FLOAT:
            raise
        raise ScoreError(f"The metric has no value for this candidate. {exc}") from exc


def score(root: Path, sha256: str, part: str, interval: bool) -> ScoreReply:
    """Score a candidate (or the float model) on a part; with an interval where asked.

    Raises:
        ScoreError: If the interpreter cannot run the candidate.
        MetricError: If the metric or evaluator fails on the float model; on a candidate that is a ScoreError.
    """
    case = open_case(root)
    start = time.perf_counter()
    with score_errors(sha256):
        if case.scoring.evaluator is not None:
            runner = case.runner(sha256)
            rows = evaluate.call_evaluator(case.scoring.evaluator, runner, split=part)
            return _evaluated(case, runner, sha256, part, rows, interval, start)
        return _score_metric(case, sha256, part, interval, start)


def score_float(root: Path) -> ScoreReply:
    """Score the float model of a search on the search part, from its kept outputs where there are any.

    Raises:
        ScoreError, MetricError: As :func:`score`.
    """
    case = open_case(root)
    if case.scoring.metric is None or case.reference("search") is None:
        return score(root, FLOAT, "search", False)
    with score_errors(FLOAT):
        return _score_metric(case, FLOAT, "search", False, time.perf_counter(), is_known=True)


def observe(root: Path, sha256: str, part: str) -> np.ndarray:
    """The metric's evidence of a candidate (or the float model) on a part.

    Returns:
        Float64 of shape (n_samples, row_length).

    Raises:
        ScoreError: If the interpreter cannot run the candidate, or an output is not a number.
        MetricError: If the metric does not suit the candidate's outputs.
    """
    case = open_case(root)
    if case.scoring.metric is None:
        raise ScoreError("The case has no metric to observe.")
    runner = case.runner(sha256)
    return evaluate.observe(runner, case.part(part), [case.scoring.metric], case.reference(part))[0]


def _score_metric(
    case: OpenCase, sha256: str, part: str, interval: bool, start: float, *, is_known: bool = False
) -> ScoreReply:
    """Score by the metric; a model that ``is_known`` is that of the part's float outputs, and need not run again."""
    metric = case.scoring.metric
    if metric is None:
        raise ScoreError("The case has neither a metric nor an evaluator.")
    metrics, inference_seconds = metrics_on(case, metric, part), 0.0
    evidence = _kept_rows(case.files, sha256, len(metrics)) if part == "search" else []
    if not evidence:
        runner = None if is_known else case.runner(sha256)
        evidence = evaluate.observe(runner, case.part(part), metrics, case.reference(part))
        inference_seconds = runner.inference_seconds if runner else 0.0
    return summary(
        case,
        metric,
        sha256,
        part,
        evidence,
        interval=interval,
        seconds=time.perf_counter() - start,
        inference_seconds=inference_seconds,
    )


def _evaluated(
    case: OpenCase, runner: Runner, sha256: str, part: str, rows: np.ndarray, interval: bool, start: float
) -> ScoreReply:
    """What an evaluator says, and how sure it is where it gave a score for each sample."""
    metric = case.scoring.pairs
    _keep_rows(case.files, sha256, part, rows, [])
    low, high = intervals.confidence_interval(metric, rows) if interval else (np.nan, np.nan)
    paired = _paired(case, metric, rows) if part == "search" else {"noise": np.nan, "bound": np.nan}
    return ScoreReply(
        value=metric.summarise(rows),
        noise=float(np.nan_to_num(paired["noise"])),
        bound=paired["bound"],
        **_closeness(closeness(case, runner) if part == "search" else _UNKNOWN),
        low=low,
        high=high,
        samples=0,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )


def metrics_on(case: OpenCase, metric: Metric, part: str) -> list[Metric]:
    """The metric, and fidelity where there are float outputs of the part to compare with."""
    return [metric] if case.reference(part) is None else [metric, case.scoring.fidelity]


def summary(
    case: OpenCase,
    metric: Metric,
    sha256: str,
    part: str,
    evidence: Sequence[np.ndarray],
    *,
    interval: bool,
    seconds: float,
    inference_seconds: float,
) -> ScoreReply:
    """The score from the evidence of a whole part; keeps that of the search.

    Args:
        case: The case.
        metric: Its metric.
        sha256: The candidate (or the float model) that was observed.
        part: On which samples.
        evidence: That of each metric of :func:`metrics_on`, each of shape (n_samples, row_length).
        interval: Whether to compute ``low`` and ``high``.
        seconds: Spent until now.
        inference_seconds: Of these, in the interpreter.

    Raises:
        MetricError: If the metric has no value for this evidence.
        StorageError: If the evidence cannot be kept.
    """
    rows, *decibels = evidence
    value = metric.summarise(rows)
    _keep_rows(case.files, sha256, part, rows, decibels)
    low, high = intervals.confidence_interval(metric, rows) if interval else (np.nan, np.nan)
    later = not (metric.is_mean and part == "search")
    return ScoreReply(
        value=value,
        **({"noise": np.nan, "bound": np.nan} if later else _paired(case, metric, rows)),
        **_closeness(decibels[0] if decibels else _UNKNOWN),
        low=low,
        high=high,
        samples=len(rows),
        seconds=seconds,
        inference_seconds=inference_seconds,
    )


def _closeness(decibels: np.ndarray) -> dict[str, float]:
    """Both means; NaN where there are no decibels."""
    if not len(decibels):
        return {"sqnr_db": np.nan, "divergence": np.nan}
    return {"sqnr_db": float(decibels.mean()), "divergence": float(shares_of(decibels).mean())}


def _keep_rows(files: CaseFiles, sha256: str, part: str, rows: np.ndarray, closeness: Sequence[np.ndarray]) -> None:
    if rows.shape[1] <= _MAX_KEPT_ROW:
        _write_array(files.rows(sha256, part), rows)
    for fidelity_rows in closeness if part == "search" else ():
        _write_array(files.fidelity_rows(sha256), fidelity_rows)


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
    if len(theirs) != len(rows):
        raise MetricError(
            f"The evaluator gave {len(rows)} scores, and {len(theirs)} of the float model. Give one for each sample."
        )
    found = paired_drop(metric, rows, theirs)
    return {"noise": found.error, "bound": found.bound}
