"""Weights of fewer levels than 8 bits have, stored in 8 bits: every kernel runs them, and they pack into less."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import bits_of, levels_of
from autoselect.quantize.repairing.built import Built, Grid
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.second_order import TOP
from autoselect.quantize.repairing.weight_scales import axis_of, give_weights, rounded
from autoselect.quantize.repairing.weighted_ops import SkipError, bias_of, known_scales, quantized_ops, weights_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED, Operands


def top_of(method: str) -> int:
    """The highest level of weights, by the name of a repair: 31 for ``levels-6``, whose lowest is -31."""
    return int(2 ** (bits_of(method) - 1)) - 1


def take_fewer_levels(built: Built, kit: RepairKit) -> None:
    """Pass: give weights fewer levels, if the recipe has ``levels-4`` to ``levels-7``, and the scales that suit these.

    Needs operands that no two ops share. Gives weights, biases and ``grids``, and in ``skipped`` what was left alone.
    """
    tops = _tops(built, kit)
    if not tops:
        return
    float_model = kit.float_model(built.repairs)
    skipped = dict[str, dict[int, str]]()
    for index, op in quantized_ops(built.model, float_model, built.places):
        if index not in tops:
            continue
        repair, top = tops[index]
        try:
            built.grids[index] = _coarsen(built, op, float_model, index, top)
        except SkipError as reason:
            skipped.setdefault(repair, {})[index] = str(reason)
    built.skipped.update(skipped)


def _tops(built: Built, kit: RepairKit) -> dict[int, tuple[str, int]]:
    """By index of the float model's op, the repair that asks for fewer levels of it, and the highest of them."""
    names = kit.names.nodes
    chosen = levels_of(built.repairs, names)
    return {i: (chosen[name], top_of(chosen[name])) for i, name in enumerate(names) if name in chosen}


def _coarsen(built: Built, op: fb.Operator, float_model: fb.Model, index: int, top: int) -> Grid:
    """Give one op weights of fewer levels, in place.

    Raises:
        SkipError: If it is to keep its weights; with the reason.
    """
    _, values, _ = weights_of(built.model, op, float_model, index)
    tensor = built.model.subgraphs[0].tensors[op.inputs[1]]
    if not np.isfinite(values).all():
        raise SkipError("a weight of it is not a finite number")
    if np.any(fb.zero_points_of(tensor) or 0):
        raise SkipError("its weights have a zero point")
    levels, scales = rounded(values, known_scales(tensor) * (TOP / top), axis_of(tensor), top)
    return store_levels(built, index, levels, scales, top)


def store_levels(built: Built, index: int, levels: np.ndarray, scales: np.ndarray, top: int) -> Grid:
    """Store levels in -top..top as the weights of the twin of a float op, in place; its bias follows.

    Args:
        built: The built model, each operand a tensor of its own.
        index: Of the float model's op.
        levels: Int8, in the shape of its weights.
        scales: What a level is worth, float32, shape (channels,) or (1,).
        top: The highest level.

    Returns:
        The highest level, and the distance of levels in the int8 weights, by which stored scales are divided.

    Raises:
        SkipError: If its bias is no constant or does not fit at the new scales; then nothing is changed.
    """
    model = built.model
    op = model.subgraphs[0].operators[built.places[index]]
    kind, axis = WEIGHTED[fb.op_type(model, op)], axis_of(model.subgraphs[0].tensors[op.inputs[1]])
    step = _step(model, op, kind, scales, top)
    spread = levels * (step if axis is None else fb.along(step, axis, levels.ndim))
    give_weights(model, op, kind, spread.astype(np.int8), (scales / step).astype(np.float32))
    return Grid(top=top, step=step)


_MOST_STEPS = {schema.TensorType.INT8: 1, schema.TensorType.INT16: 256}
"""By output type, the most steps of the output that one unit of the bias may be worth: a 256th of the range."""


def _step(model: fb.Model, op: fb.Operator, kind: Operands, scales: np.ndarray, top: int) -> np.ndarray:
    """Distance between neighbouring levels in the stored int8 weights, by channel.

    One unit of the bias is input scale times weight scale. With fewer levels the weight scale grows, and the unit may
    become too coarse for the output, see :data:`_MOST_STEPS`. A distance of n divides the weight scale by n. So the
    distance is what the bias needs, at most ``TOP // top``; 1 without a bias or integer activations.

    Returns:
        Integers in the shape of ``scales``.
    """
    tensors = model.subgraphs[0].tensors
    source, result = tensors[op.inputs[kind.activation]], tensors[op.outputs[0]]
    if bias_of(op, kind) < 0 or not {source.type, result.type} <= _MOST_STEPS.keys():
        return np.ones(len(scales), np.int64)
    unit = known_scales(source)[0] * scales / (known_scales(result)[0] * _MOST_STEPS[result.type])
    return np.asarray(np.clip(np.ceil(unit), 1, TOP // top), np.int64)
