"""``autoselect search``, ``resume`` and ``demo``: they search."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cases.option import DATA, Option
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_run, with_settings
from autoselect.cli.config_file import read_config
from autoselect.cli.options import in_python, option_of, parameter_of, parameters_of
from autoselect.cli.parsing import HelpAll
from autoselect.runs.run import Run

_LIVE = "What the run had as an object in Python, not as a path or name"
_BY_HAND = "By hand: recipes, or pins of the trials to come; names, globs or op types, may be repeated"
Nodes = list[str] | None
_AS_BEFORE = "As in autoselect search."


def _parameter(option: Option) -> inspect.Parameter:
    told, panel = option.resume or _AS_BEFORE, _LIVE if option.live else None
    return parameter_of(option, option_of(option.name, help=told, metavar=None, rich_help_panel=panel), None)


@with_settings([_parameter(option) for option in declared().values() if option.live or option.resume])
@with_run
def resume(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    settings: Mapping[str, Any],
    recipe: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_BY_HAND,
            help="Score this recipe, a JSON file, as a trial of the run, and propose nothing; may be repeated.",
        ),
    ] = None,
    keep_float: Annotated[
        Nodes,
        typer.Option(metavar="NODE", rich_help_panel=_BY_HAND, help="Stays out of integers in trials to come."),
    ] = None,
    keep_int: Annotated[
        Nodes, typer.Option(metavar="NODE", rich_help_panel=_BY_HAND, help="Stays in 8-bit integers in these.")
    ] = None,
    keep_int16: Annotated[
        Nodes, typer.Option(metavar="NODE", rich_help_panel=_BY_HAND, help="Keeps 16-bit activations in these.")
    ] = None,
    no_cache: Annotated[bool, option_of("cache")] = False,
    listener: Listener,
) -> Run:
    """Go on with a search that was stopped, or give a finished one more trials."""
    from autoselect import resume as run_resume

    pins = {"keep_float": keep_float or (), "keep_int": keep_int or (), "keep_int16": keep_int16 or ()}
    by_hand = {"recipes": recipe or (), "pins": {name: nodes for name, nodes in pins.items() if nodes}}
    return run_resume(directory, **settings, **by_hand, cache=not no_cache, listener=listener)


@with_run
def demo(
    *,
    trials: Annotated[int, option_of("trials")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Run folder; a new autoselect-demo by default."),
    ] = None,
    workers: Annotated[int | None, option_of("workers")] = None,
    listener: Listener,
) -> Run:
    """Search on the embedded example: a pump monitor that full-integer quantization harms."""
    from autoselect import demo as run_demo

    return run_demo(trials=trials, seed=seed, output=output, workers=workers, listener=listener)


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
