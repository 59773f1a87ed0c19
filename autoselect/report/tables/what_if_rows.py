"""What-if answers in rows and sentences; reads plain fields, asks nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoselect.domain.words import amount, between, counted, lost, some
from autoselect.report.tables.frames import MISSING, format_penalty, format_size

Row = tuple[str, ...]
_KINDS = ("integer", "int16", "hybrid", "float", "folded")


def answer_rows(answers: Sequence[Mapping[str, Any]], headings: Sequence[str]) -> list[Row]:
    """One row for each figure, one column for each answer, with a heading."""
    columns = [dict(_cells(answer)) for answer in answers]
    return [("", *headings), *((name, *(column[name] for column in columns)) for name in columns[0])]


def _cells(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    metric = str(found["metric"])
    yield "size", format_size(found["size_bytes"])
    yield "penalty", format_penalty(found["penalty"]) + (" (compiled)" if found["compiled"] else "")
    yield "segments", str(found["segments"])
    yield "nodes", ", ".join(f"{found['kinds'][kind]} {kind}" for kind in _KINDS if kind in found["kinds"])
    yield "float ops", str(found["float_ops"])
    yield "crossing", format_size(found["crossing_bytes"])
    yield "peak activations", format_size(found["arena_bytes"])
    yield "expected", MISSING if found["drop"] is None else lost(found["drop"], metric)
    yield "nine in ten", _interval(found, metric)
    yield f"within {amount(found['allowed_drop'], metric)}", _share(found["chance_within"])
    yield "on the front", _share(found["chance_on_front"])
    yield "scored", MISSING if found["scored_drop"] is None else _scored(found, metric)


def _scored(found: Mapping[str, Any], metric: str) -> str:
    return f"trial {found['trial']} {lost(found['scored_drop'], metric)}"


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
        told.append(f"{counted(len(found['fallbacks']), 'node')} could not be as asked: {', '.join(reasons)}.")
    if ahead := found["dominated_by"]:
        verb = "costs no more and loses" if len(ahead) == 1 else "cost no more and lose"
        gap = amount(found["gap"], metric)
        told.append(f"{some(list(ahead), 3)} of the front {verb} less by what is expected: {gap} at best.")
    if found["far"]:
        told.append(
            "Its outputs are far from float's. A score like float's would not count, because it is one number whose "
            "noise nobody knows."
        )
    if found["preferred"]:
        told.append("The rule of the recommendation prefers it to the recommended model, if it scores as expected.")
    return told
