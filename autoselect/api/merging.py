"""Several runs in one, and two side by side."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.api.run import Run, load_run
from autoselect.api.searching import continued, drawn
from autoselect.api.source import read_recipe
from autoselect.api.told import Live, with_live
from autoselect.api.workers import workers_of
from autoselect.cases.events import Listener, ignore, logged
from autoselect.cases.versions import versions
from autoselect.domain.recipe import Recipe
from autoselect.domain.result import Result, html_table
from autoselect.domain.words import counted, said
from autoselect.errors import RecipeError, RunFolderError, UsageError
from autoselect.report.tables.frames import ModelRow, front_rows, reference_rows, target_name
from autoselect.report.tables.result_lines import cells, result_lines
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import fallbacks_in
from autoselect.study import run as study_run
from autoselect.study.recording.manifest import contents_that_differ, refuse_other_metric

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MAY_DIFFER = frozenset({"target"})
"""Ingredients that runs need not share: what a model costs on a target is found anew."""
_RUNTIME = "ai-edge-litert"
"""The package that runs models. A score belongs to its version."""


@with_live
def merge(
    directories: Iterable[str | Path],
    *,
    output: str | Path,
    workers: int | None = None,
    cache: bool = True,
    scheduler: Any = None,
    insecure: bool = False,
    listener: Listener = ignore,
    **live: Unpack[Live],
) -> Run:
    """Make one run of the fronts of several: other seeds, targets or fallbacks of the same model, data and metric.

    Every member is built and scored again as the first run would, with its types of inputs and outputs, on its samples,
    its held-out ones too, and for its target; the front, the picks and all files are those of them together.

    Args:
        directories: The run folders, two or more; the first decides what they may differ in.
        output: A new folder.
        model: Needed only if the first run was started with a live object, or if its file has moved. The same holds for
            the other ingredients.
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
    folders = [directories] if isinstance(directories, str | Path) else list(directories)
    if len(folders) < 2:
        raise UsageError("Expected two run folders or more to merge, got fewer.")
    runs = [load_run(directory) for directory in folders]
    for run in runs[1:]:
        _refuse_other(runs[0], run)
    _refuse_other_runtime(runs[0])
    first = RunFolder(runs[0].directory)
    target = RunFolder(Path(output))
    target.refuse_taken()
    recipes = [_recipe(run, str(member)) for run in runs for member in run.front["id"]]
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
    refuse_other_metric(first, runs[0].manifest, request)
    alike = (replace(recipe, io_type=request.settings.io_type) for recipe in recipes)
    members = tuple({recipe.fingerprint: recipe for recipe in alike}.values())
    with workers_of(request):
        study_run.start(replace(request, members=members), target, logged(listener), like=first)
    return drawn(target)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Result):
    """What two runs found.

    Attributes:
        summary: Of the first run. Its objectives are the columns; what the other run did not measure is missing there.
        rows: What to call each model, and its figures: float, then the picks of the first run, then of the second.
        alike: Whether both recommend the same bytes.
        nodes: That the recommended models treat otherwise: what each is in the first and in the second.
        note: What does not compare: penalties, if the runs are for other targets; scores, if the float model itself has
            another one. Empty if all does.
    """

    summary: Mapping[str, Any]
    rows: tuple[tuple[str, ModelRow], ...]
    alike: bool
    nodes: Mapping[str, tuple[str, str]]
    note: str = ""

    def lines(self, width: int = 80) -> tuple[str, ...]:
        """A table, and below it the nodes that differ."""
        nodes_shown = 12
        table = result_lines(self.rows, self.summary, width)
        if self.note:
            table = *table, "", *textwrap.wrap(self.note, width)
        if self.alike:
            return *table, "", "Both recommend the same model."
        if not self.nodes:
            return *table, "", "No two recommended models whose nodes differ."
        rows = [f"  {first:>7}  {second:>7}  {node}" for node, (first, second) in self.nodes.items()]
        lines = [row if len(row) <= width else f"{row[: width - 3]}..." for row in rows[:nodes_shown]]
        more = [f"  and {len(rows) - nodes_shown} more"] if len(rows) > nodes_shown else []
        return *table, "", f"{len(rows)} nodes differ in the recommended models, in run 1 and run 2:", *lines, *more

    def __repr__(self) -> str:
        models, nodes = counted(len(self.rows), "model"), counted(len(self.nodes), "node")
        return f"Comparison({models}, {'alike' if self.alike else f'{nodes} of the recommended ones differ'})"

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        heading, *rows = cells(self.rows, self.summary, with_interval=True)
        paragraph = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"{html_table(heading, rows)}{paragraph}"


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
    floats = [("float", row) for row in reference_rows(runs[0].summary) if row.reference == "float"]
    shown = {"objectives": runs[0].summary.get("objectives")}
    picks = [
        (f"{number} {', '.join(row.picks)}", row)
        for number, run in enumerate(runs, start=1)
        for row in front_rows(run.front, {**run.summary, **shown})
        if row.picks
    ]
    chosen = [run.picks.get("recommended") for run in runs]
    nodes: dict[str, tuple[str, str]] = {}
    if chosen[0] is not None and chosen[1] is not None:
        before, after = _recipe(runs[0], chosen[0]), _recipe(runs[1], chosen[1])
        reasons = [_reasons(run, member) for run, member in zip(runs, chosen, strict=True)]
        for node in sorted(before.nodes_unlike(after).union(*reasons)):
            kinds = [recipe.kind_of(node, why.get(node)) for recipe, why in zip((before, after), reasons, strict=True)]
            if kinds[0] is not kinds[1]:
                nodes[node] = kinds[0].value, kinds[1].value
    return Comparison(
        summary=runs[0].summary,
        rows=(*floats, *picks),
        alike=chosen[0] == chosen[1] is not None,
        nodes=nodes,
        note=" ".join(filter(None, (_other_scores(*runs), _other_targets(*runs)))),
    )


