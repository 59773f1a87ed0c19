"""Baselines: the candidates that every search is compared with, built before any sampler is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE, LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs, acting
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN, fields_of

REPAIRED = "fiq+repairs"
"""Name of the all-integer model with the repairs chosen for 8 bits."""

NO_CHOICE: Mapping[str, Repairs] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A named recipe.

    Attributes:
        name: Behind ``baseline:`` in a trial's origin.
        recipe: What is built.
        is_like_others: Whether it is one of the search's own by all but its nodes.
        is_whole: Whether all its nodes are of one kind, as far as pins allow.
    """

    name: str
    recipe: Recipe
    is_like_others: bool = True
    is_whole: bool = True


def baselines(
    layers: LayerTable,
    space: BoundSpace,
    template: Recipe,
    *,
    helpful: Mapping[str, Repairs] = NO_CHOICE,
    with_float: bool = False,
) -> list[Baseline]:
    """All-integer, all in 16 bits, all-DRQ, and the guide's heuristic; those that pins make equal are left out.

    The whole models come without repairs and with those chosen for them. There is one in 16 bits where the space has
    that state.

    Args:
        layers: For the nodes and their statistics.
        space: For the user's pins.
        template: What the search's recipes have in common.
        helpful: The sets of repairs that the search chooses between, by the kind of nodes that they helped; by default
            all candidates have those of the template.
        with_float: Whether all nodes in float is one of them: for chips that may run float ops, and where no candidate
            costs less than float.
    """
    nothing, everything = frozenset[str](), frozenset(n.name for n in layers.nodes)

    own = {template.repairs, *helpful.values()}

    def made(
        name: str, nodes: frozenset[str], wide: frozenset[str] = nothing, *, repairs: Repairs, **others: Any
    ) -> Baseline:
        """A baseline that leaves these nodes out, as far as pins allow; if they do not, the name says so."""
        pinned = space.pin(nodes, wide)
        return Baseline(
            name=name if pinned == nodes else f"{name}_pinned",
            recipe=recipe_for(pinned, replace(template, repairs=repairs, **others), {SIXTEEN: wide} if wide else {}),
            is_like_others=repairs in own and not others,
        )

    def whole(name: str, kind: str, *nodes: frozenset[str], **others: Any) -> list[Baseline]:
        """A model whose nodes are all of a kind, without repairs and with those chosen for it."""
        helped = helpful.get(kind, template.repairs)
        both = {name: (), f"{name}+repairs": helped} if acting(helped, {kind}) else {name: ()}
        return [made(title, *nodes, repairs=repairs, **others) for title, repairs in both.items()]

    fixed = [
        *whole("fiq", "integer", nothing),
        *(whole("int16", SIXTEEN, *_in_16_bits(everything, space)) if SIXTEEN in space.further else []),
        *whole("drq", "hybrid", everything, fallback="drq"),
        replace(made("heuristic", heuristic_nodes(layers), repairs=template.repairs), is_whole=False),
        *([made("float", everything, fallback="float", repairs=())] if with_float else []),
    ]
    distinct: dict[tuple[Recipe, bool], Baseline] = {}
    for baseline in fixed:
        distinct.setdefault((baseline.recipe, baseline.is_like_others), baseline)
    return list(distinct.values())


def all_in_16_bits(layers: LayerTable, space: BoundSpace) -> tuple[frozenset[str], frozenset[str]]:
    """The nodes that the all-16-bit model has not in 8 bits, as far as pins allow, and those of them in 16."""
    nodes, wide = _in_16_bits(frozenset(n.name for n in layers.nodes), space)
    return space.pin(nodes, wide), wide


def _in_16_bits(everything: frozenset[str], space: BoundSpace) -> tuple[frozenset[str], frozenset[str]]:
    nodes = everything - space.not_int16
    return nodes, space.pin(nodes, nodes) - space.keep_float


def heuristic_nodes(layers: LayerTable) -> frozenset[str]:
    """Nodes with rmse/scale above 0.7, and the first five: TensorFlow's Quantization Debugger guide."""
    values = layers.statistic("rmse_per_scale")
    suspects = {
        n.name
        for n, value in zip(layers.nodes, values, strict=True)
        if np.isfinite(value) and value > SUSPICIOUS_RMSE_PER_SCALE
    }
    # The Quantization Debugger guide denylists these first layers beside the suspicious ones.
    return frozenset(suspects | {n.name for n in layers.nodes[:5]})


def recipe_for(nodes: frozenset[str], template: Recipe, further: Mapping[str, frozenset[str]]) -> Recipe:
    """The template with these nodes left out; ``further`` are those of them in each further state."""
    return replace(template, **cast("dict[str, Any]", fields_of(nodes, further)))
