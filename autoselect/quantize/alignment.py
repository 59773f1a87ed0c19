"""Finds the ops of a float model in an integer model that another quantizer made of it; refuses one of another model.

Such a model has no canonical names. An op of it is the twin of a float op where both have the same type, options and
shapes and read the same values; of several, the one with the same weights, then the one with the same name. Both
models so may have been converted under different names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from autoselect.domain.units import MOVERS
from autoselect.errors import ModelError
from autoselect.quantize import names
from autoselect.quantize.kept_dims import keep_dimensions
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

LEAST_SIMILARITY = 0.5
"""Of weights that belong together, cosine: rounding leaves .99 and more, quantization-aware training most of it, while
those of two trainings have about 0."""

_FEWEST_WEIGHTS = 8
"""A constant with fewer values says nothing of where it comes from."""

_TOLD = 3
"""Ops that a refusal names."""

_REMEDY = (
    "Pass the integer model that was quantized from this very float model, or the float model that it was made from."
)
_RESHAPES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
"""That one model may have and the other not, between the same two ops."""
_PLAIN_INTEGERS = frozenset({"int32", "int64", "bool"})
_COMMUTATIVE = frozenset({"ADD", "MUL", "MAXIMUM", "MINIMUM"})
_OPTIONS = ("fusedActivationFunction", "padding", "strideH", "strideW", "dilationHFactor", "dilationWFactor", "axis")
"""Of an op's options, those that the same op has whoever quantized it."""

_Value = tuple[str, int, int]
"""What is computed: ``input`` and its number; ``op``, ``extra`` or ``lost`` with an op's place and its output."""

_LOST = "lost"
"""Of an op that has no twin: whoever reads it may still have one, so that a refusal names the right op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Which op is which.

    Attributes:
        places: For each op of the float model that has a twin, the place of that in the integer model.
        missing: Places of the integer model's ops that have none and that the integer model cannot do without.
    """

    places: Mapping[int, int]
    missing: tuple[int, ...]


def adopt(content: bytes, float_model: fb.Model, key: names.NameMap) -> tuple[fb.Model, Mapping[int, int]]:
    """Read an integer model as the whole integer build of a float model.

    Args:
        content: Bytes of the integer model.
        float_model: Under canonical names.
        key: To its own names.

    Returns:
        The model, with the float model's order of inputs and outputs and its shapes, and the place of the twin of each
        op of the float model.

    Raises:
        ModelError: If it was not made from this float model; says what does not match.
    """
    model = _parsed(content, float_model)
    _order_ends(model, float_model, key)
    found = align(model, float_model, key)
    if found.missing:
        raise _strangers(model, found.missing)
    _check_weights(model, float_model, found.places)
    _take_shapes(model, float_model, key, found.places)
    return model, found.places


def align(model: fb.Model, float_model: fb.Model, key: names.NameMap) -> Alignment:
    """Find the twins; inputs and outputs are in the same order."""
    return _Aligner(model, float_model, key).align()


def ordered(content: bytes, float_model: fb.Model, key: names.NameMap) -> bytes:
    """The integer model with its inputs and outputs in the float model's order.

    Raises:
        ModelError: If they do not match.
    """
    model = fb.parse(content)
    before = [list(map(int, row)) for row in (model.subgraphs[0].inputs, model.subgraphs[0].outputs)]
    _order_ends(model, float_model, key)
    after = [list(map(int, row)) for row in (model.subgraphs[0].inputs, model.subgraphs[0].outputs)]
    return content if before == after else fb.serialise(model)


def matched(content: bytes, float_model: fb.Model, key: names.NameMap) -> int:
    """Number of the float model's ops that an integer model has, less the ops that only that has.

    Raises:
        ModelError: If inputs or outputs do not match.
    """
    model = _parsed(content, float_model)
    _order_ends(model, float_model, key)
    found = align(model, float_model, key)
    return len(found.places) - len(found.missing)


