"""Dynamic-range quantization (DRQ) of single ops in an already built model.

An op becomes *hybrid*: its weights int8 and symmetric, its activations float and quantized at run time. What the
TensorFlow converter makes of a whole model with ``Optimize.DEFAULT`` and no representative dataset is the reference:
the same operands, axes, scales, rounding, op versions and options, and the same minimum of 1,024 elements. Weights are
per channel wherever the kernel can, also in a recipe that is per tensor: that choice is about the accelerator's integer
kernels, and hybrid ops run on the host.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTS


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridKernel:
    """How the hybrid form of an op type looks.

    Attributes:
        axis: Channel axis for per-channel scales; None where the kernel knows one scale only.
        version: Version of the hybrid op.
        asymmetric_inputs: True where the op's options carry ``asymmetric_quantize_inputs``.
    """

    axis: int | None
    version: int
    asymmetric_inputs: bool = False


HYBRID_KERNELS: dict[str, HybridKernel] = {
    "CONV_2D": HybridKernel(axis=0, version=5),
    "DEPTHWISE_CONV_2D": HybridKernel(axis=3, version=6),
    "TRANSPOSE_CONV": HybridKernel(axis=0, version=2),
    "FULLY_CONNECTED": HybridKernel(axis=0, version=12, asymmetric_inputs=True),
    "BATCH_MATMUL": HybridKernel(axis=None, version=4, asymmetric_inputs=True),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": HybridKernel(axis=None, version=3, asymmetric_inputs=True),
}
_GROUPED_CONV_VERSION = 6

_PEEPHOLES = slice(9, 12)
"""Operands of a UNIDIRECTIONAL_SEQUENCE_LSTM that are weights of the cell's state."""


def make_hybrid(built: Built, _kit: RepairKit) -> None:
    """Pass: turn the float ops of the main subgraph into hybrid ones.

    Needs a float model. Gives hybrid ops wherever there are kernels, ``kept_float``, and buffers that nothing uses.
    """
    model = built.model
    kept: dict[int, str] = {}
    turned: dict[int, HybridKernel] = {}
    for index, op in enumerate(model.subgraphs[0].operators):
        kernel = HYBRID_KERNELS.get(fb.op_type(model, op))
        reason = "no hybrid kernel" if kernel is None else _obstacle(model, op)
        if kernel is None or reason:
            kept[index] = reason
        else:
            turned[index] = kernel
    read_in_float = {int(i) for index in kept for i in model.subgraphs[0].operators[index].inputs}
    for index, kernel in turned.items():
        _turn(model, model.subgraphs[0].operators[index], kernel, read_in_float)
    built.kept_float = kept


def _weight_positions(model: fb.Model, op: fb.Operator) -> list[int]:
    return [p for p in WEIGHTS[fb.op_type(model, op)] if p < len(op.inputs) and op.inputs[p] >= 0]


def _obstacle(model: fb.Model, op: fb.Operator) -> str:
    """Why the op cannot become hybrid; empty if it can."""
    # Smaller weights stay float, as in TensorFlow's converter (`kDefaultMinElements`).
    min_weight_elements = 1024
    tensors = [model.subgraphs[0].tensors[op.inputs[p]] for p in _weight_positions(model, op)]
    if not tensors or not all(fb.is_constant(model, t) for t in tensors):
        return "weights are not constant"
    if any(t.type != schema.TensorType.FLOAT32 for t in tensors):
        return "weights are not float32"
    if any(np.prod(fb.shape_of(t), dtype=np.int64) < min_weight_elements for t in tensors):
        return f"weights of fewer than {min_weight_elements:,} elements stay float"
    if not all(np.isfinite(fb.constant_values(model, t)).all() for t in tensors):
        return "a weight of it is not a finite number"
    if fb.op_type(model, op) == "UNIDIRECTIONAL_SEQUENCE_LSTM" and max(fb.indices(op.inputs)[_PEEPHOLES]) >= 0:
        return "no hybrid kernel takes float weights of its cell's state"
    return ""


def _turn(model: fb.Model, op: fb.Operator, kernel: HybridKernel, read_in_float: set[int]) -> None:
    op.inputs = np.array(op.inputs)
    for position in _weight_positions(model, op):
        op.inputs[position] = _quantized_tensor(model, int(op.inputs[position]), kernel.axis, read_in_float)
    if kernel.asymmetric_inputs:
        op.builtinOptions.asymmetricQuantizeInputs = True
    grouped = fb.op_type(model, op) == "CONV_2D" and _is_grouped(model, op)
    version = _GROUPED_CONV_VERSION if grouped else kernel.version
    code = model.operatorCodes[op.opcodeIndex]
    code.version = max(code.version, version)


def _is_grouped(model: fb.Model, op: fb.Operator) -> bool:
    tensors = model.subgraphs[0].tensors
    return bool(fb.shape_of(tensors[op.inputs[0]])[3] != fb.shape_of(tensors[op.inputs[1]])[3])


def _quantized_tensor(model: fb.Model, index: int, axis: int | None, read_in_float: set[int]) -> int:
    """Index of the int8 form of a weight tensor: the tensor itself unless an op that stays float reads it."""
    graph = model.subgraphs[0]
    tensor = graph.tensors[index]
    if tensor.type == schema.TensorType.INT8:
        return index
    levels, scales = quantize_weights(fb.constant_values(model, tensor), axis)
    if index in read_in_float:
        tensor = copy(tensor)
        tensor.name = (tensor.name or b"") + b"_int8"
        graph.tensors.append(tensor)
        index = len(graph.tensors) - 1
    tensor.type = schema.TensorType.INT8
    tensor.buffer = editing.add_buffer(model, levels)
    tensor.quantization = editing.symmetric(scales, axis or 0)
    return index


def quantize_weights(weights: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 weights, the largest magnitude at 127.

    Args:
        weights: Float32, any shape.
        axis: Axis with a scale each; None for one scale.

    Returns:
        Int8 levels of the same shape in -127..127 (ties away from zero), and the float32 scales, shape
        (channels,) or (1,). A channel of zeros has the scale of weights up to 5e-7.
    """
    others = None if axis is None else tuple(i for i in range(weights.ndim) if i != axis)
    peak = np.max(np.abs(weights), axis=others, keepdims=True).astype(np.float64)
    # Weights of a smaller magnitude get the scale of this one, as in TensorFlow's converter (`ExpandVerySmallRange`).
    scales = np.maximum(peak, 5e-7) / 127.0
    ratio = weights.astype(np.float64) / scales
    levels = np.trunc(ratio + np.copysign(0.5, ratio))
    return np.clip(levels, -127, 127).astype(np.int8), scales.astype(np.float32).reshape(-1)
