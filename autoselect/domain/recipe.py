"""What a candidate is: which nodes stay out of full-integer quantization, and how everything is quantized."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from autoselect.domain.graph import OpKind
from autoselect.domain.result import brief
from autoselect.domain.words import did_you_mean
from autoselect.errors import RecipeError

Fallback = Literal["drq", "float"]
IoType = Literal["float32", "int8", "uint8"]
Quantizer = Literal["tensorflow", "litert"]
"""Who makes the whole integer model: TensorFlow's quantizer, or litert-quantizer."""

SCHEMA_VERSION = 1

REPAIRS = (
    "bias",
    "bias-sequential",
    "equalization",
    "int4-litert",
    "int4-tflm",
    "levels-4",
    "levels-5",
    "levels-6",
    "levels-7",
    "ranges-moving-average",
    "ranges-mse",
    "ranges-observed",
    "ranges-percentile",
    "rounding-gptq",
    "weights-mse",
)
"""What a recipe may change at no float op; at most one of a kind, the word before the dash.

Ranges and levels may also be chosen for single nodes, ``ranges-mse:NODE``, where they count instead of those of the
whole model. ``levels-6`` rounds weights to the levels that 6 bits can tell apart; they are stored in 8 bits all the
same, so that every kernel runs them, and whatever packs a model stores them in less. ``int4-litert`` stores weights of
``levels-4`` in 4 bits where that runtime has a kernel for them.
"""

ALL_BITS = 8
"""Bits of the levels of integer weights, unless ``levels-4`` to ``levels-7`` ask for fewer."""

OF_NODES = ("levels", "ranges")
"""The kinds of repairs that may be chosen for single nodes."""

