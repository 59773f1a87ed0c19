"""Bias correction: the shift of an op's mean output that the rounding of its weights causes goes into its bias.

The method is that of Nagel et al. 2019 (arXiv:1906.04721, section 4.2) with measured means. An op costs as much after
as before; what changes is the data of its bias. Integer ops have theirs in int32, with 16-bit activations in int64,
hybrid ops in float32. The shift is that of the sum before a fused activation, so it is exact whatever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from autoselect.quantize.repairing import weighted_ops
from autoselect.quantize.repairing.built import Built, Shift
from autoselect.quantize.repairing.input_means import Means, taps_of
from autoselect.quantize.repairing.onward import Onward
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weighted_ops import MEANS, SkipError, add, quantized_ops, weights_of
from autoselect.rewrites import names
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED


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
    shifts = {}
    for index, op in ops:
        try:
            shifts[index] = apply_shift(model, op, shift_of(index, op))
        except SkipError as skipped:
            shifts[index] = Shift(before=np.nan, after=np.nan, reason=str(skipped))
    return shifts


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