def _other_scores(first: Run, other: Run) -> str:
    """What to say if scores are of another output or without another label, or float has another one; else empty."""
    if (unlike := _unlike(first, other)) is not None:
        return unlike
    before, now = ((run.manifest.get("float_model") or {}).get("metric") for run in (first, other))
    if before is None or now is None or math.isclose(before, now, rel_tol=1e-6):
        return ""
    texts = [said(score, str(first.summary["metric"])) for score in (before, now)]
    if texts[0] == texts[1]:  # Another kind of processor makes no more of a difference.
        return ""
    return (
        f"The float model has {texts[0]} in run 1 and {texts[1]} in run 2, on the same search samples: the runs score "
        "another output or leave out another label, or the code of the metric or the machine is another one. "
        "Their scores do not compare."
    )


def _unlike(first: Run, other: Run) -> str | None:
    """A sentence if two runs differ in the output that is scored or in the label that is left out; None if not."""
    for key, what, usual in (("output_name", "output", "the first one"), ("ignore_label", "label left out", "none")):
        said_of = [(run.manifest.get("settings") or {}).get(key) for run in (first, other)]
        if said_of[0] != said_of[1]:
            texts = [usual if choice is None else repr(choice) for choice in said_of]
            return (
                f"The {what} is {texts[0]} in run 1 and {texts[1]} in run 2. If these are not the same, scores do not "
                "compare."
            )
    return None


def _other_targets(first: Run, other: Run) -> str:
    """What to say of figures that belong to a target, if the targets of two runs differ; empty if they do not."""
    if first.manifest["hashes"].get("target") == other.manifest["hashes"].get("target"):
        return ""
    names = [target_name(run.summary) for run in (first, other)]
    which = f"targets, {names[0]} and {names[1]}" if names[0] != names[1] else f"versions of the target {names[0]}"
    return (
        f"The runs are for different {which}: penalties, and what else a target decides, do not compare. "
        "Those of float are of run 1."
    )


def _recipe(run: Run, member: str) -> Recipe:
    """The recipe of a front member.

    Raises:
        RunFolderError: If its file is missing or damaged.
    """
    try:
        return read_recipe(run.model_path(member).with_name(f"{member}.recipe.json"))
    except (UsageError, RecipeError) as exc:
        raise RunFolderError(
            f"{run.directory} is damaged, at its candidate {member}. {exc} Copy the run folder once more."
        ) from exc


def _reasons(run: Run, member: str | None) -> Mapping[str, str]:
    """Why nodes of a member are not what its recipe says, by name.

    Raises:
        RunFolderError: If the table of trials is damaged.
    """
    try:
        rows = run.trials[run.trials["id"] == member].to_dict("records")
        return fallbacks_in(rows[0]) if rows else {}
    except (KeyError, ValueError) as exc:
        raise RunFolderError(f"{run.directory} is damaged, at its trials. Copy the run folder once more.") from exc


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
    if differing := contents_that_differ(*kept):
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
