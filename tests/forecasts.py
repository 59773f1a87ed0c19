"""The one place that knows how candidates are forecast: the forecast of a recipe is compared with its build.

Tests and ``experiments/zoo`` do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from autoselect.domain.graph import Graph, Op
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder, Candidate


class Prepared(Protocol):
    """A model whose candidates can be built: its nodes in graph order, and their builder."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    @property
    def builder(self) -> Builder: ...


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


def forecaster(prepared: Prepared, base: Recipe, *, int16: bool = False) -> Callable[[Recipe], Told]:
    """Forecasts recipes that have the base's granularity, interface and repairs; ``recipe`` names nodes, no globs."""
    blueprint = prepared.builder.blueprint(base, int16=int16)

    def forecast(recipe: Recipe) -> Told:
        denied, floats, wide = (
            [i for i, node in enumerate(prepared.nodes) if escaped(node.name) in names]
            for names in (recipe.denylisted_nodes, recipe.float_nodes, recipe.int16_nodes)
        )
        found = blueprint.plan(denied, recipe.fallback, floats, wide)
        kinds = {node.name: kind for node, kind in zip(prepared.nodes, found.kinds, strict=True)}
        return Told(size_bytes=found.size_bytes, kinds=kinds, ops=described(found.graph))

    return forecast


def built(candidate: Candidate) -> Told:
    """The same of what the builder made."""
    return Told(size_bytes=len(candidate.content), kinds=dict(candidate.kinds), ops=described(candidate.graph))


def described(graph: Graph) -> tuple[tuple[Any, ...], ...]:
    """Each op by its type, kind, cost and the types and shapes of what it reads and writes; sorted."""

    def row(op: Op) -> tuple[Any, ...]:
        tensors = [graph.tensors[i] for i in (*op.inputs, *op.outputs)]
        return op.op_type, op.kind.value, op.macs, tuple((t.dtype, t.shape) for t in tensors)

    return tuple(sorted(row(op) for op in graph.ops))


def drawn(nodes: Sequence[Node], count: int, seed: int) -> Iterator[list[Node]]:
    """No node, all nodes, then sets of nodes of all sizes."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        share = (0.0, 1.0)[number] if number < 2 else rng.random()
        yield [node for node in nodes if rng.random() < share]


def drawn_recipes(nodes: Sequence[Node], base: Recipe, count: int, seed: int) -> Iterator[Recipe]:
    """Drawn nodes are denied; each fallback in turn, and some of each."""
    for number, chosen in enumerate(drawn(nodes, count, seed)):
        denied = [escaped(node.name) for node in chosen]
        yield replace(
            base,
            denylisted_nodes=frozenset(denied),
            float_nodes=frozenset(denied[::2] if number % 3 == 2 else ()),
            fallback="drq" if number % 3 else "float",
        )


def mixed_recipes(nodes: Sequence[Node], base: Recipe, count: int, seed: int) -> Iterator[Recipe]:
    """All nodes with 16-bit activations, then mixes of nodes in 8 and 16 bits, hybrid and float."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        shares = rng.dirichlet(np.ones(4)) if number else (0.0, 1.0, 0.0, 0.0)
        forms = rng.choice(4, len(nodes), p=shares)
        _, wide, hybrid, floats = (
            frozenset(escaped(node.name) for node, form in zip(nodes, forms, strict=True) if form == wanted)
            for wanted in range(4)
        )
        yield replace(base, int16_nodes=wide, denylisted_nodes=hybrid | floats, float_nodes=floats)


def escaped(name: str) -> str:
    """A node's name as a recipe takes it, where brackets belong to globs."""
    return name.replace("[", "[[]")
