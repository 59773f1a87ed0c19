"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from shown import table

RESULTS = Path(__file__).resolve().parent / "results"


def pair() -> str:
    """NNCF's model beside the members of a search."""
    rows = pd.read_csv(RESULTS / "pair.csv")
    exact = pd.read_csv(RESULTS / "nncf_per_tensor_hits.csv").set_index("model").loc["float"]
    shown = [["", "float", f"{exact.search_top1:.1%}", f"{exact.heldout_top1:.1%}", f"{exact.weighted_int8:.0f}", ""]]
    for row in rows[rows["model"] != "plain"].itertuples():
        ours = row.tool == "autoselect"
        names = str(row.model).partition(" ")[2]
        picks = ", ".join(f"`{pick}`" for pick in names.split(",")) if names else "another member"
        figures = [
            f"{row.search_top1:.1%}",
            f"{row.heldout_top1:.1%}",
            f"{row.weighted_int8:.0f}",
            f"{row.seconds:.1f}",
        ]
        shown.append(["autoselect" if ours else "NNCF", picks if ours else str(row.model), *figures])
    return table(["tool", "model", "top-1, search", "top-1, held out", "int8 of 28", "seconds"], _spaced(shown))


def _spaced(rows: list[list[str]]) -> list[list[str]]:
    """With a space between a figure and its percent sign."""
    return [[cell.replace("%", " %") for cell in row] for row in rows]
