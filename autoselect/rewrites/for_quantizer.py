"""A calibrated model as TensorFlow's quantizer makes the most of it: with near masks, and with ops that stand in.

If a SELECT or an ADD puts -1e9 beside scores of -3 to 3, one of 256 steps is 4 million wide. The quantizer gives the
scores themselves the same steps, and all positions weigh the same, even where the SELECT and the SOFTMAX are float. A
mask of -inf, or of the least float number, leaves no steps at all. A SOFTMAX needs the mask to be below the scores, not
far below: what the quantizer sees ends there. The float model keeps its masks.

Some ops have an int8 kernel in LiteRT, and the quantizer knows no integer form of them: it quantizes others in their
place. What stands for an op reads and writes integers of free scales as that does, so that the rest of the build is the
same. And it leaves ops in float that could read integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.rewrites import names
from autoselect.rewrites.casts import CASTS_LEFT_OUT, CASTS_REACH
from autoselect.rewrites.rewriting import GraphView, Rewrite, has_ops, rewritten
from autoselect.tflite import editing, ranges
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import CONVOLUTIONS
from autoselect.tflite.tflite_file import TfliteFile

_OPERANDS = {"SELECT": (1, 2), "SELECT_V2": (1, 2), "ADD": (0, 1)}
_MOVING = frozenset(
    {"BROADCAST_TO", "EXPAND_DIMS", "GATHER", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE"}
)
"""Ops that write values of their first operand."""
_MADE_OF = {**_OPERANDS, **dict.fromkeys(_MOVING, (0,)), **dict.fromkeys(("MAXIMUM", "MINIMUM", "MUL"), (0, 1))}
"""Operands that the values of a mask come from."""


def far_ranges(calibrated: TfliteFile) -> set[int]:
    """The tensors of a calibrated model that begin nearer in what the quantizer sees."""
    near = rewritten(calibrated, (NEAR_MASKS,))
    if near is calibrated:
        return set()
    pairs = enumerate(zip(calibrated.model.subgraphs[0].tensors, near.model.subgraphs[0].tensors, strict=False))
    return {i for i, (ours, theirs) in pairs if ranges.range_of(ours) != ranges.range_of(theirs)}


def masked_scores(model: fb.Model) -> list[int]:
    """The values that an ADD before a SOFTMAX reads: it may work in place, and leave the mask in their memory."""
    graph = model.subgraphs[0]
    adding = [op for op, _ in _Masks(model).before_softmax() if fb.op_type(model, op) == "ADD"]
    written = {int(i) for op in graph.operators for i in op.outputs}
    return sorted({int(i) for op in adding for i in op.inputs} & written - {int(i) for i in graph.outputs})


class _Masks:
    """Finds and shortens the masks of one model, in place."""

    def __init__(self, model: fb.Model) -> None:
        self._model, self._graph, self._view = model, model.subgraphs[0], GraphView(model)
        self._lowest: dict[int, dict[int, float]] = defaultdict(dict)  # By tensor and reader: where it may begin.

    def masking(self) -> list[tuple[fb.Operator, list[int], tuple[int, float, float]]]:
        """The ops that mask, with what :meth:`before_softmax` and :meth:`_hiding` say of each."""
        return [(op, hidden, mask) for op, hidden in self.before_softmax() if (mask := self._hiding(op))]

    def shorten(self) -> list[fb.Operator]:
        """Shorten all masks; the ops that mask."""
        masking = self.masking()
        for op, hidden, (at, least, lowest) in masking:
            for tensor in (self._graph.tensors[index] for index in hidden):
                if ranges.range_of(tensor) is not None:
                    fb.parameters(tensor).min = np.array([least], dtype=np.float32)
            self._ask(op, at, lowest)
        for op in reversed(self._graph.operators):
            if not len(op.outputs) or (end := self._raised(int(op.outputs[0]))) is None:
                continue
            for at in _MADE_OF.get(fb.op_type(self._model, op), ()):
                self._ask(op, at, end)
        for index in {int(i) for i in self._graph.inputs}:
            self._raised(index)
        return [op for op, _, _ in masking]

    def before_softmax(self) -> list[tuple[fb.Operator, list[int]]]:
        """The ops that may mask, each with the tensors from its output to the SOFTMAX that alone reads them."""
        candidates = self._view.typed(*_OPERANDS)
        return [(op, hidden) for op in candidates if (hidden := self._hidden(int(op.outputs[0])))]

    def _hidden(self, index: int) -> list[int]:
        readers = self._view.readers(index)
        types = {self._view.type_of(reader) for reader in readers}
        if self._view.is_output(index) or not types:
            return []
        if types == {"SOFTMAX"}:
            return [index]
        if len(readers) == 1 and types <= _MOVING and (after := self._hidden(int(readers[0].outputs[0]))):
            return [index, *after]
        return []

    def _hiding(self, op: fb.Operator) -> tuple[int, float, float] | None:
        """Position of an op's operand that is a mask far below the scores, where output and operand may begin."""
        op_type = fb.op_type(self._model, op)
        places = _OPERANDS[op_type]
        operand_ranges = [given for at in places if (given := self._range(int(op.inputs[at]))) is not None]
        mixed = ranges.range_of(self._graph.tensors[op.outputs[0]])
        if len(operand_ranges) < len(places) or mixed is None:
            return None
        hiding = int(np.argmin([low for low, _ in operand_ranges]))  # The other one has the scores.
        low, high = operand_ranges[1 - hiding]
        # What lies further below all scores weighs less than e^-10 of them.
        least = min(low, 0.0) - 10.0
        lowest = least - (max(high, 0.0) if op_type == "ADD" else 0.0)
        # What may lie eight times further below is a mask, even if it hid nothing in the samples.
        is_mask = mixed[0] < least or operand_ranges[hiding][0] < 8.0 * lowest
        return (places[hiding], least, lowest) if is_mask else None

    def _range(self, index: int) -> ranges.Range | None:
        tensor = self._graph.tensors[index]
        if not fb.is_constant(self._model, tensor):
            return ranges.range_of(tensor)
        values = fb.constant_values(self._model, tensor)
        return float(values.min()), float(values.max())

    def _ask(self, op: fb.Operator, at: int, lowest: float) -> None:
        """Have an operand begin no lower: by a constant for this op alone, or once all that read it ask for that."""
        index, multiplies = int(op.inputs[at]), fb.op_type(self._model, op) == "MUL"
        if not fb.is_constant(self._model, self._graph.tensors[index]):
            if not multiplies:
                self._lowest[index][id(op)] = lowest
            return
        own = copy(self._graph.tensors[index])
        # As in ``(1 - mask) * -1e9``; of ``(mask - 1) * 1e9`` the factor is far above.
        most = np.float32(-lowest if multiplies else np.inf)
        values = np.clip(fb.constant_values(self._model, own), np.float32(lowest), most)
        own.buffer = editing.add_buffer(self._model, values)
        self._graph.tensors.append(own)
        op.inputs = np.array(op.inputs, dtype=np.int32)
        op.inputs[at] = len(self._graph.tensors) - 1

    def _raised(self, index: int) -> float | None:
        """Where a value begins now, if all that read it asked for that."""
        asked = self._lowest.get(index, {})
        if not asked or len(asked) < len(self._view.readers(index)) or self._view.is_output(index):
            return None
        lowest = min(asked.values())
        if (given := ranges.range_of(self._graph.tensors[index])) is not None:
            ranges.set_range(self._graph.tensors[index], max(given[0], lowest), min(given[1], -lowest))
        return lowest


