"""``autoselect merge`` and ``autoselect compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cases.events import Listener
from autoselect.cli.command import with_debug, with_run
from autoselect.cli.console import out, print_lines
from autoselect.cli.options import option_of
from autoselect.runs.run import Run


@with_run
def merge(
    *,
    directories: Annotated[list[str], typer.Argument(metavar="RUN", help="Run folders, two or more.")],
    output: Annotated[str, typer.Option("--output", "-o", help="New folder for what they found together.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; as in the first run by default.")
    ] = None,
    no_cache: Annotated[bool, option_of("cache")] = False,
    listener: Listener,
) -> Run:
    """Make one run of several of the same model, data and metric: their fronts, scored again on the same samples."""
    from autoselect import merge as run_merge

    return run_merge(directories, output=output, workers=workers, cache=not no_cache, listener=listener)


@with_debug
def compare(
    *,
    first: Annotated[str, typer.Argument(help="Run folder.")],
    second: Annotated[str, typer.Argument(help="Another of the same model, data and metric.")],
) -> None:
    """Put the picks of two runs side by side, and the nodes that their recommended models treat otherwise."""
    from autoselect import compare as run_compare

    print_lines(run_compare(first, second).lines(out().width))
