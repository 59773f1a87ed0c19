"""Masks before a SOFTMAX: the large negative numbers that attention hides positions with leave no levels for the rest.

Where a SELECT or an ADD puts -1e9 beside scores of -3 to 3, one of 256 steps is 4 million wide. The quantizer gives the
scores themselves the same steps, and all positions weigh the same, even where the SELECT and the SOFTMAX are float. A
SOFTMAX needs the mask to be below the scores, not far below: what the quantizer sees ends there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from autoselect.quantize.repairing import ranges
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_BELOW = 10.0
"""What lies so far below all scores weighs less than e^-10 of them."""
_OPERANDS = {"SELECT": (1, 2), "SELECT_V2": (1, 2), "ADD": (0, 1)}


def with_near_masks(calibrated: bytes) -> bytes:
    """A calibrated model in which masks are no further below scores than a SOFTMAX can tell."""
    model = fb.parse(calibrated)
    graph = model.subgraphs[0]
    readers = _readers(graph)
    masks: dict[int, list[tuple[fb.Operator, int, float]]] = defaultdict(list)  # By tensor: who masks with it.
    for op in _before_softmax(model, readers):
        if found := _hiding(model, op):
            at, least, lowest = found
            fb.parameters(graph.tensors[op.outputs[0]]).min = np.array([least], dtype=np.float32)
            masks[int(op.inputs[at])].append((op, at, lowest))
    writers = {int(i): op for op in graph.operators for i in op.outputs}
    for index, users in masks.items():
        _shorten(model, index, users, readers[index], writers)
    return fb.serialise(model) if masks else calibrated


def masked_scores(model: fb.Model) -> list[int]:
    """The values that an ADD before a SOFTMAX reads: it may work in place, and leave the mask in their memory."""
    graph = model.subgraphs[0]
    adding = [op for op in _before_softmax(model, _readers(graph)) if fb.op_type(model, op) == "ADD"]
    written = {int(i) for op in graph.operators for i in op.outputs}
    return sorted({int(i) for op in adding for i in op.inputs} & written - {int(i) for i in graph.outputs})


def _readers(graph: fb.SubGraph) -> dict[int, list[fb.Operator]]:
    readers: dict[int, list[fb.Operator]] = defaultdict(list)
    for op in graph.operators:
        for index in {int(i) for i in op.inputs}:
            readers[index].append(op)
    return readers


def _before_softmax(model: fb.Model, readers: Mapping[int, Sequence[fb.Operator]]) -> list[fb.Operator]:
    """The ops that may mask, whose output nothing but SOFTMAX reads."""
    graph = model.subgraphs[0]
    shown = {int(i) for i in graph.outputs}
    found = []
    for op in graph.operators:
        output = int(op.outputs[0]) if len(op.outputs) else -1
        types = {fb.op_type(model, reader) for reader in readers.get(output, ())}
        if output not in shown and types == {"SOFTMAX"} and fb.op_type(model, op) in _OPERANDS:
            found.append(op)
    return found


def _hiding(model: fb.Model, op: fb.Operator) -> tuple[int, float, float] | None:
    """Position of an op's operand that is a mask far below the scores, and where output and operand may begin."""
    op_type, tensors = fb.op_type(model, op), model.subgraphs[0].tensors
    places = _OPERANDS[op_type]
    known = [given for at in places if (given := _range(model, tensors[op.inputs[at]])) is not None]
    mixed = ranges.range_of(tensors[op.outputs[0]])
    if not known or len(known) < len(places) or mixed is None:
        return None
    hiding = int(np.argmin([low for low, _ in known]))  # The other one has the scores.
    low, high = known[1 - hiding]
    least = min(low, 0.0) - _BELOW
    return (places[hiding], least, least - (max(high, 0.0) if op_type == "ADD" else 0.0)) if mixed[0] < least else None


def _range(model: fb.Model, tensor: fb.Tensor) -> ranges.Range | None:
    if not fb.is_constant(model, tensor):
        return ranges.range_of(tensor)
    values = fb.constant_values(model, tensor)
    return float(values.min()), float(values.max())


def _shorten(
    model: fb.Model,
    index: int,
    users: Sequence[tuple[fb.Operator, int, float]],
    readers: Sequence[fb.Operator],
    writers: Mapping[int, fb.Operator],
) -> None:
    """Let a mask begin where the deepest of those that mask with it needs it, in place."""
    tensor = model.subgraphs[0].tensors[index]
    if fb.is_constant(model, tensor):
        for op, at, lowest in users:
            _replace(model, op, at, lowest)
    elif len(readers) == len(users):
        lowest = min(lowest for _, _, lowest in users)
        fb.parameters(tensor).min = np.array([lowest], dtype=np.float32)
        writer = writers.get(index)
        if writer is not None and fb.op_type(model, writer) == "MUL":  # As in ``(1 - mask) * -1e9``.
            _replace(model, writer, 1, lowest)


def _replace(model: fb.Model, op: fb.Operator, at: int, lowest: float) -> None:
    """Give an op a constant of its own that begins no lower; it may be read elsewhere."""
    tensors = model.subgraphs[0].tensors
    own = copy(tensors[op.inputs[at]])
    if fb.is_constant(model, own):
        own.buffer = editing.add_buffer(model, np.maximum(fb.constant_values(model, own), np.float32(lowest)))
        tensors.append(own)
        op.inputs = np.array(op.inputs, dtype=np.int32)
        op.inputs[at] = len(tensors) - 1
