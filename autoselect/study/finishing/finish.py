"""The end of a search: front, picks, held-out scores and files, once the trials are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoselect.cases.events import Listener, StageStarted, Warned
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.objectives import Objective
from autoselect.isolation.pool import WorkerPool
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores, TrialRecord
from autoselect.scoring.target_file import read_target
from autoselect.study import references
from autoselect.study.finishing import front_files, front_members, rescoring, result
from autoselect.study.finishing.explain import write_explanations
from autoselect.study.finishing.exported import export
from autoselect.study.proposing.forecast_check import unlike_forecasts, warnings_of
from autoselect.study.proposing.problem import Problem
from autoselect.study.setup.baselines import REPAIRED
from autoselect.study.setup.repeatability import warn_of_unrepeated
from autoselect.study.setup.target_rules import compiler_summary
from autoselect.study.yardstick import Yardstick


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a search: everything that is written once the trials are told.

    Attributes:
        folder: Where it is written.
        case: What was searched.
        settings: How.
        objectives: The metric first.
        yardstick: The float model's scores and the limits.
        problem: What a sampler knew; explains the result where it is there.
        seconds: Time spent so far, by stage.
    """

    folder: RunFolder
    case: Case
    settings: SearchSettings
    objectives: tuple[Objective, ...]
    yardstick: Yardstick
    problem: Problem | None = None
    seconds: Callable[[], Mapping[str, float]] = dict

    def write(
        self,
        records: list[TrialRecord],
        float_model: references.Reference,
        pool: WorkerPool | None,
        listener: Listener,
        *,
        ended_early: str | None = None,
    ) -> str:
        """Write the result; without a pool (after Ctrl-C) held-out scores are left for a resume."""
        front, feasible = front_members.front_of(records, self.objectives, self.yardstick)
        root, metric, costs = self.case.files.root, self.objectives[0].name, self.settings.cost_columns
        wholes = _whole_baselines(records)
        references = [float_model, *(_reference(name, r.scores) for name, r in wholes.items() if r.scores)]
        heldout: dict[str, result.Heldout] = {}
        if pool is not None:
            front_files.restore([*front, *wholes.values()], root, pool)
        front_files.materialise(front, self.folder, root)
        warnings = list(self.case.warnings)
        for message in (unlike := warnings_of(records)):
            listener(Warned(message=message))
        warnings += unlike
        if pool is not None:
            members = {r.scores.sha256: f"Member {r.id} of the front" for r in front if r.scores}
            known = {r.sha256 for r in references if r.name in ("float", "fiq")}
            unknown = {sha: name for sha, name in members.items() if sha not in known}
            warnings += warn_of_unrepeated(self.case, unknown, pool, listener)
            shas = [r.sha256 for r in references] + [r.scores.sha256 for r in front if r.scores]
            heldout, failures = rescoring.score_heldout(shas, self.case, pool, self.settings.trial_timeout, listener)
            warnings += failures
            for message in failures:
                listener(Warned(message=message))
        if pool is not None and "latency_ms" in costs:
            timeout = self.settings.trial_timeout
            front, references = rescoring.time_again(front, references, root, pool, timeout, listener)
        listener(StageStarted(stage="write"))
        picks = front_members.picks_of(front, self.yardstick, front_members.noise_of(front, root, pool), costs)
        result.write_tables(self.folder, metric, records, front, heldout, picks, costs)
        if self.problem is not None:
            write_explanations(self.folder, self.problem, self.settings.template, records, picks)
        status = "interrupted" if pool is None else "complete" if feasible else "nothing_feasible"
        summary = self._summary(status, records, references, heldout, front, picks)
        summary["verdict"] += f" Ended early: {ended_early}." if ended_early else ""
        summary |= {"warnings": warnings, "ended_early": ended_early, "seconds": dict(self.seconds())}
        result.write_summary(self.folder, summary)
        front_files.remove_former_members(front, self.folder)
        if self.case.files.prepared.exists():  # A folder that is put in order may have it no more.
            export(front, picks, self.folder, self.case.files)
        if pool is not None:
            front_files.remove_work(self.folder.work)
        return status

    def _summary(
        self,
        status: str,
        records: list[TrialRecord],
        references: list[references.Reference],
        heldout: dict[str, result.Heldout],
        front: list[TrialRecord],
        picks: dict[str, str],
    ) -> dict[str, Any]:
        metric = self.objectives[0].name
        return {
            "status": status,
            "metric": metric,
            "direction": self.objectives[0].direction,
            "objectives": [objective.name for objective in self.objectives],
            "evaluated": {k: v for k, v in self.case.counts.items() if k != "calibration"},
            "references": result.reference_summary(references, metric, heldout, self.settings.cost_columns),
            "picks": picks,
            "allowed_drop": front_members.allowed_drop(self.yardstick),
            "counts": _counts(records),
            "unlike_forecast": len(unlike_forecasts(records)),
            "target": self.settings.target,
            "compiler": compiler_summary(records, read_target(self.settings.target)),
            "verdict": _verdict(status, references, front, picks, self.yardstick, metric),
        }


def _whole_baselines(records: list[TrialRecord]) -> dict[str, TrialRecord]:
    """The all-integer models and the all-DRQ one by name, where they were scored."""
    found: dict[str, TrialRecord] = {}
    for record in records:
        name = record.origin.removeprefix("baseline:")
        if record.scores is not None and name in ("fiq", REPAIRED, "drq"):
            found.setdefault(name, record)
    return found


def _reference(name: str, scores: Scores) -> references.Reference:
    return references.Reference(
        name=name,
        sha256=scores.sha256,
        metric=scores.metric,
        size_bytes=scores.size_bytes,
        penalty=scores.penalty,
        quantities=scores.costs,
    )


def _counts(records: list[TrialRecord]) -> dict[str, int]:
    return {
        "trials": len(records),
        "scored": len(front_members.distinct(records)),
        "reused": sum(r.reused for r in records),
        "dropped": sum(r.partial is not None and not r.reused for r in records),
        "failed": sum(r.scores is None and r.partial is None for r in records),
        "samples": sum(
            r.scores.samples if r.scores else r.partial.samples if r.partial else 0 for r in records if not r.reused
        ),
    }


def _verdict(
    status: str,
    references: list[references.Reference],
    front: list[TrialRecord],
    picks: dict[str, str],
    yardstick: Yardstick,
    metric: str,
) -> str:
    if not front:
        return "No candidate was scored."
    balanced = next(r.scores for r in front if r.id == picks["balanced"] and r.scores)
    parts = []
    for reference in references:
        if reference.name == "fiq":
            parts.append(f"all-integer {_lost(yardstick.drop(reference.metric))} {metric} against float")
        if reference.name == REPAIRED:
            parts.append(f"with repairs it {_lost(yardstick.drop(reference.metric))} {metric}")
    parts.append(
        f"`balanced` {_lost(balanced.drop)} {metric} with {_count(balanced.float_ops, 'float op')} in "
        f"{_count(balanced.segments, 'segment')}"
    )
    if status == "nothing_feasible":
        parts.append("no candidate meets the constraints, the closest are kept")
    return f"On the search samples {', '.join(parts)}."


def _lost(drop: float) -> str:
    return f"loses {drop:.4g}" if drop > 0 else f"gains {-drop:.4g}" if drop < 0 else "loses no"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
