"""What a node's weights look like in float and how the diagnosed model quantized them; passes no judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoselect.diagnosis.moments import OUTLIER_DEVIATIONS, Moments
from autoselect.domain.findings import WeightStatistics
from autoselect.domain.layers import Node
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.operands import WEIGHTS
from autoselect.tflite.tflite_file import TfliteFile

_CHANNEL_AXIS = {"DEPTHWISE_CONV_2D": 3, "CONV_3D": 4}
"""Axis of the output channels where it is not 0; the rows of a table count as channels."""


def weight_statistics(
    float_file: TfliteFile, built_file: TfliteFile, places: Mapping[int, int], nodes: Sequence[Node]
) -> dict[str, WeightStatistics]:
    """Describe the weights of every node that has constant ones.

    The matrices of an LSTM count as one population: their rows one after the other are the channels, and so with
    their scales, of which integer LSTMs have one a matrix.

    Args:
        float_file: The float model.
        built_file: The diagnosed model, all-integer, mixed or float.
        places: Index of each float op in the built model; an op that is missing there has no scales.
        nodes: ``node.index`` is the op's index in the float model.

    Returns:
        By node name, in the order of ``nodes``.
    """
    model, built = float_file.model, built_file.model
    statistics = {}
    for node in nodes:
        op = model.subgraphs[0].operators[node.index]
        operands = _weight_operands(model, op)
        if operands:
            rows = _quantization(built, places[node.index], operands) if node.index in places else ([], [])
            statistics[node.name] = _statistics(model, op, operands, rows)
    return statistics


def _weight_operands(model: fb.Model, op: fb.Operator) -> dict[int, np.ndarray]:
    """Float constants of at least one element among the weight operands, by position."""
    tensors = model.subgraphs[0].tensors
    operands = {}
    for position in WEIGHTS.get(fb.op_type(model, op), ()):
        if position >= len(op.inputs) or op.inputs[position] < 0:
            continue
        tensor = tensors[op.inputs[position]]
        if fb.is_constant(model, tensor) and fb.TENSOR_DTYPES[tensor.type] == "float32":
            operands[position] = fb.constant_values(model, tensor)
    return operands


def _channels(values: np.ndarray, op_type: str, op: fb.Operator) -> np.ndarray:
    """The weights as rows, one a channel: shape (channels, weights of each)."""
    axis = _CHANNEL_AXIS.get(op_type, 0)
    if op_type == "BATCH_MATMUL":
        axis = values.ndim - 2 if op.builtinOptions is not None and op.builtinOptions.adjY else values.ndim - 1
    return np.moveaxis(np.atleast_1d(values), axis, 0).reshape(values.shape[axis] if values.ndim else 1, -1)


def _quantization(built: fb.Model, place: int, positions: Mapping[int, np.ndarray]) -> tuple[list[float], list[int]]:
    """Scales and zero points of the quantized operands of a built op, one after the other."""
    op, scales, zero_points = built.subgraphs[0].operators[place], list[float](), list[int]()
    for position in positions:
        if position >= len(op.inputs) or op.inputs[position] < 0:
            continue
        tensor = built.subgraphs[0].tensors[op.inputs[position]]
        if fb.TENSOR_DTYPES[tensor.type] in reader.QUANTIZED_DTYPES:
            own, levels = fb.scales(tensor), fb.zero_points_of(tensor)
            scales += own
            zero_points += levels if len(levels) == len(own) else [0] * len(own)
    return scales, zero_points


def _statistics(
    model: fb.Model, op: fb.Operator, operands: Mapping[int, np.ndarray], quantization: tuple[list[float], list[int]]
) -> WeightStatistics:
    rows = [_channels(values, fb.op_type(model, op), op) for values in operands.values()]
    everything = np.concatenate([r.reshape(-1) for r in rows]).astype(np.float64)
    moments = Moments()
    moments.add(everything[:, None])
    far = np.abs(everything - moments.mean[0]) > OUTLIER_DEVIATIONS * moments.deviation[0]
    return WeightStatistics(
        minima=tuple(float(v) for r in rows for v in r.min(axis=1)),
        maxima=tuple(float(v) for r in rows for v in r.max(axis=1)),
        kurtosis=float(moments.kurtosis[0]),
        # Where all weights are equal, the mean's own rounding is no distance.
        outlier_share=float(far.mean()) if moments.deviation[0] > 0.0 else 0.0,
        scales=tuple(quantization[0]),
        zero_points=tuple(quantization[1]),
    )