def ranges(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> dict[int, tuple[float, float]]:
    """What the integers of an adopted model can stand for, by index of the float model's activation."""
    found = {}
    for tensor, twin in ((model.subgraphs[0].tensors[t], u) for t, u in _twins(model, float_model, places)):
        dtype, scales = fb.TENSOR_DTYPES[tensor.type], fb.scales(tensor)
        if dtype in ("int8", "uint8", "int16") and len(scales) == 1:
            limits, zero_point = np.iinfo(dtype), int(tensor.quantization.zeroPoint[0])
            found[twin] = ((limits.min - zero_point) * scales[0], (limits.max - zero_point) * scales[0])
    return found


def _twins(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> list[tuple[int, int]]:
    """Each tensor that has a twin in the float model, with that: inputs, and what twins write."""
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    rows = [(graph.inputs, float_graph.inputs)]
    rows += [(graph.operators[place].outputs, float_graph.operators[i].outputs) for i, place in places.items()]
    return [(int(t), int(twin)) for row in rows for t, twin in zip(*row, strict=False)]


# ---------------------------------------------------------------------------------------------------- inputs, outputs


def _parsed(content: bytes, float_model: fb.Model) -> fb.Model:
    model = fb.parse(content)
    keep_dimensions(model, float_model)
    names.unshare_operands(model)
    for op in model.subgraphs[0].operators:
        if op.intermediates is not None and not len(op.intermediates):
            op.intermediates = None  # An empty row, which takes bytes, says the same.
    return model


def _order_ends(model: fb.Model, float_model: fb.Model, key: names.NameMap) -> None:
    """Bring inputs and outputs into the float model's order, in place: by name, else by signature key, else as is."""
    for side in ("inputs", "outputs"):
        specs = reader.input_specs if side == "inputs" else reader.output_specs
        ours, theirs = specs(model), specs(float_model)[: len(getattr(key, side))]
        if len(ours) != len(theirs):
            raise ModelError(
                f"The integer model has {len(ours)} {side}, the float model has {len(theirs)}: it was made from "
                f"another model. {_REMEDY}"
            )
        rows = [([o.name for o in ours], list(getattr(key, side))), ([o.key for o in ours], [t.key for t in theirs])]
        named = next((row for row in rows if len(set(row[0])) == len(ours) and set(row[0]) == set(row[1])), None)
        order = range(len(ours)) if named is None else [named[0].index(name) for name in named[1]]
        graph = model.subgraphs[0]
        setattr(graph, side, np.array([getattr(graph, side)[i] for i in order], dtype=np.int32))
        float_graph = float_model.subgraphs[0]
        pairs = zip(getattr(graph, side), getattr(float_graph, side)[: len(theirs)], strict=True)
        for number, (tensor, twin) in enumerate(pairs):
            made, wanted = graph.tensors[tensor], float_graph.tensors[twin]
            if not _same_shape(made, wanted):
                raise ModelError(
                    f"The integer model's {side[:-1]} {fb.tensor_name(made)!r} has the shape {fb.shape_of(made)}, the "
                    f"float model's {getattr(key, side)[number]!r} has {fb.shape_of(wanted)}: it was made from another "
                    f"model, or with other --shape. {_REMEDY}"
                )


def _same_shape(first: Any, second: Any) -> bool:
    """Whether sizes agree wherever both tensors fix them."""
    if fb.shape_of(first) == fb.shape_of(second):
        return True
    rows = [fb.shape_of(t) if t.shapeSignature is None else tuple(map(int, t.shapeSignature)) for t in (first, second)]
    return len(rows[0]) == len(rows[1]) and all(a == b or -1 in (a, b) for a, b in zip(*rows, strict=True))


def _take_shapes(model: fb.Model, float_model: fb.Model, key: names.NameMap, places: Mapping[int, int]) -> None:
    """Give every tensor of a twin the float model's shape, and what else there is fixed shapes and its own name."""
    graph = model.subgraphs[0]
    known = {t: float_model.subgraphs[0].tensors[twin] for t, twin in _twins(model, float_model, places)}
    taken = {*key.inputs, *key.outputs, *(name for row in key.op_outputs for name in row)}
    twins = set(places.values())
    for place, op in enumerate(graph.operators):
        if fb.op_type(model, op) in fb.CONVERSIONS and int(op.inputs[0]) in known:
            known[int(op.outputs[0])] = known[int(op.inputs[0])]
        elif place not in twins:
            for tensor in (graph.tensors[int(t)] for t in op.outputs):
                tensor.shapeSignature = None
                tensor.name = names.free_name(fb.tensor_name(tensor) or f"extra_{place}", taken).encode()
    for index, twin in known.items():
        graph.tensors[index].shape = copy(twin.shape)
        graph.tensors[index].shapeSignature = copy(twin.shapeSignature)


# ---------------------------------------------------------------------------------------------------- ops


class _Aligner:
    def __init__(self, model: fb.Model, float_model: fb.Model, key: names.NameMap) -> None:
        self._model, self._graph = model, model.subgraphs[0]
        self._float_model, self._float_graph = float_model, float_model.subgraphs[0]
        self._op_names = key.op_outputs
        self._values: dict[int, _Value] = {}
        self._roots: dict[_Value, _Value] = {}
        self._names = _names_of_values(model)
        self._places: dict[int, int] = {}
        self._float_values: dict[int, _Value] = {}
        for number, tensor in enumerate(map(int, self._float_graph.inputs)):
            self._float_values[tensor] = ("input", number, 0)
        self._by_type: dict[str, list[int]] = {}
        for index, op in enumerate(self._float_graph.operators):
            self._by_type.setdefault(fb.op_type(float_model, op), []).append(index)
            for number, tensor in enumerate(map(int, op.outputs)):
                self._float_values[tensor] = ("op", index, number)
            self._pass_on(float_model, op, self._float_values)

    def align(self) -> Alignment:
        for number, tensor in enumerate(map(int, self._graph.inputs)):
            self._values[tensor] = ("input", number, 0)
        missing = []
        for place, op in enumerate(self._graph.operators):
            op_type = fb.op_type(self._model, op)
            if op_type in fb.CONVERSIONS:
                if (source := int(op.inputs[0])) in self._values:
                    self._values[int(op.outputs[0])] = self._values[source]
                continue
            index, what = self._twin(op, op_type), "extra"
            if index is not None:
                self._places[index] = place
            elif not self._is_helper(op, op_type):
                missing.append(place)
                what = _LOST
            for number, tensor in enumerate(map(int, op.outputs)):
                self._values[tensor] = (what, place, number) if index is None else ("op", index, number)
            if index is None:
                self._pass_on(self._model, op, self._values)
        return Alignment(places=self._places, missing=tuple(missing))

    def _pass_on(self, model: fb.Model, op: Any, values: Mapping[int, _Value]) -> None:
        """Note what a RESHAPE brings into another shape."""
        read = self._read(model, op, values)
        if fb.op_type(model, op) in _RESHAPES and len(read) == 1 and len(op.outputs) == 1:
            self._roots[values[int(op.outputs[0])]] = self._root(read[0])

    def _root(self, value: _Value) -> _Value:
        return self._roots.get(value, value)

    def _read(self, model: fb.Model, op: Any, values: Mapping[int, _Value]) -> list[_Value]:
        """What an op reads; no shapes and indices beside real numbers, which only one model may compute."""
        tensors = model.subgraphs[0].tensors
        read = [int(t) for t in op.inputs if int(t) in values]
        real = [t for t in read if fb.scales(tensors[t]) or fb.TENSOR_DTYPES[tensors[t].type] not in _PLAIN_INTEGERS]
        return [values[t] for t in real or read]

    def _is_helper(self, op: Any, op_type: str) -> bool:
        """Whether an op only moves values, or computes a shape."""
        dtypes = [fb.TENSOR_DTYPES[self._graph.tensors[int(t)].type] for t in op.outputs]
        is_quantized = any(fb.scales(self._graph.tensors[int(t)]) for t in op.outputs)
        computes_shape = all(dtype in _PLAIN_INTEGERS for dtype in dtypes) and not is_quantized
        return op_type in MOVERS or op_type in ("SHAPE", "RANK") or computes_shape

    def _twin(self, op: Any, op_type: str) -> int | None:
        """The float op that an op of the integer model is, among those that are not found yet."""
        alike = [
            index
            for index in self._by_type.get(op_type, ())
            if index not in self._places and self._same_form(op, self._float_graph.operators[index])
        ]
        reads = _Reads(self._read(self._model, op, self._values), op_type in _COMMUTATIVE)
        others = {
            index: self._read(self._float_model, self._float_graph.operators[index], self._float_values)
            for index in alike
        }
        fitting = [index for index in alike if reads.equal(others[index])]
        if not fitting:  # One of the two models has a RESHAPE between that the other has not.
            moved = _Reads([self._root(value) for value in reads.values], reads.any_order)
            fitting = [i for i in alike if moved.equal([self._root(v) for v in others[i]])]
        if not fitting:
            fitting = [index for index in alike if self._is_named(op, index) and not reads.values]
        return max(fitting, key=lambda index: (*self._likeness(op, index), -index), default=None)

    def _same_form(self, op: Any, twin: Any) -> bool:
        pairs = list(zip(op.outputs, twin.outputs, strict=False))
        tensors, float_tensors = self._graph.tensors, self._float_graph.tensors
        return (
            len(op.outputs) == len(twin.outputs)
            and all(_same_shape(tensors[int(a)], float_tensors[int(b)]) for a, b in pairs)
            and all(_option(op, name) == _option(twin, name) for name in _OPTIONS)
        )

    def _likeness(self, op: Any, index: int) -> tuple[float, bool]:
        found = similarity(self._model, op, self._float_model, self._float_graph.operators[index])
        return round(found, 1) if found is not None else 0.0, self._is_named(op, index)

    def _is_named(self, op: Any, index: int) -> bool:
        return bool(set(self._op_names[index]) & self._names.get(int(op.outputs[0]), frozenset()))


@dataclass(frozen=True, slots=True)
class _Reads:
    values: list[_Value]
    any_order: bool

    def equal(self, others: Sequence[_Value]) -> bool:
        known = [value for value in self.values if value[0] != _LOST]
        if len(self.values) != len(others):
            return False
        if self.any_order:
            return Counter(known) <= Counter(others)
        return all(a == b for a, b in zip(self.values, others, strict=True) if a[0] != _LOST)


def _names_of_values(model: fb.Model) -> dict[int, frozenset[str]]:
    """For each tensor that an op writes the names that its value has, in any form."""
    graph = model.subgraphs[0]
    found: dict[int, set[str]] = {}
    for op in graph.operators:
        row = [int(t) for t in op.outputs]
        shared = found.get(int(op.inputs[0])) if fb.op_type(model, op) in fb.CONVERSIONS else None
        for tensor in row:
            found[tensor] = set() if shared is None else shared
            found[tensor].add(fb.tensor_name(graph.tensors[tensor]))
    return {tensor: frozenset(row) for tensor, row in found.items()}


def _option(op: Any, name: str) -> object:
    return getattr(op.builtinOptions, name, None)


# ---------------------------------------------------------------------------------------------------- weights


def similarity(model: fb.Model, op: Any, float_model: fb.Model, twin: Any) -> float | None:
    """Cosine of an op's weights and those of a float op; -1 for other shapes, None where there are none."""
    found = []
    tensors, float_tensors = model.subgraphs[0].tensors, float_model.subgraphs[0].tensors
    for ours, theirs in zip(map(int, op.inputs), map(int, twin.inputs), strict=False):
        if ours < 0 or theirs < 0 or not fb.is_constant(float_model, float_tensors[theirs]):
            continue
        if fb.TENSOR_DTYPES[float_tensors[theirs].type] != "float32" or not fb.is_constant(model, tensors[ours]):
            continue
        wanted = fb.constant_values(float_model, float_tensors[theirs])
        values = _real_values(model, tensors[ours])
        if values is None or wanted.size < _FEWEST_WEIGHTS:
            continue
        if _squeezed(values) != _squeezed(wanted):
            return -1.0
        if wanted.ndim > 1:
            found.append(_cosine(values, wanted))
    return min(found) if found else None


def _squeezed(values: np.ndarray) -> tuple[int, ...]:
    return tuple(size for size in values.shape if size != 1)


def _real_values(model: fb.Model, tensor: Any) -> np.ndarray | None:
    """What a constant stands for; None for one that is packed, or has no scales."""
    dtype = fb.TENSOR_DTYPES[tensor.type]
    if dtype == "float32":
        return fb.constant_values(model, tensor)
    if dtype not in ("int8", "uint8", "int16", "int32", "int64") or not fb.scales(tensor):
        return None
    quantization, values = tensor.quantization, fb.constant_values(model, tensor).astype(np.float64)
    scales = np.asarray(quantization.scale, dtype=np.float64)
    zero_points = np.zeros(1) if quantization.zeroPoint is None else np.asarray(quantization.zeroPoint, np.float64)
    if len(scales) > 1:
        shape = [1] * values.ndim
        shape[int(quantization.quantizedDimension)] = len(scales)
        scales = scales.reshape(shape)
        zero_points = zero_points.reshape(shape) if len(zero_points) > 1 else zero_points
    return np.asarray((values - zero_points) * scales)


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    a, b = first.astype(np.float64).ravel(), second.astype(np.float64).ravel()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else float(not a.any() and not b.any())


def _check_weights(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> None:
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    found = {
        place: similarity(model, graph.operators[place], float_model, float_graph.operators[index])
        for index, place in places.items()
    }
    known = {place: value for place, value in found.items() if value is not None}
    if other := [place for place, value in known.items() if value == -1.0]:
        raise ModelError(
            f"The integer model does not belong to this float model: {_listed(model, other)} have weights of other "
            f"shapes. {_REMEDY}"
        )
    if known and median(known.values()) < LEAST_SIMILARITY:
        worst = sorted(known, key=lambda place: known[place])
        raise ModelError(
            "The integer model does not belong to this float model: its ops are the same, but its weights are others. "
            f"Their cosine similarity to the float weights is {median(known.values()):.2f} (median of {len(known)} "
            f"ops; {LEAST_SIMILARITY:g} is the least), first in {_listed(model, worst)}. {_REMEDY}"
        )


def _strangers(model: fb.Model, missing: Sequence[int]) -> ModelError:
    return ModelError(
        f"The integer model does not belong to this float model: {len(missing)} of its "
        f"{len(model.subgraphs[0].operators)} ops match no float op: {_listed(model, missing)}. Expected are ops of "
        f"the same type, shapes and options in the same order. {_REMEDY}"
    )


def _listed(model: fb.Model, places: Iterable[int]) -> str:
    """``CONV_2D 'conv_1' (1, 8, 8, 16), ...``: the first few."""
    rows, graph = list(places), model.subgraphs[0]
    told = []
    for op in (graph.operators[place] for place in rows[:_TOLD]):
        tensor = graph.tensors[int(op.outputs[0])]
        told.append(f"{fb.op_type(model, op)} {fb.tensor_name(tensor)!r} {fb.shape_of(tensor)}")
    return ", ".join([*told, *(["..."] if len(rows) > _TOLD else [])])
