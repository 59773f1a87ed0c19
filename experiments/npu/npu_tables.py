"""From what was found of each model to the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

Found = Mapping[str, Mapping[str, Any]]
"""What was found, by model."""

APART = 10.0
"""Microseconds between the stated costs of two recipes that should be told apart: a tenth of one more piece."""


def tables(found: Found, socs: Sequence[str]) -> str:
    """All of ``agreement.md``."""
    parts = [
        "## Forecasts",
        _agreement(found, socs),
        "## Misses",
        "\n".join(_misses(found)) or "None.",
        "## Costs",
        _costs(found),
        "## Memory",
        _spills(found),
        "## Order",
        _orders(found, socs),
        "## Milliseconds",
        _milliseconds(found, socs),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
        .replace("| --- ", "|---")
        .replace("--- |", "---|")
    )


def line(name: str, row: Mapping[str, Any], socs: Sequence[str]) -> list[str]:
    """The row of a model among the forecasts."""
    said = row.get("skipped") or row.get("refused")
    if said or (row.get("died_at") and "socs" not in row):
        return [name, *[""] * 3, *["skipped" if "skipped" in row else "not taken in" if said else "died"] * len(socs)]
    cells = [name, *(str(row.get(key, "")) for key in ("ops", "nodes", "int16_nodes"))]
    return [*cells, *(_exact(row.get("socs", {}).get(soc)) for soc in socs)]


def _exact(of_soc: Mapping[str, Any] | None) -> str:
    if of_soc is None:
        return ""
    if "of" not in of_soc:
        return "refused" if "refusal" in of_soc else "fails"
    return f"{of_soc['exact']['all']} of {of_soc['of']}"


def _agreement(found: Found, socs: Sequence[str]) -> str:
    rows = [line(name, row, socs) for name, row in found.items()]
    totals = []
    for soc in socs:
        asked = [row["socs"][soc] for row in found.values() if "of" in row.get("socs", {}).get(soc, {})]
        exact, of = sum(one["exact"]["all"] for one in asked), sum(one["of"] for one in asked)
        totals.append(f"{exact:,} of {of:,}, {len(asked)} models")
    return _table(["model", "ops", "nodes", "with a 16-bit form", *socs], [*rows, ["all", "", "", "", *totals]])


def _misses(found: Found) -> list[str]:
    """Why there is no row, and what is wrong with which recipe."""
    lines = []
    for name, row in found.items():
        if said := row.get("skipped") or row.get("refused"):
            lines.append(f"* {name}: {said}")
        if row.get("ended"):
            lines.append(f"* {name}: the process ended at {row.get('died_at')!r} with {row['ended']}.")
        for soc, of_soc in row.get("socs", {}).items():
            if "refusal" in of_soc:
                lines.append(f"* {name}, {soc}: {of_soc['refusal']}")
            lines += [f"* {name}, {soc}, {_miss(miss)}" for miss in of_soc.get("misses", [])]
        lines += [f"* {name}, {key}: {said}" for key, said in row.items() if key.startswith("failed at ")]
        lines += [f"* {name}, compiled: {said}" for said in row.get("costs", {}).get("failed", [])]
    return lines


def _miss(miss: Mapping[str, Any]) -> str:
    if "failed" in miss:
        return f"recipe {miss['recipe']}: {miss['failed']}"
    ops = [
        f"{op['kind']} {op['op']} `{op['name']}`: whole {_words(op['whole'])}, mix {_words(op['mix'])}"
        for op in miss["ops"]
    ]
    partitions = "{} and {} partitions".format(*miss["partitions"])
    return f"recipe {miss['recipe']} ({miss['io_type']}): {', '.join(miss['wrong'])}; {partitions}; {'; '.join(ops)}"


def _words(reason: str) -> str:
    return f"left ({reason})" if reason else "taken"


# ------------------------------------------------------------------------------------------------- costs


def column(row: Mapping[str, Any], name: str) -> np.ndarray:
    """Figures of the compiled recipes of a model."""
    at = list(row["costs"]["columns"]).index(name)
    return np.array([figures[at] for figures in row["costs"]["rows"]], dtype=float)


def spearman(row: Mapping[str, Any], first: str, second: str) -> float:
    """Rank correlation; NaN where one of the two is constant."""
    one, other = column(row, first), column(row, second)
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(stats.spearmanr(one, other).statistic)


def compiles_each(row: Mapping[str, Any]) -> bool:
    """Whether a search of this model compiles every candidate, so that what it goes by is what is stated."""
    return bool(row.get("spills", {}).get("compiles_each"))


def in_order(row: Mapping[str, Any], searched: str) -> tuple[int, int]:
    """Of the pairs of recipes whose stated costs are more than ``APART`` apart: how many are in order; how many."""
    forecast, stated = column(row, searched), column(row, "stated")
    apart = np.triu(np.abs(stated[:, None] - stated) > APART)
    return int(np.sum(((stated[:, None] - stated) * (forecast[:, None] - forecast) > 0)[apart])), int(apart.sum())


def _costs(found: Found) -> str:
    rows, ordered, by_search = [], np.zeros(2, dtype=int), 0
    for name, row in found.items():
        if not row.get("costs", {}).get("rows"):
            continue
        stated, ddr = column(row, "stated"), column(row, "ddr")
        moved = column(row, "spill") + column(row, "fill")
        pairs = (("forecast", "stated"), ("integer-only", "stated"), ("ddr_forecast", "ddr"))
        searched = "stated" if compiles_each(row) else "forecast"
        ordered += (told := in_order(row, "forecast"))
        by_search += in_order(row, searched)[0]
        ratio = np.median(column(row, "ddr_forecast") / np.maximum(ddr, 1.0))
        rows.append(
            [
                name,
                len(ddr),
                f"{stated.min():,.1f} to {stated.max():,.1f}",
                "each" if compiles_each(row) else "",
                f"{spearman(row, searched, 'stated'):.3f}",
                *(f"{spearman(row, *pair):.3f}" for pair in pairs),
                f"{told[0]:,} of {told[1]:,}",
                f"{ratio:.2f}",
                f"{100.0 * moved.sum() / max(ddr.sum(), 1.0):.1f}",
                int(np.sum(moved > 0)),
            ]
        )
    told = f"{ordered[0]:,} of {ordered[1]:,}; search {by_search:,}"
    rows.append(["all", sum(row[1] for row in rows), *[""] * 6, told, *[""] * 3])
    head = ["model", "compiled", "stated cost, µs", "a search compiles", "ρ of the search", "ρ of the forecast"]
    head += ["ρ of integer-only", "ρ of bytes", "in order"]
    return _table([*head, "bytes forecast / stated", "spill and fill, %", "recipes that spill"], rows)


def _spills(found: Found) -> str:
    """Models from the most bytes alive at once to the least; those that surely do not spill have no mixes."""
    known = {name: row["spills"] for name, row in found.items() if "spills" in row}
    rows = []
    for name, one in sorted(known.items(), key=lambda pair: -pair[1]["live_bytes"]):
        costs = found[name].get("costs", {}).get("rows")
        moved = column(found[name], "spill") if costs else np.zeros(0)
        cells = [f"{sum(map(bool, one[key]))} of {len(one[key])}" if one[key] else "" for key in ("wholes", "mixes")]
        first = next((i + 1 for i, spills in enumerate(one["mixes"]) if spills), "")
        recipes = f"{int(np.sum(moved > 0))} of {len(moved)}" if costs else ""
        rows.append([name, f"{one['live_bytes'] / 2**20:.2f}", recipes, *cells, first])
    head = ["model", "MB alive at once, two forms", "recipes that spill", "whole models", "mixes of two forms"]
    return _table([*head, "first mix that spills"], rows)


def _orders(found: Found, socs: Sequence[str]) -> str:
    rows = []
    for name, row in found.items():
        told = [row.get("socs", {}).get(soc, {}).get("partitions") for soc in socs]
        if not any(told):
            continue
        cells = [f"{one['natural']:,} → {one['gathered']:,} ({one.get('fewer', 0)})" if one else "" for one in told]
        compared = row.get("orders", {"of": 0, "equal": 0, "natural_exact": 0})
        same = f"{compared['equal']} of {compared['of']}" if compared["of"] else ""
        rows.append([name, *cells, same])
    totals = []
    for soc in socs:
        told = [
            row["socs"][soc]["partitions"] for row in found.values() if "partitions" in row.get("socs", {}).get(soc, {})
        ]
        totals.append(f"{sum(one['natural'] for one in told):,} → {sum(one['gathered'] for one in told):,}")
    return _table(["model", *socs, "equal bit for bit"], [*rows, ["all", *totals, ""]])


def _milliseconds(found: Found, socs: Sequence[str]) -> str:
    rows = []
    for name, row in found.items():
        told = row.get("socs", {}).get(socs[0], {})
        if "milliseconds" not in told:
            continue
        spent = [told["milliseconds"].get(key, "") for key in ("forecast", "build", "partition")]
        compiling = row.get("costs", {}).get("milliseconds", "")
        rows.append([name, told["asks"], told["seconds_asked"], *spent, compiling, row.get("seconds", "")])
    head = ["model", "files asked about", "s for them", "forecast", "build", "partition", "partition and compile"]
    return _table([*head, "s in all"], rows)
