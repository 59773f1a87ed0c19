"""``autoselect search``, ``check``, ``resume`` and ``demo``: they search, or say what a search would take."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cases.option import DATA
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_run, with_settings
from autoselect.cli.config_file import read_config
from autoselect.cli.console import warn, watching
from autoselect.cli.options import AsJson, Quiet, command_line, in_python, option_of, parameters_of, said_again
from autoselect.cli.parsing import HelpAll
from autoselect.cli.progress import clock
from autoselect.isolation.machine import memory_bytes
from autoselect.runs.run import Run

if TYPE_CHECKING:
    from autoselect.study.outlook import Outlook

_BY_HAND = "By hand: recipes, or pins of the trials to come; names, globs or op types, may be repeated"
Nodes = list[str] | None


@with_settings([said_again(option) for option in declared().values() if option.live or option.resume])
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
    chosen = {name: nodes for name, nodes in pins.items() if nodes}
    return run_resume(directory, **settings, recipes=recipe or (), pins=chosen, cache=not no_cache, listener=listener)


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
    arguments = in_python(SearchSettings, settings)
    if arguments.pop("latency"):
        named = [name.strip() for name in arguments["objectives"].split(",")]
        arguments["objectives"] = ",".join(named if "latency" in named else [*named, "latency"])
    return arguments


@with_settings(parameters_of(SearchSettings))
@with_run
def search(*, settings: Mapping[str, Any], config: Config = None, help_all: HelpAll = False, listener: Listener) -> Run:
    """Search which layers to leave out of full-integer quantization, and write the Pareto front."""
    from autoselect import search as run_search

    arguments = told_in_python(settings)
    return run_search(arguments.pop("model"), **arguments, listener=listener)


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

    arguments = told_in_python(settings)
    output = Path(arguments["output"] or ".")
    with watching(quiet=quiet) as watcher:
        outlook = run_check(arguments.pop("model"), **arguments, listener=watcher)
    if as_json:
        print_json(asdict(outlook))
        return
    there = memory_bytes()
    print_fields(_fields(outlook, _free_bytes(output), there))
    if outlook.refused:
        warn(f"The all-integer model, the first trial of every search, fails. {outlook.refused}")
    if outlook.memory["all"] > there:
        warn(
            f"The search would take more memory than there is. Let fewer than {outlook.workers} workers do it "
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


def _fields(outlook: Outlook, free_bytes: int, machine_bytes: float) -> dict[str, str]:
    from autoselect.domain.words import counted, said
    from autoselect.report.tables.frames import format_size

    samples = ", ".join(f"{count:,} {part.replace('heldout', 'held-out')}" for part, count in outlook.samples.items())
    machine = "an unknown amount" if math.isinf(machine_bytes) else f"{machine_bytes / 1e9:,.0f} GB"
    fields = {
        "model": f"{format_size(outlook.size_bytes)} as float, {counted(outlook.nodes, 'node')} in "
        f"{counted(outlook.units, 'unit')} that move together",
        "float score": said(outlook.float_score, outlook.metric),
        "samples": samples,
        "search space": f"{_many(outlook.candidates)} candidates; {outlook.states} states for each unit",
        "one trial": "fails" if outlook.refused else _trial(outlook),
        "the search": f"{counted(outlook.trials, 'trial')} on {counted(outlook.workers, 'worker')}",
    }
    if not outlook.refused:
        fields["the search"] += f": about {clock(outlook.search_seconds)}"
        phases = (f"{_PHASES[name]} {clock(seconds)}" for name, seconds in outlook.phase_seconds.items() if seconds)
        fields["of it"] = ", ".join(phases)
    return fields | {
        "disk": f"about {format_size(outlook.disk_bytes)} while it runs, {free_bytes / 1e9:,.0f} GB free",
        "memory": f"about {outlook.memory['all'] / 1e9:.1f} GB in all, of {machine}",
    }


def _trial(outlook: Outlook) -> str:
    seconds = outlook.build_seconds + outlook.score_seconds
    per_sample = (
        "" if math.isnan(outlook.inference_seconds) else f", {1e3 * outlook.inference_seconds:.3g} ms an inference"
    )
    return f"{seconds:.2g} s ({outlook.build_seconds:.2g} to build, {outlook.score_seconds:.2g} to score{per_sample})"


def _many(count: int) -> str:
    return f"{count:,}" if count < 1_000_000 else f"{float(count):.1e}" if count < 1e300 else f"2^{count.bit_length()}"


def _free_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
