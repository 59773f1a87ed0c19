"""What the quantizer leaves of its work around a denylisted op: undone here, so that the op starts out float."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import flatbuffer as fb

_FLOAT32 = schema.TensorType.FLOAT32


def bypass_round_trips(model: fb.Model) -> None:
    """Let the readers of a float tensor that is quantized and dequantized at once read the tensor itself, in place.

    The quantizer puts such a pair before a fused recurrent op that is denylisted, and a longer chain before an op whose
    inputs must share one scale, such as CONCATENATION. It costs accuracy and ops, and TensorFlow's dynamic-range
    quantization of the whole model has none.
    """
    graph = model.subgraphs[0]
    exact = _round_trips(model)
    rereads = _unsigned_rereads(model)
    if not exact and not rereads:
        return
    for op, source in rereads:
        op.inputs = np.array([source], dtype=np.int32)
    for op in graph.operators:
        op.inputs = np.array([exact.get(int(i), int(i)) for i in op.inputs], dtype=np.int32)
    fb.drop_unread_conversions(model)


def _round_trips(model: fb.Model) -> dict[int, int]:
    """The float tensor that each twice converted tensor equals, but for rounding."""
    graph = model.subgraphs[0]
    quantized_from: dict[int, int] = {}
    exact: dict[int, int] = {}
    conversions = [(fb.op_type(model, op), op) for op in graph.operators if fb.op_type(model, op) in fb.CONVERSIONS]
    for name, op in conversions:
        source, result = int(op.inputs[0]), int(op.outputs[0])
        if name == "QUANTIZE" and graph.tensors[source].type == _FLOAT32:
            quantized_from[result] = exact.get(source, source)
        elif source in quantized_from and name == "QUANTIZE":
            quantized_from[result] = quantized_from[source]
        elif source in quantized_from:
            exact[result] = quantized_from[source]
    return exact


def _unsigned_rereads(model: fb.Model) -> list[tuple[Any, int]]:
    """Each DEQUANTIZE of what was uint8, with that tensor: the quantizer has others read it directly."""
    graph = model.subgraphs[0]
    unsigned = {
        int(op.outputs[0]): int(op.inputs[0])
        for op in graph.operators
        if fb.op_type(model, op) == "QUANTIZE" and graph.tensors[op.inputs[0]].type == schema.TensorType.UINT8
    }
    return [
        (op, unsigned[int(op.inputs[0])])
        for op in graph.operators
        if fb.op_type(model, op) == "DEQUANTIZE" and int(op.inputs[0]) in unsigned
    ]


def restore_float_weights(model: fb.Model, float_model: fb.Model, float_ops: Mapping[int, int]) -> None:
    """Give float ops their float constants back, in place: the quantizer turns a denylisted TRANSPOSE_CONV hybrid.

    Args:
        model: The built model.
        float_model: The calibrated model.
        float_ops: For each denylisted op's place in ``model`` its index in ``float_model``.
    """
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    for place, index in float_ops.items():
        op, original = graph.operators[place], float_graph.operators[index]
        if graph.tensors[op.outputs[0]].type != _FLOAT32:
            continue
        for position, tensor in _integer_constants(model, op):
            op.inputs = np.array(op.inputs)
            twin = float_graph.tensors[original.inputs[position]]
            op.inputs[position] = _add_constant(model, tensor, fb.constant_values(float_model, twin))
    fb.drop_unused_tensors(model)


def _integer_constants(model: fb.Model, op: Any) -> list[tuple[int, Any]]:
    tensors = [(p, model.subgraphs[0].tensors[i]) for p, i in enumerate(op.inputs) if i >= 0]
    return [(p, t) for p, t in tensors if t.type == schema.TensorType.INT8 and fb.is_constant(model, t)]


def _add_constant(model: fb.Model, like: Any, values: np.ndarray) -> int:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = like.name, like.shape, schema.TensorType.FLOAT32
    tensor.buffer = fb.add_buffer(model, values)
    model.subgraphs[0].tensors.append(tensor)
    return len(model.subgraphs[0].tensors) - 1


def quantize_float_outputs(model: fb.Model, whole: fb.Model) -> None:
    """Give each output the type that it has in the all-integer model, in place.

    With an integer interface the quantizer leaves an output in float where float ops both write and read it.

    Args:
        model: The built model.
        whole: The same with nothing denylisted.
    """
    graph, twins = model.subgraphs[0], whole.subgraphs[0]
    outputs = [int(i) for i in graph.outputs]
    for position, (output, twin) in enumerate(zip(list(outputs), map(int, twins.outputs), strict=True)):
        if graph.tensors[output].type != _FLOAT32 or twins.tensors[twin].type == _FLOAT32:
            continue
        for form in _integer_forms(whole, twin):
            outputs[position] = _quantized(model, outputs[position], twins.tensors[form])
        for signature in model.signatureDefs or []:
            for entry in signature.outputs or []:
                entry.tensorIndex = outputs[position] if entry.tensorIndex == output else entry.tensorIndex
    graph.outputs = np.array(outputs, dtype=np.int32)


def _integer_forms(whole: fb.Model, output: int) -> list[int]:
    """An output, after the int8 tensor that it is converted from if it is uint8."""
    graph = whole.subgraphs[0]
    if graph.tensors[output].type != schema.TensorType.UINT8:
        return [output]
    return [*(int(op.inputs[0]) for op in graph.operators if output in op.outputs), output]


def _quantized(model: fb.Model, source: int, like: Any) -> int:
    """The tensor that a QUANTIZE makes of ``source`` with the scale of ``like``, a new one if there is none."""
    graph = model.subgraphs[0]
    for op in graph.operators:
        if fb.op_type(model, op) == "QUANTIZE" and op.inputs[0] == source:
            result = graph.tensors[op.outputs[0]]
            if (result.type, fb.scales(result)) == (like.type, fb.scales(like)):
                return int(op.outputs[0])
    tensor = copy(like)
    tensor.buffer = fb.add_buffer(model, np.zeros(0, dtype=np.int8))
    graph.tensors.append(tensor)
    op = schema.OperatorT()
    op.opcodeIndex = _quantize_code(model)
    op.inputs = np.array([source], dtype=np.int32)
    op.outputs = np.array([len(graph.tensors) - 1], dtype=np.int32)
    graph.operators.append(op)
    return len(graph.tensors) - 1


def _quantize_code(model: fb.Model) -> int:
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == schema.BuiltinOperator.QUANTIZE:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.version = schema.BuiltinOperator.QUANTIZE, 2
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1
