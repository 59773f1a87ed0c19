"""A user's own function ``(y_true, y_pred) -> number`` as a metric; knows nothing of what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.data.specs import load_object
from autoselect.domain.objectives import Direction
from autoselect.errors import DataError, MetricError
from autoselect.scoring.metric_base import MeanMetric, Metric, Outputs, Row, target_array

UserFunction = Callable[[Any, Any], Any]

# How the dtype of a target travels in a row of floats.
_KINDS = {"f": 0.0, "i": 1.0, "u": 1.0, "b": 2.0}
_DTYPES: dict[float, type[np.generic]] = {0.0: np.float64, 1.0: np.int64, 2.0: np.bool_}


class UserMetric(Metric):
    """Calls a user's function on the stacked targets and outputs of all samples.

    The function gets ``y_true`` of shape (n_samples, ...) in float64, int64 or bool, and ``y_pred`` of
    shape (n_samples, ...), float64, without the batch axis of 1. It may be called on a part of the
    samples, in any order and with repetitions.

    Args:
        source: The function, or ``package.module:function``. Only the latter pickles without cloudpickle.
        direction: Whether more or less is better.
        output: Key of the scored output; None scores the first one.

    Raises:
        UsageError: If the spec is malformed or names nothing.
        MetricError: If the source is not callable.
    """

    needs_targets = True

    def __init__(self, source: str | UserFunction, *, direction: Direction, output: str | None = None) -> None:
        super().__init__(output=output)
        self._source = source
        self.direction = direction
        self.name = source if isinstance(source, str) else getattr(source, "__qualname__", repr(source))
        self.function()

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return _packed(target_array(target, self.name), self.scored(outputs)[0])

    def function(self) -> UserFunction:
        """The user's function itself."""
        function = self._source
        if isinstance(function, str):
            function = load_object(function, purpose="metric")
        if not callable(function):
            raise MetricError(
                f"metric {self.name!r}: expected a function (y_true, y_pred), got {type(function).__name__}. "
                "Name a function."
            )
        return function

    def _score(self, rows: np.ndarray) -> object:
        y_true, y_pred = _unpacked(rows, self.name)
        function = self.function()
        try:
            return function(y_true, y_pred)
        except Exception as exc:  # The user's function may raise anything.
            raise MetricError(
                f"metric {self.name!r}: expected a number, but the function raised "
                f"{type(exc).__name__}: {exc}. Make it work on y_true {y_true.dtype} {y_true.shape} "
                f"and y_pred {y_pred.dtype} {y_pred.shape}, with which it was called."
            ) from exc


class EvaluatorMean(MeanMetric):
    """What pairs the scores of an evaluator that returns one for each sample; observes nothing itself."""

    name = "evaluator"

    def __init__(self, direction: Direction) -> None:
        super().__init__()
        self.direction = direction

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        raise MetricError("An evaluator drives the model itself.")


def direction_of(direction: str | None, name: str) -> Direction:
    """Return the direction of a metric that does not know its own.

    Raises:
        MetricError: If it is neither ``"maximize"`` nor ``"minimize"``.
    """
    if direction == "maximize":
        return "maximize"
    if direction == "minimize":
        return "minimize"
    raise MetricError(
        f"metric {name!r}: expected the direction 'maximize' or 'minimize', got {direction!r}. "
        "Say whether a larger score is better."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The head of a row: what it needs to become a target and an output again."""

    kind: float
    target_shape: tuple[int, ...]
    output_shape: tuple[int, ...]

    @classmethod
    def read(cls, row: Sequence[float] | np.ndarray) -> _Layout:
        target_rank = int(row[1])
        dims = 3 + target_rank + int(row[2])
        shape = tuple(int(size) for size in row[3:dims])
        return cls(kind=float(row[0]), target_shape=shape[:target_rank], output_shape=shape[target_rank:])

    def head(self) -> list[float]:
        ranks = [len(self.target_shape), len(self.output_shape)]
        return [self.kind, *map(float, [*ranks, *self.target_shape, *self.output_shape])]


def _packed(target: np.ndarray, output: np.ndarray) -> Row:
    layout = _Layout(kind=_KINDS[target.dtype.kind], target_shape=target.shape, output_shape=output.shape)
    return np.concatenate([layout.head(), target.ravel().astype(np.float64), output.ravel()])


def _unpacked(rows: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return targets (n_samples, ...) and outputs (n_samples, ...)."""
    layout = _Layout.read(rows[0])
    head = layout.head()
    if not np.array_equal(rows[:, : len(head)], np.broadcast_to(head, (len(rows), len(head)))):
        raise DataError(
            f"metric {name!r}: expected targets of one shape and kind for all samples, got several. "
            "Bring all targets to one shape and dtype."
        )
    target_size = int(np.prod(layout.target_shape, dtype=np.int64))
    targets, outputs = np.split(rows[:, len(head) :], [target_size], axis=1)
    y_true = targets.reshape(len(rows), *layout.target_shape).astype(_DTYPES[layout.kind])
    return y_true, outputs.reshape(len(rows), *layout.output_shape)
