"""Plain rows from the data frames and the summary of a run; draws and prints nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoselect.domain.objectives import Direction, Objective, drop_from, losses
from autoselect.domain.pareto import hypervolume, non_dominated
from autoselect.domain.picks import PICK_NAMES
from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS
from autoselect.domain.words import all_integer
from autoselect.runs.records import measured_columns

if TYPE_CHECKING:
    import pandas as pd

REFERENCE_LABELS: Mapping[str, str] = {
    "float": "float",
    "fiq": "all-integer",
    "fiq+repairs": "all-integer, repaired",
    "int16": "all 16-bit",
    "drq": "all-DRQ",
}
"""What a reader sees for the references of a summary, in the order of the table."""

Record = Mapping[str, Any]
"""One row by the names of the columns; a cell may be missing, None or NaN."""
Table = Sequence[Record]

MISSING = "–"

BYTE_COLUMNS = frozenset(column for column in BY_COLUMN if column.endswith("_bytes"))
"""Columns that are said in B, kB or MB."""
COUNT_COLUMNS = frozenset({"segments", "partitions", "float_ops", "left_ops", "npu_cycles"})
"""Columns of whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model: a line of the table, a point of the figure.

    Attributes:
        label: A reference's, see :data:`REFERENCE_LABELS`, else the model's id. An integer model in which
            ops stay float says so.
        score: The metric on the held-out samples; on the search samples where it was not measured there.
        drop: Loss of the metric against float on the same samples, in its units; None where there is no float score.
        size_bytes: Size of the file.
        penalty: Fragmentation penalty.
        heldout: The metric on the held-out samples; None where it was not measured.
        heldout_low: Lower end of its interval.
        heldout_high: Upper end of its interval.
        picks: Names of the picks that chose this model.
        feasible: False where it breaks a limit of the user.
        further: Other columns of the run's objectives, None where one is not known.
        reference: A reference's key in the summary; empty for others.
    """

    label: str
    score: float
    drop: float | None
    size_bytes: float
    penalty: float
    heldout: float | None = None
    heldout_low: float | None = None
    heldout_high: float | None = None
    picks: tuple[str, ...] = ()
    feasible: bool = True
    further: Mapping[str, float | None] = field(default_factory=dict)
    reference: str = ""

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """The held-out score and both ends of its interval, where all are known."""
        if self.heldout is None or self.heldout_low is None or self.heldout_high is None:
            return None
        return self.heldout, self.heldout_low, self.heldout_high

    def cost(self, column: str) -> float | None:
        """Value of an objective other than the metric; None where it is not known."""
        if column in DEFAULT_COSTS:
            return self.size_bytes if column == "size_bytes" else self.penalty
        return self.further.get(column)


def cost_columns(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of the run's objectives but the metric."""
    return tuple(summary.get("objectives") or ("", *DEFAULT_COSTS))[1:]


def target_name(summary: Mapping[str, Any]) -> str:
    """The name of the run's target; if that is a profile's file, its name without folder and suffix."""
    return Path(str(summary.get("target") or "integer-only")).name.removesuffix(".toml")


def reference_rows(summary: Mapping[str, Any]) -> tuple[ModelRow, ...]:
    """The references that could be scored, in the order of :data:`REFERENCE_LABELS`."""
    metric, direction = str(summary["metric"]), direction_of(summary)
    references = summary.get("references") or {}
    base = number((references.get("float") or {}).get(metric))
    rows: list[ModelRow] = []
    for key, name in REFERENCE_LABELS.items():
        reference = references.get(key) or {}
        score = number(reference.get(metric))
        drop = None if base is None or score is None else drop_from(base, score, direction)
        label = name.replace("all-integer", all_integer(number(reference.get("float_ops"))))
        row = _row({**reference, "drop": drop}, summary, label=label, heldout="heldout")
        rows += [] if row is None else [replace(row, reference=key)]
    return tuple(rows)


def front_rows(front: pd.DataFrame, summary: Mapping[str, Any]) -> tuple[ModelRow, ...]:
    """The members of the front, best score first; ties go to the lower penalty, then the smaller file."""
    metric = str(summary["metric"])
    sign = losses(np.array([[1.0]]), [Objective(name=metric, direction=direction_of(summary))]).item()
    rows = _rows(front, summary, heldout=f"heldout_{metric}")
    return tuple(sorted(rows, key=lambda r: (sign * r.score, r.penalty, r.size_bytes, r.label)))


