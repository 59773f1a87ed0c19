"""Which ops are nodes: what full-integer quantization turns into integer ops, found by building."""

from __future__ import annotations

from collections.abc import Sequence

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
    those is then denylisted alone.

    Raises:
        ModelError: If full-integer quantization turns no op into an integer op.
    """
    op_types = _float_op_types(calibrated)
    names_by_index = calibrated.names.node_names()
    integer, macs = _integer_ops(calibrated, denylisted=())
    if not integer:
        raise ModelError(
            "Full-integer quantization turns no op of this model into an integer op, so there is nothing to search. "
            "Check that its ops have int8 kernels."
        )
    indices = sorted(integer)
    unreachable = integer & _left_integer(calibrated, indices)
    bound = _bound(calibrated, [i for i in indices if i not in unreachable])
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


def _bound(calibrated: CalibratedModel, indices: list[int]) -> set[int]:
    """Ops that stay integer when they are the only one denylisted."""
    suspects: set[int] = set()
    for half in (indices[::2], indices[1::2]):
        suspects |= set(half) & _left_integer(calibrated, half)
    return {i for i in suspects if i in _left_integer(calibrated, [i])}


def _left_integer(calibrated: CalibratedModel, denylisted: list[int]) -> set[int]:
    return _integer_ops(calibrated, denylisted=[names.canonical_name(i) for i in denylisted])[0]


def _float_op_types(calibrated: CalibratedModel) -> list[str]:
    model = fb.parse(calibrated.content)
    return [fb.op_type(model, op) for op in model.subgraphs[0].operators]


def _integer_ops(calibrated: CalibratedModel, *, denylisted: Sequence[str]) -> tuple[set[int], dict[int, int]]:
    """Indices of the float model's ops that are integer in a build, and the MACs of all ops in it."""
    model = fb.parse(converter.quantize(calibrated.content, denylisted=denylisted, recipe=Recipe()))
    graph = reader.read_graph(model)
    places = op_places(model)
    integer = {i for i, at in places.items() if any(graph.ops[p].kind is OpKind.INTEGER for p in at)}
    return integer, {i: max(graph.ops[p].macs for p in at) for i, at in places.items()}
