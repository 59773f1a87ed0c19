"""Search spaces as data: read a file, check it, and bind it to a model's layer table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from autoselect.data.bundled import read_toml
from autoselect.data.texts import first_wrong
from autoselect.domain.layers import STATISTICS, LayerTable, Node
from autoselect.domain.search_space import BoundSpace, Cut, Dimension, Toggle, ranked_cut
from autoselect.errors import UsageError


def _whole_above_1(value: float) -> float:
    if value > 1 and value != int(value):
        raise ValueError(f"a share is at most 1, and a count is a whole number, but {value} is neither")
    return value


Amount = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_whole_above_1)]

FUSED = ";"
"""Stands between the names of the ops that one fused op was made of."""


def _known_statistic(value: str) -> str:
    if value not in STATISTICS:
        raise ValueError(f"unknown statistic {value!r}; known: {', '.join(STATISTICS)}")
    return value


def _of_one_group(value: str) -> str:
    try:
        groups = re.compile(value).groups
    except re.error as exc:
        raise ValueError(f"{value!r} is not a regular expression: {exc}") from exc
    if groups != 1:
        raise ValueError(
            f"{value!r} must have exactly one group, the block's name, but has {groups}; "
            "(?:...) groups without counting"
        )
    return value


Statistic = Annotated[str, AfterValidator(_known_statistic)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Where(_Strict):
    """Nodes whose statistic lies above (or below) a value; nodes without the statistic are left out."""

    statistic: Statistic
    above: float = -math.inf
    below: float = math.inf


class Position(_Strict):
    """Nodes by their place in graph order, as shares: 0 is the first node, 1 the last."""

    start: Annotated[float, Field(ge=0, le=1, alias="from")] = 0.0
    end: Annotated[float, Field(ge=0, le=1, alias="to")] = 1.0


class Selection(_Strict):
    """Which nodes a choice is about; what is not given selects all."""

    op_types: tuple[str, ...] = ("*",)
    names: tuple[str, ...] = ("*",)
    where: Where | None = None
    position: Position = Position()


class GroupsChoice(Selection):
    """One yes-or-no choice for each selected node, for each op type among them, or for each unit that has one of them.

    A unit is of nodes that only make sense together.
    """

    kind: Literal["nodes", "units", "op_types"]


class BlocksChoice(Selection):
    """One yes-or-no choice for each named block among the selected nodes.

    Attributes:
        separator: What parts a name; of a fused op's name only what comes before the first ``;`` is parted.
        depth: How many parts name the block, after the leading parts that all names of several parts have in common.
        pattern: Regular expression whose one group names the block, sought in the whole name; where it is not found,
            the parts name the block.
    """

    kind: Literal["blocks"]
    separator: Annotated[str, Field(min_length=1)] = "/"
    depth: Annotated[int, Field(ge=1, strict=True)] = 1
    pattern: Annotated[str, AfterValidator(_of_one_group)] | None = None


class WorstChoice(Selection):
    """How many of the selected nodes to leave out, the worst by a statistic first."""

    kind: Literal["worst"]
    by: Statistic
    at_most: Amount = 0.5


class EdgeChoice(Selection):
    """How many of the first (or last) selected nodes to leave out."""

    kind: Literal["leading", "trailing"]
    at_most: Amount = 0.25


Choice = Annotated[GroupsChoice | BlocksChoice | WorstChoice | EdgeChoice, Field(discriminator="kind")]


class SearchSpaceFile(_Strict):
    """A search space before it meets a model; a trial combines all choices, or uses one of them."""

    schema_version: Literal[1]
    name: str
    why: Annotated[str, Field(min_length=1)]
    combine: Literal["all", "one"] = "all"
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]


def read_space(name_or_path: str) -> SearchSpaceFile:
    """Read a bundled search space by name, or a user's own ``.toml`` by path.

    Raises:
        UsageError: If there is none, or a key is wrong; with the path of the key.
    """
    try:
        return SearchSpaceFile.model_validate(read_toml(name_or_path))
    except ValidationError as exc:
        raise UsageError(f"Search space {name_or_path!r}, {first_wrong(exc)}") from exc


def bind(
    space: SearchSpaceFile,
    layers: LayerTable,
    *,
    keep_float: frozenset[str],
    keep_int: frozenset[str],
    units: Sequence[Sequence[str]] | None = None,
) -> BoundSpace:
    """Bind a search space to a model.

    Args:
        space: The file.
        layers: The model's layer table.
        keep_float: Names of nodes that every candidate leaves out of integers.
        keep_int: Names of nodes that none leaves out.
        units: Names of the nodes that only make sense together, each node in one unit; None if each is its own.

    Raises:
        UsageError: If nothing is left to choose.
        ValueError: If the units do not hold each node of the layer table once.
    """
    model = _Model(layers, _partition(layers, units), pinned=keep_float | keep_int)
    dimensions: dict[str, Dimension] = {}
    alternatives: dict[str, tuple[str, ...]] = {}
    for number, choice in enumerate(space.choices):
        choice_dimensions = [_named_apart(d, dimensions, number) for d in _dimensions(choice, model)]
        dimensions |= {d.name: d for d in choice_dimensions}
        if choice_dimensions and space.combine == "one":
            alternatives[f"{number}:{choice.kind}"] = tuple(d.name for d in choice_dimensions)
    if not dimensions:
        raise UsageError(
            f"Search space {space.name!r} leaves nothing to choose for this model. "
            + " ".join(idle_choices(space, layers) or ["Check its selections and the pinned nodes."])
        )
    return BoundSpace(
        dimensions=tuple(dimensions.values()),
        alternatives=tuple(alternatives.items()),
        keep_float=keep_float,
        keep_int=keep_int,
    )


def idle_choices(space: SearchSpaceFile, layers: LayerTable) -> list[str]:
    """A message for each choice of a search space that selects no node of the layer table."""
    op_types = sorted({node.op_type for node in layers.nodes})
    return [
        f"Choice {number} ({choice.kind}) of the search space {space.name!r} selects no node of this model, which has "
        f"{', '.join(op_types)}. Check its op_types, names, where and position."
        for number, choice in enumerate(space.choices)
        if not _selected(choice, layers)
    ]


@dataclass(frozen=True, slots=True)
class _Model:
    """What choices are bound to."""

    layers: LayerTable
    units: Sequence[Sequence[str]]
    pinned: frozenset[str]

    def is_free(self, node: Node) -> bool:
        return node.name not in self.pinned


def _partition(layers: LayerTable, units: Sequence[Sequence[str]] | None) -> Sequence[Sequence[str]]:
    names = [node.name for node in layers.nodes]
    if units is None:
        return [(name,) for name in names]
    if sorted(name for unit in units for name in unit) != sorted(names):
        raise ValueError("units must hold each node of the layer table once")
    return units


def _named_apart(dimension: Dimension, taken: Mapping[str, Dimension], number: int) -> Dimension:
    """The dimension, under a name with its choice's number if another dimension has its name."""
    if taken.get(dimension.name, dimension) == dimension:
        return dimension
    return replace(dimension, name=f"{dimension.name}#{number}")


