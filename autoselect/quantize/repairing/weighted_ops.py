"""Ops with weights and a bias, in float and integer models: their parts, their weights as numbers, their biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing import mean_outputs
from autoselect.rewrites.names import NameMap
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED, Operands

_TOPS = {schema.TensorType.INT32: 2**31 - 1, schema.TensorType.INT64: 2**47 - 1}
"""Largest sum that LiteRT's kernels scale to the output's steps, by type of the bias."""

_WIDEST = {schema.TensorType.INT32: 255, schema.TensorType.INT64: 2**15}
"""Largest distance of an activation's level from a zero point, by type of the bias."""

_INTEGERS = (schema.TensorType.INT8, schema.TensorType.INT4)
"""Types of weights."""

BIAS_DTYPES = {schema.TensorType.INT32: np.int32, schema.TensorType.INT64: np.int64}

_BIASED_TRANSPOSE_CONV_VERSION = 3

_NO_WEIGHTS = "its weights are not constants of the file"

_CONSTANT_INPUT = "its input is a constant of the file"


MEANS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "CONV_2D": mean_outputs.convolution_mean,
    "DEPTHWISE_CONV_2D": mean_outputs.depthwise_mean,
    "FULLY_CONNECTED": mean_outputs.dense_mean,
    "TRANSPOSE_CONV": mean_outputs.convolution_mean,
}
"""By op type: the mean output by channel, from weights and taps."""


class SkipError(Exception):
    """An op that a repair leaves alone, with the reason."""


def is_weighted(model: fb.Model, op: fb.Operator) -> bool:
    """True for an op of a known type with constant weights and a computed input."""
    return fb.op_type(model, op) in WEIGHTED and _obstacle(model, op) is None


def _obstacle(model: fb.Model, op: fb.Operator) -> str | None:
    """Why the mean output of an op of a known type does not follow from its weights and taps."""
    kind, tensors = WEIGHTED[fb.op_type(model, op)], model.subgraphs[0].tensors
    if len(op.inputs) <= max(1, kind.activation) or not fb.is_constant(model, tensors[op.inputs[1]]):
        return _NO_WEIGHTS
    return _CONSTANT_INPUT if fb.is_constant(model, tensors[op.inputs[kind.activation]]) else None


def why_untouched(op_type: str, kind: str) -> str:
    """Why bias correction has nothing to say of a node.

    Args:
        op_type: Of the float model's op.
        kind: What became of it: ``integer``, ``int16``, ``hybrid``, ``float`` or ``folded``.
    """
    if kind not in ("integer", "int16", "hybrid"):
        return f"it is {kind}, so no weights of it are rounded"
    return f"{op_type} is no op whose bias is corrected" if op_type not in WEIGHTED else "its weights are not int8"


