"""What became of each node of a candidate, told from its recipe and its fallbacks, without building it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.domain.graph import OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.quantize.build import KEPT_BY_QUANTIZER, denied_nodes
from autoselect.quantize.nodes import BOUND, UNREACHABLE

_STAYS_INTEGER = frozenset({BOUND, KEPT_BY_QUANTIZER, UNREACHABLE})


def node_kinds(recipe: Recipe, nodes: Sequence[Node], fallbacks: Mapping[str, str]) -> dict[str, str]:
    """Say of each node whether it is ``integer``, ``hybrid`` or ``float``.

    Args:
        recipe: Of the candidate.
        nodes: All nodes of the model.
        fallbacks: As :class:`autoselect.quantize.build.Candidate` has them.

    Raises:
        RecipeError: If the recipe names what the model does not have.
    """
    denied = {node.name for node in denied_nodes(recipe, nodes).values()}
    return {node.name: _kind(node.name in denied, recipe, fallbacks.get(node.name)).value for node in nodes}


def _kind(denied: bool, recipe: Recipe, reason: str | None) -> OpKind:
    if not denied or reason in _STAYS_INTEGER:
        return OpKind.INTEGER
    return OpKind.FLOAT if reason is not None or recipe.fallback == "float" else OpKind.HYBRID
