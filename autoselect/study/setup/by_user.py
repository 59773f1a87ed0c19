"""What a user says by hand of a run that goes on: recipes to score, and pins of the candidates to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autoselect.cases.prepare import Case
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable, names_in_float
from autoselect.domain.pinned import Pins
from autoselect.domain.recipe import covered_nodes
from autoselect.domain.words import did_you_mean
from autoselect.errors import RecipeError, UsageError
from autoselect.quantize.building.left_out import left_out
from autoselect.study.request import Request


def covered(texts: Iterable[str], layers: LayerTable, graph: Graph, option: str) -> frozenset[str]:
    """The nodes that names, globs and op types cover.

    Args:
        texts: Of a user.
        layers: For names and op types of nodes.
        graph: The float model, for the words of an error.
        option: Where the user said it.

    Raises:
        UsageError: If one covers none, with the nearest.
    """
    floats, nodes = names_in_float(graph, layers.nodes), frozenset[str]()
    for text in texts:
        try:
            nodes |= covered_nodes([text], layers.op_types, floats)
        except RecipeError as exc:
            types = sorted(set(layers.op_types.values()))
            nearest = did_you_mean(text.upper(), types)
            raise UsageError(f"{option}: {exc}{nearest} Op types of this model: {', '.join(types)}.") from exc
    return nodes


def with_nodes_named(request: Request, case: Case) -> Request:
    """The request with its recipes and its pins in the names of nodes.

    Raises:
        UsageError: If a pin covers no node.
        RecipeError: If a recipe names what the model does not have.
    """
    pins = {name: covered(patterns, case.layers, case.graph, name) for name, patterns in request.pins.named.items()}
    recipes = tuple(left_out(recipe, case.layers.nodes, case.graph).recipe for recipe in request.by_hand)
    return replace(request, pins=Pins(**pins), by_hand=recipes)


def refuse_nothing_to_do(request: Request, done: int) -> None:
    """Refuse pins for candidates that are none to come.

    Args:
        request: As it is asked for.
        done: How many trials of the search's own the run has.

    Raises:
        UsageError: If there are as many as are asked for.
    """
    if request.pins and done >= request.settings.trials:
        raise UsageError(
            f"Pins are for trials to come, and the run has its {done} already. Ask for more in all: --trials "
            f"{done + DEFAULT_MORE}."
        )


DEFAULT_MORE = 20
"""Trials that are proposed to a user who names none."""
