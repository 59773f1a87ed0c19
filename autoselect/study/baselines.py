"""Baselines: the candidates that people try by hand, built before any sampler is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE, LayerTable
from autoselect.domain.recipe import Fallback, Recipe
from autoselect.domain.search_space import BoundSpace

GUIDE_LEADING_NODES = 5
"""The Quantization Debugger guide denylists these first layers beside the suspicious ones."""

FINE, COARSE = 1.25, 2.0
"""Growth from one prefix to the next: the ranking by error deserves closer steps than the ends of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A named set of denylisted nodes; ``fallback`` where it is not that of the search."""

    name: str
    nodes: frozenset[str]
    fallback: Fallback | None = None


def baselines(layers: LayerTable, space: BoundSpace, *, at_most: int) -> list[Baseline]:
    """All-integer, all-DRQ, the guide's heuristic; in turn prefixes of the ranking, op types and both ends.

    Args:
        layers: The layer table.
        space: Gives the pins.
        at_most: Largest count; the first three are always there, and at least two of the rest.

    Returns:
        In the order above; sets that repeat an earlier one are left out.
    """
    everything = frozenset(n.name for n in layers.reachable)
    fixed = [
        Baseline(name="fiq", nodes=frozenset()),
        Baseline(name="drq", nodes=everything, fallback="drq"),
        Baseline(name="heuristic", nodes=heuristic_nodes(layers)),
    ]
    ranked = _prefixes("worst", layers.ranked_by("rmse_per_scale"), FINE)
    leading = _prefixes("leading", [n.name for n in layers.reachable], COARSE)
    trailing = _prefixes("trailing", [n.name for n in reversed(layers.reachable)], COARSE)
    ends = [b for pair in zip(leading, trailing, strict=True) for b in pair]
    seen: set[tuple[frozenset[str], Fallback | None]] = set()
    found: list[Baseline] = []
    in_turn = [b for step in zip_longest(ranked, _single_op_types(layers), ends) for b in step if b is not None]
    for baseline in [*fixed, *in_turn]:
        nodes = space.pin(baseline.nodes)
        if (nodes, baseline.fallback) not in seen and len(found) < max(at_most, len(fixed) + 2):
            seen.add((nodes, baseline.fallback))
            found.append(replace(baseline, nodes=nodes, name=_pinned_name(baseline, nodes)))
    return found


def _pinned_name(baseline: Baseline, nodes: frozenset[str]) -> str:
    """The baseline's name, marked where pins make it another set: a pinned all-integer model is not all-integer."""
    return baseline.name if nodes == baseline.nodes else f"{baseline.name}_pinned"


def heuristic_nodes(layers: LayerTable) -> frozenset[str]:
    """Nodes with rmse/scale above 0.7, and the first five: TensorFlow's Quantization Debugger guide."""
    values = layers.statistic("rmse_per_scale")
    reachable = {n.name for n in layers.reachable}
    suspects = {
        n.name
        for n, value in zip(layers.nodes, values, strict=True)
        if np.isfinite(value) and value > SUSPICIOUS_RMSE_PER_SCALE
    }
    return frozenset((suspects | {n.name for n in layers.nodes[:GUIDE_LEADING_NODES]}) & reachable)


def prefix_counts(total: int, growth: float) -> list[int]:
    """Lengths of a ranking's prefixes: each ``growth`` times the one before, rounded up, and at least one more."""
    counts: list[int] = []
    count = 1
    while count < total:
        counts.append(count)
        count = math.ceil(growth * count)
    return counts


def _prefixes(name: str, ranking: Sequence[str], growth: float) -> list[Baseline]:
    counts = prefix_counts(len(ranking), growth)
    return [Baseline(name=f"{name}_{k}", nodes=frozenset(ranking[:k])) for k in counts]


def _single_op_types(layers: LayerTable) -> list[Baseline]:
    kinds = sorted({n.op_type for n in layers.reachable})
    members = {k: frozenset(n.name for n in layers.reachable if n.op_type == k) for k in kinds}
    return [Baseline(name=f"op_{k}", nodes=nodes) for k, nodes in members.items()]


def recipe_for(nodes: frozenset[str], template: Recipe, fallback: Fallback | None = None) -> Recipe:
    """The template with these nodes denylisted."""
    return replace(template, denylisted_nodes=nodes, fallback=fallback or template.fallback)
