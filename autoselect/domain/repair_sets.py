"""The sets of repairs that a search chooses between for each candidate. Knows names, no models."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from autoselect.domain.recipe import kind_of_repair, split_repair

Repairs = tuple[str, ...]
"""Names of repairs, sorted, as a recipe has them."""


def corrected_in_sequence(repairs: Repairs) -> Repairs:
    """These repairs with biases corrected node after node."""
    return tuple("bias-sequential" if name == "bias" else name for name in repairs)


def corrected_at_once(repairs: Repairs) -> Repairs:
    """These repairs with each bias corrected by itself: candidates then take as many bytes."""
    return tuple("bias" if name == "bias-sequential" else name for name in repairs)


def with_sequences(sets: Iterable[Repairs]) -> tuple[Repairs, ...]:
    """The sets, each once and in order, then those of them that correct biases with this done in sequence."""
    distinct = tuple(dict.fromkeys(sets))
    return tuple(dict.fromkeys((*distinct, *map(corrected_in_sequence, distinct))))


def acting(repairs: Repairs, kinds: Collection[str], unquantized: Collection[str] = ()) -> Repairs:
    """The repairs of a candidate that change its bytes.

    Args:
        repairs: Of the candidate.
        kinds: What becomes of its nodes. Ranges are for 8-bit nodes alone.
        unquantized: The names of its nodes that have no integer weights.
    """
    return tuple(
        name
        for name in repairs
        if ("integer" in kinds or kind_of_repair(name) != "ranges")
        and not (kind_of_repair(name) == "levels" and split_repair(name)[1] in unquantized)
    )


def label(repairs: Repairs) -> str:
    """What to call a set in a table or a study; the levels of many nodes are counted, with a hash that tells them."""
    levels = [name for name in repairs if kind_of_repair(name) == "levels" and split_repair(name)[1] is not None]
    # A label names the levels of three nodes at most.
    if len(levels) <= 3:
        return " + ".join(repairs) or "none"
    digest = hashlib.sha256("\n".join(levels).encode()).hexdigest()[:8]
    others = [name for name in repairs if name not in levels]
    return " + ".join([*others, f"levels of {len(levels)} nodes ({digest})"])
