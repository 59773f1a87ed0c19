"""The build with 16-bit activations: what TensorFlow's quantizer is given, what it leaves undone, what of it is of use.

Knows the older quantizer's limits; refuses to know candidates.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from copy import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import BuildError
from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.weighted_ops import bias_of, quantized_ops
from autoselect.rewrites import names
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED

_NO_FORM = "TensorFlow's 16-bit quantizer does not make it a 16-bit op; it stays int8"
_REFUSED = "TensorFlow's 16-bit quantizer, or LiteRT after it, refuses it; it stays int8"


def finish(model: fb.Model) -> None:
    """Have LiteRT take a 16-bit build, in place; its weights without ranges are the integer build's, where equal.

    The quantizer leaves the constants of pads in float, which LiteRT refuses, and gives a constant of zeros the
    scale 0, at which an ADD or a SUB ends the process.
    """
    graph = model.subgraphs[0]
    for op in graph.operators:
        if fb.op_type(model, op) == "PADV2" and graph.tensors[op.outputs[0]].type == schema.TensorType.INT16:
            _quantize_pad(model, op)
        rows = [graph.tensors[i] for i in (*fb.indices(op.inputs), *fb.indices(op.outputs)) if i >= 0]
        scaled = [tensor for tensor in rows if tensor.type == schema.TensorType.INT16 and fb.scales(tensor)]
        usable = [fb.scales(tensor)[0] for tensor in scaled if fb.scales(tensor)[0] > 0.0]
        for tensor in scaled:
            if fb.scales(tensor)[0] == 0.0:
                fb.parameters(tensor).scale = np.array([min(usable, default=1.0)], np.float32)
    for tensor in graph.tensors:
        if fb.scales(tensor):
            fb.parameters(tensor).min = fb.parameters(tensor).max = None


def _quantize_pad(model: fb.Model, op: fb.Operator) -> None:
    written, given = (model.subgraphs[0].tensors[i] for i in (op.outputs[0], op.inputs[2]))
    if fb.is_constant(model, given) and given.type == schema.TensorType.FLOAT32:
        levels = np.rint(fb.constant_values(model, given).astype(np.float64) / fb.scales(written)[0])
        op.inputs, ends = np.array(op.inputs, np.int32), np.iinfo(np.int16)
        whole = np.clip(levels, ends.min, ends.max).astype(np.int16)
        _added(model, op, 2, whole, fb.parameters(written)).type = schema.TensorType.INT16


def bring_left_ops(model: fb.Model, source: fb.Model) -> None:
    """Have a 16-bit build, under canonical names, run: what the quantizer was not given is float in it, in place.

    The quantizer dequantizes what such an op reads, but for inputs of the model: it reads these in float, too.

    Raises:
        BuildError: If an op runs other subgraphs, which the build has no more.
    """
    ops, twins = model.subgraphs[0].operators, source.subgraphs[0].operators
    if running := fb.CONTROL_FLOW & {fb.op_type(source, op) for op in twins}:
        raise BuildError(f"The {min(running)} runs other parts of the model, which have no 16-bit build")
    given = {int(op.outputs[0]): int(op.inputs[0]) for op in ops if _rounds_an_input(model, op)}
    for index, places in names.op_places(model).items():
        op_type = fb.op_type(source, twins[index])
        for op in (ops[place] for place in places if fb.op_type(model, ops[place]) == "COS" != op_type):
            model.operatorCodes.append(copy(source.operatorCodes[twins[index].opcodeIndex]))
            op.opcodeIndex = len(model.operatorCodes) - 1
            op.inputs = np.array([given.get(i, i) for i in map(int, op.inputs)], np.int32)


def _rounds_an_input(model: fb.Model, op: fb.Operator) -> bool:
    return fb.op_type(model, op) == "QUANTIZE" and op.inputs[0] in model.subgraphs[0].inputs


def take_weights(
    model: fb.Model, places: Mapping[int, int], integer: fb.Model, integer_places: Mapping[int, int], source: fb.Model
) -> None:
    """Give the weighted 16-bit ops the weights of the integer build, and biases that go with them, in place.

    With one scale for all weights the quantizer refuses DEPTHWISE_CONV_2D, and gives layers that share weights biases
    that LiteRT refuses. So a build with a scale a channel takes the weights of the integer build.
    """
    # The largest bias in steps: LiteRT's kernels scale sums of up to 47 bits.
    largest = 2.0**46
    theirs = dict(quantized_ops(integer, source, integer_places))
    graph = model.subgraphs[0]
    for index, op in quantized_ops(model, source, places):
        twin = theirs.get(index)
        kind = WEIGHTED[fb.op_type(source, source.subgraphs[0].operators[index])]
        activation = graph.tensors[op.inputs[kind.activation]]
        if twin is None or activation.type != schema.TensorType.INT16:
            continue
        op.inputs = np.array(op.inputs, np.int32)
        given = integer.subgraphs[0].tensors[twin.inputs[1]]
        weights = _added(model, op, 1, fb.constant_values(integer, given), fb.parameters(given))
        if bias_of(op, kind) >= 0:
            scales = np.float32(fb.scales(activation)[0]) * np.asarray(fb.scales(weights), np.float32)
            old = source.subgraphs[0].operators[index].inputs[kind.bias]
            values = fb.constant_values(source, source.subgraphs[0].tensors[old]).astype(np.float64)
            steps = np.clip(np.nan_to_num(values / scales.astype(np.float64)), -largest, largest)
            levels = np.rint(steps).astype(np.int64)
            _added(model, op, kind.bias, levels, editing.symmetric(scales))


def unclip(model: fb.Model) -> None:
    """Write RELU for each 16-bit RELU6 that clips nothing but what 16 bits hold not anyway, in place: the same bits.

    Most are of this kind: calibration saw no value above 6, and so the largest integer stands for 6 at most. Some
    accelerators have a 16-bit RELU, and no RELU6.
    """
    graph = model.subgraphs[0]
    relu6 = schema.ActivationFunctionType.RELU6
    for op in graph.operators:
        if not len(op.outputs) or not _ends_at_6(graph.tensors[op.outputs[0]]):
            continue
        if fb.op_type(model, op) == "RELU6":
            op.opcodeIndex = editing.add_code(model, "RELU")
            # The version of a RELU on 16-bit integers (`lite/tools/versioning/op_version.cc`).
            model.operatorCodes[op.opcodeIndex].version = 3
        elif getattr(op.builtinOptions, "fusedActivationFunction", None) == relu6:
            op.builtinOptions = copy(op.builtinOptions)
            op.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.RELU


def _ends_at_6(tensor: fb.Tensor) -> bool:
    """Whether a tensor holds 16-bit integers that stand for nothing above 6, as LiteRT's kernels round."""
    if tensor.type != schema.TensorType.INT16 or len(fb.scales(tensor)) != 1 or any(fb.zero_points_of(tensor)):
        return False
    scale = np.float32(fb.scales(tensor)[0])
    return bool(scale > 0.0 and np.rint(np.float32(6.0) / scale) >= np.iinfo(np.int16).max)


