"""Layer statistics: how far each node's quantized output is from its float output; the one place that measures them.

It runs on the kernels that users deploy, XNNPACK's where LiteRT takes these, as TensorFlow's Quantization Debugger
does. Each sample begins with a fresh state, which it does not in the debugger, but for a state in variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoselect.domain.layers import LayerStatistics, LayerTable, Node
from autoselect.domain.recipe import Recipe
from autoselect.errors import MetricError
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.diagnosing.verification import Place, Plan, plan
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite.runner import Runner

LayerDebugMetric = Callable[[np.ndarray], float]
"""Called with the error of one node on one sample: float32, the node's output shape."""

LayerDirectCompareMetric = Callable[[np.ndarray, np.ndarray, float, int], float]
"""Called with the float output, the quantized output (its own dtype), scale and zero point of one node."""

ERROR_METRICS: dict[str, LayerDebugMetric] = {
    "num_elements": lambda errors: float(errors.size),
    "stddev": lambda errors: float(errors.std()),
    "mean_error": lambda errors: float(errors.mean()),
    "max_abs_error": lambda errors: float(np.abs(errors).max()),
    "mean_squared_error": lambda errors: float(np.square(errors).mean()),
}
"""The Quantization Debugger's figures of one error array, each averaged over the samples."""

_OWN = len(ERROR_METRICS) + 1
"""Columns of figures before the user's: the debugger's, and the power of the float output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMetrics:
    """Metrics of the user's own, by name, with the Quantization Debugger's signatures.

    Attributes:
        debug: Functions of the error, as ``QuantizationDebugOptions.layer_debug_metrics``.
        direct_compare: Functions of float output, quantized output, scale and zero point, as
            ``QuantizationDebugOptions.layer_direct_compare_metrics``. A float output of the measured model (a
            hybrid or float node) comes with scale 1 and zero point 0.
    """

    debug: Mapping[str, LayerDebugMetric] = field(default_factory=dict)
    direct_compare: Mapping[str, LayerDirectCompareMetric] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of their columns."""
        return (*self.debug, *self.direct_compare)


NO_METRICS = LayerMetrics()


def layer_table(
    calibrated: CalibratedModel,
    nodes: Sequence[Node],
    samples: Iterable[dict[str, np.ndarray]],
    *,
    per_channel: bool = True,
    kit: RepairKit | None = None,
) -> LayerTable:
    """Measure every node of the all-integer model on the samples."""
    chosen = plan(calibrated, nodes, Recipe(per_channel=per_channel), kit=kit)
    return table(chosen, nodes, measure(chosen, samples))


def measure(plan: Plan, samples: Iterable[Mapping[str, np.ndarray]], metrics: LayerMetrics = NO_METRICS) -> np.ndarray:
    """Run the samples and take every figure of every place.

    Args:
        plan: What to run and where to read.
        samples: Inputs by key, float, batch 1.
        metrics: The user's own.

    Returns:
        Shape (n_samples, n_places, n_figures), float64: verified places first. The figures are the five of
        ``ERROR_METRICS``, the mean square of the float output, and the user's metrics.

    Raises:
        MetricError: If a metric raises or returns no single number, with its name and the node's.
        ScoreError: If the interpreter cannot run a model.
    """
    runs: list[_Run] = []
    if plan.verified:
        runs.append(_Run(plan.verified, Runner(plan.debug, preserve_all_tensors=True, delegates=True)))
    if plan.compared:
        models = (Runner(content, preserve_all_tensors=True) for content in (plan.float_model, plan.built))
        runs.append(_Run(plan.compared, *models))
    rows = []
    for number, sample in enumerate(samples):
        row: list[list[float]] = []
        for run in runs:
            run.start(sample)
            row += [_figures(run, place, metrics, number) for place in run.places]
        rows.append(row)
    count = len(plan.verified) + len(plan.compared)
    return np.asarray(rows, dtype=np.float64).reshape(len(rows), count, _OWN + len(metrics.names))