NEAR_MASKS = Rewrite(
    name="masks brought near",
    applies=lambda model: bool(_Masks(model).masking()),
    deed=lambda model: _Masks(model).shorten(),
)
"""Masks are then no further below scores than a SOFTMAX can tell."""

STANDS_IN = {"ELU": "GELU"}
"""What is quantized in the place of an op type: one that computes each value from one alone, and has no parameters."""


def stood_in_for(model: fb.Model) -> list[int]:
    """Places of the main graph's ops that another one has to stand in for."""
    return [i for i, op in enumerate(model.subgraphs[0].operators) if fb.op_type(model, op) in STANDS_IN]


def without_integer_kernel(model: fb.Model) -> list[int]:
    """Indices of the main graph's ops that the quantizer makes integer, and that LiteRT then refuses to run.

    The integer kernels of convolutions want weights whose zero point is 0, which weights that another op computes do
    not have. The integer kernel of SVDF takes no other fused activation than RELU. UNIDIRECTIONAL_SEQUENCE_RNN has no
    integer kernel.
    """
    tensors = model.subgraphs[0].tensors

    def is_refused(op: fb.Operator) -> bool:
        op_type = fb.op_type(model, op)
        if op_type == "SVDF":
            function = getattr(op.builtinOptions, "fusedActivationFunction", None)
            return bool(function != schema.ActivationFunctionType.RELU)
        has_computed_weights = op_type in CONVOLUTIONS and not fb.is_constant(model, tensors[op.inputs[1]])
        return has_computed_weights or op_type == "UNIDIRECTIONAL_SEQUENCE_RNN"

    return [i for i, op in enumerate(model.subgraphs[0].operators) if is_refused(op)]


