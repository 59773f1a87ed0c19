"""The trials of one search: whole models first, then repairs, then units; and its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from autoselect.cases import chip_jobs, prepare_jobs
from autoselect.cases.events import EndedEarly, Event, Listener, Noted, StageStarted, Warned
from autoselect.cases.open_case import target_as_seen
from autoselect.cases.prepare import Case
from autoselect.cases.settled import RepairChoice, Settled
from autoselect.domain.objectives import Objective
from autoselect.domain.pinned import NO_PINS, Pins
from autoselect.domain.quantities import objectives_of
from autoselect.domain.repair_sets import corrected_at_once
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import EXACT, SIXTEEN, left_out_of
from autoselect.domain.units import nodes_behind
from autoselect.errors import StorageError, TrialError, UsageError, sentence
from autoselect.isolation.deadline import TimeUp, until
from autoselect.isolation.door import InTime, Workers
from autoselect.isolation.machine import why_fewer
from autoselect.isolation.pool import result_of
from autoselect.runs.cache import why_unkept
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder, read_json
from autoselect.runs.records import TrialRecord, own_trials, scores_of
from autoselect.scoring.evaluate import takes
from autoselect.scoring.target_file import read_target
from autoselect.study import references
from autoselect.study.early_exit import stop_of
from autoselect.study.finishing.explain import write_explanations
from autoselect.study.finishing.finish import Finish
from autoselect.study.forecasts import unprobed
from autoselect.study.loop import SearchLoop, Stop
from autoselect.study.proposing.forecast_check import ForecastCheck
from autoselect.study.proposing.pins import holding
from autoselect.study.proposing.problem import Problem
from autoselect.study.recording.manifest import pinned_in_words, pinned_trials
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.recording.samplers import PROPOSERS, SAMPLERS, make_sampler, sampler_in_use
from autoselect.study.remarks import note, remarked
from autoselect.study.request import Request
from autoselect.study.setup.baselines import Baseline, baselines
from autoselect.study.setup.problem import make_problem
from autoselect.study.setup.remembering import Remembering
from autoselect.study.setup.repair_choice import with_repairs
from autoselect.study.setup.weight_ladder import COLUMNS as COLUMNS_OF_LEVELS
from autoselect.study.setup.weight_ladder import Ladder, stores_in_4_bits, with_levels
from autoselect.study.stage_clock import StageClock
from autoselect.study.yardstick import Yardstick


def search(
    request: Request,
    folder: RunFolder,
    case: Case,
    space: BoundSpace,
    float_model: references.Reference,
    pool: Workers,
    clock: StageClock,
) -> str:
    """Run all trials, and write the result; returns the status of the run.

    Raises:
        UsageError: If pins cannot be kept.
        StorageError: If the study cannot be written; a resumed search repairs it.
    """
    settings = request.settings
    pool = InTime(pool, settings.trial_timeout)
    remarks = references.warnings_of(float_model, request.metric_name, case.files.root, pool)
    remarks += references.clipping_of(case.files.root, pool, settings)
    remarks += _spilling(case, settings, folder, pool, clock)
    objectives = objectives_of(settings.objectives, request.metric_name, request.direction)
    study = SearchStudy(folder.study, objectives)
    study.close_abandoned()
    records = study.records()
    _keep_pins(folder, records, request.pins)
    if request.pins:
        note(pinned_in_words(folder.read_manifest()), folder, clock)
    if request.said.workers is None and (fewer := why_fewer(request.facts.workers)) is not None:
        note(fewer, folder, clock)
    if settings.cache and (lack := why_unkept()) is not None:
        note(lack, folder, clock)
    under_way = _Search(
        request=request,
        folder=folder,
        case=remarked(case, folder, remarks, clock),
        space=space,
        float_model=float_model,
        pool=pool,
        clock=clock,
        objectives=objectives,
        yardstick=references.yardstick_of(float_model, request.metric_name, request.direction, settings),
        study=study,
        is_resumed=bool(records),
        drawn=sum(record.origin in SAMPLERS for record in records),
    )
    try:
        status = under_way.finished(pool, under_way.reason())
    except KeyboardInterrupt:
        under_way.study.close_abandoned()
        status = under_way.finished(None)
    except StorageError:
        raise  # The journal may end in half a line, which the next write would make whole; a resume repairs it.
    except BaseException:
        under_way.study.close_abandoned()
        raise
    under_way.study.publish(folder.front, folder.artifacts, _verdict_in_markdown(folder))
    return status


TIMED_OUT = "the timeout"
"""With what the reason begins if a search ended because its time was over."""


@dataclass(slots=True, kw_only=True)
class _Search:
    """A search under way: whole models first, then repairs, then units; what comes later may not be needed.

    Attributes:
        request: What the user asked for; it is replaced once repairs were tried, by one whose settings have their sets.
        is_resumed: Whether an earlier process of this run began it.
        drawn: Count of trials that the sampler proposed in earlier processes of this run; baselines draw no numbers.
        problem: What the project's own samplers know of the search space; None before units were tried, and for spaces
            that only Optuna's samplers can search.
        forecast: What is known of costs without that, once it was asked for; None if no candidate can be planned.
    """

    request: Request
    folder: RunFolder
    case: Case
    space: BoundSpace
    float_model: references.Reference
    pool: Workers
    clock: StageClock
    objectives: tuple[Objective, ...]
    yardstick: Yardstick
    study: SearchStudy
    is_resumed: bool
    drawn: int
    problem: Problem | None = None
    forecast: list[Problem | None] = field(default_factory=list)

    def reason(self) -> str | None:
        """Run all trials; say why the search ended with trials left, None if it did not."""
        if self.request.by_hand:
            return self._by_hand()
        proving = _proving_rewrites(self.case, self.settings, self.pool)
        alone = not self.request.members  # Members of other runs are told together, after repairs.
        reason = self._by_whole_models() if alone else None
        if reason is None:
            reason = self._in_time(self._look_at_types)
        if reason is None and not self._is_spent():
            reason = self._in_time(self._try_repairs) or (self._by_repaired_models() if alone else None)
        self._remark(_proved(proving, self.folder, self.clock))
        if reason is None and not self._is_spent():
            # A sampler's loop also says that all candidates failed.
            has_choice = self.space.dimensions or self.request.members or not self._has_scores()
            reason = self._by_candidates() if has_choice else self._no_choice()
        if reason is None or self.request.members:
            return None
        self.clock(EndedEarly(stage="trials", reason=reason))
        return reason

    def _no_choice(self) -> str:
        """Why the search ends with whole models.

        Raises:
            UsageError: If there are pins, since nothing keeps them.
        """
        refuse_unkept_pins(self.request)
        return "target and pins leave each node one form, so that there are no candidates but whole models"

    def _by_whole_models(self) -> str | None:
        """Why the whole models as they are settle the search: the all-integer one, before the others are scored."""
        plain = [b for b in self._baselines() if b.is_whole and not b.recipe.repairs]
        loop = self._loop()
        self._start_trials()
        if reason := loop.tell_first(plain[:1], self.settings.trials, self._stop()):
            mixed = any(r.recipe and (r.recipe.repairs or left_out_of(r.recipe)) for r in self.study.records())
            return reason if mixed else f"{reason}; neither repairs nor units were tried"
        if not self._has_scores():  # A sampler that knows which op failed rules the other models out.
            return None
        if self.forecast:
            self._start_trials()
        loop.tell_first(plain, self.settings.trials)
        return self._late()

    def _look_at_types(self, pool: Workers) -> None:
        """Say what the type of inputs and outputs costs, if no model so far has kept the limit with it."""
        drops = [record.scores.drop for record in self.study.records() if record.scores]
        if self.settings.io_type == "float32" or not drops or min(drops) <= self.yardstick.allowed_drop:
            return
        metric, root = self.request.metric_name, self.case.files.root
        self._remark(references.types_of(root, pool, self.settings, self.yardstick, metric))

    def _late(self) -> str | None:
        """Why there is no time for anything more; None if there is."""
        limit = self.settings.timeout
        if limit is None or self.clock.elapsed() < limit:
            return None
        return f"{TIMED_OUT} of {limit:g} s has passed; `autoselect resume` goes on"

    def _in_time(self, ask: Callable[[Workers], None]) -> str | None:
        """Ask what proposals need to know, until the search's timeout.

        Returns:
            Why the search ends if the timeout comes first; None if all was answered.
        """
        # Members of other runs are scored however long that takes.
        limit = None if self.request.members else self.settings.timeout
        if limit is None:
            ask(self.pool)
            return None
        try:
            with until(self.pool, limit - self.clock.elapsed(), self.folder.log) as pool:
                ask(pool)
        except TimeUp:
            return self._late()
        return None

    def _is_spent(self) -> bool:
        """Whether no trial is left, so that nothing more need be known."""
        return self._has_scores() and own_trials(self.study.records()) >= self.settings.trials

    def _has_scores(self) -> bool:
        """Whether any model of the study could be run and has a score."""
        return any(record.scores for record in self.study.records())

    def _by_repaired_models(self) -> str | None:
        """Why the whole models with repairs settle it."""
        if not self._has_scores():
            return None
        repaired = [b for b in self._baselines() if b.is_whole]
        if not any(b.recipe.repairs for b in repaired):
            return self._late()
        self._start_trials()
        reason = self._loop().tell_first(repaired, self.settings.trials, self._stop())
        return f"{reason}; no unit was tried alone" if reason else self._late()

    def _by_candidates(self) -> str | None:
        """Why the search ends before its budget is spent on candidates of a sampler."""
        settings = self.settings
        if reason := self._in_time(self._know_problem):
            return reason
        if self.problem is not None:
            self.problem.hold = holding(self.problem, self.request.pins)
            write_explanations(self.folder, self.problem, settings.template, [], {})
        sampler = make_sampler(
            settings.sampler,
            seed=settings.seed + self.drawn,  # A search that goes on draws other numbers than it began with.
            problem=self.problem,
            space=self.space,
            template=settings.template,
            budget=settings.trials,
        )
        if self.problem is None:
            refuse_unkept_pins(self.request)
        self.study.sample_by(sampler_in_use(settings.sampler, self.problem), sampler, settings.repairs.alternatives)
        self._start_trials()
        models, trials, late = self._baselines(are_whole_known=True), settings.trials, self._late
        if self.request.members:  # Nothing is proposed beside these, however many of them failed before.
            trials, late = own_trials(self.study.records()) + len(models), lambda: "all members were tried"
        return self._loop().run(models, trials, self._stop(), late)

    def _know_problem(self, pool: Workers) -> None:
        """Let it be known what a sampler may know; what was probed before is not probed again."""
        settings = self.settings
        if settings.sampler in PROPOSERS:
            probers = InTime(Remembering(pool, self.folder.probes), settings.trial_timeout)
            self.problem, remarks = make_problem(self.case, self.space, settings, self.yardstick, probers, self._noting)
            self._remark(remarks)

    def _by_hand(self) -> str | None:
        """Score what a user made; the search ended as it did before."""
        if self.folder.sensitivity.exists():
            self._know_problem(self.pool)
        self.clock(StageStarted(stage="trials", total=len(self.request.by_hand)))
        self._loop().tell_by_hand(self.request.by_hand)
        summary = read_json(self.folder.summary, missing="") if self.folder.summary.exists() else {}
        return summary.get("ended_early")

    def _try_repairs(self, pool: Workers) -> None:
        """Let the search, and the manifest, have the sets of repairs that candidates may have."""
        before = self.request.settings
        helpful = with_repairs(
            self.case,
            before,
            self.request.direction,
            Remembering(pool, self.folder.tried, self.request.user_code),
            self._noting,
            space=self.space,
            rule=self.yardstick.rule,
        )
        choice, ladder = self._with_levels(self.request.knowing(repairs=helpful).settings, before.tries_repairs, pool)
        if ladder is not None:
            write_table(self.folder.weight_levels, COLUMNS_OF_LEVELS, ladder.rows())
            self._remark(_without_rungs(ladder, before))
        self.request = self.request.knowing(repairs=choice)
        if self.request.members:  # There are as many trials as these and the baselines need.
            self.request = self.request.knowing(models=len(self._baselines()))
        manifest = self.folder.read_manifest()
        self.folder.write_manifest({**manifest, "settings": self.request.kept()})

    def _with_levels(self, settings: Settled, corrects: bool, pool: Workers) -> tuple[RepairChoice, Ladder | None]:
        """See :func:`with_levels`; where nobody can say what levels do, all weights have 8 bits."""
        remembering = Remembering(pool, self.folder.tried)
        try:
            return with_levels(self.case, settings, remembering, self.clock, corrects=corrects)
        except TrialError as exc:
            self._remark((f"All weights have 8 bits, since nobody can say what fewer levels do. {exc}",))
            return settings.repairs, None

    def finished(self, pool: Workers | None, ended_early: str | None = None) -> str:
        """Write the result, see :meth:`Finish.write`; with a word on members of other runs that were not scored."""
        self._remark(_unscored(self.request, self.study))
        _keep_pins(self.folder, self.study.records())
        if self.is_resumed and pool is not None and not self.folder.kept.exists():
            self._restore_kept(pool)
        finish = Finish(
            folder=self.folder,
            case=self.case,
            settings=self.settings,
            objectives=self.objectives,
            yardstick=self.yardstick,
            problem=self.problem,
            seconds=self.clock.seconds,
        )
        nodes = [node.name for node in self.case.layers.nodes]
        records = references.float_known(self.study.records(), nodes, self.settings)
        return finish.write(records, self.float_model, pool, self.clock, ended_early=ended_early)

    def _restore_kept(self, pool: Workers) -> None:
        """Make the units and the blueprints of all sets of repairs again, after the folder ``kept`` was removed.

        The trials of this process needed only some of them, or none.
        """
        template, states = self.settings.template, self.settings.states
        try:
            if self.problem is None and self.folder.sensitivity.exists():
                self._know_problem(pool)
            for repairs in dict.fromkeys(map(corrected_at_once, self.settings.repairs.alternatives)):
                recipe = replace(template, repairs=repairs).to_json()
                pool.call(prepare_jobs.blueprint, self.case.files.root, recipe, SIXTEEN in states)
        except TrialError as exc:
            self._remark((f"The folder `kept` lacks a part of what `what-if` and `explore` read. {exc}",))

    @property
    def settings(self) -> Settled:
        """How to search."""
        return self.request.settings

    def _loop(self) -> SearchLoop:
        """A loop that knows what was told before."""
        problem = None if self.request.members else self.problem  # Weights of members may be coarser or finer.
        return SearchLoop(
            self.study,
            self.space,
            self.settings,
            self.yardstick,
            pool=self.pool,
            root=self.case.files.root,
            slots=partial(self.pool.slots, self.settings.processes),
            may_race=_may_race(self.request),
            listener=self.clock,
            forecasts=None if problem is None else ForecastCheck(problem, self.settings.template),
            failing=partial(nodes_behind, self.case.graph, self.case.layers.nodes),
        )

    def _stop(self) -> Stop:
        root = self.case.files.root
        return stop_of(self.request, self.yardstick, root, self.pool, self.study, self.problem, self._forecasts)

    def _forecasts(self) -> Problem | None:
        """What is known of costs before units are tried; it is found out once."""
        if not self.forecast:
            self.clock(StageStarted(stage="plan"))
            self.forecast.append(unprobed(self.case, self.settings, self.yardstick, self.space, self.pool))
        return self.forecast[0]

    def _baselines(self, *, are_whole_known: bool = False) -> list[Baseline]:
        """The baselines that the target can run, and the front members of other runs that are merged.

        A target without hybrid kernels cannot run the all-DRQ model.

        Args:
            are_whole_known: True once the whole models are scored. The candidate with all nodes in float is then a
                baseline if no scored candidate has a lower penalty than float.
        """
        target, template, sets = read_target(self.settings.target), self.settings.template, self.settings.repairs.sets
        with_float = target.asks_compiler or (are_whole_known and self._nothing_is_cheaper())
        models = baselines(self.case.layers, self.space, template, helpful=sets, with_float=with_float)
        members = [
            Baseline(name="merged", recipe=recipe, is_like_others=False, is_whole=False)
            for recipe in self.request.members
        ]
        return [b for b in models if target.runs_hybrid or b.recipe.fallback != "drq"] + members

    def _nothing_is_cheaper(self) -> bool:
        """Whether a candidate is scored, and none has a lower penalty than float: then float may be best."""
        penalties = [scores.penalty for scores in scores_of(self.study.records())]
        everything = frozenset(node.name for node in self.case.layers.nodes)
        may_be_float = self.space.pin(everything) == everything
        return may_be_float and bool(penalties) and min(penalties) >= self._penalty_of_float()

    def _penalty_of_float(self) -> float:
        """Penalty of the float model, or of the candidate with all nodes in float if the forecast of that is lower."""
        own = self.yardstick.float_penalty
        if self.problem is None:
            return own
        nodes = frozenset(node.name for node in self.case.layers.nodes)
        everything = self.problem.mask_of(nodes, {EXACT: nodes}, self.settings.template.repairs)
        return min(own, self.problem.forecast(everything).penalty)

    def _start_trials(self) -> None:
        done = own_trials(self.study.records())
        self.clock(StageStarted(stage="trials", total=self.settings.trials, done=done))

    def _noting(self, event: Event) -> None:
        """Tell the user; the manifest keeps what is to be known of probes and repairs."""
        if isinstance(event, Noted):
            note(event.message, self.folder, self.clock)
        elif isinstance(event, Warned):
            self._remark((event.message,))
        else:
            self.clock(event)

    def _remark(self, remarks: Sequence[str]) -> None:
        self.case = remarked(self.case, self.folder, remarks, self.clock)


def _without_rungs(ladder: Ladder, settings: Settled) -> list[str]:
    """A warning if no layer gets smaller when its weights have fewer levels; an empty list if one does."""
    if ladder.rungs:
        return []
    message = f"No layer takes fewer bytes with {settings.weights} bits of its weights than with 8, so all have 8."
    if settings.per_channel and "int4-tflm" in stores_in_4_bits(settings):
        message += " TensorFlow Lite Micro reads 4 bits of a FULLY_CONNECTED with one scale for all channels alone: "
        message += "try one scale (--per-tensor, per_channel=False)."
    return [message]


def refuse_unkept_pins(request: Request) -> None:
    """Refuse pins where the sampler, in this search space, keeps none.

    Raises:
        UsageError: If there are pins.
    """
    if request.pins:
        raise UsageError(
            f"The sampler {request.settings.sampler!r} keeps no pins in this search space: only the samplers surrogate "
            "and random do, where the space has choices of nodes. Leave the pins out, or start a new run with "
            "--keep-float and --keep-int."
        )


def _keep_pins(folder: RunFolder, records: Sequence[TrialRecord], pins: Pins = NO_PINS) -> None:
    """Let the manifest say which trials were proposed under pins, and which will be."""
    manifest = folder.read_manifest()
    last = max((record.number for record in records), default=-1)
    if spans := pinned_trials(manifest, last, pins):
        folder.write_manifest({**manifest, "pinned": spans})


def _proving_rewrites(case: Case, settings: Settled, pool: Workers) -> Future[tuple[str, str]] | None:
    """See, while candidates are planned, what rewrites for the target's compiler do; None where there are none."""
    if not settings.exact_rewrites or not read_target(settings.target).asks_compiler:
        return None
    recipe, int16 = settings.template.to_json(), SIXTEEN in settings.states
    return pool.submit(chip_jobs.rewrites, case.files.root, recipe, int16, timeout_seconds=settings.trial_timeout)


