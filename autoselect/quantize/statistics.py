"""Layer statistics: how far each node's quantized output is from its float output.

Where the quantizer's debug model verifies a node, its NumericVerify op compares the node's int8 output with what the
float kernel makes of the *same* inputs: the error of this node alone. Nodes without one are compared
between the float model and the all-integer model: the error accumulated up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.domain.layers import LayerStatistics, LayerTable, Node
from autoselect.domain.recipe import Recipe
from autoselect.quantize import converter, names
from autoselect.quantize.build import CalibratedModel, op_places
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

_NUMERIC_VERIFY = "NumericVerify"

ERROR_METRICS: dict[str, Callable[[np.ndarray], float]] = {
    "num_elements": lambda errors: float(errors.size),
    "stddev": lambda errors: float(np.std(errors)),
    "mean_error": lambda errors: float(np.average(errors)),
    "max_abs_error": lambda errors: float(np.max(np.abs(errors))),
    "mean_squared_error": lambda errors: float(np.average(errors**2)),
}
"""The Quantization Debugger's figures of one error array, each averaged over the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a node's error is read: its quantized tensor, and the verifier's output or the float tensor."""

    node: Node
    quantized: int
    other: int
    scale: float
    zero_point: int


def layer_table(
    calibrated: CalibratedModel,
    nodes: Sequence[Node],
    samples: Iterable[dict[str, np.ndarray]],
    *,
    per_channel: bool = True,
) -> LayerTable:
    """Measure every node on the samples.

    Args:
        calibrated: The calibrated model.
        nodes: Its nodes, in graph order.
        samples: Inputs by key, float, batch 1; each sample is run once.
        per_channel: As in the recipes to come.
    """
    recipe = Recipe(per_channel=per_channel)
    debug = converter.quantize(calibrated.content, denylisted=(), recipe=recipe, numeric_verify=True)
    verified = _verified_places(fb.parse(debug), nodes)
    covered = {place.node.index for place in verified}
    rest = [n for n in nodes if n.index not in covered]
    integer = converter.quantize(calibrated.content, denylisted=(), recipe=recipe)
    compared = _compared_places(fb.parse(calibrated.content), fb.parse(integer), rest)
    samples = list(samples)
    found = _measure_verified(debug, verified, samples)
    found |= _measure_compared(calibrated.content, integer, compared, samples)
    return LayerTable(nodes=tuple(nodes), statistics=tuple(found.get(n.index) for n in nodes))


def _verified_places(model: fb.Model, nodes: Sequence[Node]) -> list[_Place]:
    graph = model.subgraphs[0]
    by_index = {n.index: n for n in nodes}
    places = []
    for op in graph.operators:
        if fb.op_type(model, op) != _NUMERIC_VERIFY:
            continue
        index = names.op_index_of(fb.tensor_name(graph.tensors[op.inputs[0]]))
        if index in by_index:
            places.append(_place(by_index[index], graph, int(op.inputs[0]), int(op.outputs[0])))
    return places


def _compared_places(float_model: fb.Model, integer_model: fb.Model, nodes: Sequence[Node]) -> list[_Place]:
    graph, float_graph = integer_model.subgraphs[0], float_model.subgraphs[0]
    places = op_places(integer_model)
    found = []
    for node in nodes:
        op = graph.operators[places[node.index][0]]
        quantized, twin = int(op.outputs[0]), int(float_graph.operators[node.index].outputs[0])
        if _has_scale(graph.tensors[quantized]):
            found.append(_place(node, graph, quantized, twin))
    return found


def _has_scale(tensor: Any) -> bool:
    return tensor.quantization is not None and tensor.quantization.scale is not None


def _place(node: Node, graph: Any, quantized: int, other: int) -> _Place:
    parameters = graph.tensors[quantized].quantization
    return _Place(
        node=node,
        quantized=quantized,
        other=other,
        scale=float(parameters.scale[0]),
        zero_point=int(parameters.zeroPoint[0]),
    )


def _measure_verified(
    debug: bytes, places: Sequence[_Place], samples: Sequence[dict[str, np.ndarray]]
) -> dict[int, LayerStatistics]:
    if not places:
        return {}
    runner = Runner(debug, preserve_all_tensors=True)
    figures: list[list[list[float]]] = [[] for _ in places]
    for sample in samples:
        runner(sample)
        for place, collected in zip(places, figures, strict=True):
            collected.append(_figures(runner.tensor(place.other)))
    return _worst(places, figures, verified=True)


def _measure_compared(
    float_content: bytes, integer: bytes, places: Sequence[_Place], samples: Sequence[dict[str, np.ndarray]]
) -> dict[int, LayerStatistics]:
    if not places:
        return {}
    float_runner = Runner(float_content, preserve_all_tensors=True)
    integer_runner = Runner(integer, preserve_all_tensors=True)
    figures: list[list[list[float]]] = [[] for _ in places]
    for sample in samples:
        float_runner(sample)
        integer_runner(sample)
        for place, collected in zip(places, figures, strict=True):
            levels = integer_runner.tensor(place.quantized).astype(np.float32)
            error = (levels - place.zero_point) * np.float32(place.scale) - float_runner.tensor(place.other)
            collected.append(_figures(error))
    return _worst(places, figures, verified=False)


def _figures(errors: np.ndarray) -> list[float]:
    return [metric(errors) for metric in ERROR_METRICS.values()]


def _worst(
    places: Sequence[_Place], figures: Sequence[Sequence[Sequence[float]]], *, verified: bool
) -> dict[int, LayerStatistics]:
    """One row per node: of an op with several verified outputs, the one with the largest rmse/scale."""
    found: dict[int, LayerStatistics] = {}
    for place, per_sample in zip(places, figures, strict=True):
        means = np.nanmean(np.asarray(per_sample, dtype=np.float64), axis=0)
        row = LayerStatistics(
            tensor_index=place.quantized,
            scale=place.scale,
            zero_point=place.zero_point,
            verified=verified,
            **dict(zip(ERROR_METRICS, means.tolist(), strict=True)),
        )
        known = found.get(place.node.index)
        if known is None or row.rmse_per_scale > known.rmse_per_scale:
            found[place.node.index] = row
    return found
