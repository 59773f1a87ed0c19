"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import grouped, table, table_of

RESULTS = Path(__file__).resolve().parent / "results"


def together() -> str:
    """Units tried with their neighbours, without the number of units."""
    (case, _, *head), *rows = table_of(RESULTS / "together.md")
    return table([case, *head], grouped([name, *others] for name, _, *others in rows))
