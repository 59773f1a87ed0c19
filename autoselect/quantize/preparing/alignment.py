"""Finds the ops of a float model in an integer model that another quantizer made; changes neither.

Such a model has no canonical names. An op of it is the twin of a float op where both have the same type, options and
shapes and read the same values; of several, the one with the same weights, then the one with the same name. Both
models so may have been converted under different names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.domain.units import MOVERS
from autoselect.rewrites import names
from autoselect.tflite import flatbuffer as fb

_RESHAPES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
"""Op types that one model may have and the other not, between the same two ops."""
_PLAIN_INTEGERS = frozenset({"int32", "int64", "bool"})
_COMMUTATIVE = frozenset({"ADD", "MUL", "MAXIMUM", "MINIMUM"})
_OPTIONS = ("fusedActivationFunction", "padding", "strideH", "strideW", "dilationHFactor", "dilationWFactor", "axis")
"""Options of an op that are the same whoever quantized it."""

_Value = tuple[str, int, int]
"""What is computed: ``input`` and its number; ``op``, ``extra`` or ``lost`` with an op's place and its output."""

_LOST = "lost"
"""Stand-in for an op that has no twin: whoever reads it may still have one, so that a refusal names the right op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Which op is which.

    Attributes:
        places: For each op of the float model that has a twin, the place of that in the integer model.
        missing: Places of the integer model's ops that have none and that the integer model cannot do without.
        outputs: For each output of the float model the position of that of the integer model which computes the same;
            None where there is none.
    """

    places: Mapping[int, int]
    missing: tuple[int, ...]
    outputs: tuple[int | None, ...]


def align(model: fb.Model, float_model: fb.Model, key: names.NameMap) -> Alignment:
    """Find the twins; inputs are in the same order."""
    return _Aligner(model, float_model, key).align()


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
        return Alignment(places=self._places, missing=tuple(missing), outputs=self._outputs())

    def _outputs(self) -> tuple[int | None, ...]:
        ours = [self._values.get(int(tensor)) for tensor in self._graph.outputs]
        theirs = [self._float_values.get(int(tensor)) for tensor in self._float_graph.outputs]
        return tuple(ours.index(value) if value in ours else None for value in theirs)

    def _pass_on(self, model: fb.Model, op: fb.Operator, values: Mapping[int, _Value]) -> None:
        """Note what a RESHAPE brings into another shape."""
        read = self._read(model, op, values)
        if fb.op_type(model, op) in _RESHAPES and len(read) == 1 and len(op.outputs) == 1:
            self._roots[values[int(op.outputs[0])]] = self._root(read[0])

    def _root(self, value: _Value) -> _Value:
        return self._roots.get(value, value)

    def _read(self, model: fb.Model, op: fb.Operator, values: Mapping[int, _Value]) -> list[_Value]:
        """What an op reads; no shapes and indices beside real numbers, which only one model may compute."""
        tensors = model.subgraphs[0].tensors
        read = [int(t) for t in op.inputs if int(t) in values]
        real = [t for t in read if fb.scales(tensors[t]) or fb.TENSOR_DTYPES[tensors[t].type] not in _PLAIN_INTEGERS]
        return [values[t] for t in real or read]

    def _is_helper(self, op: fb.Operator, op_type: str) -> bool:
        """Whether an op only moves values, or computes a shape."""
        dtypes = [fb.TENSOR_DTYPES[self._graph.tensors[int(t)].type] for t in op.outputs]
        is_quantized = any(fb.scales(self._graph.tensors[int(t)]) for t in op.outputs)
        computes_shape = all(dtype in _PLAIN_INTEGERS for dtype in dtypes) and not is_quantized
        return op_type in MOVERS or op_type in ("SHAPE", "RANK") or computes_shape

    def _twin(self, op: fb.Operator, op_type: str) -> int | None:
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

    def _same_form(self, op: fb.Operator, twin: fb.Operator) -> bool:
        pairs = list(zip(op.outputs, twin.outputs, strict=False))
        tensors, float_tensors = self._graph.tensors, self._float_graph.tensors
        return (
            len(op.outputs) == len(twin.outputs)
            and all(same_shape(tensors[int(a)], float_tensors[int(b)]) for a, b in pairs)
            and all(_option(op, name) == _option(twin, name) for name in _OPTIONS)
        )

    def _likeness(self, op: fb.Operator, index: int) -> tuple[float, bool]:
        cosine = similarity(self._model, op, self._float_model, self._float_graph.operators[index])
        return round(cosine, 1) if cosine is not None else 0.0, self._is_named(op, index)

    def _is_named(self, op: fb.Operator, index: int) -> bool:
        return bool(set(self._op_names[index]) & self._names.get(int(op.outputs[0]), frozenset()))


