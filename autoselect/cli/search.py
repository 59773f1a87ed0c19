"""``autoselect search``, ``check``, ``resume`` and ``demo``: they search, or say what a search would take."""

from __future__ import annotations

import inspect
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cases.option import DATA, Option
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_run, with_settings
from autoselect.cli.config_file import read_config
from autoselect.cli.console import warn, watching
from autoselect.cli.options import AsJson, Quiet, command_line, in_python, option_of, parameter_of, parameters_of
from autoselect.cli.parsing import HelpAll
from autoselect.cli.progress import clock
from autoselect.isolation.machine import memory_bytes
from autoselect.runs.run import Run

if TYPE_CHECKING:
    from autoselect.study.outlook import Outlook

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


@with_settings(parameters_of(SearchSettings))
@with_debug
def check(
    *,
    settings: Mapping[str, Any],
    config: Config = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    help_all: HelpAll = False,
) -> None:
    """Try a search without searching: read model and data, time one candidate, and say how long it would take."""
    from autoselect import check as run_check
    from autoselect.cli.results import print_fields, print_json

    told = told_in_python(settings)
    output = Path(told["output"] or ".")
    with watching(quiet=quiet) as watcher:
        found = run_check(told.pop("model"), **told, listener=watcher)
    if as_json:
        print_json(asdict(found))
        return
    there = memory_bytes()
    print_fields(_fields(found, _free_bytes(output), there))
    if found.refused:
        warn(f"The all-integer model, the first trial of every search, fails. {found.refused}")
    if found.memory["all"] > there:
        warn(
            f"The search would take more memory than there is. Let fewer than {found.workers} workers do it "
            "(--workers): workers that the system kills cost trials."
        )
    print(f"Next: {command_line().replace(' check ', ' search ', 1)}")


_PHASES = {
    "prepare": "calibrating",
    "repairs": "repairs",
    "probes": "probes of units",
    "trials": "trials",
    "heldout": "held-out samples",
    "emulation": "emulation",
}


def _fields(found: Outlook, free_bytes: int, machine_bytes: float) -> dict[str, str]:
    from autoselect.domain.words import counted, said
    from autoselect.report.tables.frames import format_size

    samples = ", ".join(f"{count:,} {part.replace('heldout', 'held-out')}" for part, count in found.samples.items())
    machine = "an unknown amount" if math.isinf(machine_bytes) else f"{machine_bytes / 1e9:,.0f} GB"
    told = {
        "model": f"{format_size(found.size_bytes)} as float, {counted(found.nodes, 'node')} in "
        f"{counted(found.units, 'unit')} that move together",
        "float score": said(found.float_score, found.metric),
        "samples": samples,
        "search space": f"{_many(found.candidates)} candidates; {found.states} states for each unit",
        "one trial": "fails" if found.refused else _trial(found),
        "the search": f"{counted(found.trials, 'trial')} on {counted(found.workers, 'worker')}",
    }
    if not found.refused:
        told["the search"] += f": about {clock(found.search_seconds)}"
        phases = (f"{_PHASES[name]} {clock(seconds)}" for name, seconds in found.phase_seconds.items() if seconds)
        told["of it"] = ", ".join(phases)
    return told | {
        "disk": f"about {format_size(found.disk_bytes)} while it runs, {free_bytes / 1e9:,.0f} GB free",
        "memory": f"about {found.memory['all'] / 1e9:.1f} GB in all, of {machine}",
    }


def _trial(found: Outlook) -> str:
    seconds = found.build_seconds + found.score_seconds
    per_sample = "" if math.isnan(found.inference_seconds) else f", {1e3 * found.inference_seconds:.3g} ms an inference"
    return f"{seconds:.2g} s ({found.build_seconds:.2g} to build, {found.score_seconds:.2g} to score{per_sample})"


def _many(count: int) -> str:
    return f"{count:,}" if count < 1_000_000 else f"{float(count):.1e}" if count < 1e300 else f"2^{count.bit_length()}"


def _free_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
