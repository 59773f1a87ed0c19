"""The tables of the run folder, and the references of a summary; knows rows, decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.domain.rule import Standing
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import (
    NOT_HELD_OUT,
    Heldout,
    TrialRecord,
    front_columns,
    front_row,
    measured_columns,
    trial_columns,
    trial_row,
)
from autoselect.study.references import Reference


def write_tables(
    folder: RunFolder,
    metric: str,
    records: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    heldout: Mapping[str, Heldout],
    picks: Mapping[str, str],
    expected: Mapping[str, Standing],
    *,
    whole_front: Collection[str],
    costs: Sequence[str],
) -> None:
    """Write ``trials.csv`` and ``front.csv``.

    Args:
        folder: Of the run.
        metric: Its column.
        records: All trials.
        front: The members that are shown.
        heldout: By hash.
        picks: Id of a member by pick name.
        expected: What the picks went by, by id.
        whole_front: Ids of all that no other dominates.
        costs: Columns of the run's objectives but the metric.
    """
    rows_of_trials = (trial_row(r, metric, whole_front, costs) for r in records)
    write_table(folder.trials, trial_columns(metric, costs), rows_of_trials)
    rows = []
    for record in front:
        names = [name for name, member in picks.items() if member == record.id]
        sha = record.scores.sha256 if record.scores else ""
        rows.append(front_row(record, metric, heldout.get(sha), names, expected[record.id], costs))
    write_table(folder.front_table, front_columns(metric, costs), rows)


def reference_summary(
    references: Sequence[Reference],
    metric: str,
    heldout: Mapping[str, Heldout],
    costs: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """The references as plain values, with the columns of the run's objectives."""
    rows: dict[str, dict[str, Any]] = {}
    further = [c for c in dict.fromkeys([*costs, *measured_columns(costs)]) if c not in DEFAULT_COSTS]
    for reference in references:
        measured = heldout.get(reference.sha256)
        rows[reference.name] = {
            metric: reference.metric,
            "size_bytes": reference.size_bytes,
            "penalty": reference.penalty,
            **(measured or NOT_HELD_OUT).cells("heldout"),
            **{column: reference.quantities.get(column) for column in (*further, "float_ops")},
        }
    return rows