def _proved(proving: Future[tuple[str, str]] | None, folder: RunFolder, listener: Listener) -> tuple[str, ...]:
    """A warning where rewrites change outputs, or nobody knows; what they do is noted."""
    if proving is None:
        return ()
    try:
        done, wrong = result_of(proving)
    except TrialError as exc:
        return (f"It is not known whether rewrites for the compiler change outputs. {exc}",)
    note(done, folder, listener)
    return (wrong,) if wrong else ()


def _spilling(case: Case, settings: Settled, folder: RunFolder, pool: Workers, listener: Listener) -> tuple[str, ...]:
    """Note that candidates are compiled, if mixes of the model spill; a warning if nobody knows."""
    target, remarks = read_target(settings.target), list[str]()
    if not target.asks_compiler:
        return ()
    try:
        arguments = (case.files.root, settings.template.to_json(), settings.states, settings.seed)
        pool.call(chip_jobs.look_at_mixes, *arguments)
    except TrialError as exc:
        remarks.append(f"It is not known whether mixes of this model spill out of the chip's own memory. {exc}")
    if chips := target_as_seen(target, case.files).spilling:
        names = " and ".join(chip.name for chip in chips)
        note(
            f"The memory of {names} is too small for mixes of this model, and only the compiler knows what each moves "
            "out of it and back. So every candidate is compiled, which makes each trial longer; summary.json counts "
            "them under compiler.",
            folder,
            listener,
        )
    return tuple(remarks)


