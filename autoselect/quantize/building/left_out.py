"""A recipe resolved: which nodes of one model it leaves out of integers, and which of these stay float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.graph import Graph
from autoselect.domain.layers import Node, names_in_float
from autoselect.domain.recipe import Recipe, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The denylisted nodes of a recipe.

    Attributes:
        recipe: The recipe, resolved.
        nodes: By op index, in graph order.
        in_float: Names of those that are not to become hybrid.
    """

    recipe: Recipe
    nodes: Mapping[int, Node]
    in_float: frozenset[str]

    def kinds(self, nodes: Sequence[Node], fallbacks: Mapping[str, str]) -> dict[str, str]:
        """What became of each node of the recipe's candidate: ``integer``, ``int16``, ``hybrid`` or ``float``."""
        return {n.name: self.recipe.kind_of(n.name, fallbacks.get(n.name)).value for n in nodes}

    @property
    def names(self) -> frozenset[str]:
        """Names of all."""
        return frozenset(node.name for node in self.nodes.values())


def left_out(recipe: Recipe, nodes: Sequence[Node], graph: Graph | None = None) -> LeftOut:
    """Resolve a recipe, once for all who ask.

    Args:
        recipe: Of the model.
        nodes: All that it has.
        graph: The float model; an error then tells ops that are float in any case from names that are not known.

    Raises:
        RecipeError: If the recipe names what the model does not have, or keeps in float what is not denylisted.
    """
    floats = {} if graph is None else names_in_float(graph, nodes)
    exact = resolve(recipe, {node.name: node.op_type for node in nodes}, floats)
    chosen = exact.denylisted_nodes
    return LeftOut(
        recipe=exact,
        nodes={node.index: node for node in nodes if node.name in chosen},
        in_float=chosen if recipe.fallback == "float" else exact.float_nodes,
    )
