"""Second-order rounding of integer weights, measured on calibration samples and judged on others of them."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.fewer_levels import store_levels
from autoselect.quantize.repairing.input_means import geometry_of, has_shapes
from autoselect.quantize.repairing.mean_outputs import dense_windows, windows
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.second_order import TOP, Moments, compensated
from autoselect.quantize.repairing.weight_scales import axis_of, rounded
from autoselect.quantize.repairing.weighted_ops import SkipError, known_scales, quantized_ops, weights_of
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

NAME = "rounding-gptq"

MOST_POSITIONS = 1024
"""Output positions of an op that are taken of each sample."""

JUDGED_EVERY = 5
"""One in so many samples is kept apart, for the rounding to be judged on."""

MOST_BYTES = 3 * 2**26
"""What the second moments of an op may take; one that takes more, with above 5,016 inputs, keeps its levels."""

TOGETHER_BYTES = 2**30
"""What the second moments that are measured at a time may take, since each time runs the whole model on all samples.
Those of ResNet-50 take two runs. So much is kept for other sets of repairs."""

MOST_WORK = 2**22
"""Multiplications for each weight: the square of the inputs of an op by its output channels, since the second moments
are factorised once for all channels. An op of one channel that takes more, with above 2,048 inputs, keeps its levels: a
factor of 4,096 inputs takes 1.1 s of a processor beside the sums, and a model can have dozens of such ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One op: its type, its float weights, their levels and scales, in groups of output channels that share inputs.

    Attributes:
        op_type: Of the op.
        activation: Index of its input, a tensor of the float model.
        shape: Of its weights.
        groups: Count of groups.
        values: Float weights, in ``shape``.
        scales: What one level is worth, shape (channels,) or (1,).
        axis: Of the channels that have scales of their own; None if there is one scale.
        top: The highest level.
    """

    op_type: str
    activation: int
    shape: tuple[int, ...]
    groups: int
    values: np.ndarray
    scales: np.ndarray
    axis: int | None
    top: int

    @property
    def moment_bytes(self) -> int:
        """What its moments take: two matrices a group, in float32."""
        return 2 * 4 * self.groups * self._inputs**2

    @property
    def work(self) -> int:
        """Multiplications for each weight."""
        return self._inputs**2 * self.groups // self._channels

    @property
    def _inputs(self) -> int:
        return int(np.prod(self.shape[1:3] if self.op_type == "DEPTHWISE_CONV_2D" else self.shape[1:]))

    @property
    def _channels(self) -> int:
        return self.shape[-1 if self.op_type == "DEPTHWISE_CONV_2D" else 0]

    def grouped(self, values: np.ndarray) -> np.ndarray:
        """Values by weight as rows of inputs, shape (groups, channels, inputs)."""
        if self.op_type == "DEPTHWISE_CONV_2D":
            return values.reshape(-1, self.groups, self.shape[-1] // self.groups).transpose(1, 2, 0)
        return values.reshape(self.groups, self.shape[0] // self.groups, -1)

    def ungrouped(self, rows: np.ndarray) -> np.ndarray:
        """The other way around."""
        ordered = rows.transpose(2, 0, 1) if self.op_type == "DEPTHWISE_CONV_2D" else rows
        return ordered.reshape(self.shape)

    def by_weight(self, scales: np.ndarray) -> np.ndarray:
        """Scales as one of each weight, in :attr:`shape`."""
        along = scales if self.axis is None else fb.along(scales, self.axis, len(self.shape))
        return np.broadcast_to(along, self.shape)

    def scale_choices(self, power: np.ndarray) -> list[np.ndarray]:
        """Scales that are tried, the layer's own first.

        With 255 levels only the layer's own scales are tried. With fewer no rule is best for all layers, so two more
        are tried: scales whose top level is the largest weight, and those that give the outputs the least error if
        inputs were uncorrelated.

        Args:
            power: Mean square of each input, or its variance if the bias is corrected, shape (groups, inputs).
        """
        if self.top == TOP:
            return [self.scales]
        others = () if self.axis is None else tuple(i for i in range(len(self.shape)) if i != self.axis)
        largest = np.abs(self.values).max(axis=others or None) / self.top
        # Where all weights are as good as zero the quantizer's scale is far above them, and one of theirs no number
        # that kernels take.
        own = self.scales.reshape(largest.shape)
        whole = np.where(largest > own / 2.0, largest, own).astype(np.float32).reshape(self.scales.shape)
        counts = self.ungrouped(np.broadcast_to(power[:, None, :], self.grouped(self.values).shape))
        return [self.scales, whole, rounded(self.values, whole, self.axis, self.top, counts)[1]]


def round_weights(built: Built, kit: RepairKit) -> None:
    """Pass: round weights of integer ops by what their errors do together, where the recipe has ``rounding-gptq``.

    Those that have fewer levels are always rounded so.

    Needs operands that no two ops share, and weights that have their scales and ``grids``. Gives weights, and in
    ``skipped`` why an op keeps the nearest levels.
    """
    if NAME not in built.repairs and not built.grids:
        return
    float_model = kit.float_model(built.repairs)
    layers, skipped = _layers(built, float_model)
    built.skipped[NAME] = skipped
    if not layers:
        return
    for index, outcome in _outcomes(built, kit, layers).items():
        if isinstance(outcome, str):
            skipped[index] = outcome
        elif layers[index].top == TOP:
            _weights(built, index).buffer = editing.add_buffer(built.model, outcome.levels)
        else:
            try:
                built.grids[index] = store_levels(built, index, outcome.levels, outcome.scales, layers[index].top)
            except SkipError as reason:
                skipped[index] = str(reason)


def _weights(built: Built, index: int) -> fb.Tensor:
    """The weights of the twin of a float op."""
    graph = built.model.subgraphs[0]
    return graph.tensors[graph.operators[built.places[index]].inputs[1]]


def _layers(built: Built, float_model: fb.Model) -> tuple[dict[int, _Layer], dict[int, str]]:
    """The layers whose weights may be rounded, and why others are not, by index of the float model's op."""
    graph, layers, skipped = float_model.subgraphs[0], {}, {}
    uses = Counter(graph.tensors[i].buffer for op in graph.operators for i in op.inputs if i >= 0)
    for index, op in quantized_ops(built.model, float_model, built.places):
        if NAME not in built.repairs and index not in built.grids:
            continue
        try:
            layers[index] = _layer(built, op, float_model, index, uses)
        except SkipError as reason:
            skipped[index] = str(reason)
    return layers, skipped


