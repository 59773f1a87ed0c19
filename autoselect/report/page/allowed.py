"""What would be recommended at each allowed drop: the points of a chart, and the rows that say the same."""

from __future__ import annotations

from typing import Any

import pandas as pd

from autoselect.domain.words import SHARES, label
from autoselect.report.tables.limit_rows import limit_rows
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import Run, read_limits

Row = dict[str, Any]


def allowed_rows(run: Run) -> list[tuple[str, ...]]:
    """A heading, and a row for each stretch of allowed drops with one recommendation; none in runs without the table.

    Raises:
        RunFolderError: If the table is damaged.
    """
    table = _table(run)
    return [] if table.empty else limit_rows(table, str(run.summary["metric"]))


def allowed_points(run: Run) -> Row | None:
    """Points of the chart: allowed drops, penalties, what nine in ten resamples recommend, and members' ids.

    Returns:
        ``drops`` and ``own`` (the run's limit) in the unit that ``axis`` names; ``low`` and ``high`` hold None if
        nothing was resampled. None in runs without the table.
    """
    table, metric = _table(run), str(run.summary["metric"])
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


def _table(run: Run) -> pd.DataFrame:
    return read_limits(run.directory) if RunFolder(run.directory).limits.exists() else pd.DataFrame()
