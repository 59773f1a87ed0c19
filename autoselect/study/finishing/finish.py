"""The end of a search: front, picks, held-out scores and files, once the trials are told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.cases.divergence import OnKernels
from autoselect.cases.events import Listener, StageStarted, Warned
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.objectives import Objective
from autoselect.domain.picks import named_picks
from autoselect.domain.rule import Standing
from autoselect.domain.targets import Target
from autoselect.isolation.door import Workers
from autoselect.runs.files import write_json
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Heldout, Scores, TrialRecord, distinct, scores_of
from autoselect.scoring.target_file import read_target
from autoselect.study.finishing import (
    certainty,
    channels,
    cured,
    front_files,
    front_members,
    on_chip,
    rescoring,
    result,
    verdict,
)
from autoselect.study.finishing.explain import write_explanations
from autoselect.study.finishing.exported import export
from autoselect.study.finishing.limits_file import write_limits
from autoselect.study.proposing.forecast_check import unlike_forecasts, warnings_of
from autoselect.study.proposing.hypervolume_gain import Link
from autoselect.study.proposing.problem import Problem
from autoselect.study.recording import kept_case
from autoselect.study.references import Reference, clipping_of
from autoselect.study.setup.baselines import REPAIRED
from autoselect.study.setup.repeatability import confirmed_on_kernels, warn_of_unrepeated
from autoselect.study.setup.target_rules import compiler_summary
from autoselect.study.yardstick import Yardstick


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which members are shown, and which of them are picks.

    Attributes:
        front: The members that are shown.
        judged: The same with the chips' scores, where these differ.
        standings: What is expected of these: picks go by it.
        picks: Ids by name.
        confidence: How sure the recommended one is.
        chips: What was found on chips.
        contradicted: Ids of the members that are not to be recommended: if held-out samples contradict the recommended
            member, all members that they contradict, and all that lose more on a chip than is allowed; else empty.
        passed_over: The contradicted members that the rule prefers to the recommended one, the most preferred first.
    """

    front: list[TrialRecord]
    judged: list[TrialRecord]
    standings: Sequence[Standing]
    picks: dict[str, str]
    confidence: certainty.Confidence | None
    chips: Sequence[on_chip.OnChip] = ()
    contradicted: Collection[str] = ()
    passed_over: Sequence[Scores] = ()

    @property
    def recommended(self) -> Scores | None:
        """The recommended member's scores."""
        return next((r.scores for r in self.front if r.id == self.picks["recommended"]), None)

    @property
    def is_judged_by_chips(self) -> bool:
        """Whether a member scores otherwise on a chip than on the CPU, whose rows alone can be drawn again."""
        return any(r.id in chip.unlike_cpu for r in self.front for chip in self.chips)

    @property
    def is_all_contradicted(self) -> bool:
        """Whether held-out samples contradict every member."""
        return bool(self.contradicted) and all(r.id in self.contradicted for r in self.judged)


