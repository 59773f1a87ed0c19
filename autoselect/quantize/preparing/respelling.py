"""Ops that the quantizer has no integer form of, written as ones that it has and that give the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb


def respell(model: fb.Model) -> list[tuple[str, str]]:
    """Write such ops of the main graph anew, in place.

    Returns:
        For each of these ops the type that it was, and the type of what computes the same now.
    """
    graph = model.subgraphs[0]
    ops, found = [], []
    for op in graph.operators:
        written = _written_anew(model, op)
        ops += written or [op]
        if written:
            found.append((fb.op_type(model, op), fb.op_type(model, written[0])))
    graph.operators = ops
    return found


def _written_anew(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    write = _WRITERS.get(fb.op_type(model, op))
    if write is None or model.subgraphs[0].tensors[op.inputs[0]].type != schema.TensorType.FLOAT32:
        return []
    return write(model, op)


def _negated(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """A product with -1, but a difference behind a dense layer.

    The quantizer merges such a product into the weights of a dense layer before it. If others read that layer, too, it
    is then there twice, the second time with weights of the other sign. From minus zero a zero of either sign is right.
    """
    graph, source = model.subgraphs[0], int(op.inputs[0])
    name = fb.tensor_name(graph.tensors[source])
    writers = (one for one in graph.operators if source in fb.indices(one.outputs))
    if any(fb.op_type(model, one) == "FULLY_CONNECTED" for one in writers):
        zero = editing.add_constant(model, f"{name}/minus_zero", np.array(-0.0, np.float32))
        return [editing.new_op(model, "SUB", [zero, source], int(op.outputs[0]))]
    return [_product(model, op, editing.add_constant(model, f"{name}/minus_one", np.array(-1.0, np.float32)))]


def _squared(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    return [_product(model, op, int(op.inputs[0]))]


def _product(model: fb.Model, op: fb.Operator, factor: int) -> fb.Operator:
    return editing.new_op(model, "MUL", [int(op.inputs[0]), factor], int(op.outputs[0]))


def _summed(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """One after the other, as the kernel adds them."""
    tensors, last = model.subgraphs[0].tensors, int(op.outputs[0])
    total, *others = map(int, op.inputs)
    found = []
    for number, other in enumerate(others, 1):
        result = last
        if number < len(others):
            tensors.append(copy(tensors[last]))
            tensors[-1].name, result = f"{fb.tensor_name(tensors[last])}/sum{number}".encode(), len(tensors) - 1
        found.append(editing.new_op(model, "ADD", [total, other], result))
        total = result
    return found


def _parted(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """Parts of several lengths, each cut out by itself; nothing where they are not known beforehand."""
    tensors = model.subgraphs[0].tensors
    source, axis, rank = int(op.inputs[0]), tensors[op.inputs[2]], len(fb.shape_of(tensors[op.inputs[0]]))
    if not rank or not fb.is_constant(model, tensors[op.inputs[1]]) or not fb.is_constant(model, axis):
        return []
    at, start, found = int(fb.constant_values(model, axis)) % rank, 0, []
    for output in map(int, op.outputs):
        length, name = fb.shape_of(tensors[output])[at], fb.tensor_name(tensors[output])
        begin, size = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        begin[at], size[at], start = start, length, start + length
        ends = [editing.add_constant(model, f"{name}/{end}", row) for end, row in (("begin", begin), ("size", size))]
        found.append(editing.new_op(model, "SLICE", [source, *ends], output))
    return found


_WRITERS: dict[str, Callable[[fb.Model, fb.Operator], list[fb.Operator]]] = {
    "ADD_N": _summed,
    "NEG": _negated,
    "SPLIT_V": _parted,
    "SQUARE": _squared,
}
