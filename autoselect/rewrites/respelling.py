"""Ops written as others that give the same, bit for bit, and that the quantizer, or compilers, make more of.

The quantizer has no integer form of some ops. And a convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND is the
dilated convolution that it computes: so a dilated convolution of Keras comes out of the converter where the batch is
free. Each output is the same sum in the same order. A DEPTHWISE_CONV_2D stays: LiteRT sums in another order if it is
dilated. Accelerators run dilated convolutions, but not all of them move values to the batch, least of all those of a
sequence, or in 16 bits. Nor do all of them read 64-bit indices, which Keras writes where 32 bits
suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.rewrites.casts import CASTS_FIRST
from autoselect.rewrites.rewriting import GraphView, Rewrite, has_ops
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_INDEXED = ("GATHER", "GATHER_ND")
"""Op types whose second operand holds indices, of 32 or of 64 bits."""
_COUNTED = ("CUMSUM", "TOPK_V2")
"""Op types whose second operand is a number, which TensorFlow's importer takes without axes alone."""


def _respell(model: fb.Model) -> list[tuple[str, str]]:
    """Write such ops of the main graph anew, in place.

    Returns:
        For each of these ops the type that it was, and the type of what computes the same now.
    """
    graph = model.subgraphs[0]
    ops, type_pairs = [], []
    for op in graph.operators:
        written = _written_anew(model, op)
        ops += written or [op]
        if written:
            type_pairs.append((fb.op_type(model, op), fb.op_type(model, written[-1])))
    graph.operators = ops
    return type_pairs


