"""Scales of integer weights by the mean squared error instead of the largest weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.bias import WEIGHTED, SkipError, quantized_ops, weights_of
from autoselect.tflite import flatbuffer as fb

_TOP = 127
_INT32_TOP = 2**31 - 1
_SHRUNK = np.linspace(1.0, 0.4, 61)
"""Shares of the largest scale that are tried."""


def reround(model: fb.Model, float_model: fb.Model, places: Mapping[int, Sequence[int]]) -> None:
    """Give the weights of every integer op the scales with the least mean squared error, in place.

    The bias of such an op follows, because its scale is that of the products. Hybrid ops stay as they are.

    Args:
        model: The built model, each operand a tensor of its own.
        float_model: The float model that it was built from.
        places: Where each op of the float model is in ``model``.
    """
    for index, op in quantized_ops(model, float_model, places):
        source = model.subgraphs[0].tensors[op.inputs[WEIGHTED[fb.op_type(model, op)].activation]]
        if source.type != schema.TensorType.INT8:
            continue
        try:
            _, values, _ = weights_of(model, op, float_model, index)
        except SkipError:
            continue
        _reround_op(model, op, values, fb.scales(source)[0])


def _reround_op(model: fb.Model, op: Any, values: np.ndarray, input_scale: float) -> None:
    graph, kind = model.subgraphs[0], WEIGHTED[fb.op_type(model, op)]
    tensor = graph.tensors[op.inputs[1]]
    before = np.array(fb.scales(tensor))
    axis = None if before.size == 1 else tensor.quantization.quantizedDimension
    levels, scales = rounded(values, before, axis)
    has_bias = len(op.inputs) > kind.bias and op.inputs[kind.bias] >= 0
    if has_bias:
        bias = graph.tensors[op.inputs[kind.bias]]
        product = (np.float32(input_scale) * scales).astype(np.float32)
        moved = np.rint(fb.constant_values(model, bias) * (np.array(fb.scales(bias)) / product))
        if np.abs(moved).max(initial=0.0) > _INT32_TOP:
            return
        bias.buffer = fb.add_buffer(model, moved.astype(np.int32))
        bias.quantization.scale = product
    tensor.buffer = fb.add_buffer(model, levels)
    tensor.quantization.scale = scales


def rounded(values: np.ndarray, scales: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 levels in -127..127 at the best of some shares of the given scales.

    Args:
        values: Float weights.
        scales: Shape (channels,) or (1,), those of the largest weight.
        axis: Of the channels; None for one scale.

    Returns:
        Int8 levels in the shape of ``values``, and the float32 scales in that of ``scales``. A channel whose error no
        smaller scale lowers keeps its own.
    """
    rows = values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    tried = (scales[None, :] * _SHRUNK[:, None]).astype(np.float32).astype(np.float64)
    errors = np.array([np.sum((_levels(rows, s) * s[:, None] - rows) ** 2, axis=1) for s in tried])
    best = tried[np.argmin(errors, axis=0), np.arange(len(rows))]
    levels = _levels(rows, best)
    if axis is None:
        return levels.reshape(values.shape).astype(np.int8), best.astype(np.float32)
    moved = np.moveaxis(values, axis, 0).shape
    return np.moveaxis(levels.reshape(moved), 0, axis).astype(np.int8), best.astype(np.float32)


def _levels(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.clip(np.rint(rows / scales[:, None]), -_TOP, _TOP)
    return found
