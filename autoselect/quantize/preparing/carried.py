"""Ops that change the shape of a value and not the value: integer wherever the value is."""

from __future__ import annotations

from copy import copy, deepcopy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_CARRIERS = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})


def carry_levels(content: bytes) -> bytes:
    """An int8 model in which such ops carry the levels of their inputs, and what is float behind them is dequantized.

    Of two that read one value TensorFlow's quantizer leaves the one in float whose result is an output of the model, as
    the state of a recurrent layer is. Outputs are equal, bit for bit.

    Args:
        content: Bytes of what the quantizer made, with ops called after the tensors they write.
    """
    model = fb.parse(content)
    graph = model.subgraphs[0]
    codes = [place for place, op in enumerate(graph.operators) if fb.op_type(model, op) == "DEQUANTIZE"]
    levels_of = {int(op.outputs[0]): int(op.inputs[0]) for op in (graph.operators[place] for place in codes)}
    ops: list[fb.Operator] = []
    for op in graph.operators:
        ops.append(op)
        levels = levels_of.get(next(iter(fb.indices(op.inputs)), -1))
        if fb.op_type(model, op) not in _CARRIERS or levels is None:
            continue
        if graph.tensors[levels].type != schema.TensorType.INT8:
            continue
        result = int(op.outputs[0])
        levels_of[result] = len(graph.tensors)
        carried = copy(graph.tensors[result])
        carried.name = (carried.name or b"") + b"1"
        carried.type, carried.quantization = schema.TensorType.INT8, deepcopy(graph.tensors[levels].quantization)
        graph.tensors.append(carried)
        op.inputs = np.array([levels, *fb.indices(op.inputs)[1:]], np.int32)
        op.outputs = np.array([levels_of[result]], np.int32)
        ops.append(editing.conversion_op(graph.operators[codes[0]].opcodeIndex, levels_of[result], result))
    if len(ops) == len(graph.operators):
        return content
    graph.operators = ops
    editing.drop_unread_conversions(model)
    return fb.serialise(model)
