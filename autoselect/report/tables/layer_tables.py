"""What is read of the wide layer table, and lines of text from a diagnosis: facts, suspects, advice; prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from autoselect.domain.findings import Advice
from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE
from autoselect.domain.words import clean, some
from autoselect.report.tables.frames import MISSING, Record, Table, column, format_score, number, records
from autoselect.report.tables.model_tables import Row, aligned

if TYPE_CHECKING:
    import pandas as pd

ERROR = "rmse/scale"
"""The column that suspects are ranked by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node with its place in the table, from 0, and its rmse/scale."""

    place: int
    row: Record
    error: float

    @property
    def suspicious(self) -> bool:
        """Whether TensorFlow's Quantization Debugger guide would suspect it."""
        return self.error > SUSPICIOUS_RMSE_PER_SCALE


def cell_numbers(row: Record, name: str) -> np.ndarray:
    """A cell that holds a list of numbers.

    Returns:
        Shape (n,), float64; of length 0 where the cell is missing, None or NaN.
    """
    cell = row.get(name)
    if not isinstance(cell, (list, tuple, np.ndarray)):
        return np.empty(0)
    return np.asarray(cell, dtype=np.float64).ravel()


def worst(rows: Table, count: int) -> tuple[Suspect, ...]:
    """The nodes of largest rmse/scale, worst first; ties in graph order; nodes without a figure are left out."""
    errors = column(rows, ERROR)
    order = np.argsort(-errors, kind="stable")
    places = [int(place) for place in order if np.isfinite(errors[place])]
    return tuple(Suspect(place=place, row=rows[place], error=float(errors[place])) for place in places[:count])


def is_accumulated(row: Record) -> bool:
    """Whether the node's error holds that of the nodes before it, because no debug model verifies it alone."""
    return str(row.get("verified")) == "False"


def node_number(row: Record, place: int) -> str:
    """The op's index in the graph, or the row where the table has none."""
    index = number(row.get("index"))
    return str(place if index is None else int(index))


def name_of(row: Record, limit: int | None = None) -> str:
    """The node's name as printable text, shortened in the middle to at most ``limit`` characters."""
    name = clean(str(row.get("tensor_name", "")))
    return name if limit is None else cut_middle(name, limit)


def op_type(row: Record) -> str:
    """The node's op type as printable text."""
    return clean(str(row.get("op_name", "")))


def common_folder(rows: Table) -> str:
    """The longest folder that most names lie in, with its ``/``; empty where there is none.

    Most are three in four: the outputs of a converted model have names of their own.
    """
    folders: Counter[str] = Counter()
    for row in rows:
        parts = name_of(row).split("/")[:-1]
        folders.update("/".join(parts[: depth + 1]) + "/" for depth in range(len(parts)))
    shared = [folder for folder, count in folders.items() if count > 1 and count >= 0.75 * len(rows)]
    return max(shared, key=len, default="")


def cut_middle(text: str, limit: int) -> str:
    """Leave out the middle of a text that is longer than ``limit`` (2 or more): names differ at their ends.

    Returns:
        At most ``limit`` characters, the end a third longer than the start.
    """
    if len(text) <= limit:
        return text
    head = (limit - 1) * 3 // 7
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


_ACCUMULATED = "~"


_OPTIONAL = {
    "leave_one_in": "alone in",
    "leave_one_out": "alone out",
    "bias_shift": "bias shift",
    "range": "range",
    "sqnr_db": "SQNR dB",
    "max_abs_error": "max error",
    "clipped_share": "clipped",
    "weight_range_ratio": "weights ratio",
    "error_growth": "growth",
    "mean_error": "mean error",
}
"""Further columns, in the order in which they get the room that names leave."""


def suspect_lines(table: pd.DataFrame | Table, *, count: int = 10, width: int = 80) -> tuple[str, ...]:
    """The nodes of largest rmse/scale, worst first.

    Args:
        table: The wide layer table.
        count: How many nodes at most.
        width: Columns of the page; 60 or more. What is there beyond the needs of the names goes to further figures.

    Returns:
        A heading, a line a node, and where needed a line on the mark of accumulated errors; none where no node has
        an error. Each line is at most ``width`` characters.
    """
    # Characters that a name keeps before another column may take the room.
    name_room = 26
    rows = records(table)
    suspects = worst(rows, count)
    if not suspects:
        return ()
    listed = [suspect.row for suspect in suspects]
    fixed: list[Row] = [("op", "type", ERROR)]
    for suspect in suspects:
        mark = _ACCUMULATED if is_accumulated(suspect.row) else ""
        place = node_number(suspect.row, suspect.place)
        fixed.append((place, cut_middle(op_type(suspect.row), 24), f"{mark}{_short(suspect.error)}"))
    names = [name_of(row) for row in listed]
    wished = min(max(map(len, names)), name_room if width < 100 else 2 * name_room)
    chosen = _chosen(listed, width - _needed(fixed) - wished)
    figures = [(*row, *more) for row, *more in zip(fixed, *chosen, strict=True)]
    room = width - _needed(figures)
    lines = aligned(
        [(*row, name) for row, name in zip(figures, ("node", *(cut_middle(n, room) for n in names)), strict=True)],
        right=(0, *range(2, 3 + len(chosen))),
    )
    notes = [f"{_ACCUMULATED} accumulated error: no debug model verifies this node"]
    return (*lines, *(notes if any(map(is_accumulated, listed)) else ()))


