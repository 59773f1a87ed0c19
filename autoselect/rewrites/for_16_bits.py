"""A calibrated model as TensorFlow's 16-bit quantizer can take it; the result is not there to be run.

Ops that have no 16-bit form are made of ops that have one. The last op of a composition writes what the op wrote, and
stands for it; the others help it, and are called after it. Which op types are composed, and of what,
:data:`autoselect.domain.states.COMPOSED` says. In float a composition may differ from its op in the last bits; nothing
but the 16-bit build is made of it.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import HELPER
from autoselect.rewrites import names
from autoselect.rewrites.casts import CASTS_LEFT_OUT, CASTS_REACH
from autoselect.rewrites.for_quantizer import NEAR_MASKS, without_integer_kernel
from autoselect.rewrites.names import NameMap
from autoselect.rewrites.rewriting import GraphView, Rewrite, has_ops
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.ranges import LEAST_REACH, range_of, set_range

_COMPARING = {"EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"}
_SPOILT = (
    fb.CONTROL_FLOW | _COMPARING | {"UNIDIRECTIONAL_SEQUENCE_LSTM", "SCATTER_ND", "SELECT", "SQUARED_DIFFERENCE", "SUM"}
)
"""Op types that LiteRT 2.3 does not run in a 16-bit build: a fused LSTM loses its state there, other subgraphs have no
ranges, and there is no kernel for a SCATTER_ND, nor for a SQUARED_DIFFERENCE that is not composed. Some do run: a
SELECT copies integers of one scale to another, and a SUM that is not composed clips. What compares an input of the
model reads 16-bit integers beside a float constant."""

_HEADROOM = 2.0
"""Factor by which the range of a model's input is widened (``docs/16-bit.md``)."""


def _spoilt(model: fb.Model) -> list[fb.Operator]:
    """Ops that 16 bits would spoil, and that therefore stay as they are.

    These are the types in ``_SPOILT``, ops that read integers alone, and ops that read or write a value without a
    range, since the quantizer wants a range for each value. A pad may be one, since its output gets the scale of its
    input, which may have no integer for the number that it pads with. A convolution whose weights another op computes
    is one: LiteRT's kernels take these weights of 16 bits for weights of 8.
    """
    graph = model.subgraphs[0]
    computed = fb.computed(graph)
    floats = {i for i in computed if graph.tensors[i].type == schema.TensorType.FLOAT32}
    endless = {i for i in floats if range_of(graph.tensors[i]) is None}

    def reads_integers_alone(op: fb.Operator) -> bool:
        types = {graph.tensors[t].type for t in map(int, op.inputs) if t in computed}
        return bool(types) and schema.TensorType.FLOAT32 not in types

    beyond = {id(op) for op in _pads_beyond(model)} | {id(graph.operators[i]) for i in without_integer_kernel(model)}
    return [
        op
        for op in graph.operators
        if fb.op_type(model, op) in _SPOILT
        or id(op) in beyond
        or reads_integers_alone(op)
        or not endless.isdisjoint([*fb.indices(op.inputs), *fb.indices(op.outputs)])
    ]


def _range_pads(model: fb.Model) -> list[fb.Operator]:
    """Give what pads made infinite the range of what they pad; PyTorch pads so before a MAX_POOL_2D."""
    tensors = model.subgraphs[0].tensors
    pads = [op for op in GraphView(model).typed("PADV2") if range_of(tensors[op.outputs[0]]) is None]
    for op in pads:
        tensors[op.outputs[0]].quantization = copy(tensors[op.inputs[0]].quantization)
    return pads


