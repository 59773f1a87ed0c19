"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"
DEFAULT = "surrogate+search"
_CASES = ("pump", "mobilenet_pc", "mobilenet_pt", "fsrcnn")
_OTHERS = ("tpe", "nsga2", "prefix", "greedy", "random")
_BROKEN = 98
"""A model that breaks its drop in so many percent of resamples is no recommendation."""


def recommendations() -> str:
    """Regret of each sampler at three drops."""
    shown = []
    for number, case in enumerate(_CASES):
        head, *rows = table_of(RESULTS / "regret.md", 3 * number + 1)
        places = [head.index(f"{share:.1f}% at 60") for share in (0.5, 1.0, 2.0)]
        by_sampler = {row[0]: row for row in rows}
        found = ([by_sampler[name][place] for place in places] for name in (DEFAULT, *_OTHERS))
        shown.append([f"`{case}`", *(", ".join(map(_regret, cells)) for cells in found)])
    return table(["case", "default", *(f"`{name}`" for name in _OTHERS)], shown)


def _regret(cell: str) -> str:
    """Of a cell as ``13.0 (0%)``."""
    regret, broken = cell.split(" ")
    return "–" if float(broken.strip("(%)")) >= _BROKEN else regret


def races() -> str:
    """What candidates cost with races and without."""
    _, *rows = table_of(RESULTS / "races.md")
    found = {(row[0], row[1]): row for row in rows}
    shown = []
    for case in dict.fromkeys(row[0] for row in rows):
        raced, whole = found[case, DEFAULT], found[case, f"{DEFAULT}+full"]
        spent = [row[4].split("(")[1].strip(")") for row in (raced, whole)]
        shown.append([f"`{case}`", *spent, ", ".join(_regret(row[6]) for row in (raced, whole))])
    return table(["case", "default", "scored in full", "regret at 1 %, with races and without"], shown)


def at_the_end() -> str:
    """What each sampler recommends on the pump when all trials are spent."""
    head, *rows = table_of(RESULTS / "regret.md", 3)
    kept = {DEFAULT, *_OTHERS}
    return table(head, ([f"`{row[0]}`", *row[1:]] for row in rows if row[0] in kept))


def equal() -> str:
    """Volume on unseen samples after equal evaluations, beside a version that searched over one state."""
    rows = pd.read_csv(RESULTS / "equal" / "regret.csv")
    rows = rows[rows["volume"].notna()]
    shown = []
    for case in ("pump", "fsrcnn", "mobilenet_pc", "mobilenet_pt"):
        cells = [f"`{case}`"]
        for sampler in (DEFAULT, "before: surrogate"):
            for mark in (20, 60, 100):
                some = rows[(rows["case"] == case) & (rows["sampler"] == sampler) & (rows["evaluations"] == mark)]
                median, low, high = (f"{100 * some['volume'].quantile(share):.1f}" for share in (0.5, 0.0, 1.0))
                cells.append(f"{median} ({low} to {high})")
        shown.append(cells)
    marks = ("at 20", "at 60", "at 100")
    return table(
        ["case", *(f"{name} {marks[0]}" if i == 0 else marks[i] for name in ("default", "before") for i in range(3))],
        shown,
    )