def _verdict_in_markdown(folder: RunFolder) -> str:
    summary = read_json(folder.summary, missing=f"{folder.summary} is missing.")
    picks = [f"* `{pick}`: {member}" for pick, member in summary["picks"].items()]
    return "\n".join([str(summary["verdict"]), "", *picks])


def _unscored(request: Request, study: SearchStudy) -> tuple[str, ...]:
    """What to say of members of other runs that have no score here, each with the reason."""
    by_recipe = {r.recipe.fingerprint: r for r in study.records() if r.recipe is not None}
    messages = []
    for number, recipe in enumerate(request.members, start=1):
        record = by_recipe.get(recipe.fingerprint)
        if record is None or record.scores is None:
            why = "the merge was stopped before" if record is None or not record.error else record.error
            messages.append(f"Member {number} of {len(request.members)} of the merged runs has no score: {why}")
    return tuple(map(sentence, messages))


def _may_race(request: Request) -> bool:
    """Whether candidates may race: the metric is a mean over samples, so that a part says something of the whole.

    An evaluator must be able to score a part; whether its score is a mean is seen when the race begins.
    """
    metric, evaluator = request.ingredients.metric, request.ingredients.evaluator
    is_possible = metric.is_mean if metric is not None else takes(evaluator or len, "samples")
    return request.settings.racing and is_possible
