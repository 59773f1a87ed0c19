"""Takes another quantizer's integer model for the whole integer build of a float model; refuses one of another model.

Knows inputs, outputs, shapes and messages; which op is which, :mod:`autoselect.quantize.preparing.alignment` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from statistics import median

import numpy as np

from autoselect.domain.tensors import free_name
from autoselect.errors import ModelError
from autoselect.quantize.preparing.alignment import align, same_shape, similarity
from autoselect.rewrites import names
from autoselect.rewrites.float_forms import fuse_alike, keep_dimensions
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

_REMEDY = (
    "Pass the integer model that was quantized from this very float model, or the float model that it was made from."
)


def adopt(model: fb.Model, float_model: fb.Model, key: names.NameMap) -> Mapping[int, int]:
    """Make an integer model the whole integer build of a float model, in place.

    It gets the float model's order of inputs and outputs and its shapes.

    Args:
        model: The integer model.
        float_model: Under canonical names.
        key: To its own names.

    Returns:
        The place of the twin of each op of the float model.

    Raises:
        ModelError: If it was not made from this float model; says what does not match.
    """
    _liken(model, float_model)
    _order_ends(model, float_model, key)
    alignment = align(model, float_model, key)
    if alignment.missing:
        raise _strangers(model, alignment.missing)
    _order_outputs(model, key, alignment.outputs)
    _check_shapes(model, float_model, key, "outputs")
    _check_weights(model, float_model, alignment.places)
    _take_shapes(model, float_model, key, alignment.places)
    return alignment.places


def ordered(file: TfliteFile, float_model: fb.Model, key: names.NameMap) -> TfliteFile:
    """The integer model with its inputs and outputs in the float model's order.

    Raises:
        ModelError: If they do not match.
    """
    model, likened = file.copied(), file.copied()
    before = [list(map(int, row)) for row in (model.subgraphs[0].inputs, model.subgraphs[0].outputs)]
    _order_ends(model, float_model, key)
    _liken(likened, float_model)
    _order_ends(likened, float_model, key)
    _order_outputs(model, key, align(likened, float_model, key).outputs)
    after = [list(map(int, row)) for row in (model.subgraphs[0].inputs, model.subgraphs[0].outputs)]
    return file if before == after else TfliteFile(model=model)


def matched(model: fb.Model, float_model: fb.Model, key: names.NameMap) -> int:
    """Number of the float model's ops that an integer model has, less the ops that only that has; changes it in place.

    Raises:
        ModelError: If inputs or outputs do not match.
    """
    _liken(model, float_model)
    _order_ends(model, float_model, key)
    alignment = align(model, float_model, key)
    _order_outputs(model, key, alignment.outputs)
    _check_shapes(model, float_model, key, "outputs")
    return len(alignment.places) - len(alignment.missing)


def ranges(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> dict[int, tuple[float, float]]:
    """What the integers of an adopted model can stand for, by index of the float model's activation."""
    ranges_by_tensor = {}
    for tensor, twin in ((model.subgraphs[0].tensors[t], u) for t, u in _twins(model, float_model, places)):
        dtype, scales = fb.TENSOR_DTYPES[tensor.type], fb.scales(tensor)
        if dtype in ("int8", "uint8", "int16") and len(scales) == 1:
            limits, zero_point = np.iinfo(dtype), fb.zero_points_of(tensor)[0]
            ranges_by_tensor[twin] = ((limits.min - zero_point) * scales[0], (limits.max - zero_point) * scales[0])
    return ranges_by_tensor


