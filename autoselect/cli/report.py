"""``autoselect report``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.console import results_only_on_stdout
from autoselect.cli.options import AsJson


@with_debug
def report(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder; of a finished, stopped or killed run.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File to write; report.html in the run folder by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the run as one page for a browser; a search does it at its end by itself."""
    from autoselect import write_report
    from autoselect.cli.results import print_fields, print_json

    with results_only_on_stdout():
        path = write_report(directory, output=output)
    if as_json:
        print_json({"path": str(path), "size_bytes": path.stat().st_size})
    else:
        print_fields({"written": str(path)})
