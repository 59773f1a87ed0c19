"""Takes the RESHAPEs around layers of an integer model where the float model has none: same values, same bits.

A dense layer on sequences is one FULLY_CONNECTED that keeps its dimensions where the batch is fixed. Converted with a
free batch it stands between two RESHAPEs, whose shapes are computed as the model runs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from autoselect.tflite import flatbuffer as fb


def keep_dimensions(model: fb.Model, float_model: fb.Model) -> None:
    """Let layers keep their dimensions, in place, if any of the float model does.

    Args:
        model: An integer model with true shapes.
        float_model: What it was made from.
    """
    if not any(getattr(op.builtinOptions, "keepNumDims", False) for op in _layers(float_model)):
        return
    graph = model.subgraphs[0]
    writers = {int(t): op for op in graph.operators for t in op.outputs}
    readers = Counter(int(t) for op in graph.operators for t in op.inputs) + Counter(map(int, graph.outputs))
    behind = {int(op.inputs[0]): op for op in graph.operators if _reshapes(model, op)}
    gone = []
    for op in _layers(model):
        before, after = writers.get(int(op.inputs[0])), behind.get(int(op.outputs[0]))
        if before is None or after is None or not _reshapes(model, before) or readers[int(op.outputs[0])] != 1:
            continue
        if id(before) in gone:  # What it reads is no longer written.
            continue
        source, result = (graph.tensors[int(i)] for i in (before.inputs[0], after.outputs[0]))
        shape, wanted = fb.shape_of(source), fb.shape_of(result)
        layer_ends = [graph.tensors[int(row[0])] for row in (op.inputs, op.outputs)]
        if (*shape[:-1], fb.shape_of(layer_ends[1])[-1]) != wanted or shape[-1] != fb.shape_of(layer_ends[0])[-1]:
            continue
        op.inputs = np.array([before.inputs[0], *op.inputs[1:]], dtype=np.int32)
        op.outputs = np.array(after.outputs, dtype=np.int32)
        op.builtinOptions.keepNumDims = True
        gone.append(id(after))
    graph.operators = [op for op in graph.operators if id(op) not in gone]


def _layers(model: fb.Model) -> list[fb.Operator]:
    return [op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "FULLY_CONNECTED"]


def _reshapes(model: fb.Model, op: fb.Operator) -> bool:
    return fb.op_type(model, op) == "RESHAPE"
