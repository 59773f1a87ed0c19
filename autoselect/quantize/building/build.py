"""Builds candidates: one calibrated model and one recipe give the bytes of one mixed FIQ/DRQ model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from autoselect.domain.graph import Graph
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import corrected_at_once
from autoselect.errors import BuildError
from autoselect.quantize.building import passes
from autoselect.quantize.building.asked import AskCompiler, asked
from autoselect.quantize.building.blueprint import Blueprint, Plan
from autoselect.quantize.building.left_out import LeftOut, left_out
from autoselect.quantize.building.parts import Stock, read_parts
from autoselect.quantize.building.stitch import stitch
from autoselect.quantize.building.wholes import Wholes, whole_builds, with_int16
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.repairing.built import Built, Shift
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weighted_ops import why_untouched
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

BUILDER_VERSION = "18"
"""Raised when equal recipes give other bytes or figures than before. Builder 1 had the quantizer build candidates."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A built model.

    Attributes:
        content: Bytes of the ``.tflite`` file.
        graph: The model as a graph.
        kinds: What became of each node: by node name, ``integer``, ``int16``, ``hybrid`` or ``float``.
        fallbacks: For each denylisted node that is not what the recipe's fallback says, and each 16-bit node that is
            not that, why.
        places: Where each op of the float model is in ``graph``.
        shifts: What bias correction found, by node name; of every node where the recipe has it, else of none.
        skipped: Why another of the recipe's repairs left a node alone that it is there for: by node name, then by
            name of the repair.
    """

    content: bytes
    graph: Graph
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, str]
    places: Mapping[int, int]
    shifts: Mapping[str, Shift]
    skipped: Mapping[str, Mapping[str, str]]

    @cached_property
    def sha256(self) -> str:
        """Hash of ``content``, hex; what is run once and forgotten needs none."""
        return hashlib.sha256(self.content).hexdigest()


class Builder:
    """Builds any number of recipes of one calibrated model; equal recipes give equal bytes."""

    def __init__(
        self,
        calibrated: CalibratedModel,
        nodes: tuple[Node, ...],
        kit: RepairKit | None = None,
        ask: AskCompiler | None = None,
        *,
        gathers: bool = True,
        exact_rewrites: bool = True,
    ) -> None:
        """Keep what candidates are built from.

        Args:
            calibrated: The calibrated model.
            nodes: Its nodes.
            kit: What recipes with repairs need.
            ask: The target's compiler, where that decides what the target takes.
            gathers: Whether ops are then listed so that those it takes stand in the fewest runs.
            exact_rewrites: Whether 16-bit ops are written as compilers take more of them, where that changes no output.
        """
        self._kit = RepairKit(calibrated) if kit is None else kit
        self._nodes = nodes
        self._ask, self._gathers, self._exact_rewrites = ask, gathers, exact_rewrites

    def build(self, recipe: Recipe) -> Candidate:
        """Build one recipe.

        Raises:
            RecipeError: If the recipe names what the model does not have.
            BuildError: If the quantizer refuses the model.
        """
        chosen, plan, built = self._put_together(recipe)
        wholes, blueprint = self._whole_builds(recipe), self._pieces(recipe)[0]
        kinds = self._kinds(plan)
        return Candidate(
            content=fb.serialise(built.model),
            graph=_as_planned(reader.read_graph(built.model), plan.graph),
            kinds=kinds,
            fallbacks=_fallbacks(chosen, kinds, wholes) | self._not_int16(chosen, blueprint, kinds),
            places=plan.places,
            shifts=self._shifts(kinds, wholes, built.shifts) if corrects_biases(recipe) else {},
            skipped={node.name: _skipped(node.index, wholes.of(kinds[node.name])) for node in self._nodes},
        )

    def content(self, recipe: Recipe) -> bytes:
        """The bytes of a recipe's file alone, for who runs it and asks no more; errors are those of :meth:`build`."""
        chosen, plan, built = self._put_together(recipe)
        _fallbacks(chosen, self._kinds(plan), self._whole_builds(recipe))
        return fb.serialise(built.model)

    def _put_together(self, recipe: Recipe) -> tuple[LeftOut, Plan, Built]:
        chosen = left_out(recipe, self._nodes)
        blueprint, stock = self._pieces(recipe)
        plan = self._plan(blueprint, chosen)
        built = Built(model=stitch(plan, stock), places=plan.places, repairs=recipe.repairs)
        return chosen, plan, passes.run(passes.CANDIDATE, built, self._kit)

    def _kinds(self, plan: Plan) -> dict[str, str]:
        return {node.name: kind for node, kind in zip(self._nodes, plan.kinds, strict=True)}

    def _plan(self, blueprint: Blueprint, chosen: LeftOut) -> Plan:
        denied = [place for place, node in enumerate(self._nodes) if node.index in chosen.nodes]
        in_float = [i for i in denied if self._nodes[i].name in chosen.in_float]
        return blueprint.plan(denied, in_float=in_float, in_int16=self._in_int16(chosen))

    def _in_int16(self, chosen: LeftOut) -> list[int]:
        return [i for i, node in enumerate(self._nodes) if node.name in chosen.recipe.int16_nodes]

    def _not_int16(self, chosen: LeftOut, blueprint: Blueprint, kinds: Mapping[str, str]) -> dict[str, str]:
        """Why 16-bit nodes are not, where the recipe wants them so."""
        names = {i: self._nodes[i].name for i in self._in_int16(chosen) if i in blueprint.no_int16}
        return {name: blueprint.no_int16[i] for i, name in names.items() if kinds[name] != "folded"}

    def blueprint(self, recipe: Recipe, *, int16: bool = False) -> Blueprint:
        """What the candidates of a recipe's granularity, interface and repairs are put together from.

        Biases that are corrected in sequence take as many bytes as those that are corrected one by one, so that these
        are taken for them.

        Args:
            recipe: One of these candidates'.
            int16: Whether nodes may have 16-bit activations, even if this recipe has none. What has none is planned the
                same with and without.

        Raises:
            BuildError: If the quantizer refuses the model.
        """
        return self._pieces(replace(recipe, repairs=corrected_at_once(recipe.repairs)), int16=int16)[0]

    def _whole_builds(self, recipe: Recipe, *, int16: bool = False) -> Wholes:
        plain = Recipe(per_channel=recipe.per_channel, repairs=recipe.repairs)
        if int16 or recipe.int16_nodes:
            return with_int16(self._kit, plain, exact_rewrites=self._exact_rewrites)
        return whole_builds(self._kit, plain)

    def _pieces(self, recipe: Recipe, *, int16: bool = False) -> tuple[Blueprint, Stock]:
        int16 = int16 or bool(recipe.int16_nodes)
        key = Recipe(per_channel=recipe.per_channel, repairs=recipe.repairs, io_type=recipe.io_type)
        make = partial(self._read_pieces, key, int16=int16)
        return self._kit.remember(
            ("parts", int16, self._nodes, key, self._ask, self._gathers, self._exact_rewrites), make
        )

    def _read_pieces(self, key: Recipe, *, int16: bool) -> tuple[Blueprint, Stock]:
        blueprint, stock = read_parts(self._whole_builds(key, int16=int16), self._nodes, key.io_type)
        if self._ask is not None:
            like = None
            if int16 or key.repairs:
                like = self._pieces(replace(key, repairs=()), int16=bool(int16 and key.repairs))[0]
            blueprint = asked(blueprint, stock, self._ask, gathers=self._gathers, like=like)
        return blueprint, stock

    def _shifts(self, kinds: Mapping[str, str], wholes: Wholes, of_candidate: Mapping[int, Shift]) -> dict[str, Shift]:
        """What bias correction found at each node, or why there is nothing."""
        shifts = {}
        for node in self._nodes:
            kind = kinds[node.name]
            whole = wholes.of(kind).shifts
            nothing = Shift(before=math.nan, after=math.nan, reason=why_untouched(node.op_type, kind))
            shifts[node.name] = of_candidate.get(node.index) or whole.get(node.index) or nothing
        return shifts


def _as_planned(graph: Graph, plan: Graph) -> Graph:
    """The graph of a file with what the compiler said of the ops that were planned; the file has the same ops."""
    pairs = zip(graph.ops, plan.ops, strict=True)
    return replace(
        graph,
        ops=tuple(replace(op, left_because=planned.left_because, answers=planned.answers) for op, planned in pairs),
    )


def corrects_biases(recipe: Recipe) -> bool:
    """Whether one of a recipe's repairs is bias correction."""
    return bool({"bias", "bias-sequential"} & set(recipe.repairs))


def _fallbacks(chosen: LeftOut, kinds: Mapping[str, str], wholes: Wholes) -> dict[str, str]:
    """Why denylisted nodes are float where the recipe wants them hybrid."""
    reasons = {}
    for index, node in chosen.nodes.items():
        if kinds[node.name] == "integer":
            raise BuildError(f"The node {node.name!r} is denylisted, but the candidate has it in integers.")
        if kinds[node.name] == "float" and node.name not in chosen.in_float:
            reasons[node.name] = wholes.hybrid.kept_float[index]
    return reasons


def _skipped(index: int, whole: Built) -> dict[str, str]:
    return {name: reasons[index] for name, reasons in whole.skipped.items() if index in reasons}
