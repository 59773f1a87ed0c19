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
    is_mixed = any(answer["compiled"] for answer in answers)
    columns = [dict(_cells(answer, is_mixed)) for answer in answers]
    names = [name for name in columns[0] if name != _FORECAST or is_mixed]
    return [("", *headings), *((name, *(column[name] for column in columns)) for name in names)]


def _cells(answer: Mapping[str, Any], is_mixed: bool) -> Iterator[tuple[str, str]]:
    """Names and figures; where a compiler gave some of the answers' figures, each says whose it is."""
    metric = str(answer["metric"])
    mark = " (compiled)" if answer["compiled"] else " (forecast)" if is_mixed else ""
    yield "size", format_size(answer["size_bytes"])
    yield "penalty", format_penalty(answer["penalty"]) + mark
    yield _FORECAST, format_penalty(answer["forecast_penalty"])
    yield "segments", str(answer["segments"]) + mark
    yield "nodes", ", ".join(f"{answer['kinds'][kind]} {kind}" for kind in _KINDS if kind in answer["kinds"])
    yield "float ops", str(answer["float_ops"])
    yield "crossing", format_size(answer["crossing_bytes"]) + mark
    yield "peak activations", format_size(answer["arena_bytes"])
    yield "expected", MISSING if answer["drop"] is None else lost(answer["drop"], metric)
    yield "nine in ten", _interval(answer, metric)
    yield within(answer["allowed_drop"], metric), _share(answer["chance_within"])
    yield "on the front", _share(answer["chance_on_front"])
    scored = answer["scored_drop"]
    yield "scored", MISSING if scored is None else f"trial {answer['trial']} {lost(scored, metric)}"


def _interval(answer: Mapping[str, Any], metric: str) -> str:
    low, high = answer["drop_low"], answer["drop_high"]
    if low is None or high is None or low != low or high != high:
        return MISSING
    return between(low, high, metric) if low < high else lost(low, metric)


def _share(chance: float | None) -> str:
    return MISSING if chance is None else f"{100 * chance:.0f} %"


def answer_sentences(answer: Mapping[str, Any], how: str = "--score tells.") -> list[str]:
    """What the rows do not say of an answer.

    Args:
        answer: As ``WhatIf.as_dict`` gives it.
        how: How one learns what nobody knows; empty if the candidate was just scored.
    """
    remarks, metric = [], str(answer["metric"])
    if answer["refusal"]:
        remarks.append(f"{answer['refusal']}.")
    if answer["unknown"]:
        remarks.append(f"The trials do not tell what it loses: {answer['unknown']}. {how}".rstrip())
    if answer["approximate"]:
        remarks.append(
            "It parts nodes that the search moves together, so no trial is like it: the guess is that of the nearest "
            f"candidate that does not, and less sure. {how}".rstrip()
        )
    if answer["fallbacks"]:
        reasons = sorted(set(answer["fallbacks"].values()))
        are = "is" if len(answer["fallbacks"]) == 1 else "are"
        remarks.append(
            f"{counted(len(answer['fallbacks']), 'node')} {are} not what the recipe says: {', '.join(reasons)}."
        )
    if ahead := answer["dominated_by"]:
        verb = "costs no more and loses" if len(ahead) == 1 else "cost no more and lose"
        less = f"less by what is expected: {amount(answer['gap'], metric)} at best" if answer["gap"] else "as little"
        remarks.append(f"{some(list(ahead), 3)} of the front {verb} {less}.")
    if answer["far"]:
        remarks.append(
            "Its outputs are far from float's. A score like float's would not count, because it is one number whose "
            "noise nobody knows."
        )
    if _is_gain_discounted(answer):
        remarks.append(
            "It is expected to score better than float. The rule counts a gain as none, and as unsure as it is: so the "
            "chance is less than the interval says."
        )
    if answer["preferred"]:
        remarks.append("The rule of the recommendation prefers it to the recommended model, if it scores as expected.")
    return remarks


def _is_gain_discounted(answer: Mapping[str, Any]) -> bool:
    """Whether the interval of a gain lies within the allowed drop, and the rule gives that less than 95 %."""
    drop, high, chance = (answer[key] for key in ("drop", "drop_high", "chance_within"))
    if drop is None or high is None or chance is None or answer["far"]:
        return False
    return bool(drop < 0.0 and high <= answer["allowed_drop"] and chance < 0.95)


def limit_rows(table: pd.DataFrame, metric: str) -> list[Row]:
    """A heading, and a row for each run of allowed drops at which the same member is recommended on a target."""
    has_targets = "target" in table and table["target"].nunique() > 1
    heading = ("allowed drop", "recommended", "penalty", "size", "chance to break")
    rows = [*_runs(table.assign(target=table.get("target", "")), metric)]
    return [("target", *heading), *rows] if has_targets else [heading, *(row[1:] for row in rows)]


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
        ratios = [f"{ratio:.2f}" for ratio in (same["worst_ratio"].min(), same["worst_ratio"].max())]
        return f"{'–'.join(dict.fromkeys(ratios))} × the best"
    penalty = format_penalty(float(first["penalty"]))
    if pd.isna(first["penalty_low"]):
        return penalty
    low, high = float(same["penalty_low"].min()), float(same["penalty_high"].max())
    return f"{penalty} ({format_penalty(low)}–{format_penalty(high)})"