@dataclass(frozen=True, slots=True)
class _Reads:
    values: list[_Value]
    any_order: bool

    def equal(self, others: Sequence[_Value]) -> bool:
        kept_values = [value for value in self.values if value[0] != _LOST]
        if len(self.values) != len(others):
            return False
        if self.any_order:
            return Counter(kept_values) <= Counter(others)
        return all(a == b for a, b in zip(self.values, others, strict=True) if a[0] != _LOST)


def _names_of_values(model: fb.Model) -> dict[int, frozenset[str]]:
    """For each tensor that an op writes the names that its value has, in any form."""
    graph = model.subgraphs[0]
    names_by_tensor: dict[int, set[str]] = {}
    for op in graph.operators:
        row = [int(t) for t in op.outputs]
        shared = names_by_tensor.get(int(op.inputs[0])) if fb.op_type(model, op) in fb.CONVERSIONS else None
        for tensor in row:
            names_by_tensor[tensor] = set() if shared is None else shared
            names_by_tensor[tensor].add(fb.tensor_name(graph.tensors[tensor]))
    return {tensor: frozenset(row) for tensor, row in names_by_tensor.items()}


def _option(op: fb.Operator, name: str) -> object:
    return getattr(op.builtinOptions, name, None)


def same_shape(first: fb.Tensor, second: fb.Tensor) -> bool:
    """Whether sizes agree wherever both tensors fix them."""
    if fb.shape_of(first) == fb.shape_of(second):
        return True
    rows = [fb.shape_of(t) if t.shapeSignature is None else tuple(map(int, t.shapeSignature)) for t in (first, second)]
    return len(rows[0]) == len(rows[1]) and all(a == b or -1 in (a, b) for a, b in zip(*rows, strict=True))


# ---------------------------------------------------------------------------------------------------- weights


def similarity(model: fb.Model, op: fb.Operator, float_model: fb.Model, twin: fb.Operator) -> float | None:
    """Cosine of an op's weights and those of a float op; -1 for other shapes, None where there are none."""
    cosines = []
    tensors, float_tensors = model.subgraphs[0].tensors, float_model.subgraphs[0].tensors
    for ours, theirs in zip(map(int, op.inputs), map(int, twin.inputs), strict=False):
        if ours < 0 or theirs < 0 or not fb.is_constant(float_model, float_tensors[theirs]):
            continue
        if fb.TENSOR_DTYPES[float_tensors[theirs].type] != "float32" or not fb.is_constant(model, tensors[ours]):
            continue
        wanted = fb.constant_values(float_model, float_tensors[theirs])
        values = _real_values(model, tensors[ours])
        # A constant with fewer values says nothing of where it comes from.
        if values is None or wanted.size < 8:
            continue
        if _squeezed(values) != _squeezed(wanted):
            return -1.0
        if wanted.ndim > 1:
            cosines.append(_cosine(values, wanted))
    return min(cosines) if cosines else None


def _squeezed(values: np.ndarray) -> tuple[int, ...]:
    return tuple(size for size in values.shape if size != 1)


def _real_values(model: fb.Model, tensor: fb.Tensor) -> np.ndarray | None:
    """What a constant stands for; None for one that is packed, or has no scales."""
    dtype = fb.TENSOR_DTYPES[tensor.type]
    if dtype == "float32":
        return fb.constant_values(model, tensor)
    if dtype not in ("int8", "uint8", "int16", "int32", "int64") or not fb.scales(tensor):
        return None
    values, axis = fb.constant_values(model, tensor).astype(np.float64), fb.parameters(tensor).quantizedDimension
    scales, zero_points = np.array(fb.scales(tensor)), np.array(fb.zero_points_of(tensor) or (0,), float)
    values -= fb.along(zero_points, axis, values.ndim)
    return np.asarray(values * fb.along(scales, axis, values.ndim))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    a, b = first.astype(np.float64).ravel(), second.astype(np.float64).ravel()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else float(not a.any() and not b.any())