def first_pick(picks: Collection[str]) -> str:
    """The pick that most people come for; runs of earlier versions recommend none. Empty without picks."""
    return next((name for name in ("recommended", "balanced") if name in picks), next(iter(picks), ""))


def trial_rows(trials: pd.DataFrame, summary: Mapping[str, Any]) -> tuple[ModelRow, ...]:
    """The scored trials in their order, each distinct model once; failed trials are left out."""
    scored = trials[trials["state"] == "complete"].drop_duplicates("id") if len(trials) else trials
    return tuple(_rows(scored, summary))


def best_in_panel(rows: Sequence[ModelRow], column: str, summary: Mapping[str, Any]) -> tuple[ModelRow, ...]:
    """The rows that none beats in both the score and one column, from the lowest column on.

    Returns:
        Rows in ascending order of the column; of equal points, the first.
    """
    if not rows:
        return ()
    objectives = (
        Objective(name=column, direction="minimize"),
        Objective(name=str(summary["metric"]), direction=direction_of(summary)),
    )
    values = np.array([[row.cost(column), row.score] for row in rows], dtype=np.float64)
    kept = non_dominated(losses(values, objectives))
    distinct = {(x, y): row for (x, y), row, keep in reversed(list(zip(values, rows, kept, strict=True))) if keep}
    return tuple(distinct[point] for point in sorted(distinct))


def volume_by_trial(trials: pd.DataFrame, summary: Mapping[str, Any]) -> np.ndarray:
    """The hypervolume of what was scored so far, as a share of that at the end.

    Objectives are those of the run, each scaled to the spread of the scored candidates. It is worked out only where it
    grows.

    Returns:
        Shape (n_trials,), 0..1, never falling; all 0 before two candidates are scored. Trials without a score and those
        beyond a limit add nothing.
    """
    metric, costs, rows = str(summary["metric"]), cost_columns(summary), records(trials)
    objectives = [Objective(name=metric, direction=direction_of(summary))]
    objectives += [Objective(name=cost, direction="minimize") for cost in costs]
    table = losses(np.column_stack([column(rows, objective.name) for objective in objectives]), objectives)
    counts = [row.get("state") == "complete" and str(row.get("feasible", True)) != "False" for row in rows]
    scored = np.array(counts, dtype=bool) & np.isfinite(table).all(axis=1)
    volumes, value = np.zeros(len(rows)), 0.0
    if scored.sum() < 2:
        return volumes
    low, spread = table[scored].min(axis=0), np.ptp(table[scored], axis=0)
    table = (table - low) / np.where(spread > 0, spread, 1.0)
    # The corner of the hypervolume lies this much beyond the worst scored candidate, as a multiple of the spread.
    front, corner = np.zeros((0, len(objectives))), np.full(len(objectives), 1.1)
    for place, row in enumerate(table):
        if scored[place] and not np.any(np.all(front <= row, axis=1)):
            front = np.vstack([front[~np.all(row <= front, axis=1)], row])
            value = hypervolume(front, corner)
        volumes[place] = value
    return volumes / value


def format_size(size_bytes: float | None) -> str:
    """A size in bytes, kB (1000 bytes) or MB."""
    if size_bytes is None:
        return MISSING
    if size_bytes < 1000:
        return f"{size_bytes:.0f} B"
    return f"{size_bytes / 1e3:.1f} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:.2f} MB"


def format_penalty(value: float | None, *, scale: float | None = None) -> str:
    """A penalty as text, whose decimals follow from its size: millions of cycles have none.

    Args:
        value: The number; None gives a dash.
        scale: Magnitude of the largest penalty in the same column, so that the whole column has the same decimals. None
            for a number that stands alone: three significant digits below 1, two decimals below 1,000, none above.
    """
    if value is None:
        return MISSING
    size = abs(value if scale is None else scale)
    if size >= 1000.0:
        # A column of cycles may hold a penalty of a few points.
        return f"{value:.1f}" if 0.0 < abs(value) < 10.0 else f"{value:,.0f}"
    if scale is None:
        # What is left of a difference of equal sums is nothing; the pages, in JavaScript, draw the same line.
        return f"{float(f'{value:.3g}'):.8f}".rstrip("0").rstrip(".") if 1e-6 <= size < 1.0 else f"{value:.2f}"
    return format_score(value, scale=scale) if 0.0 < size < 10.0 else f"{value:.1f}"


