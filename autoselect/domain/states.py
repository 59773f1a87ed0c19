"""The states that a node may have in a candidate beside integers, and how a recipe says them. The one place for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe

EXACT = OpKind.FLOAT.value
"""The state that makes no error."""

STATES: Mapping[str, tuple[str, ...]] = {
    "drq": (OpKind.HYBRID.value,),
    "float": (EXACT,),
    "search": (OpKind.HYBRID.value, EXACT),
}
"""What a node that is left out of integers may be, by the fallback that a user asks for.

The first is what it is where a recipe says no more; :data:`FIELDS` has the others. Where there are several the exact
one is the last.
"""

FIELDS: Mapping[str, str] = {EXACT: "float_nodes"}
"""Fields of a recipe that list the nodes of a further state."""


def further_of(recipe: Recipe) -> dict[str, frozenset[str]]:
    """The nodes of each further state."""
    return {state: getattr(recipe, field) for state, field in FIELDS.items()}


def alone_in(state: str, nodes: frozenset[str], everything: frozenset[str]) -> dict[str, frozenset[str]]:
    """The further states where these nodes alone are in a state, and all others are exact."""
    found = {EXACT: everything - nodes}
    return found | {state: nodes} if state in FIELDS else found


def fields_of(further: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """The fields of a recipe that say so."""
    return {FIELDS[state]: nodes for state, nodes in further.items()}
