"""What became of each node of a candidate, told from its recipe and its fallbacks, without building it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe, resolve


def node_kinds(recipe: Recipe, nodes: Sequence[Node], fallbacks: Mapping[str, str]) -> dict[str, str]:
    """Say of each node whether it is ``integer``, ``hybrid`` or ``float``.

    Args:
        recipe: Of the candidate.
        nodes: All nodes of the model.
        fallbacks: As :class:`autoselect.quantize.building.build.Candidate` has them.

    Raises:
        RecipeError: If the recipe names what the model does not have.
    """
    resolved = resolve(recipe, {node.name: node.op_type for node in nodes})
    return {node.name: resolved.kind_of(node.name, fallbacks.get(node.name)).value for node in nodes}
