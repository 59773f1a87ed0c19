"""``autoselect search``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.option import DATA
from autoselect.cases.settings import SearchSettings
from autoselect.cli.config_file import read_config
from autoselect.cli.console import reported, watching
from autoselect.cli.help import HelpAll
from autoselect.cli.options import (
    AsJsonLines,
    Debug,
    Quiet,
    Verbose,
    command_line,
    in_python,
    parameters_of,
    with_settings,
)


def _read_config(context: typer.Context, path: str | None) -> str | None:
    return read_config(context, path, search)


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        callback=_read_config,
        is_eager=True,
        metavar="TOML",
        help="File of options; see autoselect init.",
        rich_help_panel=DATA,
    ),
]


def told_in_python(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the functions of a search take for what the command line read."""
    told = in_python(SearchSettings, settings)
    if told.pop("latency"):
        named = [name.strip() for name in told["objectives"].split(",")]
        told["objectives"] = ",".join(named if "latency" in named else [*named, "latency"])
    return told


@with_settings(parameters_of(SearchSettings))
def search(
    *,
    settings: Mapping[str, Any],
    config: Config = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
    help_all: HelpAll = False,
) -> None:
    """Search which layers to leave out of full-integer quantization, and write the Pareto front."""
    with reported(debug=debug):
        from autoselect import search as run_search
        from autoselect.cli.results import finish

        told = told_in_python(settings)
        with watching(quiet=quiet, verbose=verbose, as_json=as_json) as watcher:
            run = run_search(told.pop("model"), **told, command=command_line(), listener=watcher)
        finish(run, as_json=as_json, warned=watcher.warned)
