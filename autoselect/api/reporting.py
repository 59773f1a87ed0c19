"""The page and the tables of a run, and the command that watches one."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from autoselect.api.run import Run, load_run
from autoselect.errors import FolderInUse, UsageError
from autoselect.runs.files import storage_errors
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
    program = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if program is None:
        raise UsageError(f"{PROGRAM} is not installed. Install it: pip install 'autoselect[dashboard]'.")
    return program


def write_report(directory: str | Path, *, output: str | Path | None = None) -> Path:
    """Write the page of a run: one HTML file that needs no network.

    A search writes it at its end, and after Ctrl-C. For a run that was killed this function first writes what Ctrl-C
    would have written: tables, summary, and the front's models where they were kept. The run can be resumed as before.

    Args:
        directory: The run folder.
        output: File to write; ``report.html`` in the run folder by default. Only a page is written over.

    Returns:
        The file.

    Raises:
        UsageError: If ``output`` is a file that is no HTML page.
        RunFolderError: If the folder holds no run or is damaged, or if another process is working in it.
        StorageError: If the page cannot be written.

    Examples:
        Of the run of :func:`search`:

        >>> import autoselect
        >>> autoselect.write_report("pump-run", output="pump.html").name
        'pump.html'
    """
    from autoselect.report.page.page import write_page

    if output is not None:
        _refuse_other_kind(Path(output))
    run = recovered(directory)
    return write_page(run, Path(output) if output is not None else RunFolder(run.directory).report)


def _refuse_other_kind(path: Path) -> None:
    """Refuse to write a page over a file that is none, such as a model."""
    begin = b""
    with storage_errors(path):
        if path.is_file():
            with path.open("rb") as stream:
                begin = stream.read(256).lower()
    if begin and b"<!doctype html" not in begin and b"<html" not in begin:
        raise UsageError(f"{path} exists already, and is no HTML page. Choose another name for the page.")


def recovered(directory: str | Path) -> Run:
    """Read a run; of one that was killed first write what Ctrl-C would have written.

    Tables that tell of more trials than the journal are never written over.

    Raises:
        RunFolderError: As :func:`write_report`.
    """
    from autoselect.study.finishing.recovery import recover, refuse_lost_tables
    from autoselect.study.recording.optuna_study import is_behind

    folder = RunFolder(Path(directory))
    folder.refuse_damaged_summary()
    refuse_lost_tables(folder)
    if not is_behind(folder):
        recover(folder)
    return load_run(directory)


def known_so_far(directory: str | Path) -> Run:
    """Read a run folder as :func:`recovered` does, and also while a search is at work in it, with status ``running``.

    The search's folder is left as it is: the tables that Ctrl-C would write now are made in a temporary copy.

    Raises:
        RunFolderError: As :func:`write_report`, but of a search at work only if it has not scored its float model yet.
        StorageError: If there is no room for the copy.
    """
    from autoselect.study.finishing.recovery import recover

    folder = RunFolder(Path(directory))
    if not folder.is_in_use():
        return recovered(directory)
    if not folder.read_manifest().get("float_model"):
        raise FolderInUse(f"The search in {folder.root} has not scored its float model yet. Ask again in a while.")
    tables = (folder.manifest, folder.summary, folder.study, folder.trials, folder.front_table, folder.layer_statistics)
    with tempfile.TemporaryDirectory() as place:
        with storage_errors(Path(place)):
            for path in filter(Path.exists, tables):
                shutil.copyfile(path, Path(place, path.name))
        if not folder.is_in_use():  # The search has ended, and some of these tables are older than others.
            return recovered(directory)
        recover(RunFolder(Path(place)))
        run = load_run(place)
    return replace(run, directory=folder.root, summary={**run.summary, "status": "running"})
