"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"


def tools() -> str:
    """All tools at a limit of 1 point, in both modes."""
    head, *channel = table_of(RESULTS / "table.md", 1)
    tensor = {row[0]: row for row in table_of(RESULTS / "table.md", 3)[1:]}
    place, shown = head.index("at 1: penalty, kB, points lost"), []
    for row in channel:
        pair = (row, tensor[row[0]])
        found = [", ".join(each[place].split(", ")[::2]) for each in pair]
        found += [", ".join(_at_1(each[column]) for each in pair) for column in (2, 3)]
        shown.append([row[0], *found])
    modes = (f"per {mode}: penalty, points lost" for mode in ("channel", "tensor"))
    return table(["tool", *modes, "evaluations", "seconds"], shown)


def _at_1(figures: str) -> str:
    """What a loop that is run for each limit spent for the second one, or for the first if these two are one run."""
    found = figures.split(" / ")
    return found[1] if len(found) == 3 else found[0]
