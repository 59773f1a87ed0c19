"""What would be recommended at each allowed drop, in rows; reads the table, decides nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from autoselect.domain.words import amount
from autoselect.report.tables.frames import MISSING, format_penalty, format_size

Row = tuple[str, ...]


def limit_rows(table: pd.DataFrame, metric: str) -> list[Row]:
    """A heading, and a row for each run of allowed drops at which the same member is recommended on a target."""
    has_targets = "target" in table and table["target"].nunique() > 1
    heading = ("allowed drop", "recommended", "penalty", "size", "chance to break")
    told = [*_runs(table.assign(target=table.get("target", "")), metric)]
    return [("target", *heading), *told] if has_targets else [heading, *(row[1:] for row in told)]


def _runs(table: pd.DataFrame, metric: str) -> Iterator[Row]:
    for target, rows in table.groupby("target", sort=False):
        changes = (rows["id"] != rows["id"].shift()).cumsum()
        for _, same in rows.groupby(changes, sort=False):
            first, last = same.iloc[0], same.iloc[-1]
            ends = [amount(float(row["allowed_drop"]), metric) for row in (first, last)]
            size = format_size(int(first["size_bytes"]))
            yield str(target), " to ".join(dict.fromkeys(ends)), str(first["id"]), _penalty(same), size, _chances(same)


def _chances(same: pd.DataFrame) -> str:
    """The chance at the first allowed drop, and at the last one if that is another."""
    ends = [f"{100 * float(chance):.0f}" for chance in same["chance_to_break"].iloc[[0, -1]].dropna()]
    return f"{' to '.join(dict.fromkeys(ends))} %" if ends else MISSING


def _penalty(same: pd.DataFrame) -> str:
    """The penalty with what resamples recommend; of one member for several targets how dear it is at the worst."""
    first = same.iloc[0]
    if pd.isna(first["penalty"]):
        return f"{same['worst_ratio'].max():.2f} × the best"
    told = format_penalty(float(first["penalty"]))
    if pd.isna(first["penalty_low"]):
        return told
    low, high = float(same["penalty_low"].min()), float(same["penalty_high"].max())
    return f"{told} ({format_penalty(low)}–{format_penalty(high)})"
