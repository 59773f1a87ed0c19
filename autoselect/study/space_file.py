"""Search spaces as data: read a file, check it, and bind it to a model's layer table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from autoselect.data.bundled import read_toml
from autoselect.domain.layers import STATISTICS, LayerTable, Node
from autoselect.domain.search_space import BoundSpace, Dimension, Toggle, ranked_cut
from autoselect.errors import UsageError

Amount = Annotated[float, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Where(_Strict):
    """Nodes whose statistic lies above (or below) a value; nodes without the statistic are left out."""

    statistic: str
    above: float = -math.inf
    below: float = math.inf

    @field_validator("statistic")
    @classmethod
    def _known(cls, value: str) -> str:
        return _known_statistic(value)


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


class NodesChoice(Selection):
    """One yes-or-no choice for each selected node."""

    kind: Literal["nodes"]


class OpTypesChoice(Selection):
    """One yes-or-no choice for each op type among the selected nodes."""

    kind: Literal["op_types"]


class WorstChoice(Selection):
    """How many of the selected nodes to leave out, the worst by a statistic first."""

    kind: Literal["worst"]
    by: str
    at_most: Amount = 0.5

    @field_validator("by")
    @classmethod
    def _known(cls, value: str) -> str:
        return _known_statistic(value)


class EdgeChoice(Selection):
    """How many of the first (or last) selected nodes to leave out."""

    kind: Literal["leading", "trailing"]
    at_most: Amount = 0.25


Choice = Annotated[NodesChoice | OpTypesChoice | WorstChoice | EdgeChoice, Field(discriminator="kind")]


class SearchSpaceFile(_Strict):
    """A search space before it meets a model; a trial combines all choices, or uses one of them."""

    schema_version: Literal[1]
    name: str
    why: Annotated[str, Field(min_length=1)]
    combine: Literal["all", "one"] = "all"
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]


def _known_statistic(value: str) -> str:
    if value not in STATISTICS:
        raise ValueError(f"unknown statistic {value!r}; known: {', '.join(STATISTICS)}")
    return value


def read_space(name_or_path: str) -> SearchSpaceFile:
    """Read a bundled search space by name, or a user's own ``.toml`` by path.

    Raises:
        UsageError: If there is none, or a key is wrong; with the path of the key.
    """
    try:
        return SearchSpaceFile.model_validate(read_toml(name_or_path))
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"Search space {name_or_path!r}, {key}: {first['msg']}.") from exc


def bind(
    space: SearchSpaceFile, layers: LayerTable, *, keep_float: frozenset[str], keep_int: frozenset[str]
) -> BoundSpace:
    """Bind a search space to a model.

    Args:
        space: The file.
        layers: The model's layer table.
        keep_float: Names of nodes that every candidate leaves out of integers.
        keep_int: Names of nodes that none leaves out.

    Raises:
        UsageError: If nothing is left to choose.
    """
    pinned = keep_float | keep_int
    dimensions: dict[str, Dimension] = {}
    alternatives: dict[str, tuple[str, ...]] = {}
    for number, choice in enumerate(space.choices):
        found = [_named_apart(d, dimensions, number) for d in _dimensions(choice, layers, pinned)]
        dimensions |= {d.name: d for d in found}
        if found and space.combine == "one":
            alternatives[f"{number}:{choice.kind}"] = tuple(d.name for d in found)
    if not dimensions:
        raise UsageError(
            f"Search space {space.name!r} leaves nothing to choose for this model. "
            "Check its selections and the pinned nodes."
        )
    return BoundSpace(
        dimensions=tuple(dimensions.values()),
        alternatives=tuple(alternatives.items()),
        keep_float=keep_float,
        keep_int=keep_int,
    )


def _named_apart(dimension: Dimension, taken: Mapping[str, Dimension], number: int) -> Dimension:
    """The dimension, under a name with its choice's number if another dimension has its name."""
    if taken.get(dimension.name, dimension) == dimension:
        return dimension
    return replace(dimension, name=f"{dimension.name}#{number}")


def _dimensions(choice: Choice, layers: LayerTable, pinned: frozenset[str]) -> list[Dimension]:
    nodes = _selected(choice, layers, pinned)
    if not nodes:
        return []
    if isinstance(choice, NodesChoice):
        return [Toggle(name=f"node:{n.name}", nodes=frozenset({n.name})) for n in nodes]
    if isinstance(choice, OpTypesChoice):
        kinds = sorted({n.op_type for n in nodes})
        return [Toggle(name=f"op:{k}", nodes=frozenset(n.name for n in nodes if n.op_type == k)) for k in kinds]
    if isinstance(choice, WorstChoice):
        names = {n.name for n in nodes}
        ranking = [name for name in layers.ranked_by(choice.by) if name in names]
        return [ranked_cut(f"worst:{choice.by}", ranking, _count(choice.at_most, len(ranking)))]
    ranking = [n.name for n in nodes]
    if choice.kind == "trailing":
        ranking.reverse()
    return [ranked_cut(choice.kind, ranking, _count(choice.at_most, len(ranking)))]


def _count(amount: float, total: int) -> int:
    """A share of the nodes up to 1, a count above."""
    return max(1, math.ceil(amount * total)) if amount <= 1 else int(amount)


def _selected(choice: Selection, layers: LayerTable, pinned: frozenset[str]) -> list[Node]:
    values = layers.statistic(choice.where.statistic) if choice.where else None
    last = max(len(layers) - 1, 1)
    found = []
    for place, node in enumerate(layers.nodes):
        if node.unreachable_reason is not None or node.name in pinned:
            continue
        if not (_matches(node.op_type, choice.op_types) and _matches(node.name, choice.names)):
            continue
        if not choice.position.start <= place / last <= choice.position.end:
            continue
        if choice.where and values is not None and not choice.where.above < values[place] < choice.where.below:
            continue
        found.append(node)
    return found


def _matches(value: str, patterns: Sequence[str]) -> bool:
    return any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)
