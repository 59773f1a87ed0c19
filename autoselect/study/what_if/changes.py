"""Changes to a recipe that a user says by hand: nodes in other states, other repairs. Knows names, no costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import listed, some
from autoselect.errors import RecipeError, UsageError
from autoselect.study.setup.by_user import covered

Texts = str | Iterable[str]
"""Node names, globs or op types; one text is one of them."""

IN_WORDS = {"deny": "denied", "in_float": "in float", "int16": "in 16 bits", "int8": "in 8 bits"}
"""What a change makes of nodes, by the option's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What becomes of which nodes; names, globs and op types.

    Attributes:
        deny: Nodes that leave integers: they become what the recipe's fallback says.
        in_float: Nodes that leave integers and are float, whatever the fallback.
        int16: Nodes that get 16-bit activations.
        int8: Nodes that become 8-bit integers again.
        repairs: Names of repairs instead of the recipe's; None leaves these.
    """

    deny: tuple[str, ...] = ()
    in_float: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()
    int8: tuple[str, ...] = ()
    repairs: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        *,
        deny: Texts = (),
        in_float: Texts = (),
        int16: Texts = (),
        int8: Texts = (),
        repairs: Texts | None = None,
    ) -> Changes:
        """The changes of what a user says."""
        return cls(
            deny=_texts(deny),
            in_float=_texts(in_float),
            int16=_texts(int16),
            int8=_texts(int8),
            repairs=None if repairs is None else _texts(repairs),
        )

    @property
    def wanted(self) -> Mapping[str, tuple[str, ...]]:
        """What is said of nodes, by the option's name."""
        return {"deny": self.deny, "in_float": self.in_float, "int16": self.int16, "int8": self.int8}

    @property
    def told(self) -> str:
        """The changes in words; empty if there are none."""
        parts = [f"{some(list(names), 3)} {IN_WORDS[option]}" for option, names in self.wanted.items() if names]
        if self.repairs is not None:
            parts.append(f"repairs {' + '.join(self.repairs)}" if self.repairs else "no repairs")
        return "; ".join(parts)

    def applied(self, recipe: Recipe, layers: LayerTable, graph: Graph) -> Recipe:
        """A resolved recipe with these changes.

        Args:
            recipe: Without globs.
            layers: For names and op types of nodes.
            graph: The float model, for the words of an error.

        Raises:
            UsageError: If a name is not known (with the nearest), or one node is to be in two states.
        """
        chosen = {option: covered(texts, layers, graph, option) for option, texts in self.wanted.items()}
        _refuse_both(chosen)
        changed = moved(recipe, **chosen)
        if self.repairs is None:
            return changed
        try:
            return replace(changed, repairs=self.repairs)
        except RecipeError as exc:
            raise UsageError(str(exc)) from exc


_NONE = frozenset[str]()


def moved(
    recipe: Recipe,
    *,
    deny: frozenset[str] = _NONE,
    in_float: frozenset[str] = _NONE,
    int16: frozenset[str] = _NONE,
    int8: frozenset[str] = _NONE,
) -> Recipe:
    """A resolved recipe with nodes in other states: as :class:`Changes` says them, by exact names, none in two."""
    left = (recipe.denylisted_nodes - int16 - int8) | deny | in_float
    is_float = recipe.fallback == "float"
    exact = _NONE if is_float else ((recipe.float_nodes - deny) | in_float) & left
    return replace(
        recipe,
        denylisted_nodes=left,
        float_nodes=exact,
        int16_nodes=(recipe.int16_nodes - deny - in_float - int8) | int16,
    )


def _texts(given: Texts) -> tuple[str, ...]:
    texts: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if odd := [text for text in texts if not isinstance(text, str)]:
        raise UsageError(
            f"Expected names of nodes, op types or repairs, got {odd[0]!r}. layer_statistics.csv has names."
        )
    return texts


def _refuse_both(chosen: Mapping[str, frozenset[str]]) -> None:
    """Refuse a node that is to be in two states."""
    owners: dict[str, list[str]] = {}
    for option, nodes in chosen.items():
        for name in nodes:
            owners.setdefault(name, []).append(option)
    for name, options in sorted(owners.items()):
        if len(options) > 1:
            raise UsageError(
                f"{name!r} is covered by {listed(options)}, and a node has one state. Leave it out of one."
            )
