"""The models of a run as the page shows them: trials, front, references, pick cards, and what each limit recommends."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS, possible
from autoselect.domain.words import CLOSENESS, SHARES, label, lost
from autoselect.report.tables.chip_results import most_left
from autoselect.report.tables.frames import (
    BYTE_COLUMNS,
    ModelRow,
    cost_columns,
    format_cost,
    format_penalty,
    format_score,
    format_size,
    front_rows,
    largest,
    number,
    pick_order,
    records,
    reference_rows,
)
from autoselect.report.tables.what_if_rows import limit_rows
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import Run, read_limits

Row = dict[str, Any]

_ON_CARD = ("segments", "partitions", "left_ops")
"""Further columns that cards have anyway."""
_FIGURES = ("drop", "size_bytes", "penalty", "segments", "float_ops", "float_macs_share", "sqnr_db", "samples")


def further_columns(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of the run's objectives that not every run has."""
    return tuple(column for column in cost_columns(summary) if column not in DEFAULT_COSTS)


def cost_axes(summary: Mapping[str, Any]) -> list[Row]:
    """The run's objectives but the metric, for the charts: ``key``, ``label``, ``bytes`` (in kB), ``noisy``."""
    return [
        {
            "key": column,
            "label": BY_COLUMN[column].short,
            "bytes": column in BYTE_COLUMNS,
            "noisy": BY_COLUMN[column].noisy,
            "possible": possible(column),
        }
        for column in cost_columns(summary)
    ]


def model_rows(run: Run, places: Mapping[str, int]) -> list[Row]:
    """All trials in their order, those of the front with their held-out scores and picks.

    Returns:
        One row a trial: ``id``, ``number``, ``state``, ``origin``, ``score`` and ``drop`` (held-out ones where they
        are known), ``search`` and ``search_drop``, further columns of ``trials.csv``, ``heldout`` (score, low, high; or
        None), ``nodes``, ``picks``, ``front`` (True once for each member).
    """
    metric = str(run.summary["metric"])
    members, further = {row.label: row for row in front_rows(run.front, run.summary)}, further_columns(run.summary)
    rows, met, left = [], set(), most_left(run.summary)
    for record in records(run.trials):
        row = _trial(record, metric, places, further)
        left_ops = number(record.get("left_ops"))
        row["left_ops"] = left.get(row["id"]) if left_ops is None else left_ops
        member = members.get(row["id"])
        if member is not None and row["state"] == "complete" and row["id"] not in met:
            met.add(row["id"])
            row |= {"front": True, "picks": list(member.picks), "heldout": member.interval}
            row |= {"score": member.score, "drop": member.drop}
            row |= {name: member.cost(name) for name in further}  # Latency was measured once more.
        rows.append(row)
    return rows


def _trial(record: Mapping[str, Any], metric: str, places: Mapping[str, int], further: Sequence[str]) -> Row:
    names = left_out(record)
    return {
        "id": _text(record.get("id")),
        "number": record.get("number"),
        "state": _text(record.get("state")),
        "origin": _text(record.get("origin")),
        "reused": str(record.get("reused")) == "True",
        "feasible": str(record.get("feasible", True)) != "False" or record.get("state") != "complete",
        "score": number(record.get(metric)),
        "search": number(record.get(metric)),
        **{name: number(record.get(name)) for name in (*_FIGURES, *further)},
        "search_drop": number(record.get("drop")),
        "nodes": sorted(places[name] for name in names if name in places),
        "wide": len(in_int16(record)),
        "fallback": _recipe(record).get("fallback"),
        "error": _text(record.get("error")),
        "front": False,
        "picks": [],
        "heldout": None,
    }


def left_out(record: Mapping[str, Any]) -> list[str]:
    """Names of the nodes that the recipe of a trial leaves out of integers."""
    return [str(name) for name in _recipe(record).get("denylisted_nodes", [])]


def in_int16(record: Mapping[str, Any]) -> list[str]:
    """Names of the nodes that the recipe of a trial gives 16-bit activations."""
    return [str(name) for name in _recipe(record).get("int16_nodes", [])]