_NONE: Mapping[str, str] = {}
_LISTED = "`layer_statistics.csv` of a run lists all names; globs such as 'block_1/*' work too."
_IN_FLOAT = (
    "{!r} is in float already: the all-integer model leaves it in float, and so does every candidate. Leave it out."
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recipe:
    """How to build one candidate from one calibrated model.

    Attributes:
        denylisted_nodes: Names of nodes left out of full-integer quantization (FIQ): the float
            model's own tensor names, or globs (``block_3/*``) until resolved.
        denylisted_ops: Op types left out of FIQ, for example ``MEAN``.
        fallback: What denylisted nodes become: ``drq`` (int8 weights if a hybrid kernel exists, else
            float) or ``float``.
        float_nodes: Denylisted nodes that stay float although the fallback is ``drq``.
        int16_nodes: Nodes that are quantized with 16-bit activations and int8 weights; none of them denylisted.
        per_channel: One scale for each output channel of integer weights, or one for each tensor. Weights of DRQ
            nodes are always per channel.
        io_type: Type of the model's inputs and outputs.
        repairs: Some of ``REPAIRS``, sorted; ranges and levels also for single nodes or globs of these, behind a colon,
            and ranges for inputs.
    """

    denylisted_nodes: frozenset[str] = frozenset()
    denylisted_ops: frozenset[str] = frozenset()
    fallback: Fallback = "drq"
    float_nodes: frozenset[str] = frozenset()
    int16_nodes: frozenset[str] = frozenset()
    per_channel: bool = True
    io_type: IoType = "float32"
    repairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no builder could build."""
        for name in ("denylisted_nodes", "denylisted_ops", "int16_nodes", "float_nodes"):
            object.__setattr__(self, name, frozenset(_listed(getattr(self, name))))
        _require(self.fallback, get_args(Fallback), "fallback")
        if self.float_nodes and self.fallback == "float":
            raise RecipeError(
                "float_nodes: expected none with the fallback float, where all denylisted nodes are. Leave it out."
            )
        _require(self.io_type, get_args(IoType), "io_type")
        object.__setattr__(self, "repairs", _checked_repairs(_listed(self.repairs)))

    def __repr__(self) -> str:
        """What there is, in one line; ``to_json`` gives all of it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = [f"{name}={brief(value)}" for name, value in values.items() if value not in ((), set())]
        return f"Recipe({', '.join(shown)})"

    def to_json(self) -> str:
        """Canonical JSON: sorted keys and lists, so that equal recipes give equal text.

        Without repairs, float or 16-bit nodes there are no such keys: recipes from before there were any keep their
        text.
        """
        optional = {
            "repairs": list(self.repairs),
            "float_nodes": sorted(self.float_nodes),
            "int16_nodes": sorted(self.int16_nodes),
        }
        return json.dumps(
            {
                **{key: names for key, names in optional.items() if names},
                "schema_version": SCHEMA_VERSION,
                "denylisted_nodes": sorted(self.denylisted_nodes),
                "denylisted_ops": sorted(self.denylisted_ops),
                "fallback": self.fallback,
                "per_channel": self.per_channel,
                "io_type": self.io_type,
            },
            indent=2,
            sort_keys=True,
        )

    @staticmethod
    def from_json(text: str) -> Recipe:
        """Read a recipe back.

        Raises:
            RecipeError: If the text is not a recipe, with the key that is wrong.
        """
        try:
            loaded = json.loads(text)
        except ValueError as exc:  # Of JSON's own, or of a number with thousands of digits.
            raise RecipeError(f"The recipe is not JSON: {exc}.") from exc
        except RecursionError as exc:
            raise RecipeError("The recipe is nested deeper than any recipe is.") from exc
        if not isinstance(loaded, dict):
            raise RecipeError(f"A recipe is a JSON object, this is a {type(loaded).__name__}.")
        return _from_fields(loaded)

    def nodes_unlike(self, other: Recipe) -> frozenset[str]:
        """Nodes that the other recipe treats otherwise; both must be resolved."""
        (hybrid, in_float), (other_hybrid, other_float) = self._left_out(), other._left_out()
        return (hybrid ^ other_hybrid) | (in_float ^ other_float) | (self.int16_nodes ^ other.int16_nodes)

    def _left_out(self) -> tuple[frozenset[str], frozenset[str]]:
        """The nodes that become hybrid, and those that become float."""
        in_float = self.denylisted_nodes if self.fallback == "float" else self.float_nodes
        return self.denylisted_nodes - in_float, in_float

    def kind_of(self, node: str, reason: str | None = None) -> OpKind:
        """What a node becomes in a candidate; the recipe must be resolved.

        Args:
            node: Its name.
            reason: Why it is not what the recipe wants, as the candidate's ``fallbacks`` say.
        """
        if node in self.int16_nodes and reason is None:
            return OpKind.INT16
        if node not in self.denylisted_nodes:
            return OpKind.INTEGER
        return OpKind.FLOAT if reason is not None or node in self._left_out()[1] else OpKind.HYBRID

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that equal recipes share."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def _from_fields(loaded: Mapping[str, Any]) -> Recipe:
    lists = {"denylisted_nodes", "denylisted_ops", "float_nodes", "int16_nodes", "repairs"}
    keys = lists | {"fallback", "per_channel", "io_type"}
    if unknown := sorted(set(loaded) - keys - {"schema_version"}):
        raise RecipeError(f"The recipe has an unknown key {unknown[0]!r}. Known keys: {', '.join(sorted(keys))}.")
    if loaded.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise RecipeError(
            f"The recipe is of schema version {loaded['schema_version']}; this autoselect reads {SCHEMA_VERSION}."
        )
    for key in sorted(lists):
        value = loaded.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise RecipeError(f"{key}: expected a list of names, got {value!r}.")
    if not isinstance(loaded.get("per_channel", True), bool):
        raise RecipeError(f"per_channel: expected true or false, got {loaded['per_channel']!r}.")
    return Recipe(**{key: loaded[key] for key in keys & set(loaded)})


def _listed(names: str | Iterable[str]) -> Iterable[str]:
    """Names; one text is one of them."""
    return [names] if isinstance(names, str) else names


def split_repair(repair: str) -> tuple[str, str | None]:
    """The name of a repair, and the node or glob that it is for; None where it is for the whole model."""
    name, colon, node = repair.partition(":")
    return name, node if colon else None


def kind_of_repair(repair: str) -> str:
    """The kind of a repair, of which a recipe has at most one: ``bias``, ``levels``, ``ranges`` and so on."""
    return repair.partition(":")[0].partition("-")[0]


def node_repairs(repairs: Iterable[str], names: Iterable[str], kind: str) -> dict[str, str]:
    """Which repairs of a kind a recipe chooses for single nodes.

    Args:
        repairs: Of the recipe.
        names: Of the nodes of a model and, for ranges, of its inputs.
        kind: One of ``OF_NODES``.

    Returns:
        The names of the repairs, by the names of the nodes and inputs.

    Raises:
        RecipeError: If a repair names what the model does not have, or two are for one node.
    """
    node_names, taken = list(names), dict[str, str]()
    for repair in repairs:
        method, pattern = split_repair(repair)
        if pattern is None or kind_of_repair(repair) != kind:
            continue
        for name in match_nodes(pattern, node_names):
            if name in taken:
                raise RecipeError(
                    f"repairs: {name!r} has {kind} by {taken[name]!r} and by {method!r}. Choose one, or narrow a glob."
                )
            taken[name] = method
    return taken


def levels_of(repairs: Iterable[str], nodes: Sequence[str]) -> dict[str, str]:
    """Which repair gives the weights of each node fewer levels; nodes of all levels are left out.

    Args:
        repairs: Of the recipe.
        nodes: All nodes of the model.

    Raises:
        RecipeError: If a repair names what the model does not have, or two are for one node.
    """
    asked = [name for name in repairs if kind_of_repair(name) == "levels"]
    own = node_repairs(asked, nodes, "levels")
    common = next((name for name in asked if split_repair(name)[1] is None), None)
    return {node: repair for node in nodes if (repair := own.get(node, common)) is not None}


def bits_of(repair: str) -> int:
    """How many bits tell the levels apart that a repair gives: 6 for ``levels-6``."""
    return int(split_repair(repair)[0].partition("-")[2])


def _checked_repairs(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted and once each.

    Raises:
        RecipeError: If a name is unknown, or two exclude each other.
    """
    chosen = tuple(sorted(set(names)))
    kinds = []
    for name in chosen:
        method, node = split_repair(name)
        _require(method, REPAIRS, "repairs")
        kind = kind_of_repair(name)
        if node is not None and (kind not in OF_NODES or not node):
            raise RecipeError(
                f"repairs: only ranges and levels are chosen for single nodes, as 'ranges-mse:NODE'; got {name!r}."
            )
        kinds.append((kind, node))
    for (kind, node), name in zip(kinds, chosen, strict=True):
        if kinds.count((kind, node)) > 1:
            raise RecipeError(f"repairs: expected at most one of {kind!r}, got {name!r} beside another. Leave one out.")
    return chosen


def _require(value: object, allowed: Sequence[str], key: str) -> None:
    if value not in allowed:
        raise RecipeError(f"{key}: expected one of {', '.join(allowed)}, got {value!r}.")


def resolve(recipe: Recipe, nodes: Mapping[str, str], floats: Mapping[str, str] = _NONE) -> Recipe:
    """Replace globs and op types by the nodes that they cover.

    Args:
        recipe: May hold globs among its nodes.
        nodes: Op type of every node, by node name.
        floats: Likewise of the float ops that are no nodes, for the words of an error.

    Returns:
        An equal recipe with exact node names and no op types: two recipes that cover the same nodes in the
        same way, and have the same repairs, resolve to the same one.

    Raises:
        RecipeError: If a name, glob or op type matches nothing; with the nearest names.
    """

    def match(patterns: frozenset[str]) -> frozenset[str]:
        exact = patterns & nodes.keys()  # Most are; a glob is compared with every name.
        return exact.union(*(match_nodes(pattern, nodes, floats) for pattern in sorted(patterns - exact)))

    by_type = (match_op_type(op_type, nodes, floats) for op_type in sorted(recipe.denylisted_ops))
    covered = match(recipe.denylisted_nodes).union(*by_type)
    in_float, in_int16 = match(recipe.float_nodes), match(recipe.int16_nodes)
    if stray := sorted(in_float - covered):
        raise RecipeError(
            f"float_nodes: {stray[0]!r} is not denylisted, so it is integer. Denylist it too, or leave it out."
        )
    if both := sorted(in_int16 & covered):
        raise RecipeError(
            f"int16_nodes: {both[0]!r} is denylisted too, and a node is either left out of integers or has 16 bits. "
            "Leave it out of one of the two."
        )
    return replace(
        recipe,
        denylisted_nodes=covered,
        denylisted_ops=frozenset(),
        float_nodes=in_float,
        int16_nodes=in_int16,
    )


def match_nodes(pattern: str, nodes: Iterable[str], floats: Iterable[str] = ()) -> list[str]:
    """Names that a node name or glob selects.

    Raises:
        RecipeError: If it selects none; with the nearest names, or where it selects a float op that is no node.
    """
    names = list(nodes)
    if pattern in names:
        return [pattern]
    if matching := [name for name in names if fnmatchcase(name, pattern)]:
        return matching
    if any(name == pattern or fnmatchcase(name, pattern) for name in floats):
        raise RecipeError(_IN_FLOAT.format(pattern))
    raise RecipeError(f"No node is called {pattern!r}.{did_you_mean(pattern, names, cutoff=0.3)} {_LISTED}")


def covered_nodes(patterns: Iterable[str], nodes: Mapping[str, str], floats: Mapping[str, str]) -> frozenset[str]:
    """Nodes that names, globs and op types select.

    Args:
        patterns: A text that is an op type of the model is one, and no name.
        nodes: As for :func:`resolve`.
        floats: As for :func:`resolve`.

    Raises:
        RecipeError: If one of them selects nothing.
    """
    covered: set[str] = set()
    for pattern in patterns:
        is_type = pattern in {*nodes.values(), *floats.values()}
        covered.update((match_op_type if is_type else match_nodes)(pattern, nodes, floats))
    return frozenset(covered)


def match_op_type(op_type: str, nodes: Mapping[str, str], floats: Mapping[str, str]) -> list[str]:
    """Names of the nodes of one op type.

    Raises:
        RecipeError: If the model has no node of the type; with the types it has.
    """
    if of_type := [name for name, kind in nodes.items() if kind == op_type]:
        return of_type
    if op_type in floats.values():
        raise RecipeError(_IN_FLOAT.format(op_type))
    kinds = sorted(set(nodes.values()))
    raise RecipeError(f"No node is of op type {op_type!r}. This model has: {', '.join(kinds)}.")
