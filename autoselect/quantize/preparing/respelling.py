"""Ops that the quantizer has no integer form of, written as one that it has and that gives the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb


def respell(model: fb.Model) -> list[str]:
    """Write such ops of the main graph anew, in place.

    Returns:
        The op types that were, one for each op.
    """
    graph = model.subgraphs[0]
    found = []
    for op in graph.operators:
        op_type = fb.op_type(model, op)
        if op_type in _AS_PRODUCT and graph.tensors[op.inputs[0]].type == schema.TensorType.FLOAT32:
            source = int(op.inputs[0])
            op.inputs = np.array([source, _AS_PRODUCT[op_type](model, source)], np.int32)
            op.opcodeIndex = editing.add_code(model, "MUL")
            op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.MulOptions, schema.MulOptionsT()
            found.append(op_type)
    return found


def _minus_one(model: fb.Model, source: int) -> int:
    """A constant for all elements of a tensor."""
    tensor = schema.TensorT()
    name = fb.tensor_name(model.subgraphs[0].tensors[source])
    tensor.name, tensor.type, tensor.shape = f"{name}/minus_one".encode(), schema.TensorType.FLOAT32, []
    tensor.buffer = editing.add_buffer(model, np.array(-1.0, np.float32))
    model.subgraphs[0].tensors.append(tensor)
    return len(model.subgraphs[0].tensors) - 1


_AS_PRODUCT: dict[str, Callable[[fb.Model, int], int]] = {
    "NEG": _minus_one,
    "SQUARE": lambda _, source: source,
}
"""By op type the tensor that what it reads is to be multiplied with."""
