"""Bias correction: the shift of an op's mean output that the rounding of its weights causes goes into its bias.

The method is that of Nagel et al. 2019 (arXiv:1906.04721, section 4.2) with measured means. An op costs as much after
as before; what changes is the data of its bias. Integer ops have theirs in int32, hybrid ops in float32. The shift is
that of the sum before a fused activation, so it is exact whatever the activation is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing import mean_outputs
from autoselect.quantize.repairing.weighted_ops import WEIGHTED, SkipError, add, is_weighted, quantized_ops, weights_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

Means = Mapping[int, np.ndarray]
"""For each weighted op of the float model, by index, the taps of its input, see :mod:`~.mean_outputs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What bias correction found at one op.

    Attributes:
        before: Largest shift of a channel's mean output, in steps of the op's output; NaN where that is float.
        after: What of it is left, because a bias is rounded too.
        reason: Why the op was left as it was; None where it was corrected.
    """

    before: float
    after: float
    reason: str | None = None


def taps_of(model: fb.Model, op: Any, mean: np.ndarray) -> np.ndarray:
    """The taps of a weighted op from the mean of its input over samples, in the input's shape."""
    tensors = model.subgraphs[0].tensors
    name, options = fb.op_type(model, op), op.builtinOptions
    weights = fb.shape_of(tensors[op.inputs[1]])
    if name == "FULLY_CONNECTED":
        return mean_outputs.dense_taps(mean, weights[-1])
    geometry = mean_outputs.Geometry(
        kernel=(weights[1], weights[2]),
        strides=(int(options.strideH), int(options.strideW)),
        dilations=(int(getattr(options, "dilationHFactor", 1)), int(getattr(options, "dilationWFactor", 1))),
        same=options.padding == schema.Padding.SAME,
        output=(fb.shape_of(tensors[op.outputs[0]])[1], fb.shape_of(tensors[op.outputs[0]])[2]),
    )
    compute = mean_outputs.transposed_taps if name == "TRANSPOSE_CONV" else mean_outputs.convolution_taps
    return compute(mean, geometry)


def measure_means(content: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> dict[int, np.ndarray]:
    """Run a float model once over samples and take the taps of every weighted op of its main subgraph.

    Args:
        content: Bytes of the float model.
        samples: Inputs by key.

    Returns:
        Taps by op index; NaN and infinities of the model's tensors are in them. There are none for an op whose tensors
        have other shapes than the file says.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    model = fb.parse(content)
    ops = model.subgraphs[0].operators
    chosen = {i: op for i, op in enumerate(ops) if is_weighted(model, op)}
    inputs = {i: int(op.inputs[WEIGHTED[fb.op_type(model, op)].activation]) for i, op in chosen.items()}
    runner = Runner(content, preserve_all_tensors=True)
    means = mean_tensors(runner, samples, set(inputs.values()))
    return {
        i: taps_of(model, op, means[inputs[i]])
        for i, op in chosen.items()
        if _has_shapes(model, runner, (inputs[i], int(op.outputs[0])))
    }


def _has_shapes(model: fb.Model, runner: Runner, tensors: Iterable[int]) -> bool:
    """Whether tensors came out in the shapes that the file gives them; it may leave some to the runtime."""
    return all(runner.tensor(i).shape == fb.shape_of(model.subgraphs[0].tensors[i]) for i in tensors)


def mean_tensors(
    runner: Runner, samples: Iterable[Mapping[str, np.ndarray]], tensors: Iterable[int]
) -> dict[int, np.ndarray]:
    """Mean of tensors over samples, float64, in their shapes; the taps of a mean are the mean of the taps."""
    sums: dict[int, np.ndarray] = {}
    count = 0
    for sample in samples:
        runner(sample)
        count += 1
        for index in tensors:
            value = runner.tensor(index)
            if index in sums:
                sums[index] += value
            else:
                sums[index] = value.astype(np.float64)
    return {index: total / count for index, total in sums.items()}


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
    found = {}
    for index, op in quantized_ops(model, float_model, places):
        try:
            shift = _rounding_shift(model, op, float_model, index, means)
            found[index] = apply_shift(model, op, shift)
        except SkipError as skipped:
            found[index] = Shift(before=np.nan, after=np.nan, reason=str(skipped))
    return found


def correct_in_sequence(
    model: fb.Model,
    float_model: fb.Model,
    places: Mapping[int, int],
    means: Means,
    samples: Callable[[], Iterable[Mapping[str, np.ndarray]]],
) -> dict[int, Shift]:
    """Correct op after op by what each reads behind the corrected ones, in place.

    It also takes out the shift that the errors of earlier ops and of the activations' rounding leave. The work grows
    with the square of the number of ops.

    Args:
        model: As in :func:`correct`.
        float_model: As in :func:`correct`.
        places: As in :func:`correct`.
        means: As in :func:`correct`.
        samples: Gives the inputs by key, anew at each call.

    Returns:
        As :func:`correct`.
    """
    found = {}
    for index, op in sorted(quantized_ops(model, float_model, places), key=lambda pair: places[pair[0]]):
        try:
            kind, float_weights, levels = weights_of(model, op, float_model, index)
            expected = kind.mean(float_weights, _finite(means, index))
            met = _met_taps(model, op, places[index], samples)
            shift = expected - kind.mean(levels, _finite(means, index) if met is None else met)
            found[index] = apply_shift(model, op, shift)
        except SkipError as skipped:
            found[index] = Shift(before=np.nan, after=np.nan, reason=str(skipped))
    return found


def _rounding_shift(model: fb.Model, op: Any, float_model: fb.Model, index: int, means: Means) -> np.ndarray:
    kind, float_weights, levels = weights_of(model, op, float_model, index)
    return kind.mean(float_weights - levels, _finite(means, index))


def _finite(means: Means, index: int) -> np.ndarray:
    if index not in means:
        raise SkipError("the means of its input were not measured")
    if not np.isfinite(means[index]).all():
        raise SkipError("the mean of its input is not a number")
    return means[index]


def _met_taps(
    model: fb.Model, op: Any, place: int, samples: Callable[[], Iterable[Mapping[str, np.ndarray]]]
) -> np.ndarray | None:
    """Taps of what an op of a built model reads; None where that is an input of the model."""
    tensor = int(op.inputs[WEIGHTED[fb.op_type(model, op)].activation])
    if tensor in model.subgraphs[0].inputs:
        return None
    runner = Runner(_cut(model, place, tensor))
    [key] = [spec.key for spec in runner.outputs]
    values = (runner(sample)[key].astype(np.float64) for sample in samples())
    total, count = next(values), 1
    for value in values:
        total, count = total + value, count + 1
    return taps_of(model, op, total / count)


def _cut(model: fb.Model, place: int, tensor: int) -> bytes:
    """The ops before a place, as a model with one output."""
    part = fb.parse(fb.serialise(model))
    graph = part.subgraphs[0]
    graph.operators = graph.operators[:place]
    graph.outputs = np.array([tensor], dtype=np.int32)
    for signature in part.signatureDefs or []:  # the keys of the inputs are needed
        signature.outputs = []
    return fb.serialise(part)


def apply_shift(model: fb.Model, op: Any, shift: np.ndarray) -> Shift:
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


def _output_step(model: fb.Model, op: Any) -> float:
    scales = fb.scales(model.subgraphs[0].tensors[op.outputs[0]])
    return scales[0] if scales and scales[0] > 0.0 else np.nan
