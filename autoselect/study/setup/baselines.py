"""Baselines: the candidates that every search is compared with, built before any sampler is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE, LayerTable
from autoselect.domain.recipe import Fallback, Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN, fields_of

GUIDE_LEADING_NODES = 5
"""The Quantization Debugger guide denylists these first layers beside the suspicious ones."""


REPAIRED = "fiq+repairs"
"""Name of the all-integer model with the repairs of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A named set of nodes left out; ``fallback`` and ``repairs`` where they are not those of the search.

    ``further`` are those of the nodes in each further state. With a ``recipe`` it is that one, whatever the search's
    recipes have in common.
    """

    name: str
    nodes: frozenset[str]
    fallback: Fallback | None = None
    repairs: tuple[str, ...] | None = None
    recipe: Recipe | None = None
    further: Mapping[str, frozenset[str]] = field(default_factory=dict)


def baselines(layers: LayerTable, space: BoundSpace, repairs: tuple[str, ...] = ()) -> list[Baseline]:
    """All-integer, all in 16 bits, all-DRQ, and the guide's heuristic; those that pins make equal are left out.

    There is one in 16 bits where the space has that state.

    Args:
        layers: For the nodes and their statistics.
        space: For the user's pins.
        repairs: Of the search's recipes. Where there are any, the all-integer model comes without and with them.
    """
    everything = frozenset(n.name for n in layers.nodes)
    repaired = [Baseline(name=REPAIRED, nodes=frozenset())] if repairs else []
    wide = everything - space.not_int16
    in_int16 = [Baseline(name="int16", nodes=wide, further={SIXTEEN: wide})] if SIXTEEN in space.further else []
    fixed = [
        Baseline(name="fiq", nodes=frozenset(), repairs=() if repairs else None),
        *repaired,
        *in_int16,
        Baseline(name="drq", nodes=everything, fallback="drq"),
        Baseline(name="heuristic", nodes=heuristic_nodes(layers)),
    ]
    found: dict[tuple[object, ...], Baseline] = {}
    for baseline in fixed:
        nodes = space.pin(baseline.nodes)
        further = {state: (chosen & nodes) - space.keep_float for state, chosen in baseline.further.items()}
        pinned = replace(baseline, nodes=nodes, name=_pinned_name(baseline, nodes), further=further)
        found.setdefault((nodes, baseline.fallback, baseline.repairs, *further.values()), pinned)
    return list(found.values())


def _pinned_name(baseline: Baseline, nodes: frozenset[str]) -> str:
    """The baseline's name, marked where pins make it another set: a pinned all-integer model is not all-integer."""
    return baseline.name if nodes == baseline.nodes else f"{baseline.name}_pinned"


def heuristic_nodes(layers: LayerTable) -> frozenset[str]:
    """Nodes with rmse/scale above 0.7, and the first five: TensorFlow's Quantization Debugger guide."""
    values = layers.statistic("rmse_per_scale")
    suspects = {
        n.name
        for n, value in zip(layers.nodes, values, strict=True)
        if np.isfinite(value) and value > SUSPICIOUS_RMSE_PER_SCALE
    }
    return frozenset(suspects | {n.name for n in layers.nodes[:GUIDE_LEADING_NODES]})


def recipe_for(
    nodes: frozenset[str],
    template: Recipe,
    fallback: Fallback | None = None,
    repairs: tuple[str, ...] | None = None,
    further: Mapping[str, frozenset[str]] | None = None,
) -> Recipe:
    """The template with these nodes left out, and with another fallback or other repairs where they are given."""
    return replace(
        template,
        fallback=fallback or template.fallback,
        repairs=template.repairs if repairs is None else repairs,
        **cast("dict[str, Any]", fields_of(nodes, further or {})),
    )
