"""Fuses ops of an integer model where the float model, from a newer converter, has them fused: same values, same bits.

Knows two forms: a PAD that a convolution does by itself, and a RESHAPE that puts back the axes that a mean dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import flatbuffer as fb

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def fuse_alike(model: fb.Model, float_model: fb.Model) -> None:
    """Fuse, in place, what the float model has in no other form.

    Args:
        model: An integer model with true shapes.
        float_model: What it was made from.
    """
    shapes = {_ends(float_model, op) for op in float_model.subgraphs[0].operators}
    for pad, convolution in _padded(model):
        if _ends(model, convolution) not in shapes:
            convolution.inputs = np.array([pad.inputs[0], *convolution.inputs[1:]], dtype=np.int32)
            convolution.builtinOptions.padding = schema.Padding.SAME
            _drop(model, [pad])
    for reduction, reshape, helpers in _reduced(model):
        if _ends(model, reduction) not in shapes:
            reduction.outputs = reshape.outputs
            reduction.builtinOptions.keepDims = True
            _drop(model, [reshape, *helpers])


def _ends(model: fb.Model, op: fb.Operator) -> tuple[object, ...]:
    """Op type and shapes of what an op reads first and writes first."""
    tensors = model.subgraphs[0].tensors
    rows = (fb.indices(op.inputs), fb.indices(op.outputs))
    return fb.op_type(model, op), *(fb.shape_of(tensors[row[0]]) if row and row[0] >= 0 else None for row in rows)


def _drop(model: fb.Model, gone: list[fb.Operator]) -> None:
    model.subgraphs[0].operators = [op for op in model.subgraphs[0].operators if all(op is not one for one in gone)]


def _readers(model: fb.Model, tensor: int) -> list[fb.Operator]:
    return [op for op in model.subgraphs[0].operators if tensor in fb.indices(op.inputs)]


def _is_read_outside(model: fb.Model, op: fb.Operator) -> bool:
    return not {*fb.indices(op.outputs)}.isdisjoint(fb.indices(model.subgraphs[0].outputs))


def _padded(model: fb.Model) -> Iterator[tuple[fb.Operator, fb.Operator]]:
    """Each PAD that does what SAME does, with the one convolution that reads it."""
    tensors = model.subgraphs[0].tensors
    for pad in model.subgraphs[0].operators:
        if fb.op_type(model, pad) != "PAD" or _is_read_outside(model, pad):
            continue
        readers = _readers(model, int(pad.outputs[0]))
        if len(readers) != 1 or fb.op_type(model, readers[0]) not in _CONVOLUTIONS:
            continue
        source, amounts, result = (tensors[int(i)] for i in (*pad.inputs[:2], pad.outputs[0]))
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
    found = []
    for size, length, stride, dilation in zip(shape[1:3], kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size, 0)
        found.append([total // 2, total - total // 2])
    return [[0, 0], *found, [0, 0]]


def _reduced(model: fb.Model) -> Iterator[tuple[fb.Operator, fb.Operator, list[fb.Operator]]]:
    """Each reduction whose dropped axes a RESHAPE puts back, with the RESHAPE and the ops that compute its shape."""
    tensors = model.subgraphs[0].tensors
    for op in model.subgraphs[0].operators:
        if getattr(op.builtinOptions, "keepDims", None) is not False or _is_read_outside(model, op):
            continue
        readers = _readers(model, int(op.outputs[0]))
        behind = [one for one in readers if fb.op_type(model, one) == "RESHAPE"]
        source, axes = (tensors[int(i)] for i in op.inputs[:2])
        if len(behind) != 1 or not fb.is_constant(model, axes):
            continue
        shape = list(fb.shape_of(source))
        for axis in fb.constant_values(model, axes).ravel():
            shape[int(axis)] = 1
        helpers = [one for reader in readers if reader is not behind[0] for one in _ahead(model, reader, behind[0])]
        if fb.shape_of(tensors[int(behind[0].outputs[0])]) == tuple(shape) and not any(
            _is_read_outside(model, one) or fb.scales(tensors[int(one.outputs[0])]) for one in helpers
        ):
            yield op, behind[0], helpers


def _ahead(model: fb.Model, op: fb.Operator, end: fb.Operator) -> list[fb.Operator]:
    """An op and all that reads what it leads to, up to some end; each once, however many ways lead to it."""
    found = [op]
    for one in found:  # Grows on the way.
        readers = (reader for tensor in fb.indices(one.outputs) for reader in _readers(model, tensor))
        found += [r for r in readers if r is not end and all(r is not known for known in found)]
    return found
