"""What-if answers, and what other allowed drops would recommend, in rows and sentences; asks nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from autoselect.domain.words import amount, between, counted, lost, some, within
from autoselect.report.tables.frames import MISSING, format_penalty, format_size

Row = tuple[str, ...]
_FORECAST = "  by forecast"
_KINDS = ("integer", "int16", "hybrid", "float", "folded")


def answer_rows(answers: Sequence[Mapping[str, Any]], headings: Sequence[str]) -> list[Row]:
    """One row for each figure, one column for each answer, with a heading."""
    columns = [dict(_cells(answer)) for answer in answers]
    names = [name for name in columns[0] if name != _FORECAST or any(answer["compiled"] for answer in answers)]
    return [("", *headings), *((name, *(column[name] for column in columns)) for name in names)]


def _cells(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    metric = str(found["metric"])
    yield "size", format_size(found["size_bytes"])
    yield "penalty", format_penalty(found["penalty"]) + (" (compiled)" if found["compiled"] else "")
    yield _FORECAST, format_penalty(found["forecast_penalty"])
    yield "segments", str(found["segments"])
    yield "nodes", ", ".join(f"{found['kinds'][kind]} {kind}" for kind in _KINDS if kind in found["kinds"])
    yield "float ops", str(found["float_ops"])
    yield "crossing", format_size(found["crossing_bytes"])
    yield "peak activations", format_size(found["arena_bytes"])
    yield "expected", MISSING if found["drop"] is None else lost(found["drop"], metric)
    yield "nine in ten", _interval(found, metric)
    yield within(found["allowed_drop"], metric), _share(found["chance_within"])
    yield "on the front", _share(found["chance_on_front"])
    scored = found["scored_drop"]
    yield "scored", MISSING if scored is None else f"trial {found['trial']} {lost(scored, metric)}"


def _interval(found: Mapping[str, Any], metric: str) -> str:
    low, high = found["drop_low"], found["drop_high"]
    if low is None or high is None or low != low or high != high:
        return MISSING
    return between(low, high, metric) if low < high else lost(low, metric)


def _share(chance: float | None) -> str:
    return MISSING if chance is None else f"{100 * chance:.0f} %"


def answer_sentences(found: Mapping[str, Any], how: str = "--score tells.") -> list[str]:
    """What the rows do not say of an answer; ``how`` says how one learns what nobody knows."""
    told, metric = [], str(found["metric"])
    if found["refusal"]:
        told.append(f"{found['refusal']}.")
    if found["unknown"]:
        told.append(f"Nobody knows what it loses: {found['unknown']}. {how}")
    if found["approximate"]:
        told.append(
            "It parts nodes that the search moves together, so no trial is like it: the guess is that of the nearest "
            f"candidate that does not, and less sure. {how}"
        )
    if found["fallbacks"]:
        reasons = sorted(set(found["fallbacks"].values()))
        are = "is" if len(found["fallbacks"]) == 1 else "are"
        told.append(f"{counted(len(found['fallbacks']), 'node')} {are} not what the recipe says: {', '.join(reasons)}.")
    if ahead := found["dominated_by"]:
        verb = "costs no more and loses" if len(ahead) == 1 else "cost no more and lose"
        less = f"less by what is expected: {amount(found['gap'], metric)} at best" if found["gap"] else "as little"
        told.append(f"{some(list(ahead), 3)} of the front {verb} {less}.")
    if found["far"]:
        told.append(
            "Its outputs are far from float's. A score like float's would not count, because it is one number whose "
            "noise nobody knows."
        )
    if found["preferred"]:
        told.append("The rule of the recommendation prefers it to the recommended model, if it scores as expected.")
    return told


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
