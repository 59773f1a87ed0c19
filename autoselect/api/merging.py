"""Several runs in one, and two side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autoselect.api.run import Run, load_run
from autoselect.api.searching import continued, drawn
from autoselect.api.source import read_recipe
from autoselect.api.told import with_live
from autoselect.api.workers import workers_of
from autoselect.cases.events import Listener, ignore, logged
from autoselect.cases.versions import versions
from autoselect.domain.recipe import Recipe
from autoselect.errors import RunFolderError, UsageError
from autoselect.report.tables.comparing import Comparison, compared
from autoselect.runs.folder import RunFolder
from autoselect.study import run as study_run

_MAY_DIFFER = frozenset({"target"})
"""Ingredients that runs need not share: what a model costs on a target is found anew."""
_RUNTIME = "ai-edge-litert"
"""The package that runs models. A score belongs to its version."""


@with_live
def merge(
    directories: list[str | Path],
    *,
    output: str | Path,
    workers: int | None = None,
    cache: bool = True,
    scheduler: Any = None,
    insecure: bool = False,
    listener: Listener = ignore,
    **live: Any,
) -> Run:
    """Make one run of the fronts of several: other seeds, targets or fallbacks of the same model, data and metric.

    Every member is built and scored again as the first run would, on its samples, its held-out ones too, and for its
    target; the front, the picks and all files are those of them together.

    Args:
        directories: The run folders, two or more; the first decides what they may differ in.
        output: A new folder.
        model: Needed only if the first run was started with a live object. The same holds for the other ingredients.
        workers: Processes; as in the first run by default.

    Raises:
        UsageError: If there are fewer than two.
        RunFolderError: If a folder holds no run, or one of another model, other data, another metric or another version
            of LiteRT than the first one or the one that is installed.

    Examples:
        >>> import autoselect
        >>> autoselect.merge(["pump-run", "pump-run"], output="merged-run")
        Run('merged-run', complete, ...
    """
    if len(directories) < 2:
        raise UsageError("Expected two run folders or more to merge, got fewer.")
    runs = [load_run(directory) for directory in directories]
    for run in runs[1:]:
        _refuse_other(runs[0], run)
    _refuse_other_runtime(runs[0])
    first = RunFolder(runs[0].directory)
    target = RunFolder(Path(output))
    target.refuse_taken()
    recipes = (_recipe(run, str(member)) for run in runs for member in run.front["id"])
    members = tuple({recipe.fingerprint: recipe for recipe in recipes}.values())
    request = continued(
        first,
        {"workers": workers},
        cache=cache,
        listener=listener,
        live=live,
        racing=False,
        scheduler=scheduler,
        insecure=insecure,
    )
    with workers_of(request):
        study_run.start(replace(request, members=members), target, logged(listener))
    return drawn(target)


def compare(first: str | Path, second: str | Path) -> Comparison:
    """Put the picks of two runs of the same model, data and metric side by side.

    Returns:
        Their held-out scores with intervals, and the nodes that the recommended models treat otherwise.

    Raises:
        RunFolderError: If a folder holds no run, or they are of other models, other data, other metrics or other
            versions of LiteRT.

    Examples:
        >>> import autoselect
        >>> found = autoselect.compare("pump-run", "pump-run")
        >>> found.lines()[-1]
        'Both recommend the same model.'
    """
    runs = load_run(first), load_run(second)
    _refuse_other(*runs)
    return compared(*runs, *(_recommended(run) for run in runs))


def _recommended(run: Run) -> Recipe | None:
    return _recipe(run, run.picks["recommended"]) if "recommended" in run.picks else None


def _recipe(run: Run, member: str) -> Recipe:
    return read_recipe(run.model_path(member).with_name(f"{member}.recipe.json"))


def _refuse_other_runtime(run: Run) -> None:
    before, now = (run.manifest.get("versions") or {}).get(_RUNTIME), versions().get(_RUNTIME)
    if before != now:
        raise RunFolderError(
            f"{run.directory} was scored by {_RUNTIME} {before}, this is {now}: a member may score otherwise than "
            "in its run. Install that version, or search again with this one."
        )


def _refuse_other(first: Run, other: Run) -> None:
    before, now = first.manifest, other.manifest
    kept = [{k: v for k, v in m.get("hashes", {}).items() if k not in _MAY_DIFFER} for m in (before, now)]
    if differing := sorted(name for name in kept[0].keys() | kept[1].keys() if kept[0].get(name) != kept[1].get(name)):
        raise RunFolderError(
            f"{other.directory} was made with another {differing[0]} than {first.directory}: their scores do not "
            "compare. Give runs of the same model and data."
        )
    if before.get("metric") != now.get("metric"):
        raise RunFolderError(
            f"{other.directory} was made with the metric {now.get('metric')} and {first.directory} with "
            f"{before.get('metric')}: their scores do not compare. Give runs of the same metric."
        )
    made_with = [(m.get("versions") or {}).get(_RUNTIME) for m in (before, now)]
    if made_with[0] != made_with[1]:
        raise RunFolderError(
            f"{other.directory} was scored by {_RUNTIME} {made_with[1]} and {first.directory} by {made_with[0]}: the "
            "same file may score otherwise, so they do not compare. Give runs of one version."
        )
    halves = [[m.get("settings", {}).get(key) for key in ("split_seed", "heldout_fraction")] for m in (before, now)]
    if "heldout" not in kept[0] and halves[0] != halves[1]:
        raise RunFolderError(
            f"{other.directory} holds out other samples than {first.directory}: it has searched on some that would "
            "judge it here. Give runs of one --split-seed."
        )
