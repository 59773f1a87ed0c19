"""Search, resume, demo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.api.idle_settings import idle_settings
from autoselect.api.progress import told_to
from autoselect.api.run import Run, load_run
from autoselect.api.source import (
    LoadedInteger,
    LoadedSource,
    describe,
    ingredients_of,
    load_integer,
    load_source,
    read_recipe,
    source_bytes,
)
from autoselect.api.told import Live, takes, with_live
from autoselect.api.workers import workers_of
from autoselect.cases.declared import declared
from autoselect.cases.events import Listener, Noted, ignore
from autoselect.cases.ingredients import LIVE, loaded_evaluator
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.cases.settled import Facts, kept_search, settle
from autoselect.data.bundled import lasting
from autoselect.domain.pinned import Pins
from autoselect.domain.quantities import chosen_objectives
from autoselect.domain.recipe import ALL_BITS, Recipe
from autoselect.domain.words import lost
from autoselect.errors import RunFolderError, UsageError
from autoselect.isolation.machine import default_workers
from autoselect.runs.folder import RunFolder, free_folder, read_json
from autoselect.runs.records import metric_column, own_trials
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import lasting_target, read_target
from autoselect.scoring.value_metrics import SignalToQuantizationNoise
from autoselect.sources.wishes import wishes_of
from autoselect.study import request
from autoselect.study import run as study_run
from autoselect.study.outlook import Outlook, outlook
from autoselect.study.recording.manifest import to_merge
from autoselect.study.recording.optuna_study import read_records
from autoselect.study.search import TIMED_OUT

if TYPE_CHECKING:
    from typing_extensions import Unpack

NO_NODES: Mapping[str, str | Iterable[str]] = {}


@takes(SearchSettings)
def search(settings: SearchSettings) -> Run:
    """Search which nodes to leave out of full-integer quantization.

    Returns:
        The run, read back from its folder. ``status`` says whether it is complete. Ctrl-C amid the trials ends the
        search in order: the run is returned, its status ``interrupted``. Before, it is raised as ``KeyboardInterrupt``.

    Raises:
        AutoselectError: If an ingredient does not fit; see ``autoselect.errors``.

    Examples:
        A short search on the embedded case:

        >>> import autoselect
        >>> from autoselect import embedded
        >>> run = autoselect.search(
        ...     embedded.model_path(),
        ...     calibration="autoselect.embedded:calibration",
        ...     evaluation="autoselect.embedded:search_samples",
        ...     heldout="autoselect.embedded:heldout_samples",
        ...     trials=6,
        ...     repairs=False,
        ...     max_size="100kB",
        ...     output="pump-run",
        ... )
        >>> run.status
        'complete'
        >>> run.model_path("recommended").suffix
        '.tflite'
    """
    asked, folder = _asked(settings)
    with workers_of(asked), told_to(settings.listener, settings.progress) as listener:
        study_run.start(asked, folder, listener)
    return drawn(folder)


@takes(SearchSettings)
def check(settings: SearchSettings) -> Outlook:
    """Try a search without searching: read the model and the data, measure one candidate, and tell the cost.

    Returns:
        The size of the search, what a trial costs and about how long it takes.

    Raises:
        AutoselectError: What :func:`search` would raise before its first trial.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> found = autoselect.check(
        ...     embedded.model_path(),
        ...     calibration="autoselect.embedded:calibration",
        ...     evaluation="autoselect.embedded:search_samples",
        ... )
        >>> found.nodes, found.trials, found.refused
        (22, 100, '')
    """
    asked, folder = _asked(settings)
    folder.refuse_taken()
    with (
        tempfile.TemporaryDirectory(prefix="autoselect-") as name,
        told_to(settings.listener, settings.progress) as listener,
    ):
        return outlook(asked, RunFolder(Path(name) / "run"), listener)


@with_live
def resume(
    directory: str | Path,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    workers: int | None = None,
    recipes: Sequence[str | Path | Recipe] = (),
    pins: Mapping[str, str | Iterable[str]] = NO_NODES,
    cache: bool = True,
    scheduler: Any = None,
    insecure: bool = False,
    listener: Listener = ignore,
    progress: bool | None = None,
    **live: Unpack[Live],
) -> Run:
    """Continue a run that was stopped, give a finished one more trials, or score recipes of your own as trials of it.

    Args:
        directory: The run folder.
        trials: New total, no less than the run has; the old one by default. With it a finished run goes on to so
            many, also if the all-integer model is good enough.
        timeout: Seconds from now after which no further candidate is begun; as before by default.
        model: Needed only if the run was started with a live object, or if its file has moved. The same holds for the
            other ingredients.
        workers: Processes; as before by default.
        recipes: Recipes that you made, for example that of an answer of ``run.what_if``, or their files. These are
            scored like all others, as trials of origin ``user``, and nothing is proposed; they are none of the search's
            total.
        pins: What the trials to come keep, whatever earlier ones had: names of nodes, globs or op types under
            ``keep_float`` (out of integers), ``keep_int`` and ``keep_int16``. They need a new total. What the search
            moves together is pinned together.

    Raises:
        UsageError: If the run has more trials than the new total, a pin covers no node, or a unit has no form in the
            state that it is to keep.
        RecipeError: If a recipe names what the model does not have.
        RunFolderError: If the folder holds no run, or one made of other ingredients.

    Examples:
        More trials for the run of :func:`search`:

        >>> import autoselect
        >>> run = autoselect.resume("pump-run", trials=8)
        >>> len(run.trials)
        8
    """
    folder = RunFolder(Path(directory))
    if recipes and (pins or trials is not None):
        raise UsageError("Recipes are scored and nothing is proposed, so leave out trials and pins, or the recipes.")
    further = {"scheduler": scheduler, "insecure": insecure}
    limits = {"trials": trials, "timeout": timeout, "workers": workers}
    if trials is not None and _is_finished(folder, in_time=True):
        limits["early_exit"] = False
    asked = continued(folder, limits, cache=cache, listener=listener, live=live, **further)
    if trials is not None:
        _refuse_smaller_total(folder, asked.settings.trials)
    by_hand = tuple(recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe)) for recipe in recipes)
    members = () if by_hand else _left_to_merge(folder)
    if members and (pins or trials is not None):
        raise UsageError(
            "The run is a merge that was stopped: its members are scored first. Leave out trials and pins, and resume "
            "it once more with them."
        )
    asked = replace(asked, by_hand=by_hand, pins=Pins.of(pins), members=members)
    with workers_of(asked), told_to(listener, progress) as reporter:
        study_run.resume(asked, folder, reporter)
        for message in _scored_by_hand(folder, by_hand, asked.metric_name):
            reporter(Noted(message=message))
    return drawn(folder)


def _scored_by_hand(folder: RunFolder, recipes: Sequence[Recipe], metric: str) -> Iterator[str]:
    """A sentence on each recipe that the user gave and that has a score: which trial it is, and what it loses."""
    records = {record.recipe: record for record in read_records(folder.study) if record.scores}
    for recipe in recipes:
        record = records.get(recipe)
        if record is not None and record.scores is not None:
            scored = lost(record.scores.drop, metric)
            yield f"The recipe is trial {record.number}, {record.id}: on the search samples it {scored}."


def _left_to_merge(folder: RunFolder) -> tuple[Recipe, ...]:
    """The members of a merge that was stopped; none of one that came to its end, or of a search."""
    return () if _is_finished(folder) else to_merge(folder.read_manifest(), read_records(folder.study))


def _is_finished(folder: RunFolder, *, in_time: bool = False) -> bool:
    """Whether a search came to its end and wrote its result; ``in_time`` leaves out one that its timeout ended."""
    summary = read_json(folder.summary, missing="") if folder.summary.exists() else {}
    is_late = in_time and str(summary.get("ended_early")).startswith(TIMED_OUT)
    return summary.get("status") in ("complete", "nothing_feasible") and not is_late


def _refuse_smaller_total(folder: RunFolder, trials: int) -> None:
    """Refuse a total below what the run has: who asks for it may mean so many more."""
    done = own_trials(read_records(folder.study))
    if trials < done:
        raise UsageError(
            f"The run has {done} trials already, so that it cannot have {trials} in all. For {trials} more pass "
            f"--trials {done + trials}; to end the search with those it has, --trials {done}."
        )


def continued(
    folder: RunFolder,
    limits: Mapping[str, float | None],
    *,
    cache: bool,
    listener: Listener,
    live: Mapping[str, Any],
    **further: Any,
) -> request.Request:
    """A search as the manifest of a run says it was asked for, with other settings where they are given.

    Raises:
        RunFolderError: If the folder holds no run, or one whose live ingredients are not given again, or whose model is
            no longer where it was.
    """
    manifest = folder.read_manifest("sources", "settings", "metric", "hashes", "versions")
    sources = dict(manifest["sources"])
    metric = live.get("metric")
    given = {name: live.get(name) for name, option in declared().items() if option.live and not option.kept}
    for name, value in given.items():
        if value is None and sources.get(name) == LIVE:
            raise RunFolderError(
                f"The run in {folder.root} was started with a live {name}. Pass it again: resume(..., {name}=...)."
            )
    _refuse_moved(folder, sources.get("model") if given["model"] is None else None)
    places = {name: describe(value) for name, value in given.items() if value is not None}
    sources |= {name: place for name, place in places.items() if place != LIVE}
    chosen: dict[str, Any] = {name: value if value is not None else sources.get(name) for name, value in given.items()}
    limited = {name: value for name, value in limits.items() if value is not None}
    said, facts = kept_search(manifest, **chosen, **further, **limited, cache=cache, listener=listener)
    if metric is None and sources.get("metric") == LIVE:
        raise RunFolderError(
            f"The run in {folder.root} was started with a live metric. Pass it: resume(..., metric=...)."
        )
    wishes = wishes_of(said.signature, said.shapes, said.converter_python)
    loaded = load_source(said.model, wishes, calibration=said.calibration)
    given_integer = load_integer(
        said.integer,
        signature=said.signature,
        per_channel=said.per_channel,
        quantizer=said.quantizer,
    )
    return _request(loaded, given_integer, said, facts, metric=metric or said.metric, sources=sources)


def _refuse_moved(folder: RunFolder, model: object) -> None:
    """Refuse to go on with a run whose model file is not where it was; None for a model that is given again."""
    if isinstance(model, str) and not Path(model).exists():
        raise RunFolderError(
            f"The model of the run in {folder.root} is no longer at {model}. Say where it is: --model (model=...)."
        )


def demo(
    *,
    trials: int = 60,
    seed: int = 0,
    output: str | Path | None = None,
    workers: int | None = None,
    listener: Listener = ignore,
    progress: bool | None = None,
) -> Run:
    """Search the embedded case: a small pump monitor whose inputs are raw physical units.

    Examples:
        >>> import autoselect
        >>> autoselect.demo(trials=4, output="demo-run")
        Run('demo-run', complete, 4 trials, front of ...)
    """
    from autoselect.embedded import model_path

    return search(
        model_path(),
        calibration="autoselect.embedded:calibration",
        evaluation="autoselect.embedded:search_samples",
        heldout="autoselect.embedded:heldout_samples",
        metric="accuracy",
        trials=trials,
        seed=seed,
        output=output if output is not None else free_folder("autoselect-demo"),
        workers=workers,
        listener=listener,
        progress=progress,
    )


def _asked(settings: SearchSettings) -> tuple[request.Request, RunFolder]:
    """A new search as it is asked for, and where it would be kept."""
    wishes = wishes_of(settings.signature, settings.shapes, settings.converter_python)
    loaded = load_source(settings.model, wishes, calibration=settings.calibration)
    names = {
        "metric": _metric_name(settings.metric, settings.evaluator),
        "objectives": chosen_objectives(settings.objectives, _own_names(settings.metric, settings.evaluator)),
    }
    said = make_settings(**dict(settings) | names)
    places = {"target": lasting_target(said.target), "search_space": lasting(str(said.search_space))}
    said, profile = said.model_copy(update=places), read_target(said.target)
    given = load_integer(
        said.integer,
        signature=said.signature,
        per_channel=said.per_channel and loaded.per_channel and profile.per_channel,
        quantizer=said.quantizer,
        repairs=said.named_repairs,
    )
    if given.is_foreign and said.weights < ALL_BITS:
        raise UsageError(
            f"weights: {said.weights} bits change weights, and integer ops of another quantizer keep theirs. Leave out "
            "weights, or integer and quantizer."
        )
    facts = Facts(
        fallback="search" if profile.runs_hybrid else "float",
        int16=profile.favours_int16 and given.content is None,
        io_type=loaded.io_type or profile.io_type or "float32",
        per_channel=given.per_channel,
        takes_repairs=not given.is_foreign,
        workers=default_workers(source_bytes(loaded.model)),
    )
    if said.per_channel and not profile.per_channel:
        per_tensor = f"Target {profile.name} takes one scale for all channels of a weight, and integer ops have that."
        loaded = replace(loaded, notes=(*loaded.notes, per_tensor))
    loaded = replace(loaded, notes=(*loaded.notes, *idle_settings(settings, tuple(said.objectives), profile)))
    live = [name for name, option in declared().items() if option.live and not option.kept]
    sources = {name: describe(getattr(settings, name)) for name in live}
    asked = _request(
        loaded,
        given,
        said,
        facts,
        metric=settings.metric,
        sources=sources | {"metric": None if isinstance(settings.metric, str) else LIVE},
    )
    return asked, RunFolder(Path(settings.output) if settings.output is not None else free_folder("autoselect-run"))


def _metric_name(metric: str | Callable[..., float], evaluator: str | Callable[..., Any] | None) -> str:
    if evaluator is not None:
        return "evaluator"
    return metric if isinstance(metric, str) else f"{getattr(metric, '__name__', 'metric')}:live"


def _own_names(metric: str | Callable[..., float], evaluator: str | Callable[..., Any] | None) -> set[str]:
    """What a user may call the metric among the objectives."""
    chosen = metric if evaluator is None else evaluator
    name = chosen if isinstance(chosen, str) else getattr(chosen, "__name__", "metric")
    return {name, name.rpartition(":")[2]}


_NO_DIRECTION = (
    "More is taken to be better, since no direction was given for the evaluator. If less is better, as of a loss or an "
    "error rate, say --direction minimize; else say --direction maximize."
)


def _request(
    loaded: LoadedSource,
    given: LoadedInteger,
    said: SearchSettings,
    facts: Facts,
    *,
    metric: str | Callable[..., float],
    sources: dict[str, str | None],
) -> request.Request:
    """Load what the settings name; ``metric`` is the function where they have but its name."""
    chosen: Metric | None = None
    run: Callable[..., Any] | None = None
    if (evaluator := said.evaluator) is not None:
        run = loaded_evaluator(evaluator)
        name, direction = getattr(run, "__name__", "evaluator"), settle(said, facts).direction
        if said.direction is None:
            loaded = replace(loaded, notes=(*loaded.notes, _NO_DIRECTION))
    else:
        chosen = make_metric(
            metric,
            direction=said.direction,
            output=said.output_name,
            ignore_label=said.ignore_label,
        )
        name, direction = chosen.name, chosen.direction
    return request.Request(
        ingredients=ingredients_of(
            loaded,
            given,
            said.calibration,
            evaluation=said.evaluation,
            heldout=said.heldout,
            metric=chosen,
            evaluator=run,
            feedback=said.feedback,
        ),
        said=said,
        facts=facts,
        sources=sources,
        # The metric sqnr_db is what the column of that name holds.
        metric_name=name if isinstance(chosen, SignalToQuantizationNoise) else metric_column(name),
        direction=direction,
    )


def drawn(folder: RunFolder) -> Run:
    """Draw the figure and the page of a run that has ended, and read it back."""
    from autoselect.report.figures.run_figures import draw_pareto
    from autoselect.report.page.page import write_page

    run = load_run(folder.root)
    draw_pareto(run.trials, run.front, run.summary, folder.picture)
    write_page(run, folder.report)
    return run
