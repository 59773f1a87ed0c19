"""How the front grew: its hypervolume after each trial; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoselect.domain.objectives import Objective, losses
from autoselect.domain.pareto import hypervolume
from autoselect.report.tables.frames import cost_columns, direction_of
from autoselect.report.tables.layer_rows import column, records

if TYPE_CHECKING:
    import pandas as pd


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
    scored = np.array([_counts(row) for row in rows], dtype=bool) & np.isfinite(table).all(axis=1)
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


def _counts(row: Mapping[str, Any]) -> bool:
    return row.get("state") == "complete" and str(row.get("feasible", True)) != "False"
