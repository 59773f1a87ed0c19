"""``autoselect merge`` and ``autoselect compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.console import out, reported, watching
from autoselect.cli.options import AsJsonLines, Debug, NoCache, Quiet, Verbose


def merge(
    *,
    directories: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Run folders, two or more.")],
    output: Annotated[str, typer.Option("--output", "-o", help="New folder for what they found together.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; as in the first run by default.")
    ] = None,
    no_cache: NoCache = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Make one run of several of the same model, data and metric: their fronts, scored again on the same samples."""
    with reported(debug=debug):
        from autoselect import merge as run_merge
        from autoselect.cli.results import finish

        with watching(quiet=quiet, verbose=verbose, as_json=as_json) as watcher:
            run = run_merge(directories, output=output, workers=workers, cache=not no_cache, listener=watcher)
        finish(run, as_json=as_json, warned=watcher.warned)


def compare(
    *,
    first: Annotated[str, typer.Argument(help="Run folder.")],
    second: Annotated[str, typer.Argument(help="Another of the same model, data and metric.")],
    debug: Debug = False,
) -> None:
    """Put the picks of two runs side by side, and the nodes that their recommended models treat otherwise."""
    with reported(debug=debug):
        from autoselect import compare as run_compare

        for line in run_compare(first, second).lines(out().width):
            out().print(line, markup=False, soft_wrap=True)