class _Run:
    """The models that some places are in, to be run side by side: the debug model, or float model and candidate."""

    def __init__(self, places: Sequence[Place], *models: Runner) -> None:
        self.places, self._models = places, models

    def start(self, sample: Mapping[str, np.ndarray]) -> None:
        for model in self._models:
            model.go_on(sample)

    def reference(self, place: Place) -> np.ndarray:
        """The float output."""
        return self._models[0].tensor(place.reference)

    def output(self, place: Place) -> np.ndarray:
        """The measured one in its own dtype."""
        return self._models[-1].tensor(place.quantized)

    def errors(self, place: Place) -> np.ndarray:
        """Their difference in float32, which the debug model takes itself."""
        if place.error is not None:
            return self._models[-1].tensor(place.error)
        output = self.output(place)
        if not math.isnan(place.scale):
            output = (output.astype(np.float32) - place.zero_point) * np.float32(place.scale)
        return np.asarray(output - self.reference(place))


def _figures(run: _Run, place: Place, metrics: LayerMetrics, sample: int) -> list[float]:
    reference, errors = run.reference(place), run.errors(place)
    signal = np.ravel(reference)
    figures = [metric(errors) for metric in ERROR_METRICS.values()]
    figures.append(float(np.vdot(signal, signal)) / max(signal.size, 1))
    figures += [_called(name, metric, place, sample, errors) for name, metric in metrics.debug.items()]
    if metrics.direct_compare:
        step = (1.0, 0) if math.isnan(place.scale) else (place.scale, place.zero_point)
        figures += [
            _called(name, metric, place, sample, reference, run.output(place), *step)
            for name, metric in metrics.direct_compare.items()
        ]
    return figures


def _called(name: str, metric: Callable[..., float], place: Place, sample: int, *arguments: Any) -> float:
    where = f"node {place.name!r} (sample {sample}, counted from 0)"
    return scalar_of(f"Metric {name!r}", metric, where, *arguments)


def scalar_of(what: str, function: Callable[..., Any], where: str, *arguments: Any) -> float:
    """Call a user's function that must return one number; NaN is one, and is left out of means.

    Raises:
        MetricError: If it raises or returns anything else, with what and where.
    """
    try:
        value = np.asarray(function(*arguments))
    except Exception as exc:  # a user's code may raise anything
        raise MetricError(f"{what} raised {type(exc).__name__} on {where}: {exc}. Correct the function.") from exc
    if value.size != 1 or value.dtype.kind not in "biuf":
        got = f"an array of shape {value.shape}" if value.dtype.kind in "biuf" else f"dtype {value.dtype}"
        raise MetricError(
            f"{what} must return one number, but on {where} it returned {got}. Reduce it, e.g. by a mean."
        )
    return float(value.item())


def table(plan: Plan, nodes: Sequence[Node], figures: np.ndarray, metrics: LayerMetrics = NO_METRICS) -> LayerTable:
    """Average what :meth:`measure` took over the samples.

    Of a node with several verified outputs, the one with the largest rmse/scale counts.
    """
    statistics_by_node: dict[int, LayerStatistics] = {}
    for position, place in enumerate((*plan.verified, *plan.compared)):
        row = _statistics(place, figures[:, position], metrics)
        earlier_row = statistics_by_node.get(place.node)
        if earlier_row is None or row.rmse_per_scale > earlier_row.rmse_per_scale:
            statistics_by_node[place.node] = row
    return LayerTable(nodes=tuple(nodes), statistics=tuple(statistics_by_node.get(n.index) for n in nodes))


def _statistics(place: Place, figures: np.ndarray, metrics: LayerMetrics) -> LayerStatistics:
    """Means in float32 for the debugger's own figures, as it averages them."""
    with np.errstate(all="ignore"):
        means = [float(_mean(column.astype(np.float32))) for column in figures.T[: _OWN - 1]]
        signal = _mean(figures[:, _OWN - 1])
        own = [float(_mean(column)) for column in figures.T[_OWN:]]
    named = dict(zip(ERROR_METRICS, means, strict=True))
    return LayerStatistics(
        tensor_index=place.quantized,
        scale=place.scale,
        zero_point=place.zero_point,
        verified=place.error is not None,
        sqnr_db=_decibels(signal, named["mean_squared_error"]),
        metrics=dict(zip(metrics.names, own, strict=True)),
        **named,
    )


def _mean(column: np.ndarray) -> Any:
    return np.nan if np.isnan(column).all() else np.nanmean(column)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0.0:
        return math.inf if signal > 0.0 else math.nan
    if math.isinf(noise):
        return -math.inf if math.isfinite(signal) else math.nan
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf
