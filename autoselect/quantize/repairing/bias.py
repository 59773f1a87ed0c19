"""Bias correction: the shift of an op's mean output that the rounding of its weights causes goes into its bias.

The method is that of Nagel et al. 2019 (arXiv:1906.04721, section 4.2) with measured means. An op costs as much after
as before; what changes is the data of its bias. Integer ops have theirs in int32, with 16-bit activations in int64,
hybrid ops in float32. The shift is that of the sum before a fused activation, so it is exact whatever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from typing import TypeVar

import numpy as np

from autoselect.quantize.repairing import weighted_ops
from autoselect.quantize.repairing.built import Built, Shift
from autoselect.quantize.repairing.input_means import Means, taps_of
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weighted_ops import MEANS, SkipError, add, quantized_ops, weights_of
from autoselect.rewrites import names
from autoselect.tflite import editing, reader, wide_kernels
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.runner import Runner, input_of

T = TypeVar("T")

_ROOM = 1 << 28
"""Bytes of values that are kept; where more would be, the next run begins where the last one did."""
_KEPT = frozenset({"float32", "int8", "uint8", "int16", "bool"})
_KEPT_AS_THEY_ARE = frozenset({"int32", "int64"})
"""Of these a float32 cannot hold each level, so those with a scale are not kept."""

Values = Mapping[str, np.ndarray]
"""By index of the tensor, as text; in float32 where they are levels."""


class Onward:
    """One model whose ops are run from front to back over the same samples.

    Each op runs once a sample, where what is read later fits into memory and can be handed to a model. It cannot in
    models with resources, and where shapes differ by sample: there ops run again, from further ahead.
    """

    def __init__(self, model: fb.Model, samples: Callable[[], Iterable[Mapping[str, np.ndarray]]]) -> None:
        """Begin at the inputs.

        Args:
            model: May be edited behind the last place that was asked for, if indices of ops and tensors stay.
            samples: Gives the inputs by key, anew at each call.
        """
        self._model, self._graph, self._place = model, model.subgraphs[0], 0
        inputs = dict(zip(map(str, fb.indices(self._graph.inputs)), reader.input_specs(model), strict=True))

        def fed() -> Iterator[Values]:
            for sample in samples():
                yield {key: input_of(sample, spec, i, len(inputs)) for i, (key, spec) in enumerate(inputs.items())}

        self._known, self._values = set(inputs), fed
        self._shapes: Mapping[str, tuple[int, ...]] = {}

    def mean(self, place: int, tensor: int) -> np.ndarray:
        """Mean over the samples of a tensor that ops before a place compute, float64, in its shape.

        Args:
            place: Index of an op, at least that of the last call.
            tensor: Index.

        Raises:
            ScoreError: If the interpreter refuses the model, or fails on a sample.
        """
        graph, own = self._graph, str(tensor)
        ops = graph.operators[self._place : place]
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
            found = {**values, **(runner({key: values[key] for key in given}) if runner else {})}
            total, count = total + found[own].astype(np.float64), count + 1
            staying = {key: found[key] for key in later} if moves else {}
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
        if any(fb.TENSOR_DTYPES[tensor.type] == "resource" for tensor in self._graph.tensors):
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


def correct_biases(built: Built, kit: RepairKit) -> None:
    """Pass: correct each op by its own rounding, where the recipe has ``bias``.

    Needs named operands that no two ops share, and weights that stay. Gives biases and ``shifts``.
    """
    if "bias" in built.repairs:
        float_model = kit.float_model(built.repairs)
        built.shifts = correct(built.model, float_model, built.places, kit.means(built.repairs))
        weighted_ops.name_new_biases(built.model, kit.names, built.places)


def correct_biases_in_sequence(built: Built, kit: RepairKit) -> None:
    """Pass: correct op after op by what comes before it in the candidate, where the recipe has ``bias-sequential``.

    Needs all ops in order of execution, and weights that stay. Gives biases and ``shifts``; equal constants are one.
    """
    if "bias-sequential" in built.repairs:
        float_model = kit.float_model(built.repairs)
        names.unshare_operands(built.model)
        means = kit.means(built.repairs)
        built.shifts = correct_in_sequence(built.model, float_model, built.places, means, kit.samples)
        weighted_ops.name_new_biases(built.model, kit.names, built.places)
        editing.share_equal_constants(built.model)


def correct(model: fb.Model, float_model: fb.Model, places: Mapping[int, int], means: Means) -> dict[int, Shift]:
    """Correct the bias of every weighted op of a built model, in place.

    An op that has no bias gets one; operands must not be shared between ops.

    Args:
        model: The built model.
        float_model: The float model that it was built from.
        places: Where each op of the float model is in ``model``.
        means: Taps of the inputs in the float model.

    Returns:
        By index of the float model's op what was found, for every integer or hybrid op of a weighted type.
    """

    def shift_of(index: int, op: fb.Operator) -> np.ndarray:
        _, float_weights, levels = weights_of(model, op, float_model, index)
        return MEANS[fb.op_type(model, op)](float_weights - levels, _finite(means, index))

    return _corrected(model, quantized_ops(model, float_model, places), shift_of)


def correct_in_sequence(
    model: fb.Model,
    float_model: fb.Model,
    places: Mapping[int, int],
    means: Means,
    samples: Callable[[], Iterable[Mapping[str, np.ndarray]]],
) -> dict[int, Shift]:
    """Correct op after op by what each reads behind the corrected ones, in place.

    It also takes out the shift that the errors of earlier ops and of the activations' rounding leave. What runs is what
    a score runs: with 16-bit activations the ops that stand in for slow convolutions.
    """
    onward = Onward(model, samples)

    def shift_of(index: int, op: fb.Operator) -> np.ndarray:
        _, float_weights, levels = weights_of(model, op, float_model, index)
        mean = MEANS[fb.op_type(model, op)]
        expected = mean(float_weights, _finite(means, index))
        met = _met_taps(model, op, places[index], onward)
        return np.asarray(expected - mean(levels, _finite(means, index) if met is None else met))

    in_order = sorted(quantized_ops(model, float_model, places), key=lambda pair: places[pair[0]])
    return _corrected(model, in_order, shift_of)


def _corrected(
    model: fb.Model, ops: Iterable[tuple[int, fb.Operator]], shift_of: Callable[[int, fb.Operator], np.ndarray]
) -> dict[int, Shift]:
    found = {}
    for index, op in ops:
        try:
            found[index] = apply_shift(model, op, shift_of(index, op))
        except SkipError as skipped:
            found[index] = Shift(before=np.nan, after=np.nan, reason=str(skipped))
    return found


def _finite(means: Means, index: int) -> np.ndarray:
    if index not in means:
        raise SkipError("the means of its input were not measured")
    if not np.isfinite(means[index]).all():
        raise SkipError("the mean of its input is not a number")
    return means[index]


def _met_taps(model: fb.Model, op: fb.Operator, place: int, onward: Onward) -> np.ndarray | None:
    """Taps of what an op of a built model reads; None where that is an input of the model."""
    tensor = int(op.inputs[WEIGHTED[fb.op_type(model, op)].activation])
    if tensor in model.subgraphs[0].inputs:
        return None
    return taps_of(model, op, onward.mean(place, tensor))


def apply_shift(model: fb.Model, op: fb.Operator, shift: np.ndarray) -> Shift:
    """Add a shift to the mean output of an op of a built model, in place.

    Args:
        model: The built model.
        op: One of its ops, of a weighted type.
        shift: By output channel, in the units of the float model.

    Returns:
        What was there and what is left; with the reason where the shift could not be added.
    """
    step = _output_step(model, op)
    before = float(np.max(np.abs(shift), initial=0.0))
    try:
        added = add(model, op, shift)
    except SkipError as skipped:
        return Shift(before=before / step, after=before / step, reason=str(skipped))
    return Shift(before=before / step, after=float(np.max(np.abs(shift - added), initial=0.0)) / step)


def _output_step(model: fb.Model, op: fb.Operator) -> float:
    scales = fb.scales(model.subgraphs[0].tensors[op.outputs[0]])
    return scales[0] if scales and scales[0] > 0.0 else np.nan
