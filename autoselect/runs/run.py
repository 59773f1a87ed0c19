"""Reads a run folder back as data frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.errors import RunFolderError
from autoselect.runs.folder import RunFolder, read_json

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
        """``complete``, ``interrupted`` or ``nothing_feasible``."""
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
            raise RunFolderError(
                f"The front has no {pick_or_id!r}. Picks: {', '.join(self.picks) or 'none'}; "
                f"ids: {', '.join(self.front['id']) or 'none'}."
            )
        return self.directory / str(rows.iloc[0]["file"])


def load_run(directory: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunFolderError: If the folder holds no run, or one that was stopped before it wrote its tables.
    """
    import pandas as pd

    folder = RunFolder(Path(directory))
    manifest = folder.read_manifest()
    unfinished = f"{folder.root} holds a run that was stopped early. Run `autoselect resume {folder.root}` first."
    summary = read_json(folder.summary, missing=unfinished)
    try:
        tables = [
            pd.read_csv(path, dtype={"id": str, "fingerprint": str, "sha256": str, "pick": str}, keep_default_na=True)
            for path in (folder.trials, folder.front_table, folder.layer_statistics)
        ]
    except (OSError, ValueError) as exc:
        raise RunFolderError(f"{folder.root} is damaged: {exc}.") from exc
    trials, front, layers = tables
    if missing := {"id", "pick", "file"} - set(front.columns):
        raise RunFolderError(f"{folder.front_table} is damaged: it has no column {min(missing)!r}.")
    front["pick"] = front["pick"].fillna("")
    return Run(
        directory=folder.root,
        manifest=manifest,
        summary=summary,
        trials=trials,
        front=front,
        layer_statistics=layers,
    )
