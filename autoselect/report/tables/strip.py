"""A model as a strip of characters, one an op, so that float islands are seen at a glance; knows no colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoselect.domain.looks import LOOKS


def strip_rows(kinds: Sequence[str], width: int) -> tuple[str, ...]:
    """Draw the ops in their order.

    Args:
        kinds: The kind of each op (values of ``OpKind``).
        width: Columns of the page. Rows hold a round number of ops where there is room for ten.

    Returns:
        Rows of at most ``width`` characters (more only where not even one op fits), each with the number of its
        first op in front; none for no ops.
    """
    tens = 10
    digits = len(str(max(len(kinds) - 1, 0)))
    room = max(width - digits - 1, 1)
    step = room - room % tens if room >= tens else room
    marks = "".join(LOOKS[kind].mark for kind in kinds)
    return tuple(f"{start:>{digits}} {marks[start : start + step]}" for start in range(0, len(marks), step))


def strip_legend(kinds: Sequence[str]) -> str:
    """Say what the characters mean and how many there are of each; kinds that do not occur are left out."""
    counts = Counter(kinds)
    return "   ".join(f"{look.mark} {counts[kind]} {look.word}" for kind, look in LOOKS.items() if counts[kind])