def quantized_ops(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> list[tuple[int, fb.Operator]]:
    """The built ops of weighted types with weights of 8 or 4 bits, with their index in the float model."""
    graph, indexed_ops = model.subgraphs[0], []
    for index, op in enumerate(float_model.subgraphs[0].operators):
        if fb.op_type(float_model, op) not in WEIGHTED or index not in places:
            continue
        built = graph.operators[places[index]]
        has_weights = len(built.inputs) > 1 and built.inputs[1] >= 0
        if has_weights and graph.tensors[built.inputs[1]].type in _INTEGERS:
            indexed_ops.append((index, built))
    return indexed_ops


def weights_of(
    model: fb.Model, op: fb.Operator, float_model: fb.Model, index: int
) -> tuple[Operands, np.ndarray, np.ndarray]:
    """Where an op has its operands, its float weights and what its quantized weights stand for, float64.

    Raises:
        SkipError: If they do not belong together; with the reason.
    """
    twin = float_model.subgraphs[0].operators[index]
    if fb.op_type(model, op) != fb.op_type(float_model, twin):
        raise SkipError(f"the quantizer made it a {fb.op_type(model, op)}")
    if obstacle := _obstacle(float_model, twin):
        raise SkipError(obstacle)
    original = float_model.subgraphs[0].tensors[twin.inputs[1]]
    built = model.subgraphs[0].tensors[op.inputs[1]]
    if not fb.is_constant(model, built) or fb.shape_of(original) != fb.shape_of(built):
        raise SkipError(_NO_WEIGHTS)
    kind = WEIGHTED[fb.op_type(model, op)]
    values = fb.constant_values(float_model, original).astype(np.float64)
    return kind, values, dequantized(model, built)


def dequantized(model: fb.Model, tensor: fb.Tensor) -> np.ndarray:
    """What the levels of a constant stand for, float64, in its shape.

    Raises:
        SkipError: If a scale is zero or no number.
    """
    levels: np.ndarray = fb.constant_values(model, tensor).astype(np.float64)
    axis, zero_points = fb.parameters(tensor).quantizedDimension, np.array(fb.zero_points_of(tensor) or (0,), float)
    steps = levels - fb.along(zero_points, axis, levels.ndim)
    return np.asarray(steps * fb.along(known_scales(tensor), axis, levels.ndim))


def known_scales(tensor: fb.Tensor) -> np.ndarray:
    """Scales of a quantized tensor, shape (1,) or (channels,).

    Raises:
        SkipError: If one is zero or no number.
    """
    scales = np.array(fb.scales(tensor))
    if not scales.size or not np.all(np.isfinite(scales) & (scales > 0.0)):
        raise SkipError("one of its scales is zero or no number")
    return scales


def bias_of(op: fb.Operator, kind: Operands) -> int:
    """The tensor of an op's bias; -1 where it has none."""
    return int(op.inputs[kind.bias]) if len(op.inputs) > kind.bias else -1


def add(model: fb.Model, op: fb.Operator, shift: np.ndarray) -> np.ndarray:
    """Add to the bias; returns what its rounding let through."""
    graph, kind = model.subgraphs[0], WEIGHTED[fb.op_type(model, op)]
    bias = bias_of(op, kind)
    has_bias = bias >= 0
    tensor = graph.tensors[bias] if has_bias else _new_bias(model, op, kind, shift.size)
    if has_bias and not fb.is_constant(model, tensor):
        raise SkipError("its bias is not a constant of the file")
    old = fb.constant_values(model, tensor).astype(np.float64) if has_bias else np.zeros(shift.size)
    if old.size != shift.size:
        raise SkipError("its bias has another length than its output channels")
    if tensor.type == schema.TensorType.FLOAT32:
        new, added = _float_bias(old, shift)
    elif tensor.type != bias_type(graph.tensors[op.inputs[kind.activation]]):
        raise SkipError(f"its bias is of type {fb.TENSOR_DTYPES[tensor.type]}")
    else:
        levels = fb.constant_values(model, graph.tensors[op.inputs[1]])
        new, added = _levels(tensor, old, shift, levels, kind.axis)
    if not has_bias and not new.any():
        return added
    tensor.buffer = editing.add_buffer(model, new)
    if not has_bias:
        graph.tensors.append(tensor)
        _connect(model, op, kind, len(graph.tensors) - 1)
    return added


def _float_bias(old: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    new = (old + shift).astype(np.float32)
    if not np.isfinite(new).all():
        raise SkipError("the corrected bias is not a number")
    return new, new - old


def _levels(
    tensor: fb.Tensor, old: np.ndarray, shift: np.ndarray, levels: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray]:
    """An int32 or int64 bias with the shift; refused where it does not fit."""
    scales = known_scales(tensor)
    steps = np.rint(shift / scales)
    new, largest = old + steps, largest_bias(levels, axis, tensor.type)
    if not np.isfinite(new).all() or np.any(np.abs(new) > np.maximum(largest, np.abs(old))):
        raise SkipError(f"the corrected bias does not fit {fb.TENSOR_DTYPES[tensor.type]}")
    return new.astype(BIAS_DTYPES[tensor.type]), steps * scales


def bias_type(source: fb.Tensor) -> int:
    """Type of the bias of an integer op that reads this."""
    is_wide: bool = source.type == schema.TensorType.INT16
    return int(schema.TensorType.INT64 if is_wide else schema.TensorType.INT32)


def largest_bias(levels: np.ndarray, axis: int, kind: int) -> np.ndarray:
    """The largest bias beside which no sum of products overflows.

    Args:
        levels: Int8 weights.
        axis: Of the output channels.
        kind: Type of the bias: int64 beside 16-bit activations, else int32.

    Returns:
        By output channel; negative where the products alone may overflow.
    """
    others = tuple(i for i in range(levels.ndim) if i != axis)
    return np.asarray(_TOPS[kind] - _WIDEST[kind] * np.abs(levels.astype(np.int64)).sum(axis=others))


def _new_bias(model: fb.Model, op: fb.Operator, kind: Operands, channels: int) -> fb.Tensor:
    """A bias for an op without one: in float where the op's input is float, else at the scale of its products."""
    graph = model.subgraphs[0]
    source, weights = graph.tensors[op.inputs[kind.activation]], graph.tensors[op.inputs[1]]
    tensor: fb.Tensor = schema.TensorT()
    tensor.name = _new_name(graph.tensors, op)
    tensor.shape = np.array([channels], dtype=np.int32)
    if source.type == schema.TensorType.FLOAT32:
        tensor.type = schema.TensorType.FLOAT32
        return tensor
    tensor.type = bias_type(source)
    tensor.quantization = editing.symmetric((known_scales(source)[0] * known_scales(weights)).astype(np.float32))
    return tensor


def name_new_biases(model: fb.Model, names: NameMap, places: Mapping[int, int]) -> None:
    """Name biases that were added after the outputs that their ops have in the float model, in place.

    Whatever the outputs are called while the model is made: a candidate takes the same bytes either way.

    Args:
        model: A model whose biases were corrected.
        names: The key to the float model's names.
        places: Where each op of the float model is in ``model``.
    """
    tensors, outputs = model.subgraphs[0].tensors, names.unique_outputs()
    for index, place in places.items():
        op = model.subgraphs[0].operators[place]
        for tensor in (tensors[i] for i in op.inputs if i >= 0 and len(op.outputs)):
            if tensor.name == _new_name(tensors, op):
                tensor.name = f"{outputs[index][0]}/bias".encode()


def _new_name(tensors: Sequence[fb.Tensor], op: fb.Operator) -> bytes:
    return (tensors[op.outputs[0]].name or b"") + b"/bias"


def _connect(model: fb.Model, op: fb.Operator, kind: Operands, bias: int) -> None:
    inputs = [int(i) for i in op.inputs]
    inputs += [-1] * (kind.bias + 1 - len(inputs))
    inputs[kind.bias] = bias
    op.inputs = np.array(inputs, dtype=np.int32)
    if fb.op_type(model, op) == "TRANSPOSE_CONV":
        code = model.operatorCodes[op.opcodeIndex]
        code.version = max(code.version, _BIASED_TRANSPOSE_CONV_VERSION)
