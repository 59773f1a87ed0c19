"""What pages show of the results of this study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from shown import grouped, table

RESULTS = Path(__file__).resolve().parent / "results"
TOLD = ("a limit on the drop", "a seed", "what crossings cost", "held-out samples")


def _rows() -> pd.DataFrame:
    rows = pd.read_csv(RESULTS / "peers.csv", keep_default_na=False, na_values=[""])
    return rows.fillna({"pick": ""})


def models() -> str:
    """What each tool gives for the limit, and what it took."""
    head = ("model", "tool", "processor time, s", "evaluations", "samples scored")
    head += ("penalty", "kB", "keeps the limit", "points lost held out")
    ways = _rows().groupby(["model", "tool", "way", "pick"], sort=False, dropna=False)
    return table(head, grouped([str(key[0]), *_cells(own)] for key, own in ways))


def _cells(own: pd.DataFrame) -> list[str]:
    """One way's figures of all seeds; medians, and the drop as the range of intervals."""
    first = own.iloc[0]
    name = f"{first['tool']}, {first['way']}" + (f": {first['pick']}" if first["pick"] else "")
    spent = [_median(own, key, digits) for key, digits in (("cpu_seconds", 0), ("evaluations", 1))]
    spent.append(_median(own, "samples_run", 0))
    if own["penalty"].isna().all():
        failed = str(first["failed"]) if not pd.isna(first["failed"]) else "none keeps the limit"
        return [name, *spent, "", "", failed, ""]
    mark = "*" if first["is_stand_in"] is True or first["is_stand_in"] == "True" else ""
    costs = [_spread(own["penalty"], 1) + mark, _spread(own["size_bytes"] / 1000, 0) + mark]
    kept = [str(value) == "True" for value in own["kept"]]
    return [name, *spent, *costs, _share(kept), _drops(own)]


def _median(own: pd.DataFrame, key: str, digits: int) -> str:
    return f"{own[key].median():,.{digits}f}"


def _spread(values: pd.Series, digits: int) -> str:
    """Of all seeds, in their order; once if they are equal."""
    return ", ".join(dict.fromkeys(f"{value:.{digits}f}" for value in values.dropna()))


def _share(kept: Sequence[bool]) -> str:
    return ("yes" if all(kept) else "no") if len(set(kept)) == 1 else f"{sum(kept)} of {len(kept)} seeds"


def _drops(own: pd.DataFrame) -> str:
    drops = _spread(100 * own["drop"], 1)
    return f"{drops} ({100 * own['drop_low'].min():.1f} to {100 * own['drop_high'].max():.1f})"


def abilities() -> str:
    """What each tool gives and what its entry can be told, as the script read it from its parameters."""
    head = ("tool", "versions", "gives", *(f"can be told {name}" for name in TOLD))
    lines = []
    rows = _rows()
    for tool, own in rows[rows["failed"].isna()].groupby("tool", sort=False):
        first = own.iloc[-1]
        flags = ["yes" if str(first[name]) == "True" else "no" for name in TOLD]
        lines.append([str(tool), str(first["versions"]), str(first["gives"]), *flags])
    return table(head, lines)
