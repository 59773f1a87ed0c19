"""Stands in for LiteRT's slow kernels: 16-bit convolutions, which are reference code, and weights of 4 bits.

The first become float ops between the same 16-bit values, the second weights of 8 bits with the same levels where
integer ops read them.

Knows kernels and their speed, not what a model is for. What is shipped is never touched.
"""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.tflite_file import TfliteFile

_SLOW = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
"""Op types with slow 16-bit kernels."""

WORTH_IT = 1_000_000
"""Multiply-accumulates in 16-bit convolutions from which they are stood in for: LiteRT 2.3 needs about 2 ns for each,
so that less is over within 2 ms, where a file that is edited and loaded anew takes longer."""


def slow_macs(content: bytes) -> int:
    """Multiply-accumulates of an inference in 16-bit convolutions; soon said of a file without 16-bit tensors.

    Raises:
        ModelError: If the bytes are no whole TFLite file, as far as they are read.
    """
    return _slow_macs(TfliteFile(content)) if fb.has_type(content, schema.TensorType.INT16) else 0


def _slow_macs(file: TfliteFile) -> int:
    graph = file.graph
    wide = [op for op in graph.ops if op.op_type in _SLOW and graph.tensors[op.inputs[-1]].dtype == "int16"]
    return sum(op.macs for op in wide)


def quick(content: bytes) -> bytes:
    """The model, or what stands in for it where its 16-bit convolutions would take long, or weights have 4 bits.

    Raises:
        ModelError: As :func:`slow_macs`.
    """
    content = in_8_bits(content)
    if not fb.has_type(content, schema.TensorType.INT16):
        return content
    file = TfliteFile(content)
    return _stand_in(file.taken()) if _slow_macs(file) >= WORTH_IT else content


def in_8_bits(content: bytes) -> bytes:
    """The model with constants of 4 bits stored in 8 bits, except those that a hybrid op reads.

    XNNPACK runs more ops of such a model. LiteRT's own integer kernels give the same outputs for both. Its hybrid
    kernels round their inputs differently beside weights of 4 bits than beside 8, so that hybrid ops keep theirs.

    Raises:
        ModelError: If the bytes are no whole TFLite file.
    """
    if not fb.has_type(content, schema.TensorType.INT4):
        return content
    model = TfliteFile(content).taken()
    packed = [tensor for graph in model.subgraphs for tensor in _packed_but_for_hybrid(model, graph)]
    if not packed:
        return content
    for tensor in packed:
        tensor.buffer = editing.add_buffer(model, fb.constant_values(model, tensor))
        tensor.type = schema.TensorType.INT8
    editing.drop_unused_buffers(model)
    return fb.serialise(model)


def _packed_but_for_hybrid(model: fb.Model, graph: fb.SubGraph) -> list[fb.Tensor]:
    """The constants of 4 bits that no hybrid op reads."""
    hybrid = set[int]()
    for op in graph.operators:
        operands = WEIGHTED.get(fb.op_type(model, op))
        if operands and graph.tensors[op.inputs[operands.activation]].type == schema.TensorType.FLOAT32:
            hybrid.add(int(op.inputs[1]))
    return [
        tensor
        for index, tensor in enumerate(graph.tensors)
        if tensor.type == schema.TensorType.INT4 and index not in hybrid and fb.is_constant(model, tensor)
    ]


def stand_in(content: bytes) -> bytes:
    """The model with each 16-bit convolution as a float op on the same weights, its result rounded to the same steps.

    The kernel sums exactly and rounds once; the float op sums with a relative error of 1e-7 for each product, where a
    step is 3e-5 of the range. So a value differs by one step where it lies next to the middle of two.

    Returns:
        The bytes of a file with the same interface. What it takes in memory and time is not that of the model.
    """
    return _stand_in(TfliteFile(content).taken())


def _stand_in(model: fb.Model) -> bytes:
    """The file that stands in for a parsed model, which is changed for it."""
    graph = model.subgraphs[0]
    floats: dict[int, int] = {}
    codes = {name: len(model.operatorCodes) + place for place, name in enumerate(fb.CONVERSIONS)}
    wide = [t for t in graph.tensors if t.type == schema.TensorType.INT16]
    model.operatorCodes += [editing.conversion_code(name, wide) for name in fb.CONVERSIONS]
    ops: list[fb.Operator] = []
    for op in graph.operators:
        op_type = fb.op_type(model, op)
        source = int(op.inputs[WEIGHTED[op_type].activation]) if op_type in _SLOW else -1
        if source < 0 or graph.tensors[source].type != schema.TensorType.INT16:
            ops.append(op)
            continue
        activation, bias = WEIGHTED[op_type].activation, WEIGHTED[op_type].bias
        if source not in floats:
            floats[source] = _twin(model, source)
            ops.append(editing.conversion_op(codes["DEQUANTIZE"], source, floats[source]))
        operands, (result,) = list(map(int, op.inputs)), map(int, op.outputs)
        integer = graph.tensors[operands[1]]
        scales, axis = np.asarray(fb.scales(integer), np.float32), fb.parameters(integer).quantizedDimension
        operands[activation] = floats[source]
        operands[1] = _valued(model, operands[1], scales, axis)
        if len(operands) > bias and operands[bias] >= 0:
            operands[bias] = _valued(model, operands[bias], scales * fb.scales(graph.tensors[source])[0], 0)
        op.inputs, op.outputs = np.array(operands, np.int32), np.array([_twin(model, result)], np.int32)
        ops += [op, editing.conversion_op(codes["QUANTIZE"], int(op.outputs[0]), result)]
    graph.operators = ops
    editing.drop_unused_tensors(model)
    editing.tidy(model)
    return fb.serialise(model)


def _twin(model: fb.Model, index: int, buffer: int = 0) -> int:
    """A float tensor like this one."""
    old, new = model.subgraphs[0].tensors[index], schema.TensorT()
    new.name, new.shape, new.shapeSignature, new.hasRank = old.name, old.shape, old.shapeSignature, old.hasRank
    new.type, new.buffer, new.quantization = schema.TensorType.FLOAT32, buffer, schema.QuantizationParametersT()
    model.subgraphs[0].tensors.append(new)
    return len(model.subgraphs[0].tensors) - 1


def _valued(model: fb.Model, index: int, scales: np.ndarray, axis: int) -> int:
    """A constant in float, with the values that the integers stand for."""
    values = fb.constant_values(model, model.subgraphs[0].tensors[index])
    values = (values * fb.along(scales, axis, values.ndim)).astype(np.float32)
    return _twin(model, index, editing.add_buffer(model, values))
