"""What an evaluator returns: one number, one for each sample, or the parts that a score is made of; runs no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.domain.objectives import Direction
from autoselect.errors import MetricError
from autoselect.scoring.metric_base import MeanMetric, Metric, Outputs, Row

_EXPECTED = (
    "a finite number, a list of them with one for each sample, or autoselect.Parts of counts for each sample and the "
    "function that makes a score of them"
)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a score is made of, as an evaluator may return it: figures of each sample, and how any of them make a score.

    The search resamples the samples, or their groups, so that it can say how sure the score is.

    Attributes:
        rows: Finite figures of each sample, shape (n_samples, ...), for example a confusion matrix of each image. The
            samples, their order and the shape are the same for every model.
        score: Called with the float64 rows of any samples, shape (n, ...), in any order and with repetitions; returns
            their score. None for the mean of the rows, which then have shape (n_samples,).
        groups: A label for each sample, such as its speaker, recording or patient, compared as text; None if all
            samples are independent.

    Examples:
        >>> import numpy as np
        >>> import autoselect
        >>> errors_and_words = np.array([[0, 4], [1, 2], [0, 2]])
        >>> parts = autoselect.Parts(errors_and_words, score=lambda rows: rows[:, 0].sum() / rows[:, 1].sum())
        >>> float(parts.score(parts.rows))
        0.125
    """

    rows: Any
    score: Callable[[np.ndarray], float] | None = None
    groups: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How rows of an evaluator make a score; the same for all models of a part of the samples.

    Attributes:
        name: What it is called in messages.
        shape: Of one sample's row, as the evaluator gave it.
        score: As in :class:`Parts`.
        groups: The group of each row; None where all are independent.
    """

    name: str
    shape: tuple[int, ...] = ()
    score: Callable[[np.ndarray], float] | None = None
    groups: tuple[str, ...] | None = None

    def metric(self, direction: Direction) -> Metric:
        """What makes scores of rows."""
        return EvaluatorMean(direction) if self.score is None else EvaluatorScore(self, self.score, direction)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """What an evaluator said of a model.

    Attributes:
        rows: Float64 of shape (n_samples, row_length); one row where it returned one number.
        judging: What makes a score of them.
    """

    rows: np.ndarray
    judging: Judging

    @classmethod
    def of(cls, value: Any, evaluator: str) -> Evaluated:
        """Read what an evaluator of this name returned.

        Raises:
            MetricError: If these are no finite numbers, or parts that do not fit each other.
        """
        parts = value if isinstance(value, Parts) else Parts(value)
        try:
            rows = _reals(parts.rows)
        except (TypeError, ValueError) as exc:
            shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:197]}..."
            hint = " A function without `return` returns None." if value is None else ""
            raise MetricError(f"The evaluator {evaluator} must return {_EXPECTED}; it returned {shown}.{hint}") from exc
        if problem := _problem(parts, rows, is_parts=parts is value):
            raise MetricError(f"The evaluator {evaluator} must return {_EXPECTED}; it returned {problem}.")
        groups = None if parts.groups is None else tuple(map(str, parts.groups))
        name = getattr(parts.score, "__name__", evaluator)
        judging = Judging(name=name, shape=rows.shape[1:], score=parts.score, groups=groups)
        return cls(rows=rows.reshape(len(rows) if rows.ndim else 1, -1), judging=judging)


def _reals(values: Any) -> np.ndarray:
    """Real numbers as float64.

    NumPy makes NaN of None, a number of the text "0.9", and leaves out what is imaginary.

    Raises:
        TypeError: If they are none.
        ValueError: If they are ragged.
    """
    array = np.asarray(values)
    is_odd = array.dtype.kind == "O" and any(value is None or isinstance(value, str | bytes) for value in array.flat)
    if is_odd or array.dtype.kind in "USTc":
        raise TypeError("no real numbers")
    return array.astype(np.float64, copy=False)


def _problem(parts: Parts, rows: np.ndarray, *, is_parts: bool) -> str:
    """What is wrong with what an evaluator returned; empty if nothing is."""
    shown = f"an array of shape {rows.shape}" if rows.ndim else f"{rows}"
    score: object = parts.score
    bad = int(np.count_nonzero(~np.isfinite(rows)))
    if bad or not rows.size:
        return f"{shown} with {bad} of {rows.size} numbers NaN or infinite" if rows.ndim and bad else shown
    if is_parts and rows.ndim == 0:
        return f"Parts of the single number {rows}. Give a row for each sample"
    if score is not None and not callable(score):
        return f"Parts whose score is {type(score).__name__}, and no function"
    if parts.score is None and rows.ndim > 1:
        return f"{shown} without a function that makes a score of it. Return autoselect.Parts(rows, score=...)"
    if parts.groups is not None and len(parts.groups) != len(rows):
        return f"Parts of {len(rows)} samples with {len(parts.groups)} groups. Give one group for each sample"
    return ""


class EvaluatorMean(MeanMetric):
    """What pairs the scores of an evaluator that returns one for each sample; observes nothing itself."""

    name = "evaluator"

    def __init__(self, direction: Direction) -> None:
        super().__init__()
        self.direction = direction

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        raise MetricError("An evaluator drives the model itself.")


class EvaluatorScore(Metric):
    """What makes scores of an evaluator's parts; observes nothing itself."""

    is_costly = True

    def __init__(self, judging: Judging, score: Callable[[np.ndarray], float], direction: Direction) -> None:
        super().__init__()
        self.name, self.direction = judging.name, direction
        self._shape, self._function = judging.shape, score

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        raise MetricError("An evaluator drives the model itself.")

    def _score(self, rows: np.ndarray) -> object:
        shaped = rows.reshape(len(rows), *self._shape)
        try:
            return self._function(shaped)
        except (Exception, SystemExit) as exc:  # The user's function may raise anything.
            raise MetricError(
                f"The score {self.name} of the evaluator's parts raised {type(exc).__name__}: {exc}. It was called "
                f"with rows of shape {shaped.shape}: make it work on those of any samples."
            ) from exc
