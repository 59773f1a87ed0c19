"""The ops of the float model with what one candidate made of them; knows no other tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOp:
    """One op of the float model.

    Attributes:
        index: In the float model's main subgraph.
        op_type: For example ``CONV_2D``.
        outputs: The float model's own names of its outputs.
        kind: What it is in the candidate: ``integer``, ``int16``, ``hybrid``, ``float``; ``neutral`` for shapes and
            indices.
        denylisted: Whether the recipe leaves it out of full-integer quantization.
    """

    index: int
    op_type: str
    outputs: tuple[str, ...]
    kind: str
    denylisted: bool


def member_ops(
    float_graph: Graph,
    op_outputs: Sequence[Sequence[str]],
    nodes: Sequence[Node],
    kinds: Mapping[str, str],
    denylisted: frozenset[str],
) -> tuple[MemberOp, ...]:
    """Say of every op of the float model what a candidate made of it."""
    by_index = {node.index: node for node in nodes}
    entries = []
    for index, (op, outputs) in enumerate(zip(float_graph.ops, op_outputs, strict=True)):
        node = by_index.get(index)
        kind = str(op.kind.value) if node is None else kinds[node.name]
        entries.append(
            MemberOp(
                index=index,
                op_type=op.op_type,
                outputs=tuple(outputs),
                kind=kind if kind != OpKind.BOUNDARY.value else OpKind.NEUTRAL.value,
                denylisted=node is not None and node.name in denylisted,
            )
        )
    return tuple(entries)
