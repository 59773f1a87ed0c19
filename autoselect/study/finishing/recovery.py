"""Brings a run folder in order that a killed search left: writes what Ctrl-C would have written; scores nothing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from autoselect.cases.events import ignore
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepare import Case
from autoselect.cases.references import References
from autoselect.cases.settled import Settled, settled_of
from autoselect.domain.graph import Graph
from autoselect.domain.layers import COLUMNS, LayerTable
from autoselect.domain.objectives import Objective
from autoselect.domain.quantities import objectives_of
from autoselect.domain.words import some
from autoselect.errors import RunFolderError
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder, nodes_of, read_json
from autoselect.study import references
from autoselect.study.finishing.finish import Finish
from autoselect.study.recording.optuna_study import SearchStudy, read_records

_MANIFEST_TABLES = ("settings", "metric", "counts", "hashes")


def recover(folder: RunFolder) -> bool:
    """Write tables, front and summary of the finished trials, where the folder does not hold them already.

    A folder that is in order is only read.

    The run can be resumed as before: nothing that a resume needs is removed.

    Returns:
        Whether anything had to be written.

    Raises:
        RunFolderError: If the folder holds no run, or another process is working in it.
    """
    manifest = folder.read_manifest(*_MANIFEST_TABLES)
    if not folder.study.exists() and folder.summary.exists():
        return False
    if _trials_told(folder) == len(read_records(folder.study)):
        return False
    with folder.locked():
        settings = settled_of(manifest)
        metric = manifest["metric"]
        objectives = objectives_of(settings.objectives, metric["name"], metric["direction"])
        nodes = nodes_of(folder.layer_statistics)
        records = references.float_known(SearchStudy(folder.study, objectives).records(), nodes, settings)
        if not folder.layer_statistics.exists():
            write_table(folder.layer_statistics, COLUMNS, ())
        _finish(folder, manifest, settings, objectives).write(records, _float_model(folder, manifest), None, ignore)
    return True


def refuse_lost_tables(folder: RunFolder) -> None:
    """Refuse a finished run that has lost its summary or one of its tables since.

    :func:`recover` would write them from the trials alone: as of a search that was stopped, without held-out scores.

    Raises:
        RunFolderError: With the names of the lost files; or if the folder holds no run.
    """
    folder.read_manifest(*_MANIFEST_TABLES)
    missing = [path.name for path in (folder.summary, *_tables(folder)) if not path.exists()]
    if missing and _came_to_its_end(folder):
        raise RunFolderError(
            f"{folder.root} holds a finished run that has lost {some(missing)}. Copy the run folder once more, or let "
            f"it be written anew: {folder.resuming}."
        )


def _came_to_its_end(folder: RunFolder) -> bool:
    """Whether a search finished: by its summary; without one, if its front has held-out scores and no work is left.

    A search that is killed while it writes its result leaves its working folder.
    """
    if folder.summary.exists():
        return bool(read_json(folder.summary, missing="").get("status") != "interrupted")
    if folder.work.exists() or not folder.front_table.exists():
        return False
    with folder.front_table.open(encoding="utf-8", errors="replace", newline="") as stream:
        rows = [*csv.DictReader(stream)]
    return any(value for row in rows for name, value in row.items() if str(name).startswith("heldout_"))


def _tables(folder: RunFolder) -> tuple[Path, ...]:
    """The tables that belong to a summary."""
    return folder.trials, folder.front_table, folder.layer_statistics


def _trials_told(folder: RunFolder) -> int | None:
    """Trials in the summary; None if it, or a table that belongs to it, is missing or damaged."""
    if not all(path.exists() for path in _tables(folder)):
        return None
    try:
        counts = read_json(folder.summary, missing="").get("counts")
    except RunFolderError:
        return None
    return counts.get("trials") if isinstance(counts, dict) else None


def _float_model(folder: RunFolder, manifest: dict[str, Any]) -> references.Reference:
    try:
        return references.Reference(**manifest["float_model"])
    except (KeyError, TypeError):
        raise RunFolderError(
            f"{folder.root} holds a run that was stopped before its float model was scored, so there is nothing to "
            f"show yet. Run {folder.resuming}."
        ) from None


def _finish(
    folder: RunFolder, manifest: dict[str, Any], settings: Settled, objectives: tuple[Objective, ...]
) -> Finish:
    float_model = _float_model(folder, manifest)
    metric = objectives[0]
    files = CaseFiles(root=folder.work)
    case = Case(
        files=files,
        graph=Graph(tensors=(), ops=(), inputs=(), outputs=()),
        layers=LayerTable(nodes=(), statistics=()),
        counts=manifest["counts"],
        hashes=manifest["hashes"],
        references=References(files, None, manifest["hashes"], settings.trial_timeout, None),
        has_heldout=False,
        warnings=tuple(manifest.get("warnings", ())),
    )
    yardstick = references.yardstick_of(float_model, metric.name, metric.direction, settings)
    return Finish(folder=folder, case=case, settings=settings, objectives=objectives, yardstick=yardstick)
