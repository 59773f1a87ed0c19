"""A user's own function ``(y_true, y_pred) -> number`` as a metric; knows nothing of what it computes."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autoselect.data.specs import load_object, name_of
from autoselect.domain.objectives import Direction
from autoselect.errors import DataError, MetricError
from autoselect.scoring.metric_base import Metric, Outputs, Row, target_array

UserFunction = Callable[[Any, Any], Any]

# How the dtype of a target travels in a row of floats.
_KINDS = {"f": 0.0, "i": 1.0, "u": 1.0, "b": 2.0}
_DTYPES: dict[float, type[np.generic]] = {0.0: np.float64, 1.0: np.int64, 2.0: np.bool_}


class UserMetric(Metric):
    """Calls a user's function on the stacked targets and outputs of all samples.

    The function gets ``y_true`` of shape (n_samples, ...) in float64, int64 or bool, and ``y_pred`` of
    shape (n_samples, ...), float64, without the batch axis of 1. It may be called on a part of the
    samples, in any order and with repetitions. If it has a method ``reset_state``, as metrics of Keras
    do, that is called first, so that a score is of one model alone.

    Args:
        source: The function, or ``package.module:function``. Only the latter pickles without cloudpickle.
        direction: Whether more or less is better.
        output: Key of the scored output; None scores the first one.

    Raises:
        UsageError: If the spec is malformed or names nothing.
        MetricError: If the source is not callable.
    """

    needs_targets = True
    is_costly = True

    def __init__(self, source: str | UserFunction, *, direction: Direction, output: str | None = None) -> None:
        super().__init__(output=output)
        self._source = source
        self.direction = direction
        self.name = source if isinstance(source, str) else name_of(source)
        self.function()

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return _packed(target_array(target, self.name), self.scored(outputs)[0])

    def function(self) -> UserFunction:
        """The user's function itself."""
        function = self._source
        if isinstance(function, str):
            function = load_object(function, purpose="metric", broken=MetricError)
        if not callable(function):
            raise MetricError(
                f"metric {self.name!r}: expected a function (y_true, y_pred), got {type(function).__name__}. "
                "Name a function."
            )
        return function

    def mismatched(self, rows: np.ndarray) -> np.ndarray:
        """A copy of the rows in which each target has the outputs of the sample before it, the first those of the last.

        The copy stands for the rows of another model.
        """
        values = 3 + int(rows[0, 1]) + int(rows[0, 2])
        begin = values + math.prod(rows[0, 3 : 3 + int(rows[0, 1])].astype(np.int64).tolist())
        return np.concatenate([rows[:, :begin], np.roll(rows[:, begin:], 1, axis=0)], axis=1)

    def _score(self, rows: np.ndarray) -> object:
        y_true, y_pred = _unpacked(rows, self.name)
        function = self.function()
        try:
            _reset(function)
            return function(y_true, y_pred)
        except (Exception, SystemExit) as exc:  # The user's function may raise anything.
            raise MetricError(
                f"metric {self.name!r}: expected a number, but the function raised "
                f"{type(exc).__name__}: {exc}. Make it work on y_true {y_true.dtype} {y_true.shape} "
                f"and y_pred {y_pred.dtype} {y_pred.shape}, with which it was called."
            ) from exc


def _reset(function: UserFunction) -> None:
    """Have a metric forget what it was given, if it has a way to do so that needs no argument."""
    reset = getattr(function, "reset_state", None)
    if callable(reset):
        with contextlib.suppress(TypeError, ValueError):
            inspect.signature(reset).bind()
            reset()


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
        "Say whether a larger score is better (--direction)."
    )


def _packed(target: np.ndarray, output: np.ndarray) -> Row:
    """One row: kind of the target, ranks and shapes of target and output, and the values of both."""
    head = [_KINDS[target.dtype.kind], target.ndim, output.ndim, *target.shape, *output.shape]
    return np.concatenate([np.array(head, np.float64), target.ravel().astype(np.float64), output.ravel()])


def _unpacked(rows: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return targets (n_samples, ...) and outputs (n_samples, ...)."""
    kind, target_rank, output_rank = rows[0, 0], int(rows[0, 1]), int(rows[0, 2])
    values = 3 + target_rank + output_rank
    if (rows[:, :values] != rows[0, :values]).any():
        raise DataError(
            f"metric {name!r}: expected targets of one shape and kind for all samples, got several. "
            "Bring all targets to one shape and dtype."
        )
    shape = rows[0, 3:values].astype(np.int64).tolist()
    target_shape, output_shape = shape[:target_rank], shape[target_rank:]
    targets, outputs = np.split(rows[:, values:], [math.prod(target_shape)], axis=1)
    y_true = targets.reshape(len(rows), *target_shape).astype(_DTYPES[float(kind)])
    return y_true, outputs.reshape(len(rows), *output_shape)
