"""Metrics by name: the catalogue, and how a user's own function joins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoselect.data.specs import name_of
from autoselect.domain.objectives import Direction
from autoselect.domain.words import did_you_mean
from autoselect.errors import MetricError
from autoselect.scoring.class_metrics import (
    Accuracy,
    Agreement,
    BalancedAccuracy,
    CohenKappa,
    F1Macro,
    MeanIoU,
    Top5Accuracy,
)
from autoselect.scoring.metric_base import Metric, Outputs, Row
from autoselect.scoring.user_metric import UserMetric, direction_of
from autoselect.scoring.value_metrics import (
    KullbackLeibler,
    MeanAbsoluteError,
    MeanSquaredError,
    PeakSignalToNoise,
    SignalToQuantizationNoise,
)

__all__ = ["METRIC_NAMES", "Direction", "Metric", "Outputs", "Row", "UserMetric", "make_metric"]

_CATALOGUE: dict[str, type[Metric]] = {
    kind.name: kind
    for kind in (
        Accuracy,
        Top5Accuracy,
        BalancedAccuracy,
        F1Macro,
        CohenKappa,
        MeanIoU,
        MeanSquaredError,
        MeanAbsoluteError,
        PeakSignalToNoise,
        Agreement,
        SignalToQuantizationNoise,
        KullbackLeibler,
    )
}

METRIC_NAMES: tuple[str, ...] = tuple(_CATALOGUE)
"""The names of the catalogue."""


def make_metric(
    spec: str | Callable[[Any, Any], Any],
    *,
    direction: str | None = None,
    output: str | None = None,
    ignore_label: int | None = None,
) -> Metric:
    """Make a metric from a name or a function.

    Args:
        spec: A name of the catalogue, ``package.module:function``, or a function ``(y_true, y_pred)``
            that returns a number.
        direction: ``"maximize"`` or ``"minimize"``. Required for a function; a metric of the catalogue
            knows its own.
        output: Key of the scored output; None scores the model's first one.
        ignore_label: Label of pixels that ``mean_iou`` leaves out.

    Returns:
        The metric.

    Raises:
        MetricError: If the name is unknown, the direction is missing or contradicts the catalogue, the
            object is not callable, its module raises while it is imported, or the metric is none of label
            maps and has a label to ignore.
        UsageError: If a ``package.module:function`` is malformed or names nothing.
    """
    if ignore_label is not None and spec != MeanIoU.name:
        raise MetricError(
            f"ignore_label: expected the metric {MeanIoU.name!r}, got {spec!r}. Leave the option out. Remove samples "
            "without a class from the data, or leave them out in a metric of your own."
        )
    if not isinstance(spec, str) or ":" in spec:
        name = spec if isinstance(spec, str) else name_of(spec)
        return UserMetric(spec, direction=direction_of(direction, name), output=output)
    if spec not in _CATALOGUE:
        raise MetricError(_unknown(spec))
    metric = (
        _CATALOGUE[spec](output=output) if ignore_label is None else MeanIoU(output=output, ignore_label=ignore_label)
    )
    if direction not in (None, metric.direction):
        raise MetricError(
            f"metric {spec!r}: expected the direction {metric.direction!r}, got {direction!r}. "
            "Leave the direction out; a metric of the catalogue knows its own."
        )
    return metric


def _unknown(name: str) -> str:
    return (
        f"expected a metric of the catalogue ({', '.join(METRIC_NAMES)}), got {name!r}."
        f"{did_you_mean(name, METRIC_NAMES)} Choose one, or give your own function as 'package.module:function'."
    )