def _layer(built: Built, op: fb.Operator, float_model: fb.Model, index: int, uses: Mapping[int, int]) -> _Layer:
    """One layer.

    Raises:
        SkipError: If its weights are not to be rounded; with the reason.
    """
    kind, values, _ = weights_of(built.model, op, float_model, index)
    tensors, twin = float_model.subgraphs[0].tensors, float_model.subgraphs[0].operators[index]
    activation, tensor = int(twin.inputs[kind.activation]), _weights(built, index)
    is_hybrid = built.model.subgraphs[0].tensors[op.inputs[kind.activation]].type == schema.TensorType.FLOAT32
    if is_hybrid and index not in built.grids:
        raise SkipError("it is hybrid")
    if uses[tensors[twin.inputs[1]].buffer] > 1:
        raise SkipError("another op reads its weights, too")
    if not np.isfinite(values).all():
        raise SkipError("a weight of it is not a finite number")
    if np.any(fb.zero_points_of(tensor) or 0):
        raise SkipError("its weights have a zero point")
    op_type, channels = fb.op_type(float_model, twin), fb.shape_of(tensors[activation])[-1]
    groups = {"DEPTHWISE_CONV_2D": channels, "CONV_2D": channels // values.shape[-1]}.get(op_type, 1)
    grid = built.grids.get(index)
    layer = _Layer(
        op_type=op_type,
        activation=activation,
        shape=values.shape,
        groups=groups,
        values=values,
        scales=(known_scales(tensor) * (1 if grid is None else grid.step)).astype(np.float32),
        axis=axis_of(tensor),
        top=TOP if grid is None else grid.top,
    )
    if layer.moment_bytes > MOST_BYTES:
        raise SkipError(f"the second moments of its inputs would take more than {MOST_BYTES >> 10} KiB")
    if layer.work > MOST_WORK:
        raise SkipError("it has so many inputs for so few output channels that to round it would take too long")
    return layer


def _is_corrected(built: Built) -> bool:
    """Whether biases take out, after rounding, what the errors of weights do to the mean output."""
    return any(name.startswith("bias") for name in built.repairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounded:
    """Levels of a layer, int8 in the shape of its weights, and their scales, shape (channels,) or (1,)."""

    levels: np.ndarray
    scales: np.ndarray


_Outcome = _Rounded | str
"""New levels of a layer, or why it keeps its own."""

_Measured = tuple[Moments, Moments]
"""Moments of the inputs of a layer: on the samples to round with, and on those to judge on."""


def _outcomes(built: Built, kit: RepairKit, layers: Mapping[int, _Layer]) -> dict[int, _Outcome]:
    """What becomes of layers; each is kept by itself, because builds differ in few of them, if in any."""
    equalized = _equalized(built, kit, layers)
    names = {index: _file_name(built, index, layer, index in equalized) for index, layer in layers.items()}
    outcomes: dict[int, _Outcome] = {}
    for index, name in names.items():
        with contextlib.suppress(_NotKeptError):
            outcomes[index] = _unpacked(kit.keep(name, _not_kept))
    missing = {index: layer for index, layer in layers.items() if index not in outcomes}
    made = _rounded(built, kit, missing, equalized)
    return outcomes | {i: _unpacked(kit.keep(names[i], partial(_packed, outcome))) for i, outcome in made.items()}


def _equalized(built: Built, kit: RepairKit, layers: Mapping[int, _Layer]) -> set[int]:
    """The layers that equalization changed; all others read what they read in the plain model."""
    if "equalization" not in built.repairs:
        return set()
    plain = kit.float_model()
    graph = plain.subgraphs[0]
    weights = {i: fb.constant_values(plain, graph.tensors[graph.operators[i].inputs[1]]) for i in layers}
    return {i for i, layer in layers.items() if not np.array_equal(weights[i], layer.values)}


class _NotKeptError(Exception):
    """Nothing is kept under a name."""


def _not_kept() -> bytes:
    raise _NotKeptError


def _rounded(
    built: Built, kit: RepairKit, layers: Mapping[int, _Layer], equalized: Collection[int]
) -> dict[int, _Outcome]:
    """Round each layer; what is measured together serves other choices of repairs, too."""

    def outcome(index: int, moments: _Measured) -> _Outcome:
        try:
            return _round_layer(layers[index], *moments, is_corrected=_is_corrected(built))
        except SkipError as reason:
            return str(reason)

    kept_moments: dict[Any, _Measured] = kit.moments
    outcomes: dict[int, _Outcome] = {}
    for repairs in ((), ("equalization",)):
        keys = {index: (index, repairs) for index in layers if (index in equalized) == bool(repairs)}
        outcomes |= {index: outcome(index, kept_moments[key]) for index, key in keys.items() if key in kept_moments}
        new = {index: layers[index] for index, key in keys.items() if key not in kept_moments}
        if not new:
            continue
        content, model = kit.calibrated(repairs).content, kit.float_model(repairs)
        for batch in _batches(new):
            measured = _measure(content, model, {i: layers[i] for i in batch}, kit.samples)
            for index in batch:
                moments = measured.pop(index)
                outcomes[index] = outcome(index, moments)
                if sum(part.nbytes for pair in (moments, *kept_moments.values()) for part in pair) <= TOGETHER_BYTES:
                    kept_moments[keys[index]] = moments
    return outcomes


def _batches(layers: Mapping[int, _Layer]) -> Iterator[list[int]]:
    """Indices of layers whose moments fit into memory together."""
    batch: list[int] = []
    for index, layer in layers.items():
        if sum(layers[i].moment_bytes for i in batch) + layer.moment_bytes > TOGETHER_BYTES:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _measure(
    content: bytes,
    model: fb.Model,
    layers: Mapping[int, _Layer],
    samples: Callable[[], Iterable[Mapping[str, np.ndarray]]],
) -> dict[int, _Measured]:
    """Second moments of the inputs of layers, in one run over the samples of a model in bytes and parsed."""
    moments = {index: (Moments(), Moments()) for index in layers}
    operators = model.subgraphs[0].operators
    tensors = {index: (layer.activation, int(operators[index].outputs[0])) for index, layer in layers.items()}
    runner = Runner(content, readable={*chain.from_iterable(tensors.values())})
    for number, sample in enumerate(samples()):
        runner.go_on(sample)
        part = int(number % JUDGED_EVERY == JUDGED_EVERY - 1)
        for index, layer in layers.items():
            if has_shapes(model, runner, tensors[index]):
                moments[index][part].add(_inputs(model, operators[index], layer, runner.tensor(layer.activation)))
    return moments


def _inputs(model: fb.Model, op: fb.Operator, layer: _Layer, values: np.ndarray) -> np.ndarray:
    """What each group of a layer is computed from, shape (groups, positions, inputs)."""
    if layer.op_type == "FULLY_CONNECTED":
        return dense_windows(values, layer.shape[-1], MOST_POSITIONS)[None]
    is_transposed = layer.op_type == "TRANSPOSE_CONV"
    met = windows(values, geometry_of(model, op), MOST_POSITIONS, transposed=is_transposed)
    split = met.reshape(*met.shape[:2], layer.groups, -1).transpose(2, 0, 1, 3)
    return split.reshape(layer.groups, len(met), -1)


def _round_layer(layer: _Layer, fitted: Moments, judged: Moments, *, is_corrected: bool) -> _Rounded:
    """Choose the levels and the scales of a layer that give its outputs the least error.

    Args:
        layer: With its own scales.
        fitted: Moments of its inputs on the samples that levels are computed from.
        judged: The same on the samples that the choice is judged on.
        is_corrected: Whether its bias is corrected later. That takes out the error of the mean output, so the error is
            then that of inputs less their mean.

    Raises:
        SkipError: If the nearest levels at its own scales are as good, or it cannot be measured; with the reason.
    """
    if not fitted.count:
        raise SkipError("the runtime gives its tensors other shapes than the file")
    if not judged.count:
        raise SkipError(f"there are fewer than {JUDGED_EVERY} calibration samples to measure and judge it on")
    if not (fitted.is_finite and judged.is_finite):
        raise SkipError("an input of it is not a finite number")
    centre = fitted.mean if is_corrected else np.zeros_like(fitted.mean)
    moments = fitted.about(centre)
    values = layer.grouped(layer.values).astype(np.float32)
    tried = list[tuple[float, np.ndarray, np.ndarray]]()
    for given in layer.scale_choices(np.diagonal(moments, axis1=1, axis2=2).astype(np.float64)):
        scales = layer.grouped(layer.by_weight(given)).astype(np.float32)
        steps = values / scales
        nearest = np.rint(steps).clip(-layer.top, layer.top)
        try:
            levels = compensated(steps, nearest, moments, layer.top)
        except np.linalg.LinAlgError as exc:
            raise SkipError("its inputs hardly differ from their mean") from exc
        tried += [(judged.output_error((to - steps) * scales, centre), to, given) for to in (nearest, levels)]
    place = min(range(len(tried)), key=lambda i: (tried[i][0], i))
    if place == 0:
        raise SkipError("the nearest levels are as good on the samples that it is judged on")
    _, chosen, given = tried[place]
    return _Rounded(levels=layer.ungrouped(chosen).astype(np.int8), scales=given)


def _file_name(built: Built, index: int, layer: _Layer, is_equalized: bool) -> str:
    """Where the outcome of a layer is kept: a name for all that it follows from, beside the model and its samples."""
    grid = "" if layer.top == TOP else f" {layer.top}"
    digest = hashlib.sha256(f"{index} {is_equalized} {_is_corrected(built)}{grid}".encode())
    for part in (layer.values, layer.scales):
        digest.update(part.tobytes())
    return f"rounded_{digest.hexdigest()[:12]}.npz"


def _packed(outcome: _Outcome) -> bytes:
    content = io.BytesIO()
    if isinstance(outcome, str):
        np.savez(content, reason=np.asarray(outcome))
    else:
        np.savez(content, levels=outcome.levels, scales=outcome.scales)
    return content.getvalue()


def _unpacked(raw: bytes) -> _Outcome:
    with np.load(io.BytesIO(raw)) as parts:
        if "reason" in parts:
            return str(parts["reason"])
        return _Rounded(levels=parts["levels"], scales=parts["scales"])
