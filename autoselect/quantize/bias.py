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

from autoselect.quantize import taps
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

Means = Mapping[int, np.ndarray]
"""For each weighted op of the float model, by index, the taps of its input, see :mod:`autoselect.quantize.taps`."""

_INT32_TOP = 2**31 - 1
_WIDEST = 255
"""Largest distance of an int8 level from a zero point."""
_BIASED_TRANSPOSE_CONV_VERSION = 3
_NO_WEIGHTS = "its weights are not constants of the file"
_CONSTANT_INPUT = "its input is a constant of the file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """An op type with weights and a bias.

    Attributes:
        activation: Position of its input.
        bias: Position of its bias; the weights are at 1.
        axis: Of the output channels in the weights.
        mean: Mean output by channel from weights and taps.
    """

    activation: int
    bias: int
    axis: int
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray]


WEIGHTED: dict[str, Weighted] = {
    "CONV_2D": Weighted(activation=0, bias=2, axis=0, mean=taps.convolution_mean),
    "DEPTHWISE_CONV_2D": Weighted(activation=0, bias=2, axis=3, mean=taps.depthwise_mean),
    "FULLY_CONNECTED": Weighted(activation=0, bias=2, axis=0, mean=taps.dense_mean),
    "TRANSPOSE_CONV": Weighted(activation=2, bias=3, axis=0, mean=taps.convolution_mean),
}
"""What bias correction knows; a fused recurrent op has gates in its way, and BATCH_MATMUL no bias."""


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


class SkipError(Exception):
    """An op that a repair leaves alone, with the reason."""


def is_weighted(model: fb.Model, op: Any) -> bool:
    """True for an op of a known type with constant weights and a computed input."""
    return fb.op_type(model, op) in WEIGHTED and _obstacle(model, op) is None


def _obstacle(model: fb.Model, op: Any) -> str | None:
    """Why the mean output of an op of a known type does not follow from its weights and taps."""
    kind, tensors = WEIGHTED[fb.op_type(model, op)], model.subgraphs[0].tensors
    if len(op.inputs) <= max(1, kind.activation) or not fb.is_constant(model, tensors[op.inputs[1]]):
        return _NO_WEIGHTS
    return _CONSTANT_INPUT if fb.is_constant(model, tensors[op.inputs[kind.activation]]) else None


def why_untouched(op_type: str, kind: str) -> str:
    """Why bias correction has nothing to say of a node.

    Args:
        op_type: Of the float model's op.
        kind: What became of it: ``integer``, ``hybrid``, ``float`` or ``folded``.
    """
    if kind not in ("integer", "hybrid"):
        return f"it is {kind}, so no weights of it are rounded"
    return f"{op_type} is no op whose bias is corrected" if op_type not in WEIGHTED else "its weights are not int8"


def taps_of(model: fb.Model, op: Any, mean: np.ndarray) -> np.ndarray:
    """The taps of a weighted op from the mean of its input over samples, in the input's shape."""
    tensors = model.subgraphs[0].tensors
    name, options = fb.op_type(model, op), op.builtinOptions
    weights = fb.shape_of(tensors[op.inputs[1]])
    if name == "FULLY_CONNECTED":
        return taps.dense_taps(mean, weights[-1])
    geometry = taps.Geometry(
        kernel=(weights[1], weights[2]),
        strides=(int(options.strideH), int(options.strideW)),
        dilations=(int(getattr(options, "dilationHFactor", 1)), int(getattr(options, "dilationWFactor", 1))),
        same=options.padding == schema.Padding.SAME,
        output=(fb.shape_of(tensors[op.outputs[0]])[1], fb.shape_of(tensors[op.outputs[0]])[2]),
    )
    compute = taps.transposed_taps if name == "TRANSPOSE_CONV" else taps.convolution_taps
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


