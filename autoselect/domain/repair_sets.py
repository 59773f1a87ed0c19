"""The sets of repairs that a search chooses between for each candidate. Knows names, no models."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from autoselect.domain.recipe import split_repair

Repairs = tuple[str, ...]
"""Names of repairs, sorted, as a recipe has them."""

ONLY_8_BITS = "ranges-"
"""How the names of repairs begin that are for 8-bit nodes alone."""


def corrected_in_sequence(repairs: Repairs) -> Repairs:
    """The same repairs with biases corrected node after node."""
    return tuple("bias-sequential" if name == "bias" else name for name in repairs)


def corrected_at_once(repairs: Repairs) -> Repairs:
    """The same repairs with biases corrected each by itself: candidates then take as many bytes."""
    return tuple("bias" if name == "bias-sequential" else name for name in repairs)


def with_sequences(sets: Iterable[Repairs]) -> tuple[Repairs, ...]:
    """The sets, each once and in order, then those of them that correct biases with this done in sequence."""
    distinct = tuple(dict.fromkeys(sets))
    return tuple(dict.fromkeys((*distinct, *map(corrected_in_sequence, distinct))))


def acting(repairs: Repairs, kinds: Collection[str]) -> Repairs:
    """Those of a candidate's repairs that change its bytes, by what becomes of its nodes."""
    return tuple(name for name in repairs if "integer" in kinds or not split_repair(name)[0].startswith(ONLY_8_BITS))


def label(repairs: Repairs) -> str:
    """What to call a set in a table or a study."""
    return " + ".join(repairs) or "none"
