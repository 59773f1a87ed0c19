"""The page of a run."""

from __future__ import annotations

from pathlib import Path

from autoselect.runs.folder import RunFolder
from autoselect.runs.run import load_run


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
    from autoselect.study.finishing.recovery import recover

    folder = RunFolder(Path(directory))
    recover(folder)
    return write_page(load_run(folder.root), Path(output) if output is not None else folder.report)
