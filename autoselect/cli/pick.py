"""``autoselect pick``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.console import results_only_on_stdout
from autoselect.cli.options import AsJson


@with_debug
def pick(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File to write; by default here, named after the model and the pick."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="recommended, accurate, balanced, compact, integer, or an id of the front.")
    ] = "recommended",
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy one model of the front out of a run folder, with a model card."""
    from autoselect import pick as run_pick
    from autoselect.cli.results import print_fields, print_json

    with results_only_on_stdout():
        chosen = run_pick(directory, name=name, output=output, force=force)
    if as_json:
        print_json(chosen)
    else:
        told = {"written": "path", "card": "card", "model": "id", "sha256": "sha256"}
        print_fields({label: str(chosen[key]) for label, key in told.items()})
