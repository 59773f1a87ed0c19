"""One search from ingredients to result folder, and the continuation of one that was stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from autoselect.cases import build_jobs, chip_jobs, score_jobs
from autoselect.cases.events import EndedEarly, Listener, Noted, StageStarted, Warned
from autoselect.cases.files import FLOAT
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.layers import COLUMNS
from autoselect.domain.objectives import Objective
from autoselect.domain.quantities import objectives_of
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN
from autoselect.errors import PreparationError, StorageError, TargetRefusal, TrialError
from autoselect.isolation.door import InTime, Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder, read_json
from autoselect.scoring.target_file import read_target
from autoselect.study import references
from autoselect.study.early_exit import stop_of
from autoselect.study.finishing import front_files
from autoselect.study.finishing.explain import write_explanations
from autoselect.study.finishing.finish import Finish
from autoselect.study.loop import SearchLoop
from autoselect.study.proposing.forecast_check import ForecastCheck
from autoselect.study.proposing.problem import Problem
from autoselect.study.recording.manifest import (
    changed_code,
    manifest,
    refuse_lost_states,
    refuse_other_ingredients,
    refuse_other_metric,
    refuse_other_space,
)
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.recording.samplers import PROPOSERS, check_sampler, make_sampler
from autoselect.study.request import Request
from autoselect.study.setup.baselines import Baseline, baselines
from autoselect.study.setup.binding import bind_case
from autoselect.study.setup.preparing import prepared, search_pool
from autoselect.study.setup.problem import make_problem
from autoselect.study.setup.repair_choice import with_repairs
from autoselect.study.setup.repeatability import references_to_check, warn_of_unrepeated
from autoselect.study.setup.space_file import SearchSpaceFile, read_space
from autoselect.study.setup.target_rules import check_objectives, check_target
from autoselect.study.stage_clock import StageClock, earlier_seconds


def start(request: Request, folder: RunFolder, listener: Listener) -> str:
    """Run a new search; returns its status.

    Raises:
        RunFolderError: If the folder is taken.
        AutoselectError: If an ingredient does not fit; the folder is then left empty of a run.
    """
    clock = StageClock(listener)
    with opened(request, folder, clock) as (settled, pool, ready, space):
        case = _repeating(ready, settled.settings, pool, clock)
        float_model = _float_reference(case, pool, settled.settings, clock)
        request = _affording(_repaired(settled, case, space, float_model, pool, clock), case, space)
        demanded = _demanding(request, float_model)
        folder.write_manifest(manifest(request, case, space, float_model))
        return _search(demanded, folder, case, space, float_model, pool, clock)


@contextlib.contextmanager
def opened(
    request: Request, folder: RunFolder, clock: StageClock
) -> Iterator[tuple[Request, Workers, Case, BoundSpace]]:
    """The request as the case settles it, the workers, the case and the space, before anything is tried.

    Raises:
        RunFolderError: If the folder is taken.
        AutoselectError: If an ingredient does not fit; the folder is then left empty of a run.
    """
    space_file = read_space(request.settings.search_space)
    check_sampler(request.settings.sampler)
    check_objectives(request.settings, check_target(request.settings))
    folder.create()
    with folder.locked(), _discarded_unless_begun(folder), search_pool(request, folder) as pool:
        front_files.remove_work(folder.work)  # What a search of other ingredients left that was killed before it began.
        case, settings, remarks = prepared(request, folder, pool, clock)
        settled = replace(request, settings=settings)
        yield settled, pool, *_bound(settled, case, remarks, space_file, clock)


def _bound(
    request: Request, case: Case, remarks: Sequence[str], space_file: SearchSpaceFile, listener: Listener
) -> tuple[Case, BoundSpace]:
    """The case with remarks on its units' states and pins, which the user is told, and the space bound to it."""
    case = warned(case, remarks, listener)
    space, pinned = bind_case(space_file, case, request.settings)
    return warned(case, pinned, listener), space


def resume(request: Request, folder: RunFolder, listener: Listener) -> str:
    """Continue a search; what it has scored is not scored again. Returns its status.

    Raises:
        RunFolderError: If the folder holds no run, or one made of other ingredients.
    """
    manifest = folder.read_manifest()
    refuse_other_metric(folder, manifest, request)
    space_file = read_space(request.settings.search_space)
    clock = StageClock(listener, before=earlier_seconds(folder))
    with folder.locked(), search_pool(request, folder) as pool:
        kept = folder.work.exists()
        try:
            case, settings, remarks = prepared(request, folder, pool, clock)
            refuse_other_ingredients(folder, manifest, case)
            refuse_lost_states(folder, request.settings.states, settings.states, remarks)
            request = replace(request, settings=settings)
            case, space = _bound(request, case, remarks, space_file, clock)
            refuse_other_space(folder, manifest, request, space)
            case = warned(case, changed_code(manifest, request), clock)
            case = _repeating(case, request.settings, pool, clock)
            float_model = _float_reference(case, pool, request.settings, clock)
            request = _repaired(request, case, space, float_model, pool, clock)
        except BaseException:
            if not kept:
                front_files.remove_work(folder.work)
            raise
        folder.write_manifest({**manifest, "settings": request.settings.model_dump()})
        return _search(_demanding(request, float_model), folder, case, space, float_model, pool, clock)