def _pads_beyond(model: fb.Model) -> list[fb.Operator]:
    """The PADV2 ops whose number lies outside the range of their input.

    A pad that only maximum pools read is not among them if its number is below all values, and so never the maximum.
    """
    view, pads = GraphView(model), list[fb.Operator]()
    for op in view.typed("PADV2"):
        read, written = (range_of(view.tensor(int(row[0]))) for row in (op.inputs, op.outputs))
        output = int(op.outputs[0])
        types = {view.type_of(reader) for reader in view.readers(output)}
        is_below_maxima = types == {"MAX_POOL_2D"} and not view.is_output(output)
        if read is None or written is None or (is_below_maxima and written[1] <= read[1]):
            continue
        if max(map(abs, written)) > max(map(abs, read)):
            pads.append(op)
    return pads


def _near_limits(model: fb.Model) -> list[fb.Tensor]:
    """Let the constants of MINIMUM and MAXIMUM end where the other operand does: beyond, their integers overflow."""
    view, limits = GraphView(model), list[fb.Tensor]()
    for op in view.typed("MINIMUM", "MAXIMUM"):
        for at in (0, 1):
            limit, other = (view.tensor(int(op.inputs[i])) for i in (at, 1 - at))
            if fb.is_constant(model, limit) and (given := range_of(other)) is not None:
                ends = {"MINIMUM": (None, given[1]), "MAXIMUM": (given[0], None)}[view.type_of(op)]
                limit.buffer = editing.add_buffer(model, np.clip(fb.constant_values(model, limit), *ends))
                limits.append(limit)
    return limits


def _range_zeros(model: fb.Model) -> list[fb.Tensor]:
    """Give values that were always zero steps of the size of others': a bias in steps of theirs would overflow."""
    ranges = [(tensor, range_of(tensor)) for tensor in model.subgraphs[0].tensors]
    zeros = [tensor for tensor, given in ranges if given is not None and max(map(abs, given)) < LEAST_REACH]
    for tensor in zeros:
        set_range(tensor, -1.0, 1.0)
    return zeros


def _give_headroom(model: fb.Model) -> list[fb.Tensor]:
    """Widen the ranges of the model's inputs: other samples leave those that calibrated, and 16 bits have steps enough.

    An input keeps its range if an output may be fed back into it as the state of the next step. A wider range has
    coarser steps, each step of time would round the state to them again, and calibration has seen the state's range.
    """
    graph = model.subgraphs[0]
    outputs = [graph.tensors[i] for i in graph.outputs]
    widened = []
    for tensor in (graph.tensors[i] for i in graph.inputs):
        given = range_of(tensor)
        if given is not None and not any(_may_become(output, tensor.shape, given) for output in outputs):
            set_range(tensor, *(_HEADROOM * end for end in given))
            widened.append(tensor)
    return widened


def _may_become(output: fb.Tensor, shape: fb.Indices | None, given: tuple[float, float]) -> bool:
    """Whether a caller may feed this output back into an input of this shape and range.

    The shapes must be equal, and the input's range must reach at most twice as far from 0 as the output's.
    """
    own = range_of(output)
    is_like = fb.indices(output.shape) == fb.indices(shape)
    return is_like and own is not None and max(map(abs, given)) <= 2.0 * max(map(abs, own))


def _part_constants(model: fb.Model) -> list[fb.Tensor]:
    """Give each operand a tensor of its own, and each of these a buffer of its own."""
    names.unshare_operands(model)
    taken, parted = set[int](), list[fb.Tensor]()
    for tensor in model.subgraphs[0].tensors:
        if tensor.buffer in taken and fb.is_constant(model, tensor):
            model.buffers.append(copy(model.buffers[tensor.buffer]))
            tensor.buffer = len(model.buffers) - 1
            parted.append(tensor)
        taken.add(tensor.buffer)
    return parted


def _leave_alone(model: fb.Model) -> list[fb.Operator]:
    """Give ops that the quantizer would spoil a type that it leaves in float, and drop other subgraphs."""
    spoilt, left = _spoilt(model), editing.add_code(model, "COS")
    for op in spoilt:
        op.opcodeIndex, op.intermediates = left, None
    model.subgraphs, model.signatureDefs = model.subgraphs[:1], []
    editing.tidy(model)
    return spoilt