def quantized_ops(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> list[tuple[int, Any]]:
    """The built ops of weighted types with int8 weights, with their index in the float model."""
    graph, found = model.subgraphs[0], []
    for index, op in enumerate(float_model.subgraphs[0].operators):
        if fb.op_type(float_model, op) not in WEIGHTED or index not in places:
            continue
        built = graph.operators[places[index]]
        has_weights = len(built.inputs) > 1 and built.inputs[1] >= 0
        if has_weights and graph.tensors[built.inputs[1]].type == schema.TensorType.INT8:
            found.append((index, built))
    return found


def _rounding_shift(model: fb.Model, op: Any, float_model: fb.Model, index: int, means: Means) -> np.ndarray:
    kind, float_weights, levels = weights_of(model, op, float_model, index)
    return kind.mean(float_weights - levels, _finite(means, index))


def weights_of(model: fb.Model, op: Any, float_model: fb.Model, index: int) -> tuple[Weighted, np.ndarray, np.ndarray]:
    """The kind of an op, its float weights and what its quantized weights stand for, float64.

    Raises:
        SkipError: If they do not belong together; with the reason.
    """
    twin = float_model.subgraphs[0].operators[index]
    if fb.op_type(model, op) != fb.op_type(float_model, twin):
        raise SkipError(f"the quantizer made it a {fb.op_type(model, op)}")
    if obstacle := _obstacle(float_model, twin):
        raise SkipError(obstacle)
    original = float_model.subgraphs[0].tensors[twin.inputs[1]]
    built = model.subgraphs[0].tensors[op.inputs[1]]
    if not fb.is_constant(model, built) or fb.shape_of(original) != fb.shape_of(built):
        raise SkipError(_NO_WEIGHTS)
    kind = WEIGHTED[fb.op_type(model, op)]
    values = fb.constant_values(float_model, original).astype(np.float64)
    return kind, values, dequantized(model, built)


def dequantized(model: fb.Model, tensor: Any) -> np.ndarray:
    """What the levels of a constant stand for, float64, in its shape.

    Raises:
        SkipError: If a scale is zero or no number.
    """
    levels: np.ndarray = fb.constant_values(model, tensor).astype(np.float64)
    scales = known_scales(tensor)
    shape = [1] * levels.ndim
    if scales.size > 1:
        shape[tensor.quantization.quantizedDimension] = scales.size
    zero_points = np.asarray(tensor.quantization.zeroPoint, dtype=np.float64)
    found: np.ndarray = (levels - zero_points.reshape(shape)) * scales.reshape(shape)
    return found


def known_scales(tensor: Any) -> np.ndarray:
    """Scales of a quantized tensor, shape (1,) or (channels,).

    Raises:
        SkipError: If one is zero or no number.
    """
    scales = np.array(fb.scales(tensor))
    if not scales.size or not np.all(np.isfinite(scales) & (scales > 0.0)):
        raise SkipError("one of its scales is zero or no number")
    return scales


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
        added = _add(model, op, shift)
    except SkipError as skipped:
        return Shift(before=before / step, after=before / step, reason=str(skipped))
    return Shift(before=before / step, after=float(np.max(np.abs(shift - added), initial=0.0)) / step)


def _output_step(model: fb.Model, op: Any) -> float:
    scales = fb.scales(model.subgraphs[0].tensors[op.outputs[0]])
    return scales[0] if scales and scales[0] > 0.0 else np.nan


def _add(model: fb.Model, op: Any, shift: np.ndarray) -> np.ndarray:
    """Add to the bias; returns what its rounding let through."""
    graph, kind = model.subgraphs[0], WEIGHTED[fb.op_type(model, op)]
    has_bias = len(op.inputs) > kind.bias and op.inputs[kind.bias] >= 0
    tensor = graph.tensors[op.inputs[kind.bias]] if has_bias else _new_bias(model, op, kind, shift.size)
    if has_bias and not fb.is_constant(model, tensor):
        raise SkipError("its bias is not a constant of the file")
    old = fb.constant_values(model, tensor).astype(np.float64) if has_bias else np.zeros(shift.size)
    if old.size != shift.size:
        raise SkipError("its bias has another length than its output channels")
    if tensor.type == schema.TensorType.FLOAT32:
        new, added = _float_bias(old, shift)
    else:
        levels = fb.constant_values(model, graph.tensors[op.inputs[1]])
        new, added = _levels(tensor, old, shift, largest_bias(levels, kind.axis))
    if not has_bias and not new.any():
        return added
    tensor.buffer = fb.add_buffer(model, new)
    if not has_bias:
        graph.tensors.append(tensor)
        _connect(model, op, kind, len(graph.tensors) - 1)
    return added


def _float_bias(old: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    new = (old + shift).astype(np.float32)
    if not np.isfinite(new).all():
        raise SkipError("the corrected bias is not a number")
    return new, new - old


def _levels(tensor: Any, old: np.ndarray, shift: np.ndarray, largest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An int32 bias with the shift; refused where it does not fit."""
    if tensor.type != schema.TensorType.INT32:
        raise SkipError(f"its bias is of type {fb.TENSOR_DTYPES[tensor.type]}")
    scales = known_scales(tensor)
    steps = np.rint(shift / scales)
    new = old + steps
    if not np.isfinite(new).all() or np.any(np.abs(new) > np.maximum(largest, np.abs(old))):
        raise SkipError("the corrected bias does not fit int32")
    return new.astype(np.int32), steps * scales


def largest_bias(levels: np.ndarray, axis: int) -> np.ndarray:
    """The largest int32 bias beside which no sum of products overflows.

    Args:
        levels: Int8 weights.
        axis: Of the output channels.

    Returns:
        By output channel; negative where the products alone may overflow.
    """
    others = tuple(i for i in range(levels.ndim) if i != axis)
    found: np.ndarray = _INT32_TOP - _WIDEST * np.abs(levels.astype(np.int64)).sum(axis=others)
    return found


def _new_bias(model: fb.Model, op: Any, kind: Weighted, channels: int) -> Any:
    """A bias for an op without one: in float where the op's input is float, else at the scale of its products."""
    graph = model.subgraphs[0]
    source, weights = graph.tensors[op.inputs[kind.activation]], graph.tensors[op.inputs[1]]
    tensor = schema.TensorT()
    tensor.name = graph.tensors[op.outputs[0]].name + b"/bias"
    tensor.shape = np.array([channels], dtype=np.int32)
    if source.type == schema.TensorType.FLOAT32:
        tensor.type = schema.TensorType.FLOAT32
        return tensor
    tensor.type = schema.TensorType.INT32
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = (known_scales(source)[0] * known_scales(weights)).astype(np.float32)
    tensor.quantization.zeroPoint = np.zeros(tensor.quantization.scale.size, dtype=np.int64)
    tensor.quantization.quantizedDimension = 0
    return tensor


def _connect(model: fb.Model, op: Any, kind: Weighted, bias: int) -> None:
    inputs = [int(i) for i in op.inputs]
    inputs += [-1] * (kind.bias + 1 - len(inputs))
    inputs[kind.bias] = bias
    op.inputs = np.array(inputs, dtype=np.int32)
    if fb.op_type(model, op) == "TRANSPOSE_CONV":
        code = model.operatorCodes[op.opcodeIndex]
        code.version = max(code.version, _BIASED_TRANSPOSE_CONV_VERSION)
