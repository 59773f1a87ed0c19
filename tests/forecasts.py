"""The one place that knows how candidates are forecast: tests compare the forecast of a recipe with its build."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zoo

from autoselect.domain.graph import Graph, Op
from autoselect.domain.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of a candidate.

    Attributes:
        size_bytes: Of its file.
        kinds: What became of each node, by name.
        ops: Its ops as :func:`described`, in no order: independent ops may be listed in any.
    """

    size_bytes: int
    kinds: Mapping[str, str]
    ops: tuple[tuple[Any, ...], ...]


def forecaster(prepared: zoo.Prepared, base: Recipe) -> Callable[[Recipe], Told]:
    """Forecasts recipes that have the base's granularity, interface and repairs; ``recipe`` names nodes, no globs."""
    blueprint = prepared.builder.blueprint(base)

    def forecast(recipe: Recipe) -> Told:
        denied, floats = (
            [i for i, node in enumerate(prepared.nodes) if escaped(node.name) in names]
            for names in (recipe.denylisted_nodes, recipe.float_nodes)
        )
        found = blueprint.plan(denied, recipe.fallback, floats)
        kinds = {node.name: kind for node, kind in zip(prepared.nodes, found.kinds, strict=True)}
        return Told(size_bytes=found.size_bytes, kinds=kinds, ops=described(found.graph))

    return forecast


def built(prepared: zoo.Prepared, recipe: Recipe) -> Told:
    """The same of what the builder makes."""
    candidate = prepared.builder.build(recipe)
    return Told(size_bytes=len(candidate.content), kinds=dict(candidate.kinds), ops=described(candidate.graph))


def described(graph: Graph) -> tuple[tuple[Any, ...], ...]:
    """Each op by its type, kind, cost and the types and shapes of what it reads and writes; sorted."""

    def row(op: Op) -> tuple[Any, ...]:
        tensors = [graph.tensors[i] for i in (*op.inputs, *op.outputs)]
        return op.op_type, op.kind.value, op.macs, tuple((t.dtype, t.shape) for t in tensors)

    return tuple(sorted(row(op) for op in graph.ops))


def drawn_recipes(nodes: Sequence[Any], base: Recipe, count: int, seed: int) -> Iterator[Recipe]:
    """Nothing denied, everything denied, then sets of nodes of all sizes; each fallback in turn, and some of each."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        share = (0.0, 1.0)[number] if number < 2 else rng.random()
        denied = [escaped(node.name) for node in nodes if rng.random() < share]
        mixed = denied[::2] if number % 3 == 2 else []
        yield replace(
            base,
            denylisted_nodes=frozenset(denied),
            float_nodes=frozenset(mixed),
            fallback="drq" if number % 3 else "float",
        )


def escaped(name: str) -> str:
    """A node's name as a recipe takes it, where brackets belong to globs."""
    return name.replace("[", "[[]")