def compose(model: fb.Model, key: NameMap) -> list[fb.Operator]:
    """Put compositions in the place of the main graph's ops that have one, in place.

    Args:
        model: A calibrated model. An op stays that lacks a range that its composition needs.
        key: To its names, which those of helpers begin with.

    Returns:
        The ops that are composed.
    """
    writer = _Writer(model)
    before, composed = len(model.subgraphs[0].tensors), list[fb.Operator]()
    for op, row in zip(model.subgraphs[0].operators, key.unique_outputs(), strict=True):
        write = _WRITERS.get(fb.op_type(model, op))
        writer.name = row[0] if row else ""
        if write is not None and write(writer, op):
            composed.append(op)
        else:
            writer.ops.append(op)
    model.subgraphs[0].operators = writer.ops
    if len(model.subgraphs[0].tensors) > before:
        editing.tidy(model)
    return composed


class _Writer:
    """The ops so far, and the name of the one that is written anew."""

    def __init__(self, model: fb.Model) -> None:
        self.ops: list[fb.Operator] = []
        self.name = ""
        self._model, self._graph = model, model.subgraphs[0]

    def range_of(self, index: int) -> tuple[float, float] | None:
        """Range of a tensor of float numbers that an op or the user gives."""
        tensor = self._graph.tensors[index]
        return range_of(tensor) if tensor.type == schema.TensorType.FLOAT32 else None

    def is_constant(self, index: int) -> bool:
        """Whether a tensor's values lie in the file."""
        return fb.is_constant(self._model, self._graph.tensors[index])

    def value(self, suffix: str, low: float, high: float, like: int) -> int:
        """A tensor that helps an op to its output, of the shape of another."""
        tensor, twin = schema.TensorT(), self._graph.tensors[like]
        tensor.name, tensor.type = f"{self.name}{HELPER}{suffix}".encode(), schema.TensorType.FLOAT32
        tensor.shape, tensor.shapeSignature, tensor.hasRank = twin.shape, twin.shapeSignature, twin.hasRank
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.min, tensor.quantization.max = np.array([low], np.float32), np.array([high], np.float32)
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def constant(self, suffix: str, number: float, beside: int) -> int:
        """A constant for all elements of a tensor; of no axes beside a scalar, which it would else give an axis."""
        values = np.full((1,) if fb.shape_of(self._graph.tensors[beside]) else (), number, np.float32)
        index = editing.add_constant(self._model, f"{self.name}/{suffix}", values)
        self._graph.tensors[index].hasRank = True
        self._graph.tensors[index].quantization = schema.QuantizationParametersT()
        return index

    def reduced(self, op: fb.Operator) -> int:
        """How many values of an op's first operand one of its output is made of; 0 where only the runtime knows."""
        source, result = (self._graph.tensors[int(row[0])] for row in (op.inputs, op.outputs))
        if -1 in fb.indices(source.shapeSignature)[1:]:
            return 0
        return int(np.prod(fb.shape_of(source))) // max(int(np.prod(fb.shape_of(result))), 1)

    def put(
        self, op_type: str, inputs: list[int], output: int, activation: str = "", like: fb.Operator | None = None
    ) -> None:
        """An op of the main graph, with the options of another where one is given."""
        op = editing.new_op(self._model, op_type, inputs, output)
        if activation:
            op.builtinOptions.fusedActivationFunction = getattr(schema.ActivationFunctionType, activation)
        if like is not None:
            op.builtinOptionsType, op.builtinOptions = like.builtinOptionsType, like.builtinOptions
        self.ops.append(op)