def _dimensions(choice: Choice, model: _Model) -> list[Dimension]:
    selected = _selected(choice, model.layers)
    nodes = [node for node in selected if model.is_free(node)]
    if choice.kind == "units":
        return [*_unit_toggles(frozenset(n.name for n in selected), model)]
    if choice.kind == "nodes":
        return [Toggle(name=f"node:{n.name}", nodes=frozenset({n.name})) for n in nodes]
    if choice.kind == "op_types":
        return [*_group_toggles("op", {n.name: n.op_type for n in sorted(nodes, key=lambda n: n.op_type)})]
    if choice.kind == "blocks":
        blocks = _block_names(choice, [n.name for n in model.layers.nodes])
        return [*_group_toggles("block", {n.name: blocks[n.name] for n in nodes})]
    return [_cut(choice, nodes, model.layers)] if nodes else []


def _cut(choice: WorstChoice | EdgeChoice, nodes: Sequence[Node], layers: LayerTable) -> Cut:
    ranking = [node.name for node in nodes]
    at_most = _count(choice.at_most, len(ranking))
    if isinstance(choice, WorstChoice):
        names = frozenset(ranking)
        return ranked_cut(f"worst:{choice.by}", [n for n in layers.ranked_by(choice.by) if n in names], at_most)
    if choice.kind == "trailing":
        ranking.reverse()
    return ranked_cut(choice.kind, ranking, at_most)


def _unit_toggles(selected: frozenset[str], model: _Model) -> list[Toggle]:
    """A toggle for each unit of which a node is selected, over those of its nodes that may be chosen."""
    free = frozenset(node.name for node in model.layers.nodes if model.is_free(node))
    toggles = [
        Toggle(name=f"unit:{u[0]}", nodes=free.intersection(u)) for u in model.units if not selected.isdisjoint(u)
    ]
    return [toggle for toggle in toggles if toggle.nodes]


def _group_toggles(label: str, groups: Mapping[str, str]) -> list[Toggle]:
    """A toggle for each group, in order of appearance; ``groups`` gives that of each node by name."""
    members: dict[str, list[str]] = {}
    for node, group in groups.items():
        members.setdefault(group, []).append(node)
    return [Toggle(name=f"{label}:{group}", nodes=frozenset(nodes)) for group, nodes in members.items()]


def _block_names(choice: BlocksChoice, names: Sequence[str]) -> dict[str, str]:
    """The block of each node, found by the names of all nodes, so that it does not depend on the selection."""
    parts = {name: _parts(name, choice.separator) for name in names}
    skipped = _common_start([p[:-1] for p in parts.values() if len(p) > 1])
    blocks = {}
    for name, own in parts.items():
        inside = own[skipped:] if len(own) > 1 else own
        blocks[name] = _group_of(choice.pattern, name) or choice.separator.join(inside[: choice.depth])
    return blocks


def _parts(name: str, separator: str) -> list[str]:
    parts = name.partition(FUSED)[0].split(separator)
    return [part for part in parts if part] or [name]


def _common_start(paths: Sequence[Sequence[str]]) -> int:
    """How many leading parts all paths have in common."""
    together = zip(*paths, strict=False)  # as far as the shortest goes
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, together))


def _group_of(pattern: str | None, name: str) -> str | None:
    match = re.search(pattern, name) if pattern is not None else None
    return match.group(1) if match else None


def _count(amount: float, total: int) -> int:
    """A share of the nodes up to 1, a count above."""
    return max(1, math.ceil(amount * total)) if amount <= 1 else int(amount)


def _selected(choice: Selection, layers: LayerTable) -> list[Node]:
    values = layers.statistic(choice.where.statistic) if choice.where else None
    last = max(len(layers) - 1, 1)
    chosen = []
    for place, node in enumerate(layers.nodes):
        if not (_matches(node.op_type, choice.op_types) and _matches(node.name, choice.names)):
            continue
        if not choice.position.start <= place / last <= choice.position.end:
            continue
        if choice.where and values is not None and not choice.where.above < values[place] < choice.where.below:
            continue
        chosen.append(node)
    return chosen


def _matches(value: str, patterns: Sequence[str]) -> bool:
    return any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)
