"""``autoselect pick``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.console import results_only_on_stdout, warn
from autoselect.cli.options import AsJson
from autoselect.domain.words import counted


@with_debug
def pick(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File to write; by default here, named after the model and the pick."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="recommended, accurate, compact, integer, or an id of the front.")
    ] = "recommended",
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Chip to compile the model for too, may be repeated; by default the run's target if LiteRT has a "
            "compiler plugin for it.",
        ),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled/--no-compiled", help="Write compiled models beside the model.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Copy one model of the front out of a run folder, with a model card, and compiled for the run's chip."""
    if targets and not compiled:
        raise typer.BadParameter("nothing is compiled with --no-compiled; leave one of them out", param_hint="--for")
    from autoselect import pick as run_pick
    from autoselect.cli.results import print_fields, print_json

    with results_only_on_stdout():
        chips = (targets or None) if compiled else ()
        chosen = run_pick(directory, name=name, output=output, force=force, targets=chips)
    if as_json:
        print_json(chosen)
    else:
        told = {"written": "path", "card": "card", "model": "id", "sha256": "sha256"}
        made = {f"for {one['target']}": _made(one) for one in chosen["compiled"]}
        print_fields({**{label: str(chosen[key]) for label, key in told.items()}, **made})
    for message in chosen["warnings"]:
        warn(message)


def _made(model: Mapping[str, Any]) -> str:
    from autoselect.report.tables.frames import format_size

    moved = f", {format_size(model['ddr_bytes'])} to and from DDR" if model["ddr_bytes"] else ""
    pieces, left = counted(model["partitions"], "partition"), counted(model["left_ops"], "op")
    return f"{model['path']} ({pieces}, {left} left on the CPU{moved})"