@contextlib.contextmanager
def _discarded_unless_begun(folder: RunFolder) -> Iterator[None]:
    """Leave nothing of a search that never began: without a manifest there is no run."""
    try:
        yield
    finally:
        if not folder.manifest.exists():
            folder.discard()


def _repaired(
    request: Request,
    case: Case,
    space: BoundSpace,
    float_model: references.Reference,
    pool: Workers,
    listener: Listener,
) -> Request:
    """The request with the sets of repairs that candidates may have."""
    demanded = _demanding(request, float_model).settings
    allowed = references.yardstick_of(float_model, request.metric_name, request.direction, demanded).allowed_drop
    settings = with_repairs(
        case, request.settings, request.direction, pool, listener, space=space, allowed_drop=allowed
    )
    return replace(request, settings=settings)


def _repeating(case: Case, settings: SearchSettings, pool: Workers, listener: Listener) -> Case:
    """See that all that candidates are compared with is scored on kernels that repeat their outputs."""
    messages = warn_of_unrepeated(case, references_to_check(case, settings, pool), pool, listener)
    return replace(case, warnings=(*case.warnings, *messages))


def _search(
    request: Request,
    folder: RunFolder,
    case: Case,
    space: BoundSpace,
    float_model: references.Reference,
    pool: Workers,
    listener: StageClock,
) -> str:
    settings = request.settings
    pool = InTime(pool, settings.trial_timeout)
    write_table(folder.layer_statistics, COLUMNS, case.layers.rows())
    objectives = objectives_of(tuple(settings.objectives), request.metric_name, request.direction)
    yardstick = references.yardstick_of(float_model, request.metric_name, request.direction, settings)
    problem: Problem | None = None
    remarks = references.warnings_of(float_model, request.metric_name, case.files.root, pool)
    remarks += references.clipping_of(case.files.root, pool, settings)
    case = _remarked(case, folder, remarks, listener)
    if settings.sampler in PROPOSERS:
        proving = _proving_rewrites(case, settings, pool)
        problem, remarks = make_problem(case, space, settings, yardstick.allowed_drop, pool, listener)
        case = _remarked(case, folder, (*remarks, *_proved(proving, folder, listener)), listener)
    if problem is not None:
        write_explanations(folder, problem, settings.template, [], {})
    study = _open_study(folder, objectives, settings, problem, space)
    listener(StageStarted(stage="trials", total=settings.trials))
    loop = SearchLoop(
        study,
        space,
        settings,
        yardstick,
        pool=pool,
        root=case.files.root,
        slots=partial(pool.slots, settings.processes),
        may_race=_may_race(request),
        listener=listener,
        forecasts=_forecasts(request, problem),
    )
    finish = Finish(
        folder=folder,
        case=case,
        settings=settings,
        objectives=objectives,
        yardstick=yardstick,
        problem=problem,
        seconds=listener.seconds,
    )

    def told() -> Finish:
        """The end, with a word on members of other runs that were not scored."""
        return replace(finish, case=_remarked(case, folder, _unscored(request, study), listener))

    try:
        stop = stop_of(request, yardstick, case.files.root, pool, study, problem)
        reason = loop.run(_baselines(case, space, request), settings.trials, stop, partial(_late, settings, listener))
        reason = None if request.members else reason
        if reason is not None:
            listener(EndedEarly(stage="trials", reason=reason))
        status = told().write(study.records(), float_model, pool, listener, ended_early=reason)
    except KeyboardInterrupt:
        loop.abandon()
        status = told().write(study.records(), float_model, None, listener)
    except StorageError:
        raise  # The journal may end in half a line, which the next write would make whole; a resume repairs it.
    except BaseException:
        loop.abandon()
        raise
    study.publish(folder.front, folder.artifacts, _verdict_in_markdown(folder))
    return status


def _proving_rewrites(case: Case, settings: SearchSettings, pool: Workers) -> Future[tuple[str, str]] | None:
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
    manifest = folder.read_manifest()
    folder.write_manifest({**manifest, "notes": list(dict.fromkeys([*manifest["notes"], done]))})
    listener(Noted(message=done))
    return (wrong,) if wrong else ()


def _late(settings: SearchSettings, clock: StageClock) -> str | None:
    """Why there is no time for another candidate; None where there is."""
    limit = settings.timeout
    if limit is None or clock.elapsed() < limit:
        return None
    return f"the timeout of {limit:g} s has passed; `autoselect resume` goes on"


