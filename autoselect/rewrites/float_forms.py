"""Writes parts of an integer model as its float model has them: same values, same bits.

Knows three forms: a PAD that a convolution does by itself, a RESHAPE that puts back the axes that a mean dropped, and
the RESHAPEs around a layer that could keep its dimensions. A dense layer on sequences is one FULLY_CONNECTED that keeps
its dimensions where the batch is fixed. Converted with a free batch it stands between two RESHAPEs, whose shapes are
computed as the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.rewrites.rewriting import GraphView
from autoselect.tflite import flatbuffer as fb

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def fuse_alike(model: fb.Model, float_model: fb.Model) -> None:
    """Fuse, in place, what the float model has in no other form.

    Args:
        model: An integer model with true shapes.
        float_model: What it was made from.
    """
    shapes = {_ends(float_model, op) for op in float_model.subgraphs[0].operators}
    view = GraphView(model)
    for pad, convolution in _padded(view):
        if _ends(model, convolution) not in shapes:
            convolution.inputs = np.array([pad.inputs[0], *convolution.inputs[1:]], dtype=np.int32)
            convolution.builtinOptions.padding = schema.Padding.SAME
            view.replace([pad])
    for reduction, reshape, helpers in _reduced(view):
        if _ends(model, reduction) not in shapes:
            reduction.outputs = reshape.outputs
            reduction.builtinOptions.keepDims = True
            view.replace([reshape, *helpers])


def _ends(model: fb.Model, op: fb.Operator) -> tuple[object, ...]:
    """Op type and shapes of what an op reads first and writes first."""
    tensors = model.subgraphs[0].tensors
    rows = (fb.indices(op.inputs), fb.indices(op.outputs))
    return fb.op_type(model, op), *(fb.shape_of(tensors[row[0]]) if row and row[0] >= 0 else None for row in rows)


def _is_read_outside(view: GraphView, op: fb.Operator) -> bool:
    return any(view.is_output(index) for index in fb.indices(op.outputs))


def _padded(view: GraphView) -> Iterator[tuple[fb.Operator, fb.Operator]]:
    """Each PAD that does what SAME does, with the one convolution that reads it."""
    model = view.model
    for pad in view.typed("PAD"):
        readers = view.readers(int(pad.outputs[0]))
        if _is_read_outside(view, pad) or len(readers) != 1 or view.type_of(readers[0]) not in _CONVOLUTIONS:
            continue
        source, amounts, result = (view.tensor(int(i)) for i in (*pad.inputs[:2], pad.outputs[0]))
        same_scale = (fb.scales(source), fb.zero_points_of(source)) == (fb.scales(result), fb.zero_points_of(result))
        if same_scale and fb.is_constant(model, amounts):
            wanted = _same_padding(model, readers[0], fb.shape_of(source))
            if wanted == fb.constant_values(model, amounts).tolist():
                yield pad, readers[0]


def _same_padding(model: fb.Model, convolution: fb.Operator, shape: tuple[int, ...]) -> list[list[int]] | None:
    """How many zeros SAME puts before and behind each axis of an input; None where the convolution pads already."""
    options = convolution.builtinOptions
    if options.padding != schema.Padding.VALID or len(shape) != 4:
        return None
    kernel = fb.shape_of(model.subgraphs[0].tensors[int(convolution.inputs[1])])[1:3]
    strides = (options.strideH, options.strideW)
    dilations = (options.dilationHFactor, options.dilationWFactor)
    pads = []
    for size, length, stride, dilation in zip(shape[1:3], kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size, 0)
        pads.append([total // 2, total - total // 2])
    return [[0, 0], *pads, [0, 0]]


def _reduced(view: GraphView) -> Iterator[tuple[fb.Operator, fb.Operator, list[fb.Operator]]]:
    """Each reduction whose dropped axes a RESHAPE puts back, with the RESHAPE and the ops that compute its shape."""
    model = view.model
    for op in list(view.graph.operators):
        if getattr(op.builtinOptions, "keepDims", None) is not False or _is_read_outside(view, op):
            continue
        readers = view.readers(int(op.outputs[0]))
        behind = [reader for reader in readers if view.type_of(reader) == "RESHAPE"]
        source, axes = (view.tensor(int(i)) for i in op.inputs[:2])
        if len(behind) != 1 or not fb.is_constant(model, axes):
            continue
        shape = list(fb.shape_of(source))
        for axis in fb.constant_values(model, axes).ravel():
            shape[int(axis)] = 1
        helpers = [node for reader in readers if reader is not behind[0] for node in _ahead(view, reader, behind[0])]
        if view.shape(int(behind[0].outputs[0])) == tuple(shape) and not any(
            _is_read_outside(view, node) or fb.scales(view.tensor(int(node.outputs[0]))) for node in helpers
        ):
            yield op, behind[0], helpers


def _ahead(view: GraphView, op: fb.Operator, end: fb.Operator) -> list[fb.Operator]:
    """An op and all that reads what it leads to, up to some end; each once, however many ways lead to it."""
    ops = [op]
    for writer in ops:  # Grows on the way.
        readers = (reader for tensor in fb.indices(writer.outputs) for reader in view.readers(tensor))
        ops += [r for r in readers if r is not end and all(r is not other for other in ops)]
    return ops


def keep_dimensions(model: fb.Model, float_model: fb.Model) -> None:
    """Let layers keep their dimensions, in place, if any of the float model does.

    Args:
        model: An integer model with true shapes.
        float_model: What it was made from.
    """
    layers = GraphView(float_model).typed("FULLY_CONNECTED")
    if not any(getattr(op.builtinOptions, "keepNumDims", False) for op in layers):
        return
    view, gone = GraphView(model), list[fb.Operator]()
    for op in view.typed("FULLY_CONNECTED"):
        before, after = view.writer(int(op.inputs[0])), view.sole_reader(int(op.outputs[0]))
        if before is None or after is None or not view.type_of(before) == view.type_of(after) == "RESHAPE":
            continue
        # The shape that the RESHAPE behind takes is no layer's output, and what one that is gone wrote is not written.
        if int(after.inputs[0]) != int(op.outputs[0]) or any(before is reshape for reshape in gone):
            continue
        shape, wanted = view.shape(int(before.inputs[0])), view.shape(int(after.outputs[0]))
        read, written = (view.shape(int(row[0])) for row in (op.inputs, op.outputs))
        if (*shape[:-1], written[-1]) != wanted or shape[-1] != read[-1]:
            continue
        op.inputs = np.array([before.inputs[0], *op.inputs[1:]], dtype=np.int32)
        op.outputs = np.array(after.outputs, dtype=np.int32)
        op.builtinOptions.keepNumDims = True
        gone.append(after)
    view.replace(gone)
