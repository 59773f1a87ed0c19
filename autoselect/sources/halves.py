"""float16 weights made float32: the same numbers in a form that the quantizer takes."""

from __future__ import annotations

from functools import partial

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_WIDENING = ("DEQUANTIZE", "CAST")
"""Ops that turn a float16 constant into float32 each time the model runs."""

_FLOAT16, _FLOAT32 = schema.TensorType.FLOAT16, schema.TensorType.FLOAT32


def widen(model: fb.Model) -> int:
    """Make every float16 constant float32, and drop the ops that did so at run time, in place; none may be sparse.

    Every float16 value has an equal float32 value, so the model's outputs stay the same, bit for bit.

    Returns:
        How many tensors were widened.

    Raises:
        ModelError: If float16 values are more than constants.
    """
    widened: dict[int, int] = {}
    count = 0
    for place, graph in enumerate(model.subgraphs):
        halves = {i for i, t in enumerate(graph.tensors) if t.type == _FLOAT16 and fb.is_constant(model, t)}
        for index in halves:
            _widen_tensor(model, graph.tensors[index], widened)
        if halves:
            editing.drop_copies(model, graph, halves, partial(_is_widening, model, graph))
            editing.drop_unused_tensors(model, place)
        count += len(halves)
        left = next((t for t in graph.tensors if t.type == _FLOAT16), None)
        if left is not None:
            raise ModelError(
                f"The model computes in float16: tensor {fb.tensor_name(left)!r} is float16 and no constant. "
                "Only weights may be float16, not inputs, outputs or values in between. Convert the model to float32."
            )
    if count:
        editing.tidy(model)
    return count


def _is_widening(model: fb.Model, graph: fb.SubGraph, op: fb.Operator) -> bool:
    return fb.op_type(model, op) in _WIDENING and bool(graph.tensors[op.outputs[0]].type == _FLOAT32)


def _widen_tensor(model: fb.Model, tensor: fb.Tensor, widened: dict[int, int]) -> None:
    """Give a tensor a float32 buffer; tensors that share a buffer go on sharing."""
    if tensor.buffer not in widened:
        values = fb.constant_values(model, tensor)
        widened[tensor.buffer] = editing.add_buffer(model, values.astype(np.float32))
    tensor.buffer, tensor.type, tensor.quantization = widened[tensor.buffer], _FLOAT32, None
