"""Units: nodes that a search should move together, because moving one of them alone gains nothing.

Knows the float model's graph and its nodes; refuses to know how anything is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoselect.domain.graph import Graph
from autoselect.domain.layers import Node

MOVERS = frozenset(
    {
        "BATCH_TO_SPACE_ND",
        "DEPTH_TO_SPACE",
        "EXPAND_DIMS",
        "GATHER",
        "GATHER_ND",
        "MAX_POOL_2D",
        "MIRROR_PAD",
        "PAD",
        "PADV2",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "SQUEEZE",
        "STRIDED_SLICE",
        "TILE",
        "TRANSPOSE",
        "UNPACK",
    }
)
"""Op types that pass values on, or pick some: their integer form makes no error of its own."""
CLAMPS = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"})
"""Activations that only cut values off; elsewhere the converter fuses them into the op before."""


def units(graph: Graph, nodes: Sequence[Node]) -> tuple[tuple[str, ...], ...]:
    """Put every node in one unit.

    A node joins the unit of the node that writes what it reads, if that is one unit and nothing else writes it:

    * a mover (:data:`MOVERS`), such as a RESHAPE between two convolutions, as its integer form makes no error;
    * a clamp (:data:`CLAMPS`) that alone reads the tensor: both are one layer.

    Such a node before which there is no node, at the model's inputs, joins the one node that reads it. All else stays
    apart: the two are different choices for a convolution and a HARD_SWISH or a MUL after it, whose own scale makes
    an error; for the branches of an ADD; and for a CONCATENATION of several branches, each of which may leave integers
    without the others.

    Returns:
        Names of the nodes of each unit in graph order; units in order of their first node.
    """
    leaders = _join_writers(graph, nodes)
    followers = _join_readers(graph, nodes, leaders)
    groups: dict[int, list[str]] = {}
    for node in nodes:
        leader = leaders[node.index]
        groups.setdefault(followers.get(leader, leader), []).append(node.name)
    first = {name: place for place, name in enumerate(node.name for node in nodes)}
    return tuple(tuple(group) for group in sorted(groups.values(), key=lambda group: first[group[0]]))


def moved_from(graph: Graph, tensor: int) -> int:
    """The tensor whose values ops of :data:`MOVERS` alone move on to a tensor; itself if another op writes it."""
    writers = graph.producers()
    while tensor in writers and graph.ops[writers[tensor]].op_type in MOVERS:
        tensor = graph.ops[writers[tensor]].inputs[0]
    return tensor


def nodes_behind(graph: Graph, nodes: Sequence[Node], places: Mapping[int, int], failing: int) -> list[str]:
    """Names of the nodes because of which an op of a candidate cannot be run; empty if the op comes from no node.

    The node that the op comes from is the first. If it is a division, the nodes of the unit that computes its divisor
    follow: a float division fails, too, if the divisor was rounded to 0 before.

    Args:
        graph: The float model's graph.
        nodes: The float model's nodes.
        places: Index of an op in the candidate by its index in the float model.
        failing: Index of the failing op in the candidate.
    """
    node = next((n for n in nodes if places.get(n.index) == failing), None)
    if node is None:
        return []
    op, writer = graph.ops[node.index], None
    if op.op_type == "DIV" and len(op.inputs) == len(("dividend", "divisor")):
        writer = graph.producers().get(op.inputs[1])
    before = {n.name for n in nodes if n.index == writer}
    before_it = [name for unit in units(graph, nodes) if before & {*unit} for name in unit]
    return list(dict.fromkeys([node.name, *before_it]))


def _join_writers(graph: Graph, nodes: Sequence[Node]) -> dict[int, int]:
    """The index of the first node of each node's unit, by the node's index."""
    producers, readers = graph.producers(), graph.consumers()
    leaders: dict[int, int] = {}
    for node in nodes:
        inputs = graph.ops[node.index].inputs
        writers = {leaders.get(producers.get(tensor, -1), -1) for tensor in inputs}
        alone = all(len(readers[tensor]) == 1 and tensor not in graph.outputs for tensor in inputs)
        joins = _follows(node) or (node.op_type in CLAMPS and alone)
        [writer, *rest] = writers or {-1}
        leaders[node.index] = writer if joins and not rest and writer >= 0 else node.index
    return leaders


def _join_readers(graph: Graph, nodes: Sequence[Node], leaders: Mapping[int, int]) -> dict[int, int]:
    """The single reading unit of each unit that only moves values, later units first."""
    members: dict[int, list[Node]] = {}
    for node in nodes:
        members.setdefault(leaders[node.index], []).append(node)
    producers, readers = graph.producers(), graph.consumers()
    joined: dict[int, int] = {}
    for leader, group in sorted(members.items(), reverse=True):
        inside = {node.index for node in group}
        outputs = [tensor for node in group for tensor in graph.ops[node.index].outputs]
        units_reading = {leaders.get(i, -1) for tensor in outputs for i in readers.get(tensor, []) if i not in inside}
        is_output = any(tensor in graph.outputs for tensor in outputs)
        inputs = [tensor for node in group for tensor in graph.ops[node.index].inputs]
        before = {producers[tensor] for tensor in inputs if tensor in producers} - inside
        if (
            all(_follows(node) for node in group)
            and len(units_reading) == 1
            and -1 not in units_reading
            and not is_output
            and before.isdisjoint(leaders)
        ):
            [reader] = units_reading
            joined[leader] = joined.get(reader, reader)
    return joined


def _follows(node: Node) -> bool:
    return node.op_type in MOVERS


def moving_with(nodes: frozenset[str], units: Iterable[Sequence[str]]) -> frozenset[str]:
    """All nodes of the units that have any of these nodes."""
    return frozenset[str]().union(*(unit for unit in units if not nodes.isdisjoint(unit)))
