"""From ingredients to a result folder: one search, and the continuation of one that was stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from autoselect.cases.events import Listener
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.layers import COLUMNS
from autoselect.domain.objectives import refuse_per_cent
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import StorageError, UsageError
from autoselect.isolation.door import Workers
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import own_trials
from autoselect.scoring.target_file import read_target
from autoselect.study import references
from autoselect.study.finishing import front_files
from autoselect.study.recording.manifest import (
    changed_code,
    is_settled,
    new_manifest,
    refuse_lost_states,
    refuse_other_contents,
    refuse_other_ingredients,
    refuse_other_metric,
    refuse_other_space,
    space_hash,
)
from autoselect.study.recording.optuna_study import read_records, refuse_behind
from autoselect.study.recording.samplers import PROPOSERS, check_sampler
from autoselect.study.remarks import warned
from autoselect.study.request import Request
from autoselect.study.search import refuse_unkept_pins, search
from autoselect.study.setup.by_user import refuse_nothing_to_do, with_nodes_named
from autoselect.study.setup.preparing import bind_case, prepared, search_pool
from autoselect.study.setup.repair_choice import refuse_unknown_nodes
from autoselect.study.setup.repeatability import references_to_check, warn_of_unrepeated
from autoselect.study.setup.space_file import SearchSpaceFile, read_space
from autoselect.study.setup.target_rules import check_objectives, check_target, require_compilers
from autoselect.study.stage_clock import StageClock, earlier_seconds


def start(request: Request, folder: RunFolder, listener: Listener, like: RunFolder | None = None) -> str:
    """Run a new search; returns its status.

    Args:
        request: The search.
        folder: Its own.
        listener: Is told what goes on.
        like: A run whose model and samples these have to be; any if None.

    Raises:
        RunFolderError: If the folder is taken.
        AutoselectError: If an ingredient or a limit does not fit; the folder is then left empty of a run.
    """
    clock = StageClock(listener)
    try:
        with opened(request, folder, clock) as (settled, pool, case, space):
            if like is not None:
                hashes = like.read_manifest("hashes")["hashes"]
                refuse_other_contents(like, hashes, case.hashes, "start a search of its own with it")
            return _begin(settled, folder, case, space, pool, clock)
    except KeyboardInterrupt as exc:
        raise KeyboardInterrupt(f"{folder.resuming} goes on." if folder.manifest.exists() else "") from exc


def _begin(request: Request, folder: RunFolder, case: Case, space: BoundSpace, pool: Workers, clock: StageClock) -> str:
    """Settle what is left to the search, and go on; what is known by then is in the folder at each step."""
    manifest = folder.read_manifest() if folder.manifest.exists() else new_manifest(request)

    def note(**facts: Any) -> None:
        manifest.update(facts)
        folder.write_manifest(manifest)

    note(hashes=dict(case.hashes), counts=dict(case.counts), notes=list(case.notes))
    write_table(folder.layer_statistics, COLUMNS, case.layers.rows())
    case = _repeating(case, request.settings, pool, clock)
    float_model = references.float_reference(case, pool, request.settings, clock)
    note(float_model=asdict(float_model), warnings=list(case.warnings))
    # It refuses a search in which no model could be recommended.
    yardstick = references.yardstick_of(float_model, request.metric_name, request.direction, request.settings)
    references.refuse_impossible_gain(
        float_model, request.metric_name, request.direction, request.settings.constraints.max_drop
    )
    root, seconds = case.files.root, request.settings.trial_timeout
    case = warned(case, references.unsteady(yardstick, request.metric_name, root, pool, seconds), clock)
    settled = {"settings": request.kept(), "search_space": space_hash(space), "warnings": list(case.warnings)}
    folder.write_manifest({**manifest, **settled})
    return search(request, folder, case, space, float_model, pool, clock)


@contextlib.contextmanager
def opened(
    request: Request, folder: RunFolder, clock: StageClock
) -> Iterator[tuple[Request, Workers, Case, BoundSpace]]:
    """The request as the case settles it, the workers, the case and the space, before anything is tried.

    Raises:
        RunFolderError: If the folder is taken.
        AutoselectError: If an ingredient does not fit; the folder is then left empty of a run.
    """
    refuse_per_cent(request.metric_name, request.settings.constraints.max_drop)
    space_file = read_space(request.settings.search_space)
    check_sampler(request.settings.sampler)
    check_objectives(request.settings, check_target(request.settings))
    folder.create()
    with folder.locked(), _discarded_unless_begun(folder):
        front_files.remove_work(folder.work)  # What a search of other ingredients left that had no manifest yet.
        folder.write_manifest(new_manifest(request))
        with search_pool(request, folder) as pool:
            case, settled, remarks = prepared(request, folder, pool, clock)
            yield settled, pool, *_bound(settled, case, remarks, space_file, clock)


def _bound(
    request: Request, case: Case, remarks: Sequence[str], space_file: SearchSpaceFile, listener: Listener
) -> tuple[Case, BoundSpace]:
    """The case with remarks on its units' states and pins, which the user is told, and the space bound to it.

    Raises:
        RecipeError: If a repair names a node that the model does not have.
    """
    refuse_unknown_nodes(case, request.settings)
    case = warned(case, remarks, listener)
    space, pinned = bind_case(space_file, case, request.settings)
    return warned(case, pinned, listener), space


def resume(request: Request, folder: RunFolder, listener: Listener) -> str:
    """Continue a search; what it has scored is not scored again. Returns its status.

    Raises:
        UsageError: If pins cannot be kept, there is nothing to pin, or a compiler is not installed.
        RunFolderError: If the folder holds no run, a damaged one, or one made of other ingredients.
    """
    manifest = folder.read_manifest()
    _refuse_what_cannot_go_on(request, folder, manifest)
    space_file = read_space(request.settings.search_space)
    clock = StageClock(listener, before=earlier_seconds(folder))
    with folder.locked(), search_pool(request, folder) as pool:
        kept = folder.work.exists()
        if not manifest["hashes"]:  # It was stopped amid its samples.
            front_files.remove_work(folder.work)
        try:
            case, settled, remarks = prepared(request, folder, pool, clock)
            refuse_other_ingredients(folder, manifest, case)
            if is_settled(manifest):
                refuse_lost_states(folder, request.settings.states, settled.settings.states, remarks)
            request = settled
            case, space = _bound(request, case, remarks, space_file, clock)
            request = with_nodes_named(request, case)
            if not folder.layer_statistics.exists():
                write_table(folder.layer_statistics, COLUMNS, case.layers.rows())
            case = warned(case, changed_code(manifest, request), clock)
            if not is_settled(manifest):
                return _begin(request, folder, case, space, pool, clock)
            refuse_other_space(folder, manifest, request, space)
            case = _repeating(case, request.settings, pool, clock)
            float_model = references.float_reference(case, pool, request.settings, clock)
            before, now = manifest["float_model"]["metric"], float_model.metric
            warnings = references.other_score(before, now, request.metric_name, request.settings)
            case = warned(case, warnings, clock)
        except BaseException:
            if not kept and is_settled(manifest):
                front_files.remove_work(folder.work)
            raise
        folder.write_manifest({**manifest, "settings": request.kept(), "sources": dict(request.sources)})
        try:
            return search(request, folder, case, space, float_model, pool, clock)
        except UsageError:  # Of pins that cannot be kept: as if they had not been asked for.
            folder.write_manifest(manifest)
            if not kept:
                front_files.remove_work(folder.work)
            raise


def _refuse_what_cannot_go_on(request: Request, folder: RunFolder, manifest: dict[str, Any]) -> None:
    refuse_behind(folder)
    require_compilers(request.settings, read_target(request.settings.target))  # Else members of the front are lost.
    refuse_other_metric(folder, manifest, request)
    if request.settings.sampler not in PROPOSERS:
        refuse_unkept_pins(request)
    refuse_nothing_to_do(request, own_trials(read_records(folder.study)))


@contextlib.contextmanager
def _discarded_unless_begun(folder: RunFolder) -> Iterator[None]:
    """Leave nothing of a search that cannot be; one that was stopped can go on."""
    can_go_on = False
    try:
        yield
    except (KeyboardInterrupt, StorageError):
        can_go_on = folder.manifest.exists()
        raise
    finally:
        if not (can_go_on or (folder.manifest.exists() and is_settled(folder.read_manifest()))):
            folder.discard()


def _repeating(case: Case, settings: Settled, pool: Workers, listener: Listener) -> Case:
    """See that all that candidates are compared with is scored on kernels that repeat their outputs."""
    messages = warn_of_unrepeated(case, references_to_check(case, settings, pool), pool, listener)
    return replace(case, warnings=(*case.warnings, *messages))