def _recipe(record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        recipe = json.loads(_text(record.get("recipe")))
    except ValueError:
        return {}
    return recipe if isinstance(recipe, dict) else {}


def reference_points(run: Run) -> list[Row]:
    """The references: label, score, drop, size and penalty, held-out score with its interval."""
    return [
        {
            "label": row.label,
            "reference": row.reference,
            "score": row.score,
            "drop": row.drop,
            "size_bytes": row.size_bytes,
            "penalty": row.penalty,
            **{name: row.cost(name) for name in further_columns(run.summary)},
            "heldout": row.interval,
        }
        for row in reference_rows(run.summary)
    ]


def cards(run: Run, models: Sequence[Row]) -> list[Row]:
    """One card a picked member, in the order of the pick names; all cells are texts."""
    references = {row.label: row for row in reference_rows(run.summary)}
    members = {row["id"]: row for row in models if row["front"]}
    rows = [row for row in front_rows(run.front, run.summary) if row.picks]
    every = [*references.values(), *rows]
    scale, axis = largest(value for row in every for value in (row.score, row.heldout)), _axis(every)
    pick_cards = [_card(run, row, members.get(row.label, {}), references, scale, axis) for row in rows]
    return sorted(pick_cards, key=lambda card: pick_order(card["picks"][0]))


def _card(
    run: Run,
    row: ModelRow,
    member: Mapping[str, Any],
    references: Mapping[str, ModelRow],
    scale: float | None,
    axis: tuple[float, float],
) -> Row:
    whole, metric = references.get("float"), str(run.summary["metric"])
    float_share = member.get("float_macs_share")
    return {
        "id": row.label,
        "picks": list(row.picks),
        "score": spoken(row.score, run.summary, scale),
        "drop": "" if row.drop is None or metric == CLOSENESS else lost(row.drop, metric),
        "samples": "search" if row.heldout is None else "held out",
        "interval": " to ".join(spoken(end, run.summary, scale, unit=False) for end in (row.interval or ())[1:]),
        "bar": _bar(row, whole, axis),
        "size": format_size(row.size_bytes),
        "size_note": "" if whole is None else f"{100 * row.size_bytes / whole.size_bytes:.0f} % of float",
        "penalty": format_penalty(row.penalty),
        "nodes": len(member.get("nodes", [])),
        "wide": member.get("wide"),
        "segments": member.get("segments"),
        "left_ops": member.get("left_ops"),
        "further": [_further(row, column) for column in further_columns(run.summary) if column not in _ON_CARD],
        "integer_macs": "" if float_share is None else f"{100 * (1 - float_share):.0f} %",
        "command": export_command(run, row.picks[0]),
    }


def _further(row: ModelRow, column: str) -> Row:
    """One more objective on a card: its name, its value, and the quartiles of a latency."""
    value, low, high = row.cost(column), row.further.get("latency_low"), row.further.get("latency_high")
    objective = {"name": BY_COLUMN[column].label, "value": format_cost(column, value), "note": ""}
    if BY_COLUMN[column].noisy and value is not None and low is not None and high is not None:
        objective |= {"value": f"{value:.3g}", "note": f"{low:.3g} to {high:.3g}, noisy"}
    return objective


def export_command(run: Run, name: str) -> str:
    """The command that copies a member out of the run folder."""
    return f"autoselect pick {shlex.quote(str(run.directory))} --name {name} -o {name}.tflite"


def _axis(rows: Sequence[ModelRow]) -> tuple[float, float]:
    """Ends of the little axis that the cards share, with some room."""
    values = [v for row in rows for v in (row.score, row.heldout, row.heldout_low, row.heldout_high) if v is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.04 * (high - low) or 0.5
    return low - room, high + room


def _bar(row: ModelRow, whole: ModelRow | None, axis: tuple[float, float]) -> Row | None:
    """Places on the card's axis in per cent: held-out score, its interval, and float's score."""
    if row.interval is None:
        return None
    points = dict(zip(("value", "low", "high"), row.interval, strict=True))
    if whole is not None and whole.heldout is not None:
        points["float"] = whole.heldout
    return {name: round(100 * (value - axis[0]) / (axis[1] - axis[0]), 2) for name, value in points.items()}


def spoken(value: float, summary: Mapping[str, Any], scale: float | None = None, *, unit: bool = True) -> str:
    """A score as people say it: shares as per cent, everything else as it is."""
    if summary["metric"] in SHARES:
        return f"{100 * value:.1f}{' %' if unit else ''}"
    return format_score(value, scale=scale)


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else ""


def allowed_rows(run: Run) -> list[tuple[str, ...]]:
    """A heading, and a row for each stretch of allowed drops with one recommendation; none in runs without the table.

    Raises:
        RunFolderError: If the table is damaged.
    """
    table = _limits_of(run)
    return [] if table.empty else limit_rows(table, str(run.summary["metric"]))


def allowed_points(run: Run) -> Row | None:
    """Points of the chart: allowed drops, penalties, what nine in ten resamples recommend, and members' ids.

    Returns:
        ``drops`` and ``own`` (the run's limit) in the unit that ``axis`` names; ``low`` and ``high`` hold None if
        nothing was resampled. None in runs without the table.
    """
    table, metric = _limits_of(run), str(run.summary["metric"])
    if table.empty:
        return None
    scale, unit = (100.0, "points") if metric in SHARES else (1.0, label(metric))
    return {
        "axis": f"allowed drop, {unit}",
        "own": scale * float(run.summary["allowed_drop"]),
        "drops": (scale * table["allowed_drop"]).round(9).tolist(),
        "ids": table["id"].tolist(),
        **{
            short: [None if pd.isna(value) else float(value) for value in table[column]]
            for short, column in (("penalty", "penalty"), ("low", "penalty_low"), ("high", "penalty_high"))
        },
    }


def _limits_of(run: Run) -> pd.DataFrame:
    return read_limits(run.directory) if RunFolder(run.directory).limits.exists() else pd.DataFrame()