def _added(
    model: fb.Model, op: fb.Operator, position: int, values: np.ndarray, quantization: fb.Quantization
) -> fb.Tensor:
    """A constant in the place of an operand, for this op alone."""
    graph = model.subgraphs[0]
    tensor = copy(graph.tensors[op.inputs[position]])
    tensor.quantization, tensor.buffer = copy(quantization), editing.add_buffer(model, values)
    graph.tensors.append(tensor)
    op.inputs[position] = len(graph.tensors) - 1
    return tensor


def why_not(whole: Built, index: int, op_type: str, activations: Container[int]) -> str:
    """Why an op of the float model has no form with 16-bit activations; empty where it has.

    Args:
        whole: The 16-bit build.
        index: Of the op.
        op_type: Its type.
        activations: The tensors of the build that are values of the float model.
    """
    if index not in whole.places:
        return _NO_FORM
    model, graph = whole.model, whole.model.subgraphs[0]
    op = graph.operators[whole.places[index]]
    if fb.op_type(model, op) == "COS" != op_type:
        return _REFUSED
    return "" if is_wide(model, op, activations) else _NO_FORM


def is_wide(model: fb.Model, op: fb.Operator, activations: Container[int]) -> bool:
    """Whether an op of the 16-bit build reads and writes 16-bit integers, and reads no other activations than these.

    An op without a quantized output is not wide, such as an ARG_MAX: the quantizer lets it read a model's 16-bit input
    even if LiteRT has no such kernel, and the kernels that LiteRT has take the stored integers for the values.
    """
    graph = model.subgraphs[0]
    read = [int(t) for t in op.inputs if t >= 0 and not fb.is_constant(model, graph.tensors[t])]
    numbers, written = (
        [t for t in tensors if fb.TENSOR_DTYPES[t.type] in reader.FLOAT_DTYPES | reader.QUANTIZED_DTYPES]
        for tensors in ([graph.tensors[t] for t in row] for row in (read, fb.indices(op.outputs)))
    )
    return bool(written) and all(t in activations for t in read) and all(map(_is_plain_int16, [*numbers, *written]))


def _is_plain_int16(tensor: fb.Tensor) -> bool:
    """Whether it holds 16-bit integers around zero, as LiteRT's kernels want them."""
    return tensor.type == schema.TensorType.INT16 and not any(fb.zero_points_of(tensor))
