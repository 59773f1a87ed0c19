"""What became of each node of a candidate, told from its recipe and its fallbacks, without building it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.domain.layers import Node
from autoselect.quantize.building.left_out import LeftOut


def node_kinds(chosen: LeftOut, nodes: Sequence[Node], fallbacks: Mapping[str, str]) -> dict[str, str]:
    """Say of each node whether it is ``integer``, ``int16``, ``hybrid`` or ``float``.

    Args:
        chosen: Of the candidate's recipe.
        nodes: All nodes of the model.
        fallbacks: As :class:`autoselect.quantize.building.build.Candidate` has them.
    """
    return {n.name: chosen.recipe.kind_of(n.name, fallbacks.get(n.name)).value for n in nodes}
