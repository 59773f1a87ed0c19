"""What became of each node of a candidate, told from its recipe and its fallbacks, without building it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.domain.graph import OpKind
from autoselect.domain.layers import Node
from autoselect.quantize.building.left_out import LeftOut

_KEPT_INTEGER = frozenset(
    {
        "stays integer even with every node denylisted",
        "shares its scale with a neighbour: stays integer while its neighbours are",
        "the quantizer keeps it in integers beside these neighbours",
    }
)
"""Reasons in runs of builder 1, which could not take such a node out of integers."""


def node_kinds(chosen: LeftOut, nodes: Sequence[Node], fallbacks: Mapping[str, str]) -> dict[str, str]:
    """Say of each node whether it is ``integer``, ``hybrid`` or ``float``.

    Args:
        chosen: Of the candidate's recipe.
        nodes: All nodes of the model.
        fallbacks: As :class:`autoselect.quantize.building.build.Candidate` has them.
    """
    denied = chosen.names
    return {n.name: _kind(n.name in denied, n.name in chosen.in_float, fallbacks.get(n.name)).value for n in nodes}


def _kind(denied: bool, in_float: bool, reason: str | None) -> OpKind:
    if not denied or reason in _KEPT_INTEGER:
        return OpKind.INTEGER
    return OpKind.FLOAT if reason is not None or in_float else OpKind.HYBRID
