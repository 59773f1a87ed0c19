"""``autoselect search``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.events import Listener
from autoselect.cases.option import DATA
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_run, with_settings
from autoselect.cli.config_file import read_config
from autoselect.cli.help import HelpAll
from autoselect.cli.options import in_python, parameters_of
from autoselect.runs.run import Run


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
@with_run
def search(*, settings: Mapping[str, Any], config: Config = None, help_all: HelpAll = False, listener: Listener) -> Run:
    """Search which layers to leave out of full-integer quantization, and write the Pareto front."""
    from autoselect import search as run_search

    told = told_in_python(settings)
    return run_search(told.pop("model"), **told, listener=listener)