def _written_anew(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    write = _WRITERS.get(fb.op_type(model, op))
    if write is None or model.subgraphs[0].tensors[op.outputs[0]].type != schema.TensorType.FLOAT32:
        return []
    return write(model, op)


def _negated(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """A product with -1, but a difference behind a dense layer.

    The quantizer merges such a product into the weights of a dense layer before it. If others read that layer, too, it
    is then there twice, the second time with weights of the other sign. From minus zero a zero of either sign is right.
    """
    graph, source = model.subgraphs[0], int(op.inputs[0])
    name = fb.tensor_name(graph.tensors[source])
    writers = (writer for writer in graph.operators if source in fb.indices(writer.outputs))
    if any(fb.op_type(model, writer) == "FULLY_CONNECTED" for writer in writers):
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
    additions = []
    for number, other in enumerate(others, 1):
        result = last
        if number < len(others):
            tensors.append(copy(tensors[last]))
            tensors[-1].name, result = f"{fb.tensor_name(tensors[last])}/sum{number}".encode(), len(tensors) - 1
        additions.append(editing.new_op(model, "ADD", [total, other], result))
        total = result
    return additions


def _parted(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """Parts of several lengths, each cut out by itself; nothing where they are not known beforehand."""
    tensors = model.subgraphs[0].tensors
    source, axis, rank = int(op.inputs[0]), tensors[op.inputs[2]], len(fb.shape_of(tensors[op.inputs[0]]))
    if not rank or not fb.is_constant(model, tensors[op.inputs[1]]) or not fb.is_constant(model, axis):
        return []
    at, start, slices = int(fb.constant_values(model, axis).item()) % rank, 0, []
    if any(-1 in fb.indices(tensors[i].shapeSignature)[at : at + 1] for i in map(int, op.outputs)):
        return []
    for output in map(int, op.outputs):
        length, name = fb.shape_of(tensors[output])[at], fb.tensor_name(tensors[output])
        begin, size = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        begin[at], size[at], start = start, length, start + length
        ends = [editing.add_constant(model, f"{name}/{end}", row) for end, row in (("begin", begin), ("size", size))]
        slices.append(editing.new_op(model, "SLICE", [source, *ends], output))
    return slices


def _compared(model: fb.Model, op: fb.Operator) -> list[fb.Operator]:
    """A choice of the "on" value at the places that equal the index; nothing where depth or values are no constants.

    The quantizer gives the two values of a ONE_HOT scales of their own, and the int8 kernel copies their integers.
    """
    tensors, output = model.subgraphs[0].tensors, int(op.outputs[0])
    source, depth, *values = map(int, op.inputs)
    if not all(fb.is_constant(model, tensors[i]) for i in (depth, *values)):
        return []
    rank, dtype = len(fb.shape_of(tensors[output])), fb.TENSOR_DTYPES[tensors[source].type]
    at = op.builtinOptions.axis % rank
    places = np.arange(int(fb.constant_values(model, tensors[depth]).item()), dtype=dtype)
    added = [
        editing.add_constant(model, f"{fb.tensor_name(tensors[output])}/{name}", constant)
        for name, constant in (("axis", np.array(at, np.int32)), ("places", places.reshape(-1, *[1] * (rank - 1 - at))))
    ]
    wide, is_there = len(tensors), len(tensors) + 1
    tensors += [copy(tensors[source]), copy(tensors[output])]
    tensors[wide].shape, tensors[is_there].type = _with_one(tensors[source].shape, at), schema.TensorType.BOOL
    tensors[wide].shapeSignature = _with_one(tensors[source].shapeSignature, at)
    for index, name in ((wide, "indices"), (is_there, "is_there")):
        tensors[index].name, tensors[index].buffer = f"{fb.tensor_name(tensors[output])}/{name}".encode(), 0
    return [
        editing.new_op(model, "EXPAND_DIMS", [source, added[0]], wide),
        editing.new_op(model, "EQUAL", [wide, added[1]], is_there),
        editing.new_op(model, "SELECT_V2", [is_there, *values], output),
    ]


def _with_one(sizes: np.ndarray | list[int] | None, at: int) -> np.ndarray | None:
    """Sizes with a further axis of size 1."""
    return None if sizes is None else np.insert(fb.indices(sizes), at, 1).astype(np.int32)


_WRITERS: dict[str, Callable[[fb.Model, fb.Operator], list[fb.Operator]]] = {
    "ADD_N": _summed,
    "NEG": _negated,
    "ONE_HOT": _compared,
    "SPLIT_V": _parted,
    "SQUARE": _squared,
}


_UNIT_AXES = ("EXPAND_DIMS", "RESHAPE", "SQUEEZE")
"""Op types that give a sequence a second axis of one step, and take it away again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dilated:
    """A convolution with the ops around it.

    Attributes:
        ops: From the SPACE_TO_BATCH_ND to the BATCH_TO_SPACE_ND.
        conv: The convolution among them.
        factors: Of the dilation, for height and width.
        padding: The one that the dilated convolution has.
        unit: The axis, 1 or 2, that a sequence has not; None for images.
    """

    ops: tuple[fb.Operator, ...]
    conv: fb.Operator
    factors: tuple[int, int]
    padding: int
    unit: int | None


def dilate(model: fb.Model) -> list[str]:
    """Write such convolutions of the main graph as dilated ones, in place.

    Args:
        model: With true shapes. If a size of an op around a convolution is free, that stays.

    Returns:
        What those of the ops wrote that are gone: the names of the tensors.
    """
    view = GraphView(model)
    convolutions = [convolution for op in view.typed("CONV_2D") if (convolution := _dilated(view, op)) is not None]
    gone: list[str] = []
    for convolution in convolutions:
        gone += _rewrite(view, convolution)
    if convolutions:
        editing.drop_unused_tensors(model)
    return gone


def _narrow(model: fb.Model) -> list[fb.Tensor]:
    """Write the constant indices of GATHER and GATHER_ND in 32 bits, in place, if they fit and nothing else reads them.

    Returns:
        The tensors.
    """
    view, tensors = GraphView(model), list[fb.Tensor]()
    for index in dict.fromkeys(int(op.inputs[1]) for op in view.typed(*_INDEXED)):
        tensor, readers = view.tensor(index), view.readers(index)
        if tensor.type != schema.TensorType.INT64 or not fb.is_constant(model, tensor) or view.is_output(index):
            continue
        values = fb.constant_values(model, tensor)
        is_index = all(view.type_of(op) in _INDEXED and fb.indices(op.inputs)[1:] == (index,) for op in readers)
        if is_index and np.array_equal(values, values.astype(np.int32)):
            tensor.type, tensor.buffer = schema.TensorType.INT32, editing.add_buffer(model, values.astype(np.int32))
            tensors.append(tensor)
    return tensors


def _strip(model: fb.Model) -> list[fb.Tensor]:
    """Make scalars, in place, of constants of one element that CUMSUM and TOPK_V2 read as a number.

    LiteRT takes both shapes, and other converters write the one with axes. A constant stays as it is if any other op
    reads it, or if it is an output of the model.

    Returns:
        The tensors that were changed.
    """
    view, tensors = GraphView(model), list[fb.Tensor]()
    for index in dict.fromkeys(int(op.inputs[1]) for op in view.typed(*_COUNTED)):
        tensor = view.tensor(index)
        if set(view.shape(index)) != {1} or not fb.is_constant(model, tensor) or view.is_output(index):
            continue
        if all(view.type_of(op) in _COUNTED and int(op.inputs[0]) != index for op in view.readers(index)):
            tensor.shape, tensor.shapeSignature = np.zeros(0, np.int32), None
            tensors.append(tensor)
    return tensors


def _before(view: GraphView, op: fb.Operator) -> fb.Operator | None:
    """Who writes what an op reads first, if nobody else reads that."""
    source = int(op.inputs[0])
    return view.writer(source) if view.sole_reader(source) is op else None


def _behind(view: GraphView, op: fb.Operator) -> fb.Operator | None:
    """Who alone reads what an op writes, as its first operand."""
    reader = view.sole_reader(int(op.outputs[0]))
    return reader if reader is not None and int(reader.inputs[0]) == int(op.outputs[0]) else None


def _dilated(view: GraphView, conv: fb.Operator) -> _Dilated | None:
    """What a convolution is a part of, if it can be written as a dilated one."""
    if not _is_plain(conv):
        return None
    ops = [conv]
    for step, add in ((_before, lambda op: ops.insert(0, op)), (_behind, ops.append)):
        other = step(view, conv)
        while other is not None and view.type_of(other) in _UNIT_AXES:
            add(other)
            other = step(view, other)
        if other is None:
            return None
        add(other)
    types = view.type_of(ops[0]), view.type_of(ops[-1])
    if types != ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND") or not _has_true_shapes(view.model, ops):
        return None
    return _measured(view.model, tuple(ops), conv)


def _is_plain(conv: fb.Operator) -> bool:
    options = conv.builtinOptions
    ones = (options.strideH, options.strideW, options.dilationHFactor, options.dilationWFactor)
    return ones == (1, 1, 1, 1) and options.padding == schema.Padding.VALID


def _has_true_shapes(model: fb.Model, ops: list[fb.Operator]) -> bool:
    """Whether no size is free, and the sizes by which the first and the last op move values are in the file."""
    tensors = model.subgraphs[0].tensors
    constants = [tensors[i] for op in (ops[0], ops[-1]) for i in fb.indices(op.inputs)[1:]]
    moved = [tensors[i] for op in ops for i in (int(op.inputs[0]), int(op.outputs[0]))]
    sizes = [size for tensor in moved for size in fb.indices(tensor.shapeSignature)]
    return min(sizes, default=0) >= 0 and all(fb.is_constant(model, tensor) for tensor in constants)


def _measured(model: fb.Model, ops: tuple[fb.Operator, ...], conv: fb.Operator) -> _Dilated | None:
    tensors = model.subgraphs[0].tensors
    (block, pads), (same_block, crops) = (
        [fb.constant_values(model, tensors[i]) for i in fb.indices(op.inputs)[1:]] for op in (ops[0], ops[-1])
    )
    if block.tolist() != same_block.tolist() or (len(ops) > 3 and block.size != 1):
        return None
    kernel = fb.shape_of(tensors[conv.inputs[1]])[1:3]
    read = fb.shape_of(tensors[conv.inputs[0]])
    unit = None
    if block.size == 1:
        moved = fb.shape_of(tensors[ops[0].outputs[0]])
        units = [axis for axis in (1, 2) if read == (*moved[:1], *np.insert(moved[1:], axis - 1, 1).tolist())]
        if len(moved) != 3 or len(units) != 1 or kernel[units[0] - 1] != 1:
            return None
        unit = units[0]
        block, pads, crops = (np.insert(row, unit - 1, v, axis=0) for row, v in ((block, 1), (pads, 0), (crops, 0)))
    elif block.size != 2:
        return None
    padding = _padding(np.array(kernel), block, pads - crops)
    if padding is None:
        return None
    return _Dilated(ops=ops, conv=conv, factors=(int(block[0]), int(block[1])), padding=padding, unit=unit)


def _padding(kernel: np.ndarray, factors: np.ndarray, pads: np.ndarray) -> int | None:
    """The padding that adds so many zeros at the ends of height and width; None if there is none."""
    if not pads.any():
        return int(schema.Padding.VALID)
    total = factors * (kernel - 1)
    same = np.stack([total // 2, total - total // 2], axis=1)
    return int(schema.Padding.SAME) if np.array_equal(pads, same) else None


def _rewrite(view: GraphView, convolution: _Dilated) -> list[str]:
    """Put the dilated convolution in the place of the ops; returns what those wrote that are gone."""
    model = view.model
    source, result = int(convolution.ops[0].inputs[0]), int(convolution.ops[-1].outputs[0])
    written = [int(op.outputs[0]) for op in convolution.ops]
    conv = convolution.conv
    conv.builtinOptions = copy(conv.builtinOptions)
    conv.builtinOptions.dilationHFactor, conv.builtinOptions.dilationWFactor = convolution.factors
    conv.builtinOptions.padding = convolution.padding
    new, last = [conv], result
    if convolution.unit is not None:
        head, source = _with_unit(model, source, convolution.unit)
        tail, last = _without_unit(model, int(conv.outputs[0]), result, convolution.unit)
        new = [head, conv, tail]
    conv.inputs, conv.outputs = np.array([source, *conv.inputs[1:]], np.int32), np.array([last], np.int32)
    view.replace(convolution.ops, new)
    still = {int(op.outputs[0]) for op in new}
    return [fb.tensor_name(view.tensor(i)) for i in written if i not in still]


def _with_unit(model: fb.Model, source: int, unit: int) -> tuple[fb.Operator, int]:
    """An op that gives a sequence a further axis, and what it writes."""
    tensors = model.subgraphs[0].tensors
    wide = copy(tensors[source])
    index = len(tensors)
    wide.name = f"{fb.tensor_name(wide)}/unit_{index}".encode()
    wide.shape = np.insert(fb.shape_of(wide), unit, 1).astype(np.int32)
    tensors.append(wide)
    return _reshape(model, source, index), index


def _without_unit(model: fb.Model, wide: int, result: int, unit: int) -> tuple[fb.Operator, int]:
    """An op that takes the axis away again, and what it reads."""
    tensors = model.subgraphs[0].tensors
    tensors[wide].shape = np.insert(fb.shape_of(tensors[result]), unit, 1).astype(np.int32)
    return _reshape(model, wide, result), wide


def _reshape(model: fb.Model, source: int, result: int) -> fb.Operator:
    written = model.subgraphs[0].tensors[result]
    shape = editing.add_constant(model, f"{fb.tensor_name(written)}/shape", np.array(written.shape, np.int32))
    return editing.new_op(model, "RESHAPE", [source, shape], result)


def _forget_ranges(model: fb.Model) -> list[fb.Tensor]:
    """Drop ranges that a converter left in the file, in place: with some the quantizer quantizes what it was denied."""
    tensors = [tensor for tensor in model.subgraphs[0].tensors if tensor.quantization is not None]
    for tensor in tensors:
        fb.parameters(tensor).min = fb.parameters(tensor).max = None
    return tensors


RESPELLED = Rewrite(name="ops respelled", applies=has_ops(*_WRITERS), deed=_respell)
DILATED = Rewrite(name="convolutions dilated", applies=has_ops("SPACE_TO_BATCH_ND"), deed=dilate)
NARROWED = Rewrite(name="indices in 32 bits", applies=has_ops(*_INDEXED), deed=_narrow)

STRIPPED = Rewrite(name="numbers without axes", applies=has_ops(*_COUNTED), deed=_strip)

NORMALISED_ALIKE = (CASTS_FIRST, Rewrite(name="ranges forgotten", deed=_forget_ranges), STRIPPED, RESPELLED)
NORMALISED = (*NORMALISED_ALIKE, DILATED, NARROWED)
"""What happens to a float model before the quantizer folds and merges it; the former is all that it may need."""