UNCHECKED = "The held-out samples could not be scored: the search samples alone speak for it."
"""What the verdict then says."""


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
    settings: Settled
    objectives: tuple[Objective, ...]
    yardstick: Yardstick
    problem: Problem | None = None
    seconds: Callable[[], Mapping[str, float]] = dict

    def write(
        self,
        records: list[TrialRecord],
        float_model: Reference,
        pool: Workers | None,
        listener: Listener,
        *,
        ended_early: str | None = None,
    ) -> str:
        """Write the result; without a pool (after Ctrl-C) held-out scores are left for a resume."""
        link = certainty.link_of(scored := scores_of(distinct(records)))
        root, metric, costs = self.case.files.root, self.objectives[0].name, self.settings.cost_columns
        wholes = _whole_baselines(records)
        references = [float_model, *(_reference(name, r.scores) for name, r in wholes.items() if r.scores)]
        said = [*warnings_of(records), *_restored(wholes, root, pool, listener)]
        measured = front_members.measured_front(records, self.objectives, self.yardstick, link, root, pool)
        choice = self._chosen(measured, scored, link, wholes, pool, listener)
        front = choice.front
        front_files.materialise(front, self.folder, root)
        said += measured.messages
        for message in said:
            listener(Warned(message=message))
        said += [message for chip in choice.chips for message in chip.messages]
        choice, heldout, kernels, failures = self._checked(choice, references, measured.unknown, scored, pool, listener)
        said += failures
        hidden = self._hidden(choice.recommended, pool, listener)
        if pool is not None and "latency_ms" in costs:
            timeout = self.settings.trial_timeout
            front, references = rescoring.time_again(front, references, root, pool, timeout, listener)
            timed = certainty.standings_of(on_chip.by_chips(front, choice.chips), link)
            choice = replace(choice, front=front, picks=self._picks(timed, choice.contradicted))
        listener(StageStarted(stage="write"))
        ids, picks = {r.id for r in measured.members}, choice.picks
        result.write_tables(
            self.folder,
            metric,
            _with_figures(records, front) if choice.chips else records,
            front,
            heldout,
            picks,
            {s.id: s for s in certainty.standings_of(front, link)},
            whole_front=ids,
            costs=(*costs, *(("partitions", "left_ops") if self._target.asks_compiler else ())),
        )
        on_chip.write_chip_table(self.folder.chip, choice.chips)
        if self.problem is not None:
            write_explanations(self.folder, self.problem, self.settings.template, records, picks)
        is_met = measured.feasible and not choice.is_all_contradicted
        status = "interrupted" if pool is None else "complete" if is_met else "nothing_feasible"
        summary = self._summary(status, records, references, heldout, choice)
        early = [f"Ended early: {ended_early}."] if ended_early else []
        summary["verdict"] = " ".join([summary["verdict"], *hidden, *self._cut_off(pool, heldout), *early])
        summary |= {
            "warnings": [*self.case.warnings, *said, *hidden],
            "ended_early": ended_early,
            "seconds": dict(self.seconds()),
            "stood_in": {
                r.id: _plain(kernels[r.scores.sha256]) for r in front if r.scores and r.scores.sha256 in kernels
            },
        }
        write_json(self.folder.summary, summary)  # After the tables that it sums up.
        front_files.remove_former_members(front, self.folder)
        if self.case.files.prepared.exists():  # A folder that a killed search left may lack it.
            export(front, picks, self.folder, self.case.files)
            self._keep(choice, measured.members, scored, pool)
        if pool is not None:
            front_files.remove_work(self.folder.work)
        return status

    def _keep(
        self, choice: _Choice, members: Sequence[TrialRecord], scored: Sequence[Scores], pool: Workers | None
    ) -> None:
        """Keep what questions after the search are answered by, and say what other limits would recommend."""
        kept_case.keep(self.folder, self.case.files, self.problem)
        judged, resampling = choice.judged if choice.chips else members, None if choice.is_judged_by_chips else pool
        write_limits(judged, scored, self.yardstick, self.objectives[0].name, self.folder, self.case.files, resampling)

    def _chosen(
        self,
        measured: front_members.MeasuredFront,
        scored: Sequence[Scores],
        link: Link | None,
        wholes: Mapping[str, TrialRecord],
        pool: Workers | None,
        listener: Listener,
    ) -> _Choice:
        """The members that are shown, and the picks among them; by the chips' scores where these differ."""
        whole_front, unknown, root = measured.members, measured.unknown, self.case.files.root
        picks = self._picks(certainty.standings_of(whole_front, link))
        confidence = certainty.confidence_of(whole_front, scored, self.yardstick, root, pool, unknown)
        named = {*picks.values(), *(confidence.named if confidence else ())}
        steps = self._steps(whole_front)
        front = front_members.worth_reading(whole_front, self.objectives, named, steps, link)
        if pool is None or not self._target.asks_compiler:
            standings = certainty.standings_of(front, link)
            return _Choice(front=front, judged=front, standings=standings, picks=picks, confidence=confidence)
        front, chips = self._on_chips(front, wholes, pool, listener)
        judged = on_chip.by_chips(front, chips)
        standings = certainty.standings_of(judged, link)
        choice = _Choice(
            front=front, judged=judged, standings=standings, picks=self._picks(standings), confidence=None, chips=chips
        )
        resampling = None if choice.is_judged_by_chips else pool
        confidence = certainty.confidence_of(judged, scored, self.yardstick, root, resampling, unknown)
        return replace(choice, confidence=confidence)

    def _reconsidered(
        self,
        choice: _Choice,
        heldout: Mapping[str, Heldout],
        unknown: Mapping[str, certainty.Unknown],
        scored: Sequence[Scores],
    ) -> _Choice:
        """The choice without members that held-out samples contradict, if the recommended one is such a member.

        Nor are members chosen in its place that break the limit on a chip.

        If the search says with a bound that its recommended model is expected to break the limit, and the samples
        contradict all members, they say nothing new.
        """
        by_samples, confidence = self._contradicted(choice.judged, heldout), choice.confidence
        contradicted = by_samples | self._ruined(choice.chips)  # The samples ran on the CPU.
        sound = [r for r in choice.judged if r.id not in contradicted]
        is_told = (
            confidence is not None and confidence.unknown is None and confidence.expected > self.yardstick.allowed_drop
        )
        if choice.picks.get("recommended") not in by_samples or (is_told and not sound):
            return choice
        by_preference = [s.id for s in sorted(choice.standings, key=self.yardstick.rule.order)]
        scores = {r.id: r.scores for r in choice.judged if r.scores}
        left, root = sound or choice.judged, self.case.files.root
        preferred = itertools.takewhile(contradicted.__contains__, by_preference)
        return replace(
            choice,
            picks=self._picks(choice.standings, contradicted),
            confidence=certainty.confidence_of(left, scored, self.yardstick, root, None, unknown),
            contradicted=contradicted,
            passed_over=[scores[id_] for id_ in preferred if id_ in by_samples],
        )

    def _contradicted(self, front: Sequence[TrialRecord], heldout: Mapping[str, Heldout]) -> set[str]:
        """Ids of the members of which held-out samples say that they break the limit."""
        rule, measured = self.yardstick.rule, {r.id: heldout.get(r.scores.sha256) for r in front if r.scores}
        return {
            id_
            for id_, own in measured.items()
            if own is not None and own.drop is not None and rule.is_contradicted(own.drop, own.drop_low)
        }

    def _ruined(self, chips: Sequence[on_chip.OnChip]) -> set[str]:
        """Ids of the members that score otherwise on a chip than on the CPU, and break the limit there."""
        rule, seen = self.yardstick.rule, [pair for chip in chips for pair in chip.unlike_cpu.items()]
        return {id_ for id_, reply in seen if rule.is_contradicted(reply.drop, reply.drop_low)}

    def _doubted(self, choice: _Choice) -> Scores | None:
        """What would be recommended if the score of a model that is far from float counted."""
        rule, far = self.yardstick.rule, {m.id for m in choice.standings if self.yardstick.rule.is_far(m)}
        sound = [replace(m, is_bounded=True) for m in choice.standings if m.id not in choice.contradicted]
        if not sound or choice.picks["recommended"] in far:
            return None
        trusted = rule.recommended(sound).id
        return next((r.scores for r in choice.judged if r.id == trusted), None) if trusted in far else None

    def _on_chips(
        self,
        front: Sequence[TrialRecord],
        wholes: Mapping[str, TrialRecord],
        pool: Workers,
        listener: Listener,
    ) -> tuple[list[TrialRecord], list[on_chip.OnChip]]:
        """The members that compile for every chip, and what they and the whole models are on each."""
        root, ids, limit = self.case.files.root, {r.id for r in front}, self.settings.trial_timeout
        made = [*front, *{r.id: r for r in wholes.values() if r.id not in ids}.values()]
        chips, emulating = [], {chip.name for chip in self._target.asked}
        for place, chip in enumerate(self._target.compilers):
            compiling, on_it = on_chip.compiled(made, place, self._target, limit, root, pool, listener)
            made = compiling or made
            if chip.name in emulating:
                allowed = self.yardstick.allowed_drop
                on_it = on_chip.emulated(made, on_it, allowed, self.settings, root, pool, listener)
            chips.append(on_it)
        return [r for r in made if r.id in ids] or list(front), chips

    @property
    def _target(self) -> Target:
        return read_target(self.settings.target)

    def _checked(
        self,
        choice: _Choice,
        references: Sequence[Reference],
        unknown: Mapping[str, certainty.Unknown],
        scored: Sequence[Scores],
        pool: Workers | None,
        listener: Listener,
    ) -> tuple[_Choice, dict[str, Heldout], dict[str, OnKernels], list[str]]:
        """Check the members of the front: do their outputs repeat, and do held-out samples contradict a pick.

        A member whose outputs differ from run to run is switched to plain kernels first, so that it is scored on these.

        Args:
            choice: The members and picks by the search samples.
            references: The float model and the whole models, which are scored held out, too.
            unknown: Why the bounds of members are not known, by id.
            scored: All candidates.
            pool: Where models run; None leaves everything as it is.
            listener: Is told of progress, and of each warning.

        Returns:
            The choice, with other picks if held-out samples contradict the recommended member; the held-out scores by
            hash; by hash, how members run on kernels for which others stood in while they were scored; the warnings.
        """
        if pool is None:
            return choice, {}, {}, []
        members, curing = _named(choice.front), cured.start_cures(self.case, self.settings, pool)
        scored_before = {r.sha256 for r in references if r.name in ("float", "fiq")}
        unchecked = {sha: name for sha, name in members.items() if sha not in scored_before}
        warnings = list(warn_of_unrepeated(self.case, unchecked, pool, listener, have_run=True))
        heldout, failures = rescoring.score_heldout(
            [*(r.sha256 for r in references), *members],
            choice.recommended.sha256 if choice.recommended else "",
            self.case,
            self.objectives[0].direction,
            pool,
            self.settings.trial_timeout,
            listener,
        )
        choice = self._reconsidered(choice, heldout, unknown, scored)
        recommended = choice.recommended
        if recommended is not None:
            failures += rescoring.write_effects(recommended.sha256, self.case, self.folder, pool)
        failures += cured.write_cures(curing, self.folder)
        failures += verdict.far_from_float(recommended)
        for message in failures:
            listener(Warned(message=message))
        chosen = recommended.sha256 if recommended else ""
        kernels, unlike = confirmed_on_kernels(self.case.files.root, members, chosen, pool, listener)
        return choice, heldout, kernels, warnings + failures + unlike

    def _hidden(self, recommended: Scores | None, pool: Workers | None, listener: Listener) -> list[str]:
        """What the scores of the recommended model hide: unlike channels and samples, and work of the chip's host."""
        if recommended is None or pool is None:
            return []
        metric, root = self.objectives[0].name, self.case.files.root
        hidden = channels.warnings_of(recommended.sha256, self.case, self.yardstick, metric, pool, listener)
        of_model = (recommended.sha256, recommended.compiled, "the recommended model")
        on_host = on_chip.left_to_host(*of_model, self._target, root, pool)
        for message in on_host:
            listener(Warned(message=message))
        return hidden + on_host

    def _cut_off(self, pool: Workers | None, heldout: Mapping[str, Heldout]) -> tuple[str, ...]:
        """What was not checked: held-out samples without a score; an evaluator's values beyond calibrated ranges."""
        if pool is None:
            return ()
        unseen = (UNCHECKED,) if self.case.has_heldout and not heldout else ()
        return (
            *unseen,
            *(clipping_of(self.case.files.root, pool, self.settings) if self.settings.has_evaluator else ()),
        )

    def _picks(self, standings: Sequence[Standing], contradicted: Collection[str] = ()) -> dict[str, str]:
        return dict(named_picks(standings, self.yardstick.rule, contradicted))

    def _steps(self, front: Sequence[TrialRecord]) -> dict[str, float]:
        """The least distance between members that are shown, by objective; other objectives are not thinned."""
        noise = [r.scores.drop_noise for r in front if r.scores and r.scores.drop_noise > 0.0]
        spacing = self.settings.front_spacing
        of_drop = spacing * float(np.median(noise)) if noise else 0.0
        return {self.objectives[0].name: of_drop, **self.yardstick.steps(spacing)}

    def _summary(
        self,
        status: str,
        records: list[TrialRecord],
        references: list[Reference],
        heldout: dict[str, Heldout],
        choice: _Choice,
    ) -> dict[str, Any]:
        metric, target = self.objectives[0].name, self._target
        front, picks, confidence, chips = choice.front, choice.picks, choice.confidence, choice.chips
        made = compiler_summary(records, target)
        by_compilers = on_chip.by_compilers(picks.get("recommended", ""), chips) if target.parts else []
        said = verdict.sentences(
            verdict.Findings(
                metric=metric,
                yardstick=self.yardstick,
                references=references,
                picks={name: r.scores for name, id_ in picks.items() for r in front if r.id == id_ and r.scores},
                confidence=confidence,
                heldout=heldout,
                contradicted=choice.passed_over,
                doubted=self._doubted(choice),
                samples=self.case.counts.get("search", 0),
                feasible=status != "nothing_feasible",
                wide=_wide(front, picks.get("recommended", "")),
                integer_error=next((r.error for r in records if r.origin == "baseline:fiq" and r.error), ""),
                accelerated=target.accelerates_integers_alone,
                unit=target.unit,
                is_member_unlike=any(r.id in chip.unlike_cpu for r in front for chip in chips),
                on_chip=verdict.chip_scores(chips, picks.get("recommended", ""), _whole_baselines(records), metric),
                chip=target.accelerator.name if target.asks_compiler and target.accelerator else "",
                other_state=verdict.other_state(
                    scores_of(records), self.yardstick, self.settings.fallback, runs_hybrid=target.runs_hybrid
                ),
            )
        )
        return {
            "status": status,
            "metric": metric,
            "direction": self.objectives[0].direction,
            "objectives": [objective.name for objective in self.objectives],
            "evaluated": {k: v for k, v in self.case.counts.items() if k != "calibration"},
            "references": result.reference_summary(references, metric, heldout, self.settings.cost_columns),
            "picks": picks,
            "allowed_drop": self.yardstick.allowed_drop,
            "contradicted": [s.sha256[:10] for s in choice.passed_over],
            "recommended": None if confidence is None else _plain(confidence),
            "counts": _counts(records),
            "unlike_forecast": len(unlike_forecasts(records)),
            "target": self.settings.target,
            "runtimes": {r.id: r.scores.needs for r in front if r.scores and r.scores.needs},
            "compiler": on_chip.summary(chips, made) if target.asks_compiler else made,
            "headline": said[0],
            "verdict": " ".join([*said, *by_compilers]),
        }


