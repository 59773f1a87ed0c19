"""The states that a node may have in a candidate beside integers, and how a recipe says them. The one place for it."""

from __future__ import annotations

from collections.abc import Mapping

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe

EXACT = OpKind.FLOAT.value
"""The state that makes no error."""

SIXTEEN = OpKind.INT16.value
"""Still integers: activations of 16 bits, weights of 8."""

COMPOSED: Mapping[str, tuple[str, ...]] = {
    "HARD_SWISH": ("ADD", "MUL"),
    "PRELU": ("RELU", "SUB", "MUL", "ADD"),
    "SQUARED_DIFFERENCE": ("SUB", "MUL"),
    "SUM": ("MEAN", "MUL"),
}
"""Op types without a right 16-bit form in LiteRT or the quantizer, and what each is made of where it has 16 bits."""

STOOD_FOR: Mapping[str, str] = {"CAST": "QUANTIZE"}
"""Op types without an integer kernel, and the op type that has their place in an integer model."""

STATES: Mapping[str, tuple[str, ...]] = {
    "drq": (OpKind.HYBRID.value,),
    "float": (EXACT,),
    "search": (OpKind.HYBRID.value, EXACT),
}
"""What a node that is left out of integers may be, by the fallback that a user asks for.

The first is what it is where a recipe says no more; :data:`FIELDS` has the others.
"""

FIELDS: Mapping[str, str] = {SIXTEEN: "int16_nodes", EXACT: "float_nodes"}
"""Fields of a recipe that list the nodes of a further state."""

APART: frozenset[str] = frozenset({SIXTEEN})
"""Further states whose nodes a recipe does not denylist as well."""


def states_of(fallback: str, *, int16: bool) -> tuple[str, ...]:
    """The states of a search: by the fallback, and 16 bits where these are wanted and there is an exact one beside."""
    first, *others = STATES[fallback]
    return (first, SIXTEEN, *others) if int16 and EXACT in (first, *others) else (first, *others)


def left_out_of(recipe: Recipe) -> frozenset[str]:
    """The nodes that are not in integers of 8 bits, whatever their state."""
    return recipe.denylisted_nodes.union(*(nodes for state, nodes in further_of(recipe).items() if state in APART))


def further_of(recipe: Recipe) -> dict[str, frozenset[str]]:
    """The nodes of each further state."""
    return {state: getattr(recipe, field) for state, field in FIELDS.items()}


def fields_of(left_out: frozenset[str], further: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The fields of a recipe that say the states of its nodes."""
    apart = frozenset[str]().union(*(nodes for state, nodes in further.items() if state in APART))
    return {"denylisted_nodes": left_out - apart, **{FIELDS[state]: nodes for state, nodes in further.items()}}


def alone_in(state: str, nodes: frozenset[str], everything: frozenset[str]) -> dict[str, frozenset[str]]:
    """The further states where these nodes alone are in a state, and all others are exact."""
    by_state = {EXACT: everything - nodes}
    return by_state | {state: nodes} if state in FIELDS else by_state
