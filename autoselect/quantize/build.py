"""Builds candidates: one calibrated model and one recipe give the bytes of one mixed FIQ/DRQ model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe, resolve
from autoselect.errors import BuildError
from autoselect.quantize import converter, dynamic_range, leftovers, names
from autoselect.quantize.bias import Shift, why_untouched
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.repairs import Repaired, RepairKit, before_quantizing, repair
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

__all__ = [
    "Assembly",
    "Builder",
    "CalibratedModel",
    "Candidate",
    "corrects_biases",
    "denied_nodes",
    "kind_at",
    "op_places",
]

KEPT_BY_QUANTIZER = "the quantizer keeps it in integers beside these neighbours"


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
        shifts: What bias correction found, by node name; of every node where the recipe has it, else of none.
        skipped: Why another of the recipe's repairs left a node alone that it is there for: by node name, then by
            name of the repair.
    """

    content: bytes
    sha256: str
    graph: Graph
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, str]
    places: Mapping[int, tuple[int, ...]]
    shifts: Mapping[str, Shift]
    skipped: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A built model before it is written.

    Attributes:
        model: The editable model.
        places: For each op of the float model where its ops are in ``model``.
        kept: For each denylisted op that stays float under dynamic-range quantization why, by index in the float model.
        repaired: What the recipe's repairs found.
    """

    model: fb.Model
    places: Mapping[int, Sequence[int]]
    kept: Mapping[int, str]
    repaired: Repaired


class Builder:
    """Builds any number of recipes of one calibrated model; equal recipes give equal bytes."""

    def __init__(self, calibrated: CalibratedModel, nodes: tuple[Node, ...], kit: RepairKit | None = None) -> None:
        """Keep the calibrated model, its nodes, and what recipes with repairs need."""
        self._kit = RepairKit(calibrated) if kit is None else kit
        self._nodes = nodes
        self._wholes: dict[tuple[bool, str, tuple[str, ...]], fb.Model] = {}
        self._last: tuple[object, bytes] = (None, b"")

    def build(self, recipe: Recipe) -> Candidate:
        """Build one recipe.

        Raises:
            RecipeError: If the recipe names what the model does not have.
            BuildError: If the quantizer refuses, or a node did not become what the recipe says.
        """
        denied = denied_nodes(recipe, self._nodes)
        built = self.assemble(sorted(denied), recipe)
        graph = reader.read_graph(built.model)
        kinds = {n.name: kind_at(graph, built.places.get(n.index, [])) for n in self._nodes}
        fallbacks = _explain(denied, kinds, built.kept, self._in_float(recipe), recipe)
        content = fb.serialise(built.model)
        return Candidate(
            content=content,
            sha256=hashlib.sha256(content).hexdigest(),
            graph=graph,
            kinds=kinds,
            fallbacks=fallbacks,
            places={index: tuple(at) for index, at in built.places.items()},
            shifts=_shifts(self._nodes, built.repaired, kinds) if corrects_biases(recipe) else {},
            skipped={n.name: _skipped(n.index, built.repaired) for n in self._nodes},
        )

    def assemble(self, denied: Sequence[int], recipe: Recipe) -> Assembly:
        """Build the model with these ops of the float model left out, whatever nodes the recipe names.

        Raises:
            BuildError: If the quantizer refuses.
        """
        calibrated, float_model = self._kit.calibrated(recipe.repairs)
        model = fb.parse(self._quantized(calibrated, denied, recipe))
        names.hide_unused_outputs(model, calibrated.names)
        if recipe.io_type != "float32" and denied:
            leftovers.quantize_float_outputs(model, self._whole(recipe))
        leftovers.bypass_round_trips(model)
        places = op_places(model)
        float_ops = {place: index for index in denied for place in places.get(index, [])}
        leftovers.restore_float_weights(model, float_model, float_ops)
        in_float = self._in_float(recipe)
        kept = self._apply_fallback(model, recipe, {p: i for p, i in float_ops.items() if i not in in_float})
        names.restore(model, calibrated.names)
        names.restore_constants(model, calibrated.names, places)
        repaired = repair(model, float_model, places, recipe.repairs, self._kit)
        fb.share_equal_constants(model)
        fb.drop_unused_buffers(model)
        fb.order_operator_codes(model)
        return Assembly(model=model, places=places, kept=kept, repaired=repaired)

    def _quantized(self, calibrated: CalibratedModel, denied: Sequence[int], recipe: Recipe) -> bytes:
        """What the quantizer makes of it; the last is kept, for a recipe that differs in repairs of the built model."""
        key = (tuple(denied), recipe.per_channel, recipe.io_type, before_quantizing(recipe.repairs))
        if self._last[0] != key:
            denylisted = [names.canonical_name(i) for i in denied]
            self._last = (key, converter.quantize(calibrated.content, denylisted=denylisted, recipe=recipe))
        return self._last[1]

    def _whole(self, recipe: Recipe) -> fb.Model:
        """The model with nothing left out and its names still canonical, built once for each interface."""
        key = (recipe.per_channel, recipe.io_type, recipe.repairs)
        if key not in self._wholes:
            calibrated, _ = self._kit.calibrated(recipe.repairs)
            self._wholes[key] = fb.parse(self._quantized(calibrated, [], recipe))
            names.hide_unused_outputs(self._wholes[key], calibrated.names)
        return self._wholes[key]

    def _in_float(self, recipe: Recipe) -> set[int]:
        """Op indices of the nodes that stay float whatever the fallback."""
        chosen = float_nodes(recipe, self._nodes)
        return {node.index for node in self._nodes if node.name in chosen}

    def _apply_fallback(self, model: fb.Model, recipe: Recipe, float_ops: Mapping[int, int]) -> dict[int, str]:
        """DRQ for the denylisted ops; returns for each node that stays float why, by node index."""
        if recipe.fallback == "float":
            return {}
        kept = dynamic_range.to_hybrid(model, float_ops)
        return {float_ops[place]: reason for place, reason in kept.items()}


def corrects_biases(recipe: Recipe) -> bool:
    """Whether one of a recipe's repairs is bias correction."""
    return bool({"bias", "bias-sequential"} & set(recipe.repairs))


