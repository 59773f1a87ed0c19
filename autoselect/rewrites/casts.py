"""Keeps the CAST of 8-bit numbers to float in integers: a QUANTIZE does it, since these numbers count in steps of 1.

TensorFlow's quantizer leaves such a CAST in float, and quantizes what it writes: the first op of a model that takes a
picture as ``uint8`` is then a float one in every candidate. With steps of 1 behind it, too, nothing is rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.rewrites.rewriting import GraphView, Rewrite
from autoselect.tflite import editing, ranges
from autoselect.tflite import flatbuffer as fb

_ENDS = {schema.TensorType.UINT8: (0.0, 255.0), schema.TensorType.INT8: (-128.0, 127.0)}
"""The least and the largest number of what LiteRT's QUANTIZE turns into int8 of any scale."""


def _reaching(model: fb.Model) -> list[tuple[fb.Tensor, ranges.Range]]:
    """What CASTs of 8-bit numbers write, and how far these numbers reach."""
    tensors = model.subgraphs[0].tensors
    casts = (op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "CAST")
    pairs = ((tensors[op.outputs[0]], _ENDS.get(tensors[op.inputs[0]].type)) for op in casts)
    return [(written, ends) for written, ends in pairs if ends is not None and ranges.range_of(written) is not None]


def _reach(model: fb.Model) -> list[tuple[fb.Tensor, ranges.Range]]:
    for written, ends in (reaching := _reaching(model)):
        ranges.set_range(written, *ends)
    return reaching


CASTS_REACH = Rewrite(name="casts reach as far as 8 bits", applies=lambda model: bool(_reaching(model)), deed=_reach)
"""Of a calibrated model: its scale is then 1 there, whatever numbers the samples had."""


def write_integers(model: fb.Model, places: Mapping[int, int]) -> dict[int, int]:
    """Replace each CAST of 8-bit numbers, and the QUANTIZE behind it, by one QUANTIZE, in place.

    Args:
        model: An integer build of TensorFlow's quantizer.
        places: For each op of the float model the place of its twin.

    Returns:
        The places now.
    """
    view = GraphView(model)
    twins = {index: view.graph.operators[place] for index, place in places.items()}
    ends = {index: end for index, op in twins.items() if (end := _rounded(view, op)) is not None}
    reads = Counter(int(twins[index].inputs[0]) for index in ends)
    for index, end in ends.items():
        cast, source = twins[index], int(twins[index].inputs[0])
        # Another reader would see numbers that have a scale, where it knew none.
        if reads[source] == len(view.readers(source)):
            view.tensor(source).quantization = editing.symmetric(np.ones(1, np.float32))
            model.operatorCodes.append(editing.conversion_code("QUANTIZE", ()))
            twins[index] = editing.conversion_op(len(model.operatorCodes) - 1, source, end)
            view.replace([cast, *view.readers(int(cast.outputs[0]))], [twins[index]])
    at = {id(op): place for place, op in enumerate(view.graph.operators)}
    return {index: at[id(op)] for index, op in twins.items()}


def _rounded(view: GraphView, op: fb.Operator) -> int | None:
    """The int8 tensor that a CAST of 8-bit numbers is quantized to, if nobody reads what it writes otherwise."""
    if view.type_of(op) != "CAST":
        return None
    source, written = int(op.inputs[0]), int(op.outputs[0])
    given, readers = view.tensor(source), view.readers(written)
    is_plain = given.type in _ENDS and not fb.scales(given) and not fb.is_constant(view.model, given)
    if not is_plain or view.is_output(source) or view.is_output(written):
        return None
    ends = [int(reader.outputs[0]) for reader in readers if view.type_of(reader) == "QUANTIZE"]
    is_alone = len(ends) == len(readers) == 1 and view.tensor(ends[0]).type == schema.TensorType.INT8
    return ends[0] if is_alone else None


def written_in_integers(model: fb.Model, float_model: fb.Model, places: Mapping[int, int]) -> list[int]:
    """The CASTs of the float model, by index, of which an integer build has made a QUANTIZE."""
    ops, twins = float_model.subgraphs[0].operators, model.subgraphs[0].operators
    casts = (index for index in places if fb.op_type(float_model, ops[index]) == "CAST")
    return [index for index in casts if fb.op_type(model, twins[places[index]]) == "QUANTIZE"]


def count_in_ones(model: fb.Model, places: Collection[int]) -> None:
    """Give what ops at these places read steps of 1, in place, so that it has one form in all builds."""
    graph = model.subgraphs[0]
    for place in places:
        graph.tensors[graph.operators[place].inputs[0]].quantization = editing.symmetric(np.ones(1, np.float32))