def without_stand_ins(model: fb.Model, places: Collection[int]) -> None:
    """Give what the quantizer made of :data:`STAND_INS` the ops of the calibrated model again, in place."""
    twins = [place for index, at in names.op_places(model).items() if index in places for place in at]
    _swap(model, twins, {stand_in: op_type for op_type, stand_in in STANDS_IN.items()})


def _swap(model: fb.Model, places: Sequence[int], into: Mapping[str, str]) -> Sequence[int]:
    """Give ops at some places another type, in place, where they are of a type that has one."""
    for op in (model.subgraphs[0].operators[place] for place in places):
        if (op_type := fb.op_type(model, op)) in into:
            op.opcodeIndex = editing.add_code(model, into[op_type])
            op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.NONE, None
    return places


STAND_INS = Rewrite(
    name="ops stood in for",
    applies=lambda model: bool(stood_in_for(model)),
    deed=lambda model: _swap(model, stood_in_for(model), STANDS_IN),
)

FOR_QUANTIZER = (STAND_INS, NEAR_MASKS, CASTS_REACH, CASTS_LEFT_OUT)


_PLACES = ("ARG_MAX", "ARG_MIN")
"""Ops that write places of values: those of integers are the same."""


def read_integers(made: TfliteFile, source: fb.Model) -> TfliteFile:
    """Let ops that write places of values read the integers that are dequantized for them.

    The quantizer leaves such an op in float if what the op reads is an output, or is also read elsewhere.

    Args:
        made: What the quantizer made; read only if the source has such ops.
        source: The calibrated model.
    """
    return rewritten(made, (_PLACES_OF_INTEGERS,)) if _PLACES_OF_INTEGERS.applies(source) else made


def _read_integers(model: fb.Model) -> list[fb.Operator]:
    view, changed = GraphView(model), []
    for op in view.typed(*_PLACES):
        writer = view.writer(int(op.inputs[0]))
        if (
            writer is not None
            and view.type_of(writer) == "DEQUANTIZE"
            and len(fb.scales(view.tensor(writer.inputs[0]))) == 1
        ):
            op.inputs = [int(writer.inputs[0]), *fb.indices(op.inputs)[1:]]
            changed.append(op)
    if changed:
        editing.drop_unread_conversions(model)
    return changed


_PLACES_OF_INTEGERS = Rewrite(name="places of integers", applies=has_ops(*_PLACES), deed=_read_integers)
