"""From what was found of each model to the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = (
    "model",
    "intake",
    "ops",
    "nodes",
    "out of reach",
    "forecast exact",
    "all float = F",
    "all int8 = Q",
    "equal to the quantizer's",
    "ms a candidate (quantizer's)",
    "DRQ dB",
    "FIQ dB",
    "recommended dB",
    "bytes DRQ / FIQ / recommended",
    "FIQ of litert-quantizer, dB (bytes, float ops)",
)
RECOMMENDED = ("recommended", "balanced")
"""The pick that is recommended; in runs until 2026-11-25 the second stands for it if there is no first."""


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole table, with notes on what went wrong below it."""
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    rows = [line(name, row) for name, row in found.items()]
    remarks = [f"- {name}: {remark}" for name, row in found.items() for remark in notes(row)]
    return "\n".join([*head, *rows, "", *remarks]).strip() + "\n"


def line(name: str, row: Mapping[str, Any]) -> str:
    """One row."""
    if "skipped" in row:
        cells = [name, "skipped", *[""] * (len(COLUMNS) - 2)]
    else:
        cells = [name, _short(str(row.get("intake", "died"))), *map(str, (row.get("ops", ""), row.get("nodes", "")))]
        cells += [_reach(row), _exact(row), _equal(row, "all_float"), _equal(row, "all_int8")]
        cells += [_mixes(row), _milliseconds(row), *_scores(row), _litert(row)]
    return f"| {' | '.join(cells)} |"


def notes(row: Mapping[str, Any]) -> list[str]:
    """What a reader of the row must know."""
    found = [f"skipped: {row['skipped']}"] if "skipped" in row else []
    if row.get("ended"):
        found.append(f"the process ended at {row.get('died_at')!r} with {row['ended']}")
    found += [str(row[key]) for key in ("intake", "prepared") if str(row.get(key, "")).startswith("refused")]
    found += [f"{key.removesuffix('_failed')}: {value}" for key, value in row.items() if key.endswith("_failed")]
    if row.get("out_of_reach"):
        found.append(f"out of reach: {', '.join(row['out_of_reach'])}")
    if row.get("not_normalised"):
        found.append(f"taken as it is, not normalised: {row['not_normalised']}")
    found += _inexact(row.get("forecasts", {}))
    for key in ("all_float", "all_int8"):
        if row.get(key):
            found.append(f"{key.replace('_', ' ')}: {row[key]}")
    unlike = {k: n for k, n in row.get("mixes", {}).get("classes", {}).items() if k != "equal"}
    found += [f"mixes, {count}: {kind}" for kind, count in unlike.items()]
    return found


def _inexact(forecasts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with forecasts, once for all granularities and interfaces of which it is said."""
    said: dict[str, list[str]] = {}
    for name, forecast in forecasts.items():
        if forecast["first"]:
            said.setdefault(f"{forecast['exact']} of {forecast['of']}, {forecast['first']}", []).append(name)
    return [
        f"forecast ({'all' if len(names) == len(forecasts) else '; '.join(names)}): {what}"
        for what, names in said.items()
    ]


def _short(text: str) -> str:
    return "refused" if text.startswith("refused") else text


def _reach(row: Mapping[str, Any]) -> str:
    return str(len(row["out_of_reach"])) if "out_of_reach" in row else ""


def _exact(row: Mapping[str, Any]) -> str:
    forecasts = row.get("forecasts", {}).values()
    return f"{sum(f['exact'] for f in forecasts)} of {sum(f['of'] for f in forecasts)}" if forecasts else ""


def _equal(row: Mapping[str, Any], key: str) -> str:
    return "" if key not in row else "no" if row[key] else "yes"


def _mixes(row: Mapping[str, Any]) -> str:
    mixes = row.get("mixes")
    return f"{mixes['classes'].get('equal', 0)} of {mixes['of']}" if mixes else ""


def _milliseconds(row: Mapping[str, Any]) -> str:
    plain = row.get("forecasts", {}).get("per channel, float32", {}).get("milliseconds")
    theirs = row.get("mixes", {}).get("quantizer_milliseconds")
    return f"{plain} ({theirs})" if plain is not None else ""


def _scores(row: Mapping[str, Any]) -> list[str]:
    if "scores" not in row:
        return [""] * 4
    references, picks = row["scores"]["references"], row["scores"]["picks"]
    chosen = [
        references.get("drq"),
        references.get("fiq"),
        next((picks[name] for name in RECOMMENDED if name in picks), None),
    ]
    figures = [f"{c['sqnr_db']}" if c else "" for c in chosen]
    return [*figures, " / ".join(str(c["size_bytes"]) if c else "" for c in chosen)]


def _litert(row: Mapping[str, Any]) -> str:
    found = row.get("litert")
    if found is None:
        return "refused" if "litert_failed" in row else ""
    return f"{found['sqnr_db']} ({found['size_bytes']}, {found['float_ops']})"