def _twins(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> list[tuple[int, int]]:
    """Each tensor that has a twin in the float model, with that: inputs, and what twins write."""
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    rows = [(graph.inputs, float_graph.inputs)]
    rows += [(graph.operators[place].outputs, float_graph.operators[i].outputs) for i, place in places.items()]
    return [(int(t), int(twin)) for row in rows for t, twin in zip(*row, strict=False)]


def _liken(model: fb.Model, float_model: fb.Model) -> None:
    """Write an integer model's ops as the float model has them, in place."""
    keep_dimensions(model, float_model)
    fuse_alike(model, float_model)
    names.unshare_operands(model)
    for op in model.subgraphs[0].operators:
        if op.intermediates is not None and not len(op.intermediates):
            op.intermediates = None  # An empty row, which takes bytes, says the same.


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
        _put_in_order(model, side, range(len(ours)) if named is None else [named[0].index(name) for name in named[1]])
    _check_shapes(model, float_model, key, "inputs")


def _order_outputs(model: fb.Model, key: names.NameMap, computed: Sequence[int | None]) -> None:
    """Bring outputs into the float model's order by what computes them, in place, where that tells them all apart."""
    order = [place for place in computed[: len(key.outputs)] if place is not None]
    if len(set(order)) == len(key.outputs):
        _put_in_order(model, "outputs", order)


def _put_in_order(model: fb.Model, side: str, order: Iterable[int]) -> None:
    graph = model.subgraphs[0]
    setattr(graph, side, np.array([getattr(graph, side)[i] for i in order], dtype=np.int32))


def _check_shapes(model: fb.Model, float_model: fb.Model, key: names.NameMap, side: str) -> None:
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    for tensor, twin, name in zip(getattr(graph, side), getattr(float_graph, side), getattr(key, side), strict=False):
        made, wanted = graph.tensors[tensor], float_graph.tensors[twin]
        if not same_shape(made, wanted):
            raise ModelError(
                f"The integer model's {side[:-1]} {fb.tensor_name(made)!r} has the shape {fb.shape_of(made)}, the "
                f"float model's {name!r} has {fb.shape_of(wanted)}: it was made from another model, or with other "
                f"--shape. {_REMEDY}"
            )


def _take_shapes(model: fb.Model, float_model: fb.Model, key: names.NameMap, places: Mapping[int, int]) -> None:
    """Give every tensor of a twin the float model's shape, and what else there is fixed shapes and its own name."""
    graph = model.subgraphs[0]
    twins_by_index = {t: float_model.subgraphs[0].tensors[twin] for t, twin in _twins(model, float_model, places)}
    taken = {*key.inputs, *key.outputs, *(name for row in key.op_outputs for name in row)}
    twins = set(places.values())
    for place, op in enumerate(graph.operators):
        if fb.op_type(model, op) in fb.CONVERSIONS and int(op.inputs[0]) in twins_by_index:
            twins_by_index[int(op.outputs[0])] = twins_by_index[int(op.inputs[0])]
        elif place not in twins:
            for tensor in (graph.tensors[int(t)] for t in op.outputs):
                tensor.shapeSignature = None
                tensor.name = free_name(fb.tensor_name(tensor) or f"extra_{place}", taken).encode()
    for index, twin in twins_by_index.items():
        graph.tensors[index].shape = copy(twin.shape)
        graph.tensors[index].shapeSignature = copy(twin.shapeSignature)


def _check_weights(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> None:
    # Least cosine of weights that belong together: rounding leaves .99 and more, quantization-aware training most of
    # it, while those of two trainings have about 0.
    least_similarity = 0.5
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    similarities = {
        place: similarity(model, graph.operators[place], float_model, float_graph.operators[index])
        for index, place in places.items()
    }
    cosines = {place: value for place, value in similarities.items() if value is not None}
    if other := [place for place, value in cosines.items() if value == -1.0]:
        raise ModelError(
            f"The integer model does not belong to this float model: {_listed(model, other)} have weights of other "
            f"shapes. {_REMEDY}"
        )
    if cosines and median(cosines.values()) < least_similarity:
        worst = sorted(cosines, key=lambda place: cosines[place])
        raise ModelError(
            "The integer model does not belong to this float model: its ops are the same, but its weights are others. "
            f"Their cosine similarity to the float weights is {median(cosines.values()):.2f} (median of {len(cosines)} "
            f"ops; {least_similarity:g} is the least), first in {_listed(model, worst)}. {_REMEDY}"
        )


def _strangers(model: fb.Model, missing: Sequence[int]) -> ModelError:
    return ModelError(
        f"The integer model does not belong to this float model: {len(missing)} of its "
        f"{len(model.subgraphs[0].operators)} ops match no float op: {_listed(model, missing)}. They should have "
        f"the same types, shapes and options in the same order. {_REMEDY}"
    )


def _listed(model: fb.Model, places: Iterable[int]) -> str:
    """``CONV_2D 'conv_1' (1, 8, 8, 16), ...``: the first few."""
    rows, graph = list(places), model.subgraphs[0]
    descriptions = []
    for op in (graph.operators[place] for place in rows[:3]):
        tensor = graph.tensors[int(op.outputs[0])]
        descriptions.append(f"{fb.op_type(model, op)} {fb.tensor_name(tensor)!r} {fb.shape_of(tensor)}")
    return ", ".join([*descriptions, *(["..."] if len(rows) > 3 else [])])
