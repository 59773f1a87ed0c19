"""Finished searches, and which of their candidates answer to a limit on the drop."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import bench
import regret
import unseen

import autoselect
from autoselect.domain.quantities import METRIC, objectives_of
from autoselect.runs.records import TrialRecord, distinct, scores_of
from autoselect.scoring.metrics import make_metric
from autoselect.study.finishing.certainty import link_of, standings_of
from autoselect.study.finishing.front_members import front_of

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A finished run."""

    run: autoselect.Run
    records: list[TrialRecord]
    evaluations: float
    seconds: float
    direction: Any

    def least(self, limit: float) -> TrialRecord | None:
        """The candidate of least penalty that keeps the limit on the search samples."""
        kept = [r for r in self.records if r.scores and r.scores.drop <= limit + ROUNDING]
        return min(kept, key=lambda r: (r.scores.penalty, r.scores.size_bytes, r.scores.drop), default=None)

    def recommended(self, limit: float) -> TrialRecord:
        """What a search recommends for a limit: what the search samples prove, or come closest to a proof of."""
        score = self.run.summary["references"]["float"][self.run.manifest["metric"]["name"]]
        yardstick = regret.yardstick_of(self.run, self.direction, limit / score)
        known = [replace(r, violations={}) for r in self.records if r.scores]
        link = link_of(scores_of(distinct(known)))
        objectives = objectives_of((METRIC, "size", "penalty"), self.run.manifest["metric"]["name"], self.direction)
        front, _ = front_of(known, objectives, yardstick, link)
        chosen = yardstick.rule.recommended(standings_of(front, link))
        return next(r for r in front if r.id == chosen.id)

    def curve(self, sampler: str) -> list[TrialRecord]:
        """A fixed ranking from its first step to its last; else what none with as few float ops is closer to float."""
        if sampler == "prefix":
            return [r for r in self.records if r.recipe and r.origin in ("baseline:fiq", sampler)]
        best: list[TrialRecord] = []
        known = [r for r in self.records if r.scores]
        for record in sorted(known, key=lambda r: (r.scores.float_ops, -r.scores.sqnr_db)):
            if not best or record.scores.sqnr_db > best[-1].scores.sqnr_db:
                best.append(record)
        return best


def searched(task: bench.Task) -> Searched:
    """Read a finished run."""
    run, records = autoselect.load_run(task.folder), unseen.records_of(task.folder)
    note = json.loads((task.folder / bench.FINISHED).read_text(encoding="utf-8"))
    return Searched(
        run=run,
        records=records,
        evaluations=float(regret.spent(records, note)[-1]),
        seconds=note["seconds"],
        direction=make_metric(task.case.metric).direction,
    )


def recipe_of(record: TrialRecord) -> autoselect.Recipe:
    """Of a trial that has one."""
    assert record.recipe is not None
    return record.recipe
