"""Custom ops that are builtin ops by another name, written as those: the quantizer, and plain kernels, know them then.

XNNPACK runs a ``Convolution2DTransposeBias``, which MediaPipe's models have, as what TRANSPOSE_CONV with a bias is now.
"""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_PADDINGS = {1: schema.Padding.SAME, 2: schema.Padding.VALID}
"""By the number that ``TfLitePadding`` has."""
_WITH_BIAS = 3
"""The version of TRANSPOSE_CONV."""
_OPERANDS = ("input", "weights", "bias")
_OPTIONS = 3
"""Padding and strides, as whole numbers of four bytes."""


def as_builtins(model: fb.Model) -> int:
    """Write such ops of the main graph anew, in place; with options that nobody writes they stay.

    Returns:
        How many there were.
    """
    graph = model.subgraphs[0]
    found = [op for op in graph.operators or [] if _is_known(model, op)]
    for op in found:
        padding, height, width = _options(op)
        options = schema.TransposeConvOptionsT()
        options.padding, options.strideH, options.strideW = _PADDINGS[padding], height, width
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.TransposeConvOptions, options
        op.customOptions = None
        source, weights, bias = fb.indices(op.inputs)
        op.inputs = np.array([_sizes(model, op), weights, source, bias], np.int32)
        op.opcodeIndex = editing.add_code(model, "TRANSPOSE_CONV")
        model.operatorCodes[-1].version = _WITH_BIAS
    if found:
        editing.tidy(model)
    return len(found)


def _is_known(model: fb.Model, op: fb.Operator) -> bool:
    if fb.op_type(model, op) != "Convolution2DTransposeBias" or len(op.inputs) != len(_OPERANDS):
        return False
    given, sizes = _options(op), fb.shape_of(model.subgraphs[0].tensors[op.outputs[0]])
    return len(given) == _OPTIONS and given[0] in _PADDINGS and min(sizes, default=0) > 0


def _options(op: fb.Operator) -> list[int]:
    given = np.asarray([] if op.customOptions is None else op.customOptions, np.uint8)
    return [int(value) for value in given[: given.size // 4 * 4].view("<i4")[:_OPTIONS]]


def _sizes(model: fb.Model, op: fb.Operator) -> int:
    """A constant with the shape of an op's output."""
    output = model.subgraphs[0].tensors[op.outputs[0]]
    return editing.add_constant(model, f"{fb.tensor_name(output)}/sizes", np.array(fb.shape_of(output), np.int32))
