"""The page of a run."""

from __future__ import annotations

from pathlib import Path

from autoselect.report.run import Run, load_run
from autoselect.runs.folder import RunFolder


def write_report(directory: str | Path, *, output: str | Path | None = None) -> Path:
    """Write the page of a run: one HTML file that needs no network.

    A search writes it at its end, and after Ctrl-C. For a run that was killed this function first writes what Ctrl-C
    would have written: tables, summary, and the front's models where they were kept. The run can be resumed as before.

    Args:
        directory: The run folder.
        output: File to write; ``report.html`` in the run folder by default.

    Returns:
        The file.

    Raises:
        RunFolderError: If the folder holds no run or is damaged, or if another process is working in it.
        StorageError: If the page cannot be written.

    Examples:
        Of the run of :func:`search`:

        >>> import autoselect
        >>> autoselect.write_report("pump-run", output="pump.html").name
        'pump.html'
    """
    from autoselect.report.page.page import write_page

    run = recovered(directory)
    return write_page(run, Path(output) if output is not None else RunFolder(run.directory).report)


def recovered(directory: str | Path) -> Run:
    """Read a run; of one that was killed first write what Ctrl-C would have written.

    Raises:
        RunFolderError: As :func:`write_report`.
    """
    from autoselect.study.finishing.recovery import recover

    recover(RunFolder(Path(directory)))
    return load_run(directory)