def _with_figures(records: Sequence[TrialRecord], front: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records; those of members have the compiler's figures, so that both tables say the same."""
    scores = {r.id: r.scores for r in front}
    return [replace(r, scores=scores[r.id]) if r.scores and r.id in scores else r for r in records]


def _restored(wholes: Mapping[str, TrialRecord], root: Path, pool: Workers | None, listener: Listener) -> list[str]:
    """Build whole models again where their files are missing, and say which could not be built."""
    if pool is None:
        return []
    listener(StageStarted(stage="picks"))
    failures = front_files.restore(list(wholes.values()), root, pool)
    return [f"The baseline {key} could not be built again. {why}" for key, why in failures.items()]


def _named(front: Sequence[TrialRecord]) -> dict[str, str]:
    """What to call members in a sentence, by hash."""
    return {r.scores.sha256: f"Member {r.id} of the front" for r in front if r.scores}


def _wide(front: Sequence[TrialRecord], member: str) -> int:
    """How many nodes of a member have 16-bit activations."""
    return next((len(r.recipe.int16_nodes) for r in front if r.id == member and r.recipe), 0)


def _whole_baselines(records: list[TrialRecord]) -> dict[str, TrialRecord]:
    """The all-integer models and the all-DRQ one by name, where they were scored."""
    wholes: dict[str, TrialRecord] = {}
    for record in records:
        name = record.origin.removeprefix("baseline:")
        if record.scores is not None and name in ("fiq", REPAIRED, "int16", "drq"):
            wholes.setdefault(name, record)
    return wholes


def _reference(name: str, scores: Scores) -> Reference:
    return Reference(
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
        "scored": len(distinct(records)),
        "reused": sum(r.reused for r in records),
        "dropped": sum(r.partial is not None and not r.reused for r in records),
        "failed": sum(r.scores is None and r.partial is None for r in records),
        "samples": sum(r.samples for r in records),
    }


def _plain(figures: certainty.Confidence | OnKernels) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(figures).items()}