def warned(case: Case, remarks: Sequence[str], listener: Listener) -> Case:
    """The case with further warnings, which the user is told, too."""
    for message in remarks:
        listener(Warned(message=message))
    return replace(case, warnings=(*case.warnings, *remarks))


def _remarked(case: Case, folder: RunFolder, remarks: Sequence[str], listener: Listener) -> Case:
    """The same, and the manifest is told."""
    manifest = folder.read_manifest()
    folder.write_manifest({**manifest, "warnings": list(dict.fromkeys([*manifest["warnings"], *remarks]))})
    return warned(case, remarks, listener)


def _verdict_in_markdown(folder: RunFolder) -> str:
    summary = read_json(folder.summary, missing=f"{folder.summary} is missing.")
    picks = [f"* `{pick}`: {member}" for pick, member in summary["picks"].items()]
    return "\n".join([str(summary["verdict"]), "", *picks])


def _baselines(case: Case, space: BoundSpace, request: Request) -> list[Baseline]:
    """Those that the target can run (without hybrid kernels there is no all-DRQ model), and members of other runs."""
    target, settings = read_target(request.settings.target), request.settings
    runs_hybrid = target.runs_hybrid
    found = baselines(
        case.layers, space, settings.template, helpful=settings.repair_sets, with_float=target.asks_compiler
    )
    members = [Baseline(name="merged", recipe=recipe, is_like_others=False) for recipe in request.members]
    return [b for b in found if runs_hybrid or b.recipe.fallback != "drq"] + members


def _affording(request: Request, case: Case, space: BoundSpace) -> Request:
    """The request; with members of other runs it has as many trials as these and the baselines need."""
    if not request.members:
        return request
    count = len(_baselines(case, space, request))
    return replace(request, settings=request.settings.model_copy(update={"trials": count}))


def _unscored(request: Request, study: SearchStudy) -> tuple[str, ...]:
    """What to say of members of other runs that have no score here, each with the reason."""
    told = {r.recipe.fingerprint: r for r in study.records() if r.recipe is not None}
    found = []
    for number, recipe in enumerate(request.members, start=1):
        record = told.get(recipe.fingerprint)
        if record is None or record.scores is None:
            why = "the merge was stopped before" if record is None or not record.error else record.error
            found.append(f"Member {number} of {len(request.members)} of the merged runs has no score: {why}")
    return tuple(message if message.endswith(".") else f"{message}." for message in found)


def _open_study(
    folder: RunFolder,
    objectives: tuple[Objective, ...],
    settings: SearchSettings,
    problem: Problem | None,
    space: BoundSpace,
) -> SearchStudy:
    """Open the study; a continued one draws other random numbers than it began with."""
    before = SearchStudy(folder.study, objectives)
    before.close_abandoned()
    sampler = make_sampler(
        settings.sampler,
        seed=settings.seed + len(before.records()),
        problem=problem,
        space=space,
        template=settings.template,
        budget=settings.trials,
    )
    return SearchStudy(folder.study, objectives, sampler, settings.repair_choices)


def _forecasts(request: Request, problem: Problem | None) -> ForecastCheck | None:
    """Forecasts of what is searched; none with members of other runs, whose interface may differ."""
    if problem is None or request.members:
        return None
    return ForecastCheck(problem, request.settings.template)


def _may_race(request: Request) -> bool:
    """Only of a metric that is a mean over samples does a part say something of the whole."""
    metric = request.ingredients.metric
    return request.settings.racing and metric is not None and metric.is_mean


def _demanding(request: Request, float_model: references.Reference) -> Request:
    settings = references.with_demanded_score(request.settings, float_model, request.metric_name, request.direction)
    return replace(request, settings=settings)


def _float_reference(case: Case, pool: Workers, settings: SearchSettings, listener: Listener) -> references.Reference:
    listener(StageStarted(stage="float"))
    try:
        looking = _looking(case, pool, settings)
        scored = pool.call(score_jobs.score_float, case.files.root, timeout_seconds=settings.trial_timeout)
        if looking is not None:
            result_of(looking)
        described = pool.call(build_jobs.describe_float, case.files.root)
    except TargetRefusal as exc:
        raise PreparationError(f"No form of this model runs on the target. {exc}") from exc
    except TrialError as exc:
        raise PreparationError(f"The float model itself could not be scored. {exc}") from exc
    return references.Reference(
        name="float",
        sha256=FLOAT,
        metric=scored.value,
        size_bytes=described.size_bytes,
        penalty=float(described.fragmentation["penalty"]),
        quantities=described.costs,
    )


def _looking(case: Case, pool: Workers, settings: SearchSettings) -> Future[None] | None:
    """Ask the target's compilers about the whole models while the float model is scored; None without compilers."""
    target = read_target(settings.target)
    if not (target.parts or target.asks_compiler):
        return None
    recipe, int16 = settings.template.to_json(), SIXTEEN in settings.states
    return pool.submit(chip_jobs.look, case.files.root, recipe, int16, timeout_seconds=settings.trial_timeout)
