"""Means of tensors along a model, from op to op: what was computed stays, while the ops behind still change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from typing import TypeVar

import numpy as np

from autoselect.tflite import editing, reader, wide_kernels
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner, inputs_of

T = TypeVar("T")

_ROOM = 1 << 28
"""Bytes of values that are kept; where more would be, the next run begins where the last one did."""
_KEPT = frozenset({"float32", "int8", "uint8", "int16", "bool"})
_KEPT_AS_THEY_ARE = frozenset({"int32", "int64"})
"""Types of which a float32 cannot hold each level, so that values with a scale are not kept."""

Values = Mapping[str, np.ndarray]
"""By index of the tensor, as text; in float32 where they are levels."""


class Onward:
    """One model whose ops are run from front to back over the same samples.

    Each op runs once a sample, where what is read later fits into memory and can be handed to a model. It cannot where
    shapes differ by sample: there ops run again, from further ahead. Nor can it in models with resources, of which all
    ops run again each time, since an op at the end may assign the state that one at the beginning reads.
    """

    def __init__(self, model: fb.Model, samples: Callable[[], Iterable[Mapping[str, np.ndarray]]]) -> None:
        """Begin at the inputs.

        Args:
            model: May be edited behind the last place that was asked for, if indices of ops and tensors stay.
            samples: Gives the inputs by key, anew at each call.
        """
        self._model, self._graph, self._place = model, model.subgraphs[0], 0
        inputs, specs = list(map(str, fb.indices(self._graph.inputs))), reader.input_specs(model)

        def fed() -> Iterator[Values]:
            for sample in samples():
                yield dict(zip(inputs, inputs_of(sample, specs), strict=True))

        self._known, self._values = set(inputs), fed
        self._shapes: Mapping[str, tuple[int, ...]] = {}
        self._has_resources = any(fb.TENSOR_DTYPES[tensor.type] == "resource" for tensor in self._graph.tensors)

    def mean(self, place: int, tensor: int) -> np.ndarray:
        """Mean over the samples of a tensor that ops before a place compute, float64, in its shape.

        Args:
            place: Index of an op, at least that of the last call.
            tensor: Index.

        Raises:
            ScoreError: If the interpreter refuses the model, or fails on a sample.
        """
        graph, own = self._graph, str(tensor)
        ops = graph.operators if self._has_resources else graph.operators[self._place : place]
        made = {str(i) for op in ops for i in fb.indices(op.outputs)}
        later = {str(i) for op in graph.operators[place:] for i in fb.indices(op.inputs)} & (self._known | made)
        moves = self._can_be_kept(later)
        wanted = sorted((made & (later | {own})) if moves else made & {own}, key=int)
        given = sorted({str(i) for op in ops for i in fb.indices(op.inputs)} & self._known, key=int)
        shapes = {key: self._shapes.get(key) for key in given}
        runner = Runner(_cut(self._model, ops, shapes, wanted)) if wanted else None
        total, count, room = np.zeros(()), 0, _ROOM
        kept: list[Values] = []
        for values in self._values():
            tensors = {**values, **(runner.go_on({key: values[key] for key in given}) if runner else {})}
            total, count = total + tensors[own].astype(np.float64), count + 1
            staying = {key: tensors[key] for key in later} if moves else {}
            room -= sum(value.nbytes for value in staying.values())
            moves = moves and room >= 0 and (not kept or _shapes(staying) == _shapes(kept[0]))
            if moves:
                kept.append(staying)
            else:
                kept.clear()
        if moves:
            self._place, self._known, self._values = place, later, lambda: iter(kept)
            self._shapes = _shapes(kept[0])
        return np.asarray(total / count)

    def _can_be_kept(self, keys: Collection[str]) -> bool:
        if self._has_resources:
            return False
        tensors = [self._graph.tensors[int(key)] for key in keys]
        dtypes = [(fb.TENSOR_DTYPES[tensor.type], bool(fb.scales(tensor))) for tensor in tensors]
        return all(dtype in _KEPT or (dtype in _KEPT_AS_THEY_ARE and not scaled) for dtype, scaled in dtypes)


def _shapes(values: Values) -> Mapping[str, tuple[int, ...]]:
    return {key: value.shape for key, value in values.items()}


def _cut(
    model: fb.Model,
    ops: Sequence[fb.Operator],
    given: Mapping[str, tuple[int, ...] | None],
    wanted: Sequence[str],
) -> bytes:
    """Some ops as a model of their own, whose inputs, of known or of their own shapes, have their indices as names."""
    part, graph = copy(model), copy(model.subgraphs[0])
    part.subgraphs = [graph, *map(deepcopy, model.subgraphs[1:])]
    part.buffers, part.operatorCodes = _copies(model.buffers), _copies(model.operatorCodes)
    part.signatureDefs, part.metadata = [], []
    graph.operators, graph.tensors = _copies(ops), _copies(graph.tensors)
    graph.inputs, graph.outputs = (np.array([int(key) for key in keys], np.int32) for keys in (given, wanted))
    for key in (*given, *wanted):
        graph.tensors[int(key)].name = key.encode()
    for key, shape in given.items():
        if shape is not None:
            graph.tensors[int(key)].shape, graph.tensors[int(key)].shapeSignature = np.array(shape, np.int32), None
    editing.drop_unused_tensors(part)
    editing.drop_unused_buffers(part)
    return wide_kernels.quick(fb.serialise(part))


def _copies(parts: Iterable[T]) -> list[T]:
    return [copy(part) for part in parts]