_CURES = ("bias", "rounding", "range", "16 bit", "hybrid", "float")
"""From the one that costs least."""


def cure_lines(table: pd.DataFrame | Table, *, width: int = 80) -> tuple[str, ...]:
    """What to try first, and for which nodes; the cheapest cure first.

    Returns:
        A paragraph for each cure, with the nodes in graph order and the reason of one; none where no node needs one.
    """
    lines: list[str] = []
    for cure in _CURES:
        nodes = [row for row in records(table) if row.get("cure") == cure]
        if nodes:
            names = some([name_of(row) for row in nodes], 4)
            text = f"{len(nodes)} of the nodes: {names}. The first has {clean(str(nodes[0].get('cure_reason')))}."
            lines += _wrapped(text, width, first=f"{cure:<9}", rest=" " * 9)
    return tuple(lines)


def _needed(rows: Sequence[Row]) -> int:
    """Characters of the columns with a gap after each."""
    return sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True))


def _chosen(rows: Table, room: int) -> list[Row]:
    """The further columns that hold a figure and fit, each with its heading."""
    chosen = []
    for name, heading in _OPTIONAL.items():
        if not np.isfinite(column(rows, name)).any():
            continue
        cells = (heading, *(_short(number(row.get(name))) for row in rows))
        room -= 2 + max(map(len, cells))
        if room < 0:
            break
        chosen.append(cells)
    return chosen


def advice_lines(advice: Iterable[Advice], *, width: int = 80) -> tuple[str, ...]:
    """The advice as numbered paragraphs, in its order.

    Returns:
        Lines; an empty one between paragraphs. None for no advice.
    """
    lines: list[str] = []
    for place, item in enumerate(advice, start=1):
        number_of = f"{place}. "
        inner = " " * len(number_of)
        lines += ["" for _ in range(place > 1)]
        lines += _wrapped(item.title, width, first=number_of, rest=inner)
        parts = (
            ("At", some(item.subjects, 4)),
            ("Found", item.evidence),
            ("Held against", f"{item.threshold} ({item.source})" if item.source else item.threshold),
            ("Do", item.action),
        )
        for label, text in parts:
            if text:
                lines += _wrapped(f"{label}: {text}", width, first=inner, rest=f"{inner}  ")
    return tuple(lines)


def _wrapped(text: str, width: int, *, first: str, rest: str) -> list[str]:
    words = clean(" ".join(text.split()))
    return wrap(
        words, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def ablation_lines(table: pd.DataFrame | Table, *, width: int = 80) -> tuple[str, ...]:
    """What single nodes do to the outputs: the one that harms most by itself, and the one whose absence helps most.

    Returns:
        Wrapped lines; none where nothing was measured.
    """
    rows = records(table)
    lines: list[str] = []
    for name, largest, words in (
        ("leave_one_in", True, "With one node in integers, the outputs' error is largest for {name}: {value}"),
        ("leave_one_out", False, "With one node left float, the outputs' error is smallest for {name}: {value}"),
    ):
        values = column(rows, name)
        count = int(np.isfinite(values).sum())
        if count:
            best = int(np.nanargmax(values) if largest else np.nanargmin(values))
            sentence = words.format(name=name_of(rows[best]), value=_short(float(values[best])))
            lines += _wrapped(f"{sentence} of the signal's power ({count} measured).", width, first="", rest="  ")
    return tuple(lines)


def facts_line(facts: Mapping[str, Any]) -> str:
    """What was measured on what, in one sentence; facts that are missing are left out."""
    data = "debug samples" if facts.get("debug_data_given") else "of them"
    weights = "per-channel" if facts.get("per_channel", True) else "per-tensor"
    parts = [
        f"{facts['nodes']} nodes" if "nodes" in facts else "",
        f"{weights} weights{', mixed by a recipe' if facts.get('recipe') else ''}",
        f"calibrated on {facts['calibration_samples']} samples" if "calibration_samples" in facts else "",
        f"measured on {facts['debug_samples']} {data}" if "debug_samples" in facts else "",
        f"{_total(facts.get('seconds'))}",
    ]
    model = " ".join(str(facts.get("model") or "").split())
    return clean(f"{model}: {', '.join(filter(None, parts))}." if model else f"{', '.join(filter(None, parts))}.")


def _total(seconds: object) -> str:
    """The stages' seconds together."""
    if not isinstance(seconds, Mapping):
        return ""
    total = sum(stage_seconds for value in seconds.values() if (stage_seconds := number(value)) is not None)
    return f"{total:.1f} s"


def metric_rows(metrics: Mapping[str, float]) -> tuple[Row, ...]:
    """The model's metrics: name, value."""
    return tuple((clean(name), format_score(number(value))) for name, value in metrics.items())


def _short(value: float | None) -> str:
    """Three digits are enough to compare errors by."""
    return MISSING if value is None else f"{value:.3g}"