def _shifts(nodes: Sequence[Node], repaired: Repaired, kinds: Mapping[str, str]) -> dict[str, Shift]:
    """What bias correction found at each node, or why there is nothing."""
    return {
        node.name: repaired.shifts.get(node.index)
        or Shift(before=math.nan, after=math.nan, reason=why_untouched(node.op_type, kinds[node.name]))
        for node in nodes
    }


def _skipped(index: int, repaired: Repaired) -> dict[str, str]:
    return {name: reasons[index] for name, reasons in repaired.skipped.items() if index in reasons}


def denied_nodes(recipe: Recipe, nodes: Sequence[Node]) -> dict[int, Node]:
    """The nodes that a recipe leaves out of integers, by index, in graph order.

    Raises:
        RecipeError: If the recipe names what the model does not have.
    """
    chosen = resolve(recipe, {node.name: node.op_type for node in nodes}).denylisted_nodes
    return {node.index: node for node in nodes if node.name in chosen}


def float_nodes(recipe: Recipe, nodes: Sequence[Node]) -> frozenset[str]:
    """The denylisted nodes that stay float where the others become hybrid.

    Raises:
        RecipeError: If the recipe names what the model does not have, or what is not denylisted.
    """
    if not recipe.float_nodes:
        return frozenset()
    return resolve(recipe, {node.name: node.op_type for node in nodes}).float_nodes


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


def kind_at(graph: Graph, places: Sequence[int]) -> str:
    """What became of one op of the float model: ``integer``, ``hybrid``, ``float`` or ``folded``."""
    kinds = {graph.ops[place].kind for place in places}
    for kind in (OpKind.INTEGER, OpKind.HYBRID, OpKind.FLOAT):
        if kind in kinds:
            return str(kind.value)
    return "folded"


def _explain(
    denied: Mapping[int, Node],
    kinds: Mapping[str, str],
    kept: Mapping[int, str],
    in_float: Collection[int],
    recipe: Recipe,
) -> dict[str, str]:
    """Check that each denylisted node became what the recipe says, or is an explained fallback."""
    fallbacks = {}
    for index, node in denied.items():
        kind = kinds[node.name]
        if kind == "integer":
            fallbacks[node.name] = node.unreachable_reason or node.bound_reason or KEPT_BY_QUANTIZER
        elif kind == "float" and recipe.fallback == "drq" and index not in in_float:
            if index not in kept:
                raise BuildError(f"The dynamic-range pass left the node {node.name!r} float without a reason.")
            fallbacks[node.name] = kept[index]
    return fallbacks
