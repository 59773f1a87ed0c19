"""``autoselect show``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.options import AsJson


@with_debug
def show(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    whole: Annotated[bool, typer.Option("--all", help="The whole front, not only the models that decide.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the result of a run once more."""
    from autoselect.api.reporting import recovered
    from autoselect.cli.results import print_json, print_run, run_as_json

    run = recovered(directory)
    if as_json:
        print_json(run_as_json(run))
    else:
        print_run(run, whole=whole)
