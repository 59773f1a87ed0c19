"""One search from ingredients to result folder, and the continuation of one that was stopped."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from autoselect.domain.layers import COLUMNS, LayerTable
from autoselect.domain.objectives import Direction, Objective
from autoselect.domain.recipe import match_nodes, match_op_type
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import (
    PreparationError,
    RecipeError,
    RunFolderError,
    StorageError,
    TrialError,
    UsageError,
)
from autoselect.isolation.pool import WorkerPool
from autoselect.quantize import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import storage_errors
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study import jobs, result
from autoselect.study.baselines import baselines
from autoselect.study.case import Case, Ingredients, prepare_case, versions
from autoselect.study.events import Listener, StageStarted
from autoselect.study.loop import SearchLoop, Yardstick
from autoselect.study.optuna_study import SearchStudy
from autoselect.study.samplers import make_sampler
from autoselect.study.settings import SearchSettings
from autoselect.study.space_file import SearchSpaceFile, bind, read_space

_BASELINE_SHARE = 0.5
"""Baselines take at most this share of the trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One search as asked for.

    Attributes:
        ingredients: What the user brings.
        settings: How to search.
        sources: Where the ingredients came from, in words, for the manifest.
        metric_name: Name of the metric or evaluator, as in the tables.
        direction: Of the metric.
        command: The command line, or None.
        use_cache: Whether calibration and float outputs are kept between runs.
    """

    ingredients: Ingredients
    settings: SearchSettings
    sources: dict[str, str | None]
    metric_name: str
    direction: Direction
    command: str | None
    use_cache: bool


def start(request: Request, folder: RunFolder, listener: Listener) -> str:
    """Run a new search; returns its status.

    Raises:
        RunFolderError: If the folder is taken.
        AutoselectError: If an ingredient does not fit; the folder is then left empty of a run.
    """
    space_file = read_space(request.settings.search_space)
    make_sampler(request.settings.sampler, seed=0)
    folder.create()
    with _locked(folder), _discarded_unless_begun(folder), _pool(request, folder) as pool:
        case = _prepare(request, folder, pool, listener)
        space = _bind(space_file, case.layers, request.settings)
        float_model = _float_reference(request, case, pool)
        folder.write_manifest(_manifest(request, case))
        return _search(request, folder, case, space, float_model, pool, listener)


def resume(request: Request, folder: RunFolder, listener: Listener) -> str:
    """Continue a search; what it has scored is not scored again. Returns its status.

    Raises:
        RunFolderError: If the folder holds no run, or one made of other ingredients.
    """
    manifest = folder.read_manifest()
    _refuse_other_metric(folder, manifest, request)
    space_file = read_space(request.settings.search_space)
    with _locked(folder), _pool(request, folder) as pool:
        kept = folder.work.exists()
        try:
            case = _prepare(request, folder, pool, listener)
            _refuse_other_ingredients(folder, manifest, case)
            space = _bind(space_file, case.layers, request.settings)
            float_model = _float_reference(request, case, pool)
        except BaseException:
            if not kept:
                result.remove_work(folder.work)
            raise
        folder.write_manifest({**manifest, "settings": request.settings.model_dump()})
        return _search(request, folder, case, space, float_model, pool, listener)


@contextlib.contextmanager
def _discarded_unless_begun(folder: RunFolder) -> Iterator[None]:
    """Leave nothing of a search that never began: without a manifest there is no run."""
    try:
        yield
    finally:
        if not folder.manifest.exists():
            folder.discard()


@contextlib.contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Refuse a second process in the same folder; the lock ends with the process, however it ends."""
    root = folder.root.resolve()
    lock = FileLock(str(root.parent / f".{root.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunFolderError(f"Another process is working in {folder.root}. Wait for it, or stop it first.") from None
    try:
        yield
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _pool(request: Request, folder: RunFolder) -> WorkerPool:
    return WorkerPool(request.settings.workers, log=folder.log, warm_up=converter.import_tensorflow)


def _prepare(request: Request, folder: RunFolder, pool: WorkerPool, listener: Listener) -> Case:
    return prepare_case(
        request.ingredients,
        request.settings,
        root=folder.work,
        pool=pool,
        cache_root=cache_directory() if request.use_cache else None,
        listener=listener,
    )


def _bind(space_file: SearchSpaceFile, layers: LayerTable, settings: SearchSettings) -> BoundSpace:
    keep_float = _pinned(settings.keep_float, layers, "--keep-float")
    keep_int = _pinned(settings.keep_int, layers, "--keep-int")
    return bind(space_file, layers, keep_float=keep_float, keep_int=keep_int)


def _pinned(patterns: tuple[str, ...], layers: LayerTable, option: str) -> frozenset[str]:
    """Nodes that the user's names, globs and op types cover."""
    found: set[str] = set()
    for pattern in patterns:
        if pattern in layers.op_types.values():
            found.update(match_op_type(pattern, layers.op_types))
            continue
        try:
            found.update(match_nodes(pattern, layers.op_types))
        except RecipeError as exc:
            kinds = sorted(set(layers.op_types.values()))
            raise UsageError(f"{option}: {exc} Op types of this model: {', '.join(kinds)}.") from exc
    return frozenset(found)


def _manifest(request: Request, case: Case) -> dict[str, Any]:
    return {
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": request.command,
        "versions": versions(),
        "hashes": dict(case.hashes),
        "counts": dict(case.counts),
        "sources": request.sources,
        "metric": {"name": request.metric_name, "direction": request.direction},
        "settings": request.settings.model_dump(),
    }


def _refuse_other_metric(folder: RunFolder, manifest: dict[str, Any], request: Request) -> None:
    before, now = manifest["metric"], {"name": request.metric_name, "direction": request.direction}
    if before != now:
        raise RunFolderError(
            f"{folder.root} was made with the metric {before['name']!r} ({before['direction']}), this is "
            f"{now['name']!r} ({now['direction']}): scores would not compare. Leave the metric out, or start a new run."
        )


def _refuse_other_ingredients(folder: RunFolder, manifest: dict[str, Any], case: Case) -> None:
    for name, digest in manifest["hashes"].items():
        if case.hashes.get(name) != digest:
            raise RunFolderError(
                f"{folder.root} was made with another {name}: its content has changed since. "
                "Bring the old one back, or start a new run in another folder."
            )
    counted = ("tensorflow", "tensorflow-cpu", "ai-edge-litert")
    now = versions()
    for name in counted:
        if manifest["versions"].get(name) != now.get(name):
            raise RunFolderError(
                f"{folder.root} was made with {name} {manifest['versions'].get(name)}, this is {now.get(name)}: "
                "scores would not compare. Install that version, or start a new run."
            )


def _search(
    request: Request,
    folder: RunFolder,
    case: Case,
    space: BoundSpace,
    float_model: result.Reference,
    pool: WorkerPool,
    listener: Listener,
) -> str:
    settings = request.settings
    folder.write_table(folder.layer_statistics, COLUMNS, case.layers.rows())
    objectives = (
        Objective(name=request.metric_name, direction=request.direction),
        Objective(name="size_bytes", direction="minimize"),
        Objective(name="penalty", direction="minimize"),
    )
    yardstick = Yardstick(
        float_score=float_model.metric,
        float_size_bytes=float_model.size_bytes,
        float_penalty=float_model.penalty,
        direction=request.direction,
        constraints=settings.constraints,
    )
    study = _open_study(folder, objectives, settings)
    listener(StageStarted(stage="trials", total=settings.trials))
    loop = SearchLoop(
        study,
        space,
        settings.template,
        yardstick,
        pool=pool,
        root=case.files.root,
        workers=settings.workers,
        sampler=settings.sampler,
        timeout_seconds=settings.trial_timeout,
        listener=listener,
    )
    finish = _Finish(request=request, folder=folder, case=case, objectives=objectives, yardstick=yardstick)
    try:
        with storage_errors(folder.study):
            loop.run(baselines(case.layers, space, at_most=int(settings.trials * _BASELINE_SHARE)), settings.trials)
        return finish.write(study.records(), float_model, pool, listener)
    except KeyboardInterrupt:
        loop.abandon()
        return finish.write(study.records(), float_model, None, listener)
    except StorageError:
        raise  # The journal may end in half a line, which the next write would make whole; a resume repairs it.
    except BaseException:
        loop.abandon()
        raise


def _open_study(folder: RunFolder, objectives: tuple[Objective, ...], settings: SearchSettings) -> SearchStudy:
    """Open the study; a continued one draws other random numbers than it began with."""
    study = SearchStudy(folder.study, objectives, make_sampler(settings.sampler, seed=settings.seed))
    study.close_abandoned()
    if told := len(study.records()):
        study = SearchStudy(folder.study, objectives, make_sampler(settings.sampler, seed=settings.seed + told))
    return study


def _float_reference(request: Request, case: Case, pool: WorkerPool) -> result.Reference:
    try:
        described = pool.call(jobs.describe_float, case.files.root)
        scored = pool.call(jobs.score, case.files.root, jobs.FLOAT, "search", False)
    except TrialError as exc:
        raise PreparationError(f"The float model itself could not be scored. {exc}") from exc
    return result.Reference(
        name="float",
        sha256=jobs.FLOAT,
        metric=scored.value,
        size_bytes=described.size_bytes,
        penalty=float(described.fragmentation["penalty"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finish:
    """The end of a search: everything that is written once the trials are told."""

    request: Request
    folder: RunFolder
    case: Case
    objectives: tuple[Objective, ...]
    yardstick: Yardstick

    def write(
        self,
        records: list[TrialRecord],
        float_model: result.Reference,
        pool: WorkerPool | None,
        listener: Listener,
    ) -> str:
        """Write the result; without a pool (after Ctrl-C) held-out scores are left for a resume."""
        front, feasible = result.front_of(records, self.objectives, self.yardstick)
        root, metric = self.case.files.root, self.request.metric_name
        wholes = _whole_baselines(records)
        references = [float_model, *(_reference(name, r.scores) for name, r in wholes.items() if r.scores)]
        heldout: dict[str, result.Heldout] = {}
        if pool is not None:
            result.restore([*front, *wholes.values()], root, pool)
        result.materialise(front, self.folder, root)
        if pool is not None:
            shas = [r.sha256 for r in references] + [r.scores.sha256 for r in front if r.scores]
            heldout = result.score_heldout(shas, self.case, pool, self.request.settings.trial_timeout, listener)
        listener(StageStarted(stage="write"))
        picks = result.picks_of(front, self.yardstick, result.noise_of(front, root, pool))
        result.write_tables(self.folder, metric, records, front, heldout, picks)
        status = "interrupted" if pool is None else "complete" if feasible else "nothing_feasible"
        summary = self._summary(status, records, references, heldout, front, picks)
        result.write_summary(self.folder, summary)
        if pool is not None:
            result.remove_work(self.folder.work)
        return status

    def _summary(
        self,
        status: str,
        records: list[TrialRecord],
        references: list[result.Reference],
        heldout: dict[str, result.Heldout],
        front: list[TrialRecord],
        picks: dict[str, str],
    ) -> dict[str, Any]:
        metric = self.request.metric_name
        return {
            "status": status,
            "metric": metric,
            "direction": self.request.direction,
            "evaluated": {k: v for k, v in self.case.counts.items() if k != "calibration"},
            "references": result.reference_summary(references, metric, heldout),
            "picks": picks,
            "allowed_drop": result.allowed_drop(self.yardstick),
            "counts": _counts(records),
            "warnings": list(self.case.warnings),
            "verdict": _verdict(status, references, front, picks, self.yardstick, metric),
        }


def _whole_baselines(records: list[TrialRecord]) -> dict[str, TrialRecord]:
    """The all-integer and the all-DRQ model by name, where they were scored."""
    found: dict[str, TrialRecord] = {}
    for record in records:
        name = record.origin.removeprefix("baseline:")
        if record.scores is not None and name in ("fiq", "drq"):
            found.setdefault(name, record)
    return found


def _reference(name: str, scores: Scores) -> result.Reference:
    return result.Reference(
        name=name,
        sha256=scores.sha256,
        metric=scores.metric,
        size_bytes=scores.size_bytes,
        penalty=scores.penalty,
    )


def _counts(records: list[TrialRecord]) -> dict[str, int]:
    return {
        "trials": len(records),
        "scored": len(result.distinct(records)),
        "reused": sum(r.reused for r in records),
        "failed": sum(r.scores is None for r in records),
    }


def _verdict(
    status: str,
    references: list[result.Reference],
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
