"""float16 weights made float32: the same numbers in a form that the quantizer takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb

_WIDENING = ("DEQUANTIZE", "CAST")
"""Ops that turn a float16 constant into float32 each time the model runs."""

_FLOAT16, _FLOAT32 = schema.TensorType.FLOAT16, schema.TensorType.FLOAT32


def widen(model: fb.Model) -> int:
    """Make every float16 constant float32, and drop the ops that did so at run time, in place.

    Every float16 value has an equal float32 value, so the model's outputs stay the same, bit for bit.

    Returns:
        How many tensors were widened.

    Raises:
        ModelError: If float16 values are more than constants.
    """
    widened: dict[int, int] = {}
    count = 0
    for graph in model.subgraphs:
        halves = {i for i, t in enumerate(graph.tensors) if t.type == _FLOAT16 and _is_plain_constant(model, t)}
        for index in halves:
            _widen_tensor(model, graph.tensors[index], widened)
        if halves:
            _drop_widening_ops(model, graph, halves)
        count += len(halves)
        left = next((t for t in graph.tensors if t.type == _FLOAT16), None)
        if left is not None:
            raise ModelError(
                f"The model computes in float16: tensor {fb.tensor_name(left)!r} is float16 and no plain constant. "
                "float16 weights are taken in, float16 inputs, outputs and values in between are not: convert the "
                "model to float32."
            )
    if count:
        fb.drop_unused_tensors(model)
        fb.drop_unused_buffers(model)
        fb.order_operator_codes(model)
    return count


def _is_plain_constant(model: fb.Model, tensor: Any) -> bool:
    return fb.is_constant(model, tensor) and tensor.sparsity is None


def _widen_tensor(model: fb.Model, tensor: Any, widened: dict[int, int]) -> None:
    """Give a tensor a float32 buffer; tensors that share a buffer go on sharing."""
    if tensor.buffer not in widened:
        values = fb.constant_values(model, tensor)
        widened[tensor.buffer] = fb.add_buffer(model, values.astype(np.float32))
    tensor.buffer, tensor.type, tensor.quantization = widened[tensor.buffer], _FLOAT32, None


def _drop_widening_ops(model: fb.Model, graph: Any, halves: set[int]) -> None:
    """Let whoever reads a widened copy read the constant itself."""
    same: dict[int, int] = {}
    kept = []
    for op in graph.operators:
        source = int(op.inputs[0]) if op.inputs is not None and len(op.inputs) else -1
        if source in halves and fb.op_type(model, op) in _WIDENING and graph.tensors[op.outputs[0]].type == _FLOAT32:
            same[int(op.outputs[0])] = source
        else:
            kept.append(op)
    graph.operators = kept
    for op in kept:
        op.inputs = None if op.inputs is None else np.array([same.get(int(i), int(i)) for i in op.inputs], np.int32)
    graph.outputs = np.array([same.get(int(i), int(i)) for i in graph.outputs], dtype=np.int32)
    for signature in model.signatureDefs or []:
        if model.subgraphs[signature.subgraphIndex or 0] is graph:
            for entry in signature.outputs or []:
                entry.tensorIndex = same.get(int(entry.tensorIndex), int(entry.tensorIndex))
