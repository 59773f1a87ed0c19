"""What a target makes of a model, as plain tables of text; computes no figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from autoselect.report.tables.frames import format_size
from autoselect.report.tables.model_tables import clean

Row = tuple[str, ...]


def cost_rows(found: Mapping[str, Any]) -> list[Row]:
    """The verdict, and what the penalty is made of."""
    target = found["target"]
    places = Counter(one["place"] for one in target["placements"])
    rows: list[Row] = [
        ("verdict", clean(target["refusal"]) if target["refusal"] else "accepted"),
        ("ops", ", ".join(f"{count} {place}" for place, count in places.items())),
        ("segments", str(target["segments"])),
        ("crossings", f"{target['crossing_tensors']} tensors, {format_size(target['crossing_bytes'])}"),
        ("activations", f"{format_size(target['arena_bytes'])} at the peak"),
        *_penalty_rows(target),
    ]
    if target["unit"] == "points":
        return rows
    parts = (("accelerator", "accelerator_cost"), ("host", "host_cost"), ("crossings", "crossing_cost"))
    return [*rows, *((f"  {name}", f"{figure(target[key])} {target['unit']}") for name, key in parts)]


def _penalty_rows(target: Mapping[str, Any]) -> list[Row]:
    """The penalty, and which of compiler and profile it is of."""
    told, forecast = f"{figure(target['penalty'])} {target['unit']}", target.get("forecast")
    if forecast is None:
        return [("penalty", told)]
    if forecast["uncompiled"] is not None:
        return [("penalty", f"{told}, forecast. Not compiled: {clean(forecast['uncompiled'])}")]
    left = ", ".join(f"{count} {name}" for name, count in forecast["host_ops"].items()) or "none"
    expected = f"{figure(forecast['penalty'])} {target['unit']}"
    return [("penalty", f"{told}, compiled"), ("  left", f"to the CPU by the compiler: {left}"), ("forecast", expected)]


def placement_rows(found: Mapping[str, Any]) -> list[Row]:
    """Each op of the main subgraph: number, type, precision, place, cost and reason."""
    ops = found["subgraphs"][0]["ops"]
    header = ("op", "type", "precision", "place", "cost", "why")
    body = [
        (
            str(i),
            str(op["op_type"]),
            placed["precision"] or "",
            placed["place"],
            figure(placed["cost"]),
            clean(placed["reason"]),
        )
        for i, (op, placed) in enumerate(zip(ops, found["target"]["placements"], strict=True))
    ]
    return [header, *body]


def island_rows(found: Mapping[str, Any]) -> list[Row]:
    """Each island: number, ops by type, their numbers, and what it costs."""
    ops, unit = found["subgraphs"][0]["ops"], found["target"]["unit"]
    body = []
    for number, island in enumerate(found["target"]["islands"], start=1):
        types = Counter(str(ops[i]["op_type"]) for i in island["ops"])
        told = ", ".join(f"{count} {name}" if count > 1 else name for name, count in types.items())
        body.append((str(number), told, ranges(island["ops"]), figure(island["gain"])))
    return [("island", "ops", "numbers", f"costs, {unit}"), *body] if body else [("none",)]


def advice_lines(found: Mapping[str, Any]) -> list[str]:
    """The one island whose removal would help most, in a sentence."""
    target = found["target"]
    if target["best_island"] is None:
        return []
    gain, whole = target["islands"][target["best_island"]]["gain"], (target.get("forecast") or target)["penalty"]
    number, saved = target["best_island"] + 1, f"{figure(gain)} of {figure(whole)} {target['unit']}"
    if target.get("chips"):
        return [f"A form of island {number} that the chip takes would help most: as int8 it would save {saved}."]
    return [f"Taking island {number} into integers helps most: {saved}."]


def figure(value: float) -> str:
    """A cost with four digits, and all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ranges(numbers: list[int]) -> str:
    """``3-5, 9`` of ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
