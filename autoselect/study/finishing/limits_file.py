"""Writes what would be recommended at each allowed drop, and what resamples show of the front's members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace

from autoselect.cases.files import CaseFiles
from autoselect.domain.limits import Limit, allowed_drops, limits
from autoselect.domain.rule import Standing
from autoselect.isolation.door import Workers
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.finishing.certainty import link_of, resampled_standings, standings_of
from autoselect.study.recording import kept_case
from autoselect.study.yardstick import Yardstick

COLUMNS = tuple(field.name for field in fields(Limit))
"""Columns of ``limits.csv``."""


def write_limits(
    front: Sequence[TrialRecord],
    scored: Sequence[Scores],
    yardstick: Yardstick,
    metric: str,
    folder: RunFolder,
    files: CaseFiles,
    pool: Workers | None,
) -> None:
    """Write ``limits.csv``, and keep what resamples show for questions with other limits and targets.

    Args:
        front: The members, with noise and bounds.
        scored: All distinct candidates with scores.
        yardstick: With the rule.
        metric: Its name.
        folder: Of the run.
        files: Of the case.
        pool: Where rows are read; None leaves resamples out.
    """
    members = standings_of(front, link_of(scored))
    if not members:
        return
    again = [] if pool is None else resampled_standings(front, scored, files.root, pool)
    kept_case.keep_standings(folder, members, again)
    most = yardstick.constraints.max_drop
    allowed = allowed_drops(metric, yardstick.float_score, yardstick.allowed_drop, most)
    write_table(folder.limits, COLUMNS, map(_row, limits(members, again, yardstick.rule, allowed)))


def _row(limit: Limit) -> dict[str, object]:
    row = asdict(limit)
    bound = limit.expected_drop_bound
    return {key: "" if value is None else value for key, value in row.items()} | {
        "expected_drop_bound": bound if math.isfinite(bound) else ""
    }


def as_kept(members: Sequence[Standing], kept: kept_case.Shown) -> list[Standing]:
    """The members with other drops and bounds; members of which none is kept stay as they are."""
    kept_figures = {id_: (drop, bound) for id_, drop, bound in kept}
    return [
        replace(m, drop=kept_figures[m.id][0], bound=kept_figures[m.id][1]) if m.id in kept_figures else m
        for m in members
    ]