def _prelu(writer: _Writer, op: fb.Operator) -> bool:
    """``relu(x) + slope * (x - relu(x))``."""
    (x, slope), output = map(int, op.inputs), int(op.outputs[0])
    read, written = writer.range_of(x), writer.range_of(output)
    if read is None or written is None or not writer.is_constant(slope):
        return False
    most = max(map(abs, read))  # Steps as wide as those of x, and no wider than those that it has anyway.
    above, below = writer.value("above", 0.0, most, x), writer.value("below", -most, 0.0, x)
    # What is added is the output wherever it is not zero.
    sloped = writer.value("sloped", min(written[0], 0.0), max(written[1], 0.0), output)
    writer.put("RELU", [x], above)
    writer.put("SUB", [x, above], below)
    writer.put("MUL", [below, slope], sloped)
    writer.put("ADD", [above, sloped], output)
    return True


def _squared_difference(writer: _Writer, op: fb.Operator) -> bool:
    """``(a - b) * (a - b)``."""
    output = int(op.outputs[0])
    written = writer.range_of(output)
    if written is None:
        return False
    most = float(np.sqrt(max(written[1], 0.0)))
    difference = writer.value("difference", -most, most, output)
    writer.put("SUB", [int(i) for i in op.inputs], difference)
    writer.put("MUL", [difference, difference], output)
    return True


def _hard_swish(writer: _Writer, op: fb.Operator) -> bool:
    """``x * (relu6(x + 3) / 6)``."""
    # HARD_SWISH is `x * relu6(x + 3) / 6` (Howard et al., Searching for MobileNetV3, arXiv:1905.02244).
    hard_swish_end = 6.0
    x, output = int(op.inputs[0]), int(op.outputs[0])
    if writer.range_of(x) is None or writer.range_of(output) is None:
        return False
    gate = writer.value("gate", 0.0, hard_swish_end, x)
    share = writer.value("share", 0.0, 1.0, x)
    writer.put("ADD", [x, writer.constant("half", hard_swish_end / 2.0, x)], gate, "RELU6")
    writer.put("MUL", [gate, writer.constant("sixth", 1.0 / hard_swish_end, x)], share)
    writer.put("MUL", [x, share], output)
    return True


def _sum(writer: _Writer, op: fb.Operator) -> bool:
    """``mean(x) * count``: the quantizer gives a 16-bit SUM the steps of what it sums up, so that large sums clip."""
    output, count = int(op.outputs[0]), writer.reduced(op)
    written = writer.range_of(output)
    if written is None or not count:
        return False
    mean = writer.value("mean", written[0] / count, written[1] / count, output)
    writer.put("MEAN", [int(i) for i in op.inputs], mean, like=op)
    writer.put("MUL", [mean, writer.constant("count", float(count), output)], output)
    return True


_WRITERS = {"PRELU": _prelu, "SQUARED_DIFFERENCE": _squared_difference, "HARD_SWISH": _hard_swish, "SUM": _sum}


def for_16_bits(key: NameMap) -> tuple[Rewrite, ...]:
    """What happens to a calibrated model before TensorFlow's 16-bit quantizer has it, in this order.

    Ops share no constant then, since it quantizes a shared bias anew for each op that has it. Ops that it would spoil
    are of a type that it leaves in float: they are COS then, other subgraphs are gone, and the model is not there to be
    run.

    Args:
        key: To the names of the model.
    """
    return (
        Rewrite(name="ops composed of others", deed=lambda model: compose(model, key)),
        Rewrite(name="constants parted", deed=_part_constants),
        Rewrite(name="pads given a range", applies=has_ops("PADV2"), deed=_range_pads),
        Rewrite(name="limits brought near", applies=has_ops("MINIMUM", "MAXIMUM"), deed=_near_limits),
        Rewrite(name="zeros given a range", deed=_range_zeros),
        Rewrite(name="inputs given headroom", deed=_give_headroom),
        CASTS_REACH,
        CASTS_LEFT_OUT,
        Rewrite(name="spoilt ops left alone", applies=lambda model: bool(_spoilt(model)), deed=_leave_alone),
        NEAR_MASKS,
    )
