"""Reads a run folder back as data frames."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.errors import FolderInUse, RunFolderError
from autoselect.runs.folder import RunFolder, read_json
from autoselect.runs.records import TEXT_COLUMNS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One finished or interrupted run.

    Attributes:
        directory: The run folder.
        manifest: Versions, seed, hashes, settings and command.
        summary: Verdict, references, picks and counts.
        trials: All trials, the columns of ``trials.csv``.
        front: The Pareto front, the columns of ``front.csv``.
        layer_statistics: One row per node, in graph order.
    """

    directory: Path
    manifest: dict[str, Any]
    summary: dict[str, Any]
    trials: pd.DataFrame
    front: pd.DataFrame
    layer_statistics: pd.DataFrame

    @property
    def status(self) -> str:
        """``complete``, ``interrupted``, ``nothing_feasible``; ``running`` while a search is at work in the folder."""
        return str(self.summary["status"])

    @property
    def picks(self) -> dict[str, str]:
        """Id of the front member by pick name."""
        return dict(self.summary["picks"])

    def model_path(self, pick_or_id: str) -> Path:
        """File of a front member, by pick name or id.

        Raises:
            RunFolderError: If the front has no such member, with those it has.
        """
        member = self.picks.get(pick_or_id, pick_or_id)
        rows = self.front[self.front["id"] == member]
        if rows.empty:
            has = f"Picks: {', '.join(self.picks) or 'none'}; ids: {', '.join(self.front['id']) or 'none'}."
            if member in set(self.trials["id"]):
                command = f"autoselect what-if {shlex.quote(str(self.directory))} --from {member} --build model.tflite"
                has = f"The run keeps no file of this candidate: `{command}` builds it. {has}"
            raise RunFolderError(f"The front has no {pick_or_id!r}. {has}")
        return self.directory / str(rows.iloc[0]["file"])


def member_content(run: Run, pick_or_id: str) -> bytes:
    """The bytes of a front member, by pick name or id.

    Raises:
        RunFolderError: If the front has no such member, or its file is missing or is not what the run wrote.
    """
    path = run.model_path(pick_or_id)
    whole = f"Copy the run folder once more, or build {path.stem} again from its recipe with autoselect build."
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise RunFolderError(f"The front names {path}, which cannot be read: {exc.strerror}. {whole}") from exc
    (digest,) = run.front.loc[run.front["id"] == path.stem, "sha256"]
    if digest != hashlib.sha256(content).hexdigest():
        raise RunFolderError(f"{path} is not what the run wrote: its SHA-256 is another one. {whole}")
    return content


_LAYER_TEXTS = frozenset({"op_name", "tensor_name"})


def _read_table(path: Path, texts: Collection[str]) -> pd.DataFrame:
    """Read a table whose texts are data: only an empty cell is a missing one, whatever a tensor is called."""
    import pandas as pd

    columns = pd.read_csv(path, nrows=0).columns
    return pd.read_csv(
        path,
        dtype={column: str for column in columns if column in texts},
        keep_default_na=False,
        na_values={column: [""] if column in texts else ["", "nan"] for column in columns},
    )


def read_limits(directory: Path) -> pd.DataFrame:
    """Read what would be recommended at each allowed drop.

    Raises:
        RunFolderError: If the run wrote no such table, or it is damaged.
    """
    folder = RunFolder(directory)
    if not folder.limits.exists():
        raise RunFolderError(f"{directory} has no {folder.limits.name}: an earlier version made it.")
    try:
        return _read_table(folder.limits, {"id"})
    except (OSError, ValueError) as exc:
        raise RunFolderError(f"{folder.limits} is damaged: {exc}.") from exc


def _refuse_foreign_files(folder: RunFolder, front: pd.DataFrame) -> None:
    root = folder.root.resolve()
    for member, file in zip(front["id"], front["file"].fillna(""), strict=True):
        if root not in (root / str(file)).resolve().parents:
            raise RunFolderError(
                f"{folder.front_table} says that the model of {member} is {str(file)!r}, which is outside of the run "
                f"folder. A search writes front/{member}.tflite there. Correct the table, or do not use this folder."
            )


def _refuse_words(path: Path, front: pd.DataFrame, figures: Collection[str]) -> None:
    """Refuse a front that somebody changed so that a figure of it is none; columns of other names are the user's."""
    import pandas as pd

    for column in (name for name in front if name in figures or str(name).startswith("heldout_")):
        values = front[column][front[column].map(lambda value: isinstance(value, str))]
        if len(words := values[pd.to_numeric(values, errors="coerce").isna()]):
            raise RunFolderError(f"{path} is damaged: expected numbers in column {column!r}, got {words.iloc[0]!r}.")


def load_run(directory: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunFolderError: If the folder holds no run, a run that has not written its tables (it was stopped, or is still
            at work), or a run whose front names files outside of the folder.
    """
    folder = RunFolder(Path(directory))
    manifest = folder.read_manifest()
    if not folder.summary.exists() and folder.is_in_use():
        raise FolderInUse(f"The search in {folder.root} is at work. Wait for its end, or stop it first.")
    unfinished = f"{folder.root} holds a run that was stopped early. Run {folder.resuming} first."
    summary = read_json(folder.summary, missing=unfinished)
    try:
        trials, front = (_read_table(path, TEXT_COLUMNS) for path in (folder.trials, folder.front_table))
        layers = _read_table(folder.layer_statistics, _LAYER_TEXTS)
    except (OSError, ValueError) as exc:
        raise RunFolderError(f"{folder.root} is damaged: {exc}.") from exc
    if missing := {"id", "pick", "file"} - set(front.columns):
        raise RunFolderError(f"{folder.front_table} is damaged: it has no column {min(missing)!r}.")
    _refuse_words(folder.front_table, front, {*trials.columns} - TEXT_COLUMNS)
    front["pick"] = front["pick"].fillna("")
    _refuse_foreign_files(folder, front)
    return Run(
        directory=folder.root,
        manifest=manifest,
        summary=summary,
        trials=trials,
        front=front,
        layer_statistics=layers,
    )
