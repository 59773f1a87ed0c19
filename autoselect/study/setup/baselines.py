"""Baselines: the candidates that every search is compared with, built before any sampler is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE, LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN, fields_of

GUIDE_LEADING_NODES = 5
"""The Quantization Debugger guide denylists these first layers beside the suspicious ones."""


REPAIRED = "fiq+repairs"
"""Name of the all-integer model with the repairs of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A named recipe; ``is_like_others`` where it has all but its nodes in common with the search's own."""

    name: str
    recipe: Recipe
    is_like_others: bool = True


def baselines(layers: LayerTable, space: BoundSpace, template: Recipe, *, with_float: bool = False) -> list[Baseline]:
    """All-integer, all in 16 bits, all-DRQ, and the guide's heuristic; those that pins make equal are left out.

    There is one in 16 bits where the space has that state.

    Args:
        layers: For the nodes and their statistics.
        space: For the user's pins.
        template: What the search's recipes have in common. Where it has repairs, the all-integer model comes without
            and with them.
        with_float: Whether all nodes in float is one of them: for chips that may run float ops.
    """
    nothing, everything = frozenset[str](), frozenset(n.name for n in layers.nodes)

    def made(name: str, nodes: frozenset[str], *, in_16_bits: bool = False, **others: Any) -> Baseline:
        """One of these nodes left out, as far as pins allow; a pinned all-integer model is not called all-integer."""
        pinned = space.pin(nodes)
        further = {SIXTEEN: pinned - space.keep_float} if in_16_bits else {}
        return Baseline(
            name=name if pinned == nodes else f"{name}_pinned",
            recipe=recipe_for(pinned, replace(template, **others), further),
            is_like_others=not others,
        )

    fixed = [
        *([made("fiq", nothing, repairs=()), made(REPAIRED, nothing)] if template.repairs else [made("fiq", nothing)]),
        *([made("int16", everything - space.not_int16, in_16_bits=True)] if SIXTEEN in space.further else []),
        made("drq", everything, fallback="drq"),
        made("heuristic", heuristic_nodes(layers)),
        *([made("float", everything, fallback="float", repairs=())] if with_float else []),
    ]
    found: dict[tuple[Recipe, bool], Baseline] = {}
    for baseline in fixed:
        found.setdefault((baseline.recipe, baseline.is_like_others), baseline)
    return list(found.values())


def heuristic_nodes(layers: LayerTable) -> frozenset[str]:
    """Nodes with rmse/scale above 0.7, and the first five: TensorFlow's Quantization Debugger guide."""
    values = layers.statistic("rmse_per_scale")
    suspects = {
        n.name
        for n, value in zip(layers.nodes, values, strict=True)
        if np.isfinite(value) and value > SUSPICIOUS_RMSE_PER_SCALE
    }
    return frozenset(suspects | {n.name for n in layers.nodes[:GUIDE_LEADING_NODES]})


def recipe_for(nodes: frozenset[str], template: Recipe, further: Mapping[str, frozenset[str]]) -> Recipe:
    """The template with these nodes left out; ``further`` are those of them in each further state."""
    return replace(template, **cast("dict[str, Any]", fields_of(nodes, further)))