def format_score(value: float | None, *, scale: float | None = None) -> str:
    """A score or a difference of scores.

    Args:
        value: The number; None gives a dash.
        scale: Magnitude of the largest score in the same column, so that all get the same decimals.
    """
    if value is None:
        return MISSING
    size = abs(value if scale is None else scale)
    if 0 < size < 1e-2 or size >= 1e6:
        return f"{value:.2e}"
    decimals = 4 if size < 10 else 3 if size < 100 else 2 if size < 1000 else 1
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def format_cost(column: str, value: float | None, *, scale: float | None = None) -> str:
    """A value of an objective other than the metric, by its column; ``scale`` as in :func:`format_score`."""
    if column in BYTE_COLUMNS:
        return format_size(value)
    if value is not None and column in COUNT_COLUMNS:
        return f"{value:,.0f}"
    if column == "penalty":
        return format_penalty(value, scale=scale)
    return format_score(value, scale=scale)


def largest(values: Iterable[float | None]) -> float | None:
    """The largest magnitude, None for no numbers."""
    return max((abs(value) for value in values if value is not None), default=None)


def direction_of(summary: Mapping[str, Any]) -> Direction:
    """Whether more or less of the run's metric is better."""
    return "minimize" if summary.get("direction") == "minimize" else "maximize"


def records(table: pd.DataFrame | Table) -> list[Record]:
    """The rows of a data frame or of a list of rows, in their order."""
    if isinstance(table, Sequence):
        return list(table)
    rows: list[Record] = table.to_dict("records")  # type: ignore[assignment]
    return rows


def column(rows: Table, name: str) -> np.ndarray:
    """One column as numbers.

    Returns:
        Shape (n_rows,), float64, NaN where a row has no finite number.
    """
    return np.array([np.nan if (cell := number(row.get(name))) is None else cell for row in rows], dtype=np.float64)


def _rows(table: pd.DataFrame, summary: Mapping[str, Any], heldout: str = "") -> list[ModelRow]:
    rows = (_row(record, summary, label=str(record["id"]), heldout=heldout) for record in records(table))
    return [row for row in rows if row is not None]


def _row(record: Mapping[Any, Any], summary: Mapping[str, Any], *, label: str, heldout: str) -> ModelRow | None:
    score, size = number(record.get(str(summary["metric"]))), number(record.get("size_bytes"))
    penalty, costs = number(record.get("penalty")), cost_columns(summary)
    if score is None or size is None or penalty is None:
        return None
    unseen, drop = number(record.get(heldout)), number(record.get("drop"))
    if unseen is not None:
        base = number(((summary.get("references") or {}).get("float") or {}).get("heldout"))
        score, drop = unseen, None if base is None else drop_from(base, unseen, direction_of(summary))
    return ModelRow(
        label=label,
        score=score,
        drop=drop,
        size_bytes=size,
        penalty=penalty,
        heldout=unseen,
        heldout_low=number(record.get("heldout_low")),
        heldout_high=number(record.get("heldout_high")),
        picks=_pick_names(record.get("pick")),
        feasible=str(record.get("feasible", True)) != "False",
        further={name: number(record.get(name)) for name in (*costs, *measured_columns(costs))},
    )


def _pick_names(cell: object) -> tuple[str, ...]:
    names = [name.strip() for name in cell.split(",")] if isinstance(cell, str) else []
    return tuple(sorted(filter(None, names), key=pick_order))


def pick_order(name: str) -> tuple[int, str]:
    """Sorts names of picks: those that are known in their order, then others."""
    return (PICK_NAMES.index(name) if name in PICK_NAMES else len(PICK_NAMES), name)


def number(value: object) -> float | None:
    """A finite number, else None: an empty cell, a NaN, a missing key."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
