"""Which ops are nodes: what full-integer quantization turns into integer ops, found by building."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autoselect.domain.graph import OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError
from autoselect.quantize import converter, names
from autoselect.quantize.build import CalibratedModel, op_places
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

UNREACHABLE = "stays integer even with every node denylisted"
BOUND = "shares its scale with a neighbour: stays integer while its neighbours are"


def find_nodes(calibrated: CalibratedModel) -> tuple[Node, ...]:
    """Find every node, in graph order, and whether a denylist reaches it, alone or only with its neighbours.

    The integer ops of the all-integer model are the nodes. What is still integer with every node denylisted is
    unreachable. Denylisting every second node, in two builds, shows which may be bound to their neighbours; each of
    those is then denylisted alone, and so is each that keeps the scale of a tensor and makes it smaller: the quantizer
    moves a DEQUANTIZE behind such an op.

    Raises:
        ModelError: If full-integer quantization turns no op into an integer op.
    """
    op_types = _float_op_types(calibrated)
    names_by_index = calibrated.names.node_names()
    whole = _build(calibrated, denylisted=())
    integer, macs = _integer_ops(whole)
    if not integer:
        raise ModelError(
            "Full-integer quantization turns no op of this model into an integer op, so there is nothing to search. "
            "Check that its ops have int8 kernels."
        )
    indices = sorted(integer)
    unreachable = integer & _left_integer(calibrated, indices)
    bound = _bound(calibrated, [i for i in indices if i not in unreachable], _shrinking(whole))
    return tuple(
        Node(
            index=i,
            name=names_by_index[i],
            op_type=op_types[i],
            outputs=calibrated.names.op_outputs[i],
            macs=macs[i],
            unreachable_reason=UNREACHABLE if i in unreachable else None,
            bound_reason=BOUND if i in bound else None,
        )
        for i in indices
    )


def _bound(calibrated: CalibratedModel, indices: list[int], shrinking: set[int]) -> set[int]:
    """Ops that stay integer when they are the only one denylisted."""
    suspects = shrinking & set(indices)
    for half in (indices[::2], indices[1::2]):
        suspects |= set(half) & _left_integer(calibrated, half)
    return {i for i in suspects if i in _left_integer(calibrated, [i])}


def _left_integer(calibrated: CalibratedModel, denylisted: list[int]) -> set[int]:
    return _integer_ops(_build(calibrated, denylisted=[names.canonical_name(i) for i in denylisted]))[0]


def _float_op_types(calibrated: CalibratedModel) -> list[str]:
    model = fb.parse(calibrated.content)
    return [fb.op_type(model, op) for op in model.subgraphs[0].operators]


def _build(calibrated: CalibratedModel, *, denylisted: Sequence[str]) -> fb.Model:
    return fb.parse(converter.quantize(calibrated.content, denylisted=denylisted, recipe=Recipe()))


def _integer_ops(model: fb.Model) -> tuple[set[int], dict[int, int]]:
    """Indices of the float model's ops that are integer in a build, and the MACs of all ops in it."""
    graph = reader.read_graph(model)
    places = op_places(model)
    integer = {i for i, at in places.items() if any(graph.ops[p].kind is OpKind.INTEGER for p in at)}
    return integer, {i: max(graph.ops[p].macs for p in at) for i, at in places.items()}


def _shrinking(model: fb.Model) -> set[int]:
    """Indices of the float model's ops with one activation in and a smaller one of the same scale out."""
    graph, raw = reader.read_graph(model), model.subgraphs[0].tensors
    found = set()
    for index, at in op_places(model).items():
        op = graph.ops[at[0]]
        if len(op.inputs) == len(op.outputs) == 1:
            source, result = op.inputs[0], op.outputs[0]
            smaller = prod(graph.tensors[result].shape) < prod(graph.tensors[source].shape)
            if smaller and fb.scales(raw[source]) == fb.scales(raw[result]) != ():
                found.add(index)
    return found
