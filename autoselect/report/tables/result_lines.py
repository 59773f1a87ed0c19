"""The models of a run as lines of text: a score with its interval in one column, and the drop without a sign.

Knows no terminal; a caller says how wide one is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.domain.quantities import BY_COLUMN
from autoselect.domain.words import CLOSENESS, SHARES, counted, label
from autoselect.report.tables.frames import (
    MISSING,
    ModelRow,
    cost_columns,
    first_pick,
    format_cost,
    largest,
)
from autoselect.report.tables.model_tables import aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How the numbers of one column are written, so that they stay short and alike.

    Attributes:
        factor: They are multiplied by it.
        decimals: Of each.
        unit: Follows the heading; empty for plain numbers.
    """

    factor: float
    decimals: int
    unit: str

    def text(self, value: float) -> str:
        """One number; never a zero with a sign."""
        text = f"{value * self.factor:.{self.decimals}f}"
        return text.removeprefix("-") if float(text) == 0 else text


def scale_of(metric: str, values: Sequence[float]) -> Scale:
    """Shares in per cent with one decimal, other scores with four digits and a common power of ten if need be."""
    if metric in SHARES:
        return Scale(factor=100.0, decimals=1, unit="%")
    size = max((abs(value) for value in values), default=0.0)
    power = 3 * math.floor(math.log10(size) / 3) if 0 < size < 1e-2 or size >= 1e5 else 0
    power = max(power, -300)  # The inverse of a smaller one is no float.
    whole = math.floor(math.log10(size * 10.0**-power)) if size else 0
    return Scale(factor=10.0**-power, decimals=max(3 - max(whole, 0), 0), unit=f"×1e{power}" if power else "")


def deciding_rows(
    references: Sequence[ModelRow], front: Sequence[ModelRow], summary: Mapping[str, Any]
) -> list[tuple[str, ModelRow]]:
    """What decides: float, the all-integer model, and the picks that most people come for, each model once.

    That is the smallest model, too, if the search weighs sizes and no work of an accelerator.
    """
    first = first_pick([name for row in front for name in row.picks])
    shown = {first, "accurate"} if "penalty" in cost_columns(summary) else {first, "accurate", "compact"}
    rows = [(row.label, row) for row in references if row.reference in ("float", "fiq")]
    for row in sorted(front, key=lambda row: first not in row.picks):
        if names := [name for name in row.picks if name in shown]:
            rows.append((", ".join(names), row))
    return rows


def all_rows(references: Sequence[ModelRow], front: Sequence[ModelRow]) -> list[tuple[str, ModelRow]]:
    """The references and the whole front; a picked model by the name of its first pick, others by their id."""
    return [
        *((row.label, row) for row in references),
        *((row.picks[0] if row.picks else row.label, row) for row in front),
    ]


def pick_lines(front: Sequence[ModelRow]) -> tuple[str, ...]:
    """Which picks are which models: ``recommended, balanced: 6ead595ac7``."""
    return tuple(f"{', '.join(row.picks)}: {row.label}" for row in front if row.picks)


def result_lines(rows: Sequence[tuple[str, ModelRow]], summary: Mapping[str, Any], width: int) -> tuple[str, ...]:
    """A heading, then one line a model.

    Scores are the held-out ones; where no model has one, which the heading says, those of the search. Without room for
    the intervals they are left out.
    """
    lines = aligned(cells(rows, summary, with_interval=True), right=range(1, 9))
    if max(map(len, lines)) <= width:
        return lines
    return aligned(cells(rows, summary, with_interval=False), right=range(1, 9))


def cells(
    rows: Sequence[tuple[str, ModelRow]], summary: Mapping[str, Any], *, with_interval: bool
) -> list[tuple[str, ...]]:
    """The cells of such a table, its heading first; see :func:`result_lines`."""
    metric, costs = str(summary["metric"]), cost_columns(summary)
    unseen = any(row.heldout is not None for _, row in rows)
    scale = scale_of(metric, [row.score for _, row in rows])
    says_drop = metric != CLOSENESS
    heading = f"{'held-out' if unseen else 'search'} {_cut(label(metric))} {scale.unit}".rstrip()
    table = [("", heading, *(["drop"] if says_drop else []), *map(_heading, costs))]
    largest_costs = {column: largest(row.cost(column) for _, row in rows) for column in costs}
    for name, row in rows:
        score = row.heldout if unseen else row.score
        drop = row.drop if score is not None and name != "float" else None
        table.append(
            (
                name,
                MISSING if score is None else _score(row, score, scale, with_interval=with_interval),
                *([_drop(drop, scale)] if says_drop else []),
                *(_cost(column, row.cost(column), largest_costs[column]) for column in costs),
            )
        )
    return table


def _score(row: ModelRow, score: float, scale: Scale, *, with_interval: bool) -> str:
    if not with_interval or row.heldout_low is None or row.heldout_high is None:
        return scale.text(score)
    return f"{scale.text(score)} ({scale.text(row.heldout_low)}–{scale.text(row.heldout_high)})"


def _drop(drop: float | None, scale: Scale) -> str:
    """What is lost; a model that is better than float gains."""
    if drop is None:
        return ""
    text = scale.text(abs(drop))
    return f"gain {text}" if drop < 0 and float(text) else text


def _cost(column: str, value: float | None, scale: float | None) -> str:
    if value is not None and column == "latency_ms":
        return f"{value:.2f}"
    return format_cost(column, value, scale=scale)


def _heading(column: str) -> str:
    quantity = BY_COLUMN[column]
    return f"{quantity.short}*" if quantity.noisy else quantity.short


def _cut(text: str) -> str:
    name_width = 16
    return text if len(text) <= name_width else f"{text[: name_width - 1]}…"


def count_lines(summary: Mapping[str, Any], workers: object = None) -> tuple[str, ...]:
    """What became of the trials, as figures that add up; what that saved, and what it was found with."""
    counts, evaluated = summary.get("counts") or {}, summary.get("evaluated") or {}
    if "trials" not in counts:
        return ()
    proposed, scored, reused, failed = (int(counts.get(name) or 0) for name in ("trials", "scored", "reused", "failed"))
    dropped = int(counts.get("dropped", proposed - scored - reused - failed))
    samples = [f"{evaluated[n]:,} {w}" for n, w in (("search", "search"), ("heldout", "held-out")) if evaluated.get(n)]
    parts = [
        f"{counted(dropped + reused, 'full evaluation')} saved",
        *([f"{' and '.join(samples)} samples"] if samples else []),
        *([counted(workers, "worker")] if isinstance(workers, int) else []),
    ]
    return (
        f"{counted(proposed, 'trial')}: {scored:,} scored, {dropped:,} dropped by racing, {reused:,} reused, "
        f"{failed:,} failed.",
        f"{'; '.join(parts)}.",
    )
