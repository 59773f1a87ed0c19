"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"


def simulated() -> str:
    """Simulated searches of the usual limit with few images."""
    head, *rows = table_of(RESULTS / "simulated.md")
    return table(head, [row for row in rows if row[2] == "1" and int(row[1]) <= 40])
