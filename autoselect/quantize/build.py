"""Builds candidates: one calibrated model and one recipe give the bytes of one mixed FIQ/DRQ model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe, resolve
from autoselect.errors import BuildError
from autoselect.quantize import converter, dynamic_range, leftovers, names
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

_KEPT_BY_QUANTIZER = "the quantizer keeps it in integers beside these neighbours"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """A calibrated float model under canonical names, with the key to its own names."""

    content: bytes
    names: names.NameMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A built model.

    Attributes:
        content: Bytes of the ``.tflite`` file.
        sha256: Of ``content``, hex.
        graph: The model as a graph.
        kinds: What became of each node: by node name, ``integer``, ``hybrid`` or ``float``.
        fallbacks: For each denylisted node that is not what the recipe's fallback says, why.
        places: Where each op of the float model is in ``graph``; more than one place for an op that became several.
    """

    content: bytes
    sha256: str
    graph: Graph
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, str]
    places: Mapping[int, tuple[int, ...]]


class Builder:
    """Builds any number of recipes of one calibrated model; equal recipes give equal bytes."""

    def __init__(self, calibrated: CalibratedModel, nodes: tuple[Node, ...]) -> None:
        """Keep the calibrated model and its nodes."""
        self._calibrated = calibrated
        self._float_model = fb.parse(calibrated.content)
        self._nodes = nodes

    def build(self, recipe: Recipe) -> Candidate:
        """Build one recipe.

        Raises:
            RecipeError: If the recipe names what the model does not have.
            BuildError: If the quantizer refuses, or a node did not become what the recipe says.
        """
        denied = denied_nodes(recipe, self._nodes)
        content = converter.quantize(
            self._calibrated.content,
            denylisted=[names.canonical_name(i) for i in sorted(denied)],
            recipe=recipe,
        )
        model = fb.parse(content)
        names.hide_unused_outputs(model, self._calibrated.names)
        leftovers.bypass_round_trips(model)
        places = op_places(model)
        float_ops = {place: index for index in denied for place in places.get(index, [])}
        leftovers.restore_float_weights(model, self._float_model, float_ops)
        kept = self._apply_fallback(model, recipe, float_ops)
        names.restore(model, self._calibrated.names)
        fb.drop_unused_buffers(model)
        graph = reader.read_graph(model)
        kinds = {n.name: _kind(graph, places.get(n.index, [])) for n in self._nodes}
        fallbacks = _explain(denied, kinds, kept, recipe)
        content = fb.serialise(model)
        return Candidate(
            content=content,
            sha256=hashlib.sha256(content).hexdigest(),
            graph=graph,
            kinds=kinds,
            fallbacks=fallbacks,
            places={index: tuple(at) for index, at in places.items()},
        )

    def _apply_fallback(self, model: fb.Model, recipe: Recipe, float_ops: Mapping[int, int]) -> dict[int, str]:
        """DRQ for the denylisted ops; returns for each node that stays float why, by node index."""
        if recipe.fallback == "float":
            return {}
        kept = dynamic_range.to_hybrid(model, float_ops)
        return {float_ops[place]: reason for place, reason in kept.items()}


def denied_nodes(recipe: Recipe, nodes: Sequence[Node]) -> dict[int, Node]:
    """The nodes that a recipe leaves out of integers, by index, in graph order.

    Raises:
        RecipeError: If the recipe names what the model does not have.
    """
    chosen = resolve(recipe, {node.name: node.op_type for node in nodes}).denylisted_nodes
    return {node.index: node for node in nodes if node.name in chosen}


def op_places(model: fb.Model) -> dict[int, list[int]]:
    """Where the float model's ops are in a built model that still has canonical names."""
    graph = model.subgraphs[0]
    places: dict[int, list[int]] = {}
    for place, op in enumerate(graph.operators):
        if fb.op_type(model, op) in names.BOUNDARY_OPS or len(op.outputs) == 0:
            continue
        index = names.op_index_of(fb.tensor_name(graph.tensors[op.outputs[0]]))
        if index is not None:
            places.setdefault(index, []).append(place)
    return places


def _kind(graph: Graph, places: list[int]) -> str:
    kinds = {graph.ops[place].kind for place in places}
    for kind in (OpKind.INTEGER, OpKind.HYBRID, OpKind.FLOAT):
        if kind in kinds:
            return str(kind.value)
    return "folded"


def _explain(
    denied: Mapping[int, Node], kinds: Mapping[str, str], kept: Mapping[int, str], recipe: Recipe
) -> dict[str, str]:
    """Check that each denylisted node became what the recipe says, or is an explained fallback."""
    fallbacks = {}
    for index, node in denied.items():
        kind = kinds[node.name]
        if kind == "integer":
            fallbacks[node.name] = node.unreachable_reason or node.bound_reason or _KEPT_BY_QUANTIZER
        elif kind == "float" and recipe.fallback == "drq":
            if index not in kept:
                raise BuildError(f"The dynamic-range pass left the node {node.name!r} float without a reason.")
            fallbacks[node.name] = kept[index]
    return fallbacks
