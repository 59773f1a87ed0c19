"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"


def slots_of_the_largest() -> str:
    """How many slots keep busy in a search of the most nodes."""
    head, *rows = table_of(RESULTS / "slots.md")
    most = max(int(row[0]) for row in rows)
    return table(head, (row for row in rows if int(row[0]) == most))
