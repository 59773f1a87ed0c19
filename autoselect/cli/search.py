"""``autoselect search``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared, told_of
from autoselect.cases.option import Option
from autoselect.cli.config_file import read_config
from autoselect.cli.console import reported, watching
from autoselect.cli.options import (
    AsJsonLines,
    Debug,
    Quiet,
    command_line,
    option_of,
    parameter_of,
    with_settings,
)
from autoselect.sources.wishes import Shapes, parse_shapes


def _read_config(context: typer.Context, path: str | None) -> str | None:
    return read_config(context, path, search)


def _parameter(option: Option) -> inspect.Parameter:
    if option.argument:
        return parameter_of(option, typer.Argument(help=told_of(option.name)), inspect.Parameter.empty)
    default = ",".join(option.default) or None if isinstance(option.default, tuple) else option.default
    info = option_of(option.name, rich_help_panel=option.panel or None)
    return parameter_of(option, info, not default if option.turns_off else default)


def _value(option: Option, given: Any) -> Any:
    """What Python takes for what the command line read."""
    if option.kind is Shapes:
        return parse_shapes(given)
    if option.default == ():
        return tuple(given or ())
    return not given if option.turns_off else given


@with_settings([_parameter(option) for option in declared().values() if option.only != "python"])
def search(
    *,
    settings: Mapping[str, Any],
    config: Annotated[
        str | None,
        typer.Option(
            callback=_read_config, is_eager=True, metavar="TOML", help="File of options; see autoselect init."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Search which layers to leave out of full-integer quantization, and write the Pareto front."""
    with reported(debug=debug):
        from autoselect import search as run_search
        from autoselect.cli.results import finish

        told = {name: _value(declared()[name], given) for name, given in settings.items()}
        if told.pop("latency"):
            named = [name.strip() for name in told["objectives"].split(",")]
            told["objectives"] = ",".join(named if "latency" in named else [*named, "latency"])
        with watching(quiet=quiet, as_json=as_json) as watcher:
            run = run_search(told.pop("model"), **told, command=command_line(), listener=watcher)
        finish(run, as_json=as_json, warned=watcher.warned)
