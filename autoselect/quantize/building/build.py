"""Builds candidates: one calibrated model and one recipe give the bytes of one mixed FIQ/DRQ model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autoselect.domain.graph import Graph
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe, resolve
from autoselect.errors import BuildError
from autoselect.quantize import names
from autoselect.quantize.building.blueprint import Blueprint, Plan
from autoselect.quantize.building.parts import Stock, read_parts
from autoselect.quantize.building.stitch import stitch
from autoselect.quantize.building.wholes import Whole, Wholes, whole_builds
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.repairing.bias import Shift
from autoselect.quantize.repairing.repairs import RepairKit, repair_candidate
from autoselect.quantize.repairing.weighted_ops import why_untouched
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb

__all__ = [
    "BUILDER_VERSION",
    "Builder",
    "CalibratedModel",
    "Candidate",
    "corrects_biases",
    "denied_nodes",
    "float_nodes",
]

BUILDER_VERSION = "3"
"""Raised when equal recipes give other bytes than before. Builder 1 had the quantizer build each candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A built model.

    Attributes:
        content: Bytes of the ``.tflite`` file.
        sha256: Of ``content``, hex.
        graph: The model as a graph.
        kinds: What became of each node: by node name, ``integer``, ``hybrid`` or ``float``.
        fallbacks: For each denylisted node that is not what the recipe's fallback says, why.
        places: Where each op of the float model is in ``graph``.
        shifts: What bias correction found, by node name; of every node where the recipe has it, else of none.
        skipped: Why another of the recipe's repairs left a node alone that it is there for: by node name, then by
            name of the repair.
    """

    content: bytes
    sha256: str
    graph: Graph
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, str]
    places: Mapping[int, int]
    shifts: Mapping[str, Shift]
    skipped: Mapping[str, Mapping[str, str]]


class Builder:
    """Builds any number of recipes of one calibrated model; equal recipes give equal bytes."""

    def __init__(self, calibrated: CalibratedModel, nodes: tuple[Node, ...], kit: RepairKit | None = None) -> None:
        """Keep the calibrated model, its nodes, and what recipes with repairs need."""
        self._kit = RepairKit(calibrated) if kit is None else kit
        self._nodes = nodes

    def build(self, recipe: Recipe) -> Candidate:
        """Build one recipe.

        Raises:
            RecipeError: If the recipe names what the model does not have.
            BuildError: If the quantizer refuses the model.
        """
        plan = self.plan(recipe)
        wholes, (_, stock) = self._whole_builds(recipe), self._pieces(recipe)
        model = stitch(plan, stock)
        sequential = self._repaired(model, plan, recipe)
        content = fb.serialise(model)
        kinds = {node.name: kind for node, kind in zip(self._nodes, plan.kinds, strict=True)}
        return Candidate(
            content=content,
            sha256=hashlib.sha256(content).hexdigest(),
            graph=reader.read_graph(model),
            kinds=kinds,
            fallbacks=self._fallbacks(recipe, kinds, wholes),
            places=plan.places,
            shifts=self._shifts(kinds, wholes, sequential) if corrects_biases(recipe) else {},
            skipped={node.name: _skipped(node.index, wholes.of(kinds[node.name])) for node in self._nodes},
        )

    def plan(self, recipe: Recipe) -> Plan:
        """What a recipe's candidate is put together from: its exact size, graph and kinds, without a file.

        Raises:
            RecipeError: If the recipe names what the model does not have.
            BuildError: If the quantizer refuses the model.
        """
        denied, in_float = denied_nodes(recipe, self._nodes), float_nodes(recipe, self._nodes)
        place = {node.index: i for i, node in enumerate(self._nodes)}
        positions = [place[index] for index in denied]
        blueprint, _ = self._pieces(recipe)
        return blueprint.plan(positions, recipe.fallback, {i for i in positions if self._nodes[i].name in in_float})

    def blueprint(self, recipe: Recipe) -> Blueprint:
        """What the candidates of a recipe's granularity, interface and repairs are put together from.

        Biases that are corrected in sequence take as many bytes as those that are corrected one by one, so that these
        are taken for them.

        Raises:
            BuildError: If the quantizer refuses the model.
        """
        alike = tuple("bias" if name == "bias-sequential" else name for name in recipe.repairs)
        return self._pieces(replace(recipe, repairs=tuple(sorted(alike))))[0]

    def _whole_builds(self, recipe: Recipe) -> Wholes:
        return whole_builds(self._kit, Recipe(per_channel=recipe.per_channel, repairs=recipe.repairs))

    def _pieces(self, recipe: Recipe) -> tuple[Blueprint, Stock]:
        key = Recipe(per_channel=recipe.per_channel, repairs=recipe.repairs, io_type=recipe.io_type)
        make = partial(read_parts, self._whole_builds(key), self._nodes, key.io_type)
        return self._kit.remember(("parts", self._nodes, key), make)

    def _repaired(self, model: fb.Model, plan: Plan, recipe: Recipe) -> Mapping[int, Shift]:
        if "bias-sequential" not in recipe.repairs:
            return {}
        _, float_model = self._kit.calibrated(recipe.repairs)
        names.unshare_operands(model)
        found = repair_candidate(model, float_model, plan.places, recipe.repairs, self._kit)
        editing.share_equal_constants(model)
        editing.drop_unused_buffers(model)
        editing.order_operator_codes(model)
        return found

    def _fallbacks(self, recipe: Recipe, kinds: Mapping[str, str], wholes: Wholes) -> dict[str, str]:
        """Why denylisted nodes are float where the recipe wants them hybrid."""
        if recipe.fallback == "float":
            return {}
        in_float = float_nodes(recipe, self._nodes)
        found = {}
        for index, node in denied_nodes(recipe, self._nodes).items():
            if kinds[node.name] == "integer":
                raise BuildError(f"The node {node.name!r} is denylisted, but the candidate has it in integers.")
            if kinds[node.name] == "float" and node.name not in in_float:
                found[node.name] = wholes.kept_float[index]
        return found

    def _shifts(self, kinds: Mapping[str, str], wholes: Wholes, sequential: Mapping[int, Shift]) -> dict[str, Shift]:
        """What bias correction found at each node, or why there is nothing."""
        found = {}
        for node in self._nodes:
            kind = kinds[node.name]
            whole = wholes.of(kind).shifts
            nothing = Shift(before=math.nan, after=math.nan, reason=why_untouched(node.op_type, kind))
            found[node.name] = sequential.get(node.index) or whole.get(node.index) or nothing
        return found


def corrects_biases(recipe: Recipe) -> bool:
    """Whether one of a recipe's repairs is bias correction."""
    return bool({"bias", "bias-sequential"} & set(recipe.repairs))


def _skipped(index: int, whole: Whole) -> dict[str, str]:
    return {name: reasons[index] for name, reasons in whole.skipped.items() if index in reasons}


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
