"""The live view of a run: how optuna-dashboard is called; the program is an extra of its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from autoselect.errors import UsageError
from autoselect.runs.folder import RunFolder

PROGRAM = "optuna-dashboard"


def watch(directory: str | Path, *, host: str = "127.0.0.1", port: int = 8080) -> list[str]:
    """Tell the command that shows a run in a browser, also while it goes on.

    Args:
        directory: The run folder.
        host: Where the dashboard listens.
        port: Port of the dashboard.

    Returns:
        A command and its arguments, which serves until it is stopped.

    Raises:
        RunFolderError: If the folder holds no run.
    """
    folder = RunFolder(Path(directory))
    folder.read_manifest()
    storage = ["--storage-class", "JournalFileStorage", "--artifact-dir", str(folder.artifacts)]
    return [PROGRAM, *storage, "--host", host, "--port", str(port), str(folder.study)]


def find_program() -> str:
    """Path of the program, beside this Python first.

    Raises:
        UsageError: If it is not installed.
    """
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if found is None:
        raise UsageError(f"{PROGRAM} is not installed. Install it: pip install 'autoselect[dashboard]'.")
    return found
