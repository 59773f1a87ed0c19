"""Scales of integer weights by the mean squared error instead of the largest weight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.second_order import TOP
from autoselect.quantize.repairing.weighted_ops import (
    BIAS_DTYPES,
    SkipError,
    bias_of,
    bias_type,
    known_scales,
    largest_bias,
    quantized_ops,
    weights_of,
)
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import Operands

_SHRUNK = np.linspace(1.0, 0.4, 61)
"""Shares of the largest scale that are tried."""


def reround_weights(built: Built, kit: RepairKit) -> None:
    """Pass: give integer weights the scales with the least error, where the recipe has ``weights-mse``.

    Needs operands that no two ops share. Gives weights and biases, and in ``skipped`` what was left alone.
    """
    if "weights-mse" in built.repairs:
        built.skipped["weights-mse"] = reround(built.model, kit.float_model(built.repairs), built.places)


def reround(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> dict[int, str]:
    """Give the weights of every integer op the scales with the least mean squared error, in place.

    The bias of such an op follows, because its scale is that of the products. Hybrid ops stay as they are.

    Args:
        model: The built model, each operand a tensor of its own.
        float_model: The float model that it was built from.
        places: Where each op of the float model is in ``model``.

    Returns:
        By index of the float model's op, for each op with int8 weights that was left as it was, why.
    """
    skipped = {}
    for index, op in quantized_ops(model, float_model, places):
        try:
            _reround_op(model, op, float_model, index)
        except SkipError as reason:
            skipped[index] = str(reason)
    return skipped


def _reround_op(model: fb.Model, op: fb.Operator, float_model: fb.Model, index: int) -> None:
    graph = model.subgraphs[0]
    kind, values, _ = weights_of(model, op, float_model, index)
    source, tensor = graph.tensors[op.inputs[kind.activation]], graph.tensors[op.inputs[1]]
    if source.type not in (schema.TensorType.INT8, schema.TensorType.INT16):
        raise SkipError("it is hybrid")
    if not np.isfinite(values).all():
        raise SkipError("a weight of it is not a finite number")
    give_weights(model, op, kind, *rounded(values, known_scales(tensor), axis_of(tensor)))


def axis_of(tensor: fb.Tensor) -> int | None:
    """The axis of the channels that have scales of their own; None if there is one scale."""
    return None if len(fb.scales(tensor)) == 1 else int(fb.parameters(tensor).quantizedDimension)


def give_weights(model: fb.Model, op: fb.Operator, kind: Operands, levels: np.ndarray, scales: np.ndarray) -> None:
    """Give a built op weights of other scales, in place; its integer bias follows.

    Args:
        model: The built model, each operand a tensor of its own.
        op: One with int8 weights.
        kind: Where its operands are.
        levels: Int8, in the shape of its weights.
        scales: Float32, shape (channels,) or (1,).

    Raises:
        SkipError: If the bias does not fit; then nothing is changed.
    """
    graph = model.subgraphs[0]
    source, tensor = graph.tensors[op.inputs[kind.activation]], graph.tensors[op.inputs[1]]
    if (place := bias_of(op, kind)) >= 0 and source.type != schema.TensorType.FLOAT32:
        product = (np.float32(known_scales(source)[0]) * scales).astype(np.float32)
        wanted = bias_type(source)
        bias, largest = graph.tensors[place], largest_bias(levels, kind.axis, wanted)
        _rescale_bias(model, bias, wanted, product, largest)
    tensor.buffer = editing.add_buffer(model, levels)
    fb.parameters(tensor).scale = scales


def _rescale_bias(model: fb.Model, tensor: fb.Tensor, wanted: int, scales: np.ndarray, largest: np.ndarray) -> None:
    """Let a bias of the wanted type stand for the same values at other scales, in place."""
    if not fb.is_constant(model, tensor):
        raise SkipError("its bias is not a constant of the file")
    old = fb.constant_values(model, tensor).astype(np.float64)
    moved = np.rint(old * (known_scales(tensor) / scales))
    if tensor.type != wanted or np.any(np.abs(moved) > np.maximum(largest, np.abs(old))):
        raise SkipError(f"its bias does not fit {fb.TENSOR_DTYPES[wanted]} at other scales")
    tensor.buffer = editing.add_buffer(model, moved.astype(BIAS_DTYPES[wanted]))
    fb.parameters(tensor).scale = scales


def rounded(
    values: np.ndarray, scales: np.ndarray, axis: int | None, top: int = TOP, power: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 levels in -top..top at the best of some shares of the given scales.

    Args:
        values: Float weights.
        scales: Shape (channels,) or (1,), those of the largest weight.
        axis: Of the channels; None for one scale.
        top: The highest level.
        power: What the squared error of each weight counts, in the shape of ``values``; None lets all count the same.

    Returns:
        Int8 levels in the shape of ``values``, and the float32 scales in that of ``scales``. A channel whose error no
        smaller scale lowers keeps its own.
    """
    rows = _rows(values, axis)
    counts = np.ones(1) if power is None else _rows(power, axis)
    tried = (scales[None, :] * _SHRUNK[:, None]).astype(np.float32).astype(np.float64)
    errors = np.array([np.sum((_levels(rows, s, top) * s[:, None] - rows) ** 2 * counts, axis=1) for s in tried])
    best = tried[np.argmin(errors, axis=0), np.arange(len(rows))]
    levels = _levels(rows, best, top)
    if axis is None:
        return levels.reshape(values.shape).astype(np.int8), best.astype(np.float32)
    moved = np.moveaxis(values, axis, 0).shape
    return np.moveaxis(levels.reshape(moved), 0, axis).astype(np.int8), best.astype(np.float32)


def _rows(values: np.ndarray, axis: int | None) -> np.ndarray:
    """What has a scale of its own is a row."""
    return values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def _levels(rows: np.ndarray, scales: np.ndarray, top: int) -> np.ndarray:
    return np.asarray(np.clip(np.rint(rows / scales[:, None]), -top, top))
