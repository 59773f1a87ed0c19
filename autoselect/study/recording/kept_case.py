"""What a run keeps of its case once its samples are gone: candidates can still be forecast and built from it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoselect.cases.files import CaseFiles
from autoselect.cases.prepared import PREPARED_FORMAT
from autoselect.domain.rule import Standing
from autoselect.domain.search_space import FREE, BoundSpace
from autoselect.errors import RunFolderError, UsageError
from autoselect.runs.files import copy_folder, storage_errors, write_json
from autoselect.runs.folder import RunFolder, read_json
from autoselect.study.proposing.problem import Problem, Unit

_UNITS = "units.json"
_FORMAT = 1
"""Raised whenever what is written here is to be read otherwise."""
_HELD = ("not_int8", "not_outside")
"""Attributes of a search space that the file has beside pinned nodes; files of earlier runs lack them."""


def keep(folder: RunFolder, files: CaseFiles, problem: Problem | None) -> None:
    """Copy the models that candidates are put together from, and write what probes told of the units.

    Files that an earlier process kept stay, unless this process made them again.

    Args:
        folder: Of the run.
        files: Of the case.
        problem: What the sampler knew; None if this process did not ask it: then what was kept of its units stays.

    Raises:
        StorageError: If a file cannot be written.
    """
    beside, former = (folder.kept.with_name(f".{folder.kept.name}-{name}") for name in ("new", "former"))
    kept = CaseFiles(root=beside)
    with storage_errors(folder.kept):
        for left in (beside, former):  # By a process that was killed.
            shutil.rmtree(left, ignore_errors=True)
        beside.mkdir()
        for name in ("prepared", "evidence"):
            for source in (getattr(CaseFiles(root=folder.kept), name), getattr(files, name)):
                if source.exists():
                    shutil.copytree(source, getattr(kept, name), dirs_exist_ok=True)
        for source, target in ((files.float_model, kept.float_model), (files.seen, kept.seen)):
            if source.exists():
                shutil.copy2(source, target)
    _write_units(beside, folder.kept, problem)
    with storage_errors(folder.kept):
        if folder.kept.exists():
            folder.kept.rename(former)
        beside.rename(folder.kept)
        shutil.rmtree(former, ignore_errors=True)


def _write_units(kept: Path, before: Path, problem: Problem | None) -> None:
    if problem is None and (before / _UNITS).exists():
        with storage_errors(kept):
            shutil.copy2(before / _UNITS, kept / _UNITS)
        return
    units = None if problem is None else [{**asdict(unit), "nodes": sorted(unit.nodes)} for unit in problem.units]
    space = FREE if problem is None else problem.space
    held = {name: sorted(getattr(space, name)) for name in _HELD}
    facts = {"format": _FORMAT, "prepared": PREPARED_FORMAT, "units": units, "pinned": sorted(space.keep_float), **held}
    write_json(kept / _UNITS, facts)


Shown = list[tuple[str, float, float]]
"""Id, expected drop and bound of members of the front; infinite if no bound is known."""


def keep_standings(folder: RunFolder, members: Sequence[Standing], again: Sequence[Sequence[Standing]]) -> None:
    """Write what is expected of the front's members, and what each resample of the search samples shows of them.

    Raises:
        StorageError: If the file cannot be written.
    """
    content = {"members": _shown(members), "resamples": [_shown(standings) for standings in again]}
    write_json(folder.kept / "standings.json", content)


def _shown(standings: Sequence[Standing]) -> list[tuple[str, float, float | None]]:
    return [(m.id, m.drop, m.bound if math.isfinite(m.bound) else None) for m in standings]


def kept_standings(folder: RunFolder) -> tuple[Shown, list[Shown]]:
    """What :func:`keep_standings` wrote; nothing if that is not there.

    Raises:
        RunFolderError: If the file is damaged.
    """
    path = folder.kept / "standings.json"
    if not path.exists():
        return [], []

    def read(rows: Any) -> Shown:
        return [(str(id_), float(drop), math.inf if bound is None else float(bound)) for id_, drop, bound in rows]

    try:
        content = read_json(path, missing="")
        return read(content["members"]), [read(rows) for rows in content["resamples"]]
    except (KeyError, TypeError, ValueError) as exc:
        raise RunFolderError(f"{path} is damaged: {exc!r}.") from exc


def open_kept(folder: RunFolder, root: Path) -> CaseFiles:
    """A case with what a run keeps, in a folder where more may be written.

    Raises:
        UsageError: If the run keeps nothing, or what another version wrote.
    """
    _read(folder)
    with storage_errors(root):
        copy_folder(folder.kept, root)
    return CaseFiles(root=root)


def kept_units(folder: RunFolder) -> tuple[tuple[Unit, ...] | None, BoundSpace]:
    """The units with what probes told of them, None if none were tried; and the space as far as it is kept.

    That is ``keep_float``, ``not_int8`` and ``not_outside``; nothing else is in it.

    Raises:
        RunFolderError: If the file is damaged.
        UsageError: As :func:`open_kept`.
    """
    facts = _read(folder)
    try:
        not_int8, not_outside = (frozenset(map(str, facts.get(name, ()))) for name in _HELD)
        pinned = frozenset(map(str, facts["pinned"]))
        space = BoundSpace(dimensions=(), keep_float=pinned, not_int8=not_int8, not_outside=not_outside)
        rows = facts["units"]
        units = None if rows is None else tuple(Unit(**{**row, "nodes": frozenset(row["nodes"])}) for row in rows)
    except (KeyError, TypeError) as exc:
        raise RunFolderError(f"{folder.kept / 'units.json'} is damaged: {exc!r}.") from exc
    return units, space


def _read(folder: RunFolder) -> dict[str, Any]:
    path = folder.kept / _UNITS
    if not path.exists():
        raise UsageError(
            f"{folder.root} keeps no calibrated model to forecast and build candidates from: an earlier version made "
            f"it, it was stopped before its end, or its folder 'kept' was removed. {folder.resuming} writes it anew."
        )
    facts = read_json(path, missing="")
    if (facts.get("format"), facts.get("prepared")) != (_FORMAT, PREPARED_FORMAT):
        raise UsageError(
            f"{folder.kept} was written by another version of autoselect, whose models this one does not read. "
            f"Use the version that made the run, or start a new run."
        )
    return facts
