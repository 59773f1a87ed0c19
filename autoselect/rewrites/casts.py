"""Replaces a CAST from 8-bit numbers, ``uint8`` or ``int8`` without a scale, to float by a QUANTIZE, in integers.

TensorFlow's quantizer leaves such a CAST in float, and puts a QUANTIZE after it. So the first op of a model that takes
a picture as ``uint8`` would be a float one in every candidate. A QUANTIZE alone does the work of both if the CAST's
input has a scale of 1 and a zero point of 0. If its output has a scale of 1, too, it rounds nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.units import MOVERS
from autoselect.rewrites.rewriting import GraphView, Rewrite
from autoselect.tflite import editing, ranges
from autoselect.tflite import flatbuffer as fb

_ENDS = {schema.TensorType.UINT8: (0.0, 255.0), schema.TensorType.INT8: (-128.0, 127.0)}
"""The least and the largest number of each type that LiteRT's QUANTIZE turns into int8 of any scale."""
_MOVING = MOVERS | {"CONCATENATION", "PACK"}
"""Ops that pass on the 8-bit numbers that they read, if all their tensors have one scale."""


def _reaching(model: fb.Model) -> list[tuple[fb.Tensor, ranges.Range]]:
    """The tensors that CASTs of 8-bit numbers write, each with the least and the largest number of the CAST's input."""
    tensors = model.subgraphs[0].tensors
    casts = (op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "CAST")
    pairs = ((tensors[op.outputs[0]], _ENDS.get(tensors[op.inputs[0]].type)) for op in casts)
    return [(written, ends) for written, ends in pairs if ends is not None and ranges.range_of(written) is not None]


def _reach(model: fb.Model) -> list[tuple[fb.Tensor, ranges.Range]]:
    for written, ends in (reaching := _reaching(model)):
        ranges.set_range(written, *ends)
    return reaching


CASTS_REACH = Rewrite(name="casts reach as far as 8 bits", applies=lambda model: bool(_reaching(model)), deed=_reach)
"""It gives the output of each CAST in a calibrated model the range of the type that the CAST reads. So the quantizer
gives that output a scale of 1, whatever numbers the calibration samples had."""


def write_integers(model: fb.Model, places: Mapping[int, int]) -> dict[int, int]:
    """Replace each CAST of 8-bit numbers, and the QUANTIZE that alone reads its output, by one QUANTIZE, in place.

    The CAST's input, and the tensors that its numbers are moved from or to, get a scale of 1 and a zero point of 0.

    Args:
        model: What TensorFlow's quantizer made of the float model; it is changed.
        places: For each op of the float model the index of its twin in ``model``.

    Returns:
        ``places`` after the change.
    """
    view = GraphView(model)
    twins = {index: view.graph.operators[place] for index, place in places.items()}
    ends = {index: end for index, op in twins.items() if (end := _rounded(view, op)) is not None}
    casts = {id(twins[index]) for index in ends}
    chains = {index: _joined(view, int(twins[index].inputs[0]), casts) for index in ends}
    for index, numbers in chains.items():
        cast, source = twins[index], int(twins[index].inputs[0])
        for number in numbers:
            view.tensor(number).quantization = editing.symmetric(np.ones(1, np.float32))
        if numbers:
            model.operatorCodes.append(editing.conversion_code("QUANTIZE", ()))
            twins[index] = editing.conversion_op(len(model.operatorCodes) - 1, source, ends[index])
            view.replace([cast, *view.readers(int(cast.outputs[0]))], [twins[index]])
    at = {id(op): place for place, op in enumerate(view.graph.operators)}
    return {index: at[id(op)] for index, op in twins.items()}


def _rounded(view: GraphView, op: fb.Operator) -> int | None:
    """The int8 tensor that a CAST of 8-bit numbers is quantized to, if nobody reads what it writes otherwise."""
    if view.type_of(op) != "CAST" or view.tensor(op.inputs[0]).type not in _ENDS or view.is_output(int(op.outputs[0])):
        return None
    readers = view.readers(int(op.outputs[0]))
    ends = [int(reader.outputs[0]) for reader in readers if view.type_of(reader) == "QUANTIZE"]
    is_alone = len(ends) == len(readers) == 1 and view.tensor(ends[0]).type == schema.TensorType.INT8
    return ends[0] if is_alone else None


def _joined(view: GraphView, source: int, casts: Collection[int]) -> list[int]:
    """The source, and all tensors that ops of :data:`_MOVING` join to it; all of them must have one scale.

    Empty if one of these tensors has a scale already, is a constant or an output of the model, or if an op reads or
    writes it that is neither of :data:`_MOVING` nor one of the casts, whose ids are given.
    """
    found, given = [source], {*fb.indices(view.graph.inputs)}
    for tensor in found:
        writer = view.writer(tensor)
        ops = [*view.readers(tensor), *([] if writer is None else [writer])]
        is_free = (writer is not None or tensor in given) and not view.is_output(tensor)
        others = [op for op in ops if id(op) not in casts]
        if not is_free or fb.scales(view.tensor(tensor)) or not all(_moves(view, op) for op in others):
            return []
        near = {i for op in others for i in (*fb.indices(op.inputs), *fb.indices(op.outputs)) if i >= 0}
        found += sorted(i for i in near - {*found} if view.tensor(i).type in _ENDS)
    return found


def _moves(view: GraphView, op: fb.Operator) -> bool:
    """Whether an op writes numbers that it reads, as they are."""
    clamps = getattr(op.builtinOptions, "fusedActivationFunction", schema.ActivationFunctionType.NONE)
    return view.type_of(op) in _MOVING and clamps == schema.ActivationFunctionType.NONE


def take_scales(model: fb.Model, places: Mapping[int, int], integer: fb.Model, its_places: Mapping[int, int]) -> None:
    """Copy the scales that :func:`write_integers` gave to 8-bit tensors from the integer build to another, in place.

    So a tensor that holds such numbers has the same type and scale in both builds. No op changes.

    Args:
        model: The other build; it is changed.
        places: For each op of the float model the index of its twin in ``model``.
        integer: The integer build.
        its_places: For each op of the float model the index of its twin in ``integer``.
    """
    graph, theirs = model.subgraphs[0], integer.subgraphs[0]
    for index in places.keys() & its_places.keys():
        ops = graph.operators[places[index]], theirs.operators[its_places[index]]
        rows = ([*fb.indices(op.inputs), *fb.indices(op.outputs)] for op in ops)
        for ours, other in zip(*rows, strict=False):
            tensor, twin = graph.tensors[ours], theirs.tensors[other]
            if tensor.type == twin.type and tensor.type in _ENDS and fb.scales(twin) and not fb.scales(tensor):
                tensor.quantization = twin.quantization
