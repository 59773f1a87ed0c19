"""Commands on run folders: ``report``, ``show``, ``pick``, ``benchmark``, ``merge``, ``compare`` and ``watch``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cli.command import with_debug, with_run, with_settings
from autoselect.cli.console import out, print_lines, results_only_on_stdout, warn, watching
from autoselect.cli.options import AsJson, option_of, said_again
from autoselect.domain.words import counted
from autoselect.errors import PreparationError, UsageError
from autoselect.runs.run import Run
from autoselect.tflite.device import FEWEST_ROUNDS, ROUNDS, TOOL


@with_settings([said_again(option) for option in declared().values() if option.live])
@with_run
def merge(
    *,
    directories: Annotated[list[str], typer.Argument(metavar="RUN", help="Run folders, two or more.")],
    settings: Mapping[str, Any],
    output: Annotated[str, typer.Option("--output", "-o", help="New folder for what they found together.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; as in the first run by default.")
    ] = None,
    no_cache: Annotated[bool, option_of("cache")] = False,
    listener: Listener,
) -> Run:
    """Make one run of several of the same model, data and metric: their fronts, scored again on the same samples."""
    from autoselect import merge as run_merge

    return run_merge(directories, output=output, workers=workers, cache=not no_cache, listener=listener, **settings)


@with_debug
def compare(
    *,
    first: Annotated[str, typer.Argument(help="Run folder.")],
    second: Annotated[str, typer.Argument(help="Another of the same model, data and metric.")],
) -> None:
    """Put the picks of two runs side by side, and the nodes that their recommended models treat otherwise."""
    from autoselect import compare as run_compare

    print_lines(run_compare(first, second).lines(out().width))


@with_debug
def watch(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder, also of a search that goes on.")],
    run: Annotated[bool, typer.Option("--run", help="Run the command instead of printing it.")] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Run it and open a browser.")] = False,
    host: Annotated[str, typer.Option(help="Where the dashboard listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="At which port.")] = 8080,
) -> None:
    """Print the command that shows a run in optuna-dashboard, or run it (extra: dashboard)."""
    from autoselect.api.reporting import find_program
    from autoselect.api.reporting import watch as command_of

    command = command_of(directory, host=host, port=port)
    if not (run or open_browser):
        print(shlex.join(command))
        try:
            find_program()
        except UsageError as exc:
            warn(str(exc))
        return
    _serve([find_program(), *command[1:]], f"http://{host}:{port}/" if open_browser else None)


def _serve(command: list[str], url: str | None) -> None:
    import subprocess
    import threading

    if url is not None:
        # The server takes a second or two to start.
        threading.Timer(2.0, typer.launch, [url]).start()
    raise typer.Exit(subprocess.run(command, check=False).returncode)


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
        keys_by_label = {"written": "path", "card": "card", "model": "id", "sha256": "sha256"}
        made = {f"for {model['target']}": _made(model) for model in chosen["compiled"]}
        print_fields({**{label: str(chosen[key]) for label, key in keys_by_label.items()}, **made})
    for message in chosen["warnings"]:
        warn(message)


def _made(model: Mapping[str, Any]) -> str:
    from autoselect.report.tables.frames import format_size

    moved = f", {format_size(model['ddr_bytes'])} to and from DDR" if model["ddr_bytes"] else ""
    pieces, left = counted(model["partitions"], "partition"), counted(model["left_ops"], "op")
    return f"{model['path']} ({pieces}, {left} left on the CPU{moved})"


@with_debug
def show(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    whole: Annotated[bool, typer.Option("--all", help="The whole front, not only the models that decide.")] = False,
    limits: Annotated[
        bool, typer.Option("--limits", help="What would be recommended at each allowed drop instead.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --limits: on this target; several also give one for all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the result of a run, or what a search at work knows so far."""
    from autoselect.api.reporting import known_so_far, recovered
    from autoselect.cli.results import print_json, print_limits, print_run, run_as_json

    if target and not limits:
        raise typer.BadParameter("a target is for --limits; what-if tells one model's penalty")
    run = recovered(directory) if limits else known_so_far(directory)
    if limits:
        table = run.limits(target)
        if as_json:
            print_json({"limits": table.to_dict("records")})
        else:
            print_limits(table, str(run.summary["metric"]))
    elif as_json:
        print_json(run_as_json(run))
    else:
        print_run(run, whole=whole)


@with_debug
def report(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder; of a finished, stopped or killed run.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File to write; report.html in the run folder by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the run as one page for a browser; a search does it at its end by itself."""
    from autoselect import write_report
    from autoselect.cli.results import print_fields, print_json

    with results_only_on_stdout():
        path = write_report(directory, output=output)
    if as_json:
        print_json({"path": str(path), "size_bytes": path.stat().st_size})
    else:
        print_fields({"written": str(path)})


_PHONE = "Device"


@with_debug
def benchmark(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    whole: Annotated[bool, typer.Option("--all", help="The whole front, not only the picks.")] = False,
    also: Annotated[list[str] | None, typer.Option(metavar="MODEL", help="A further .tflite; may be repeated.")] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The float model; by default the one of the run folder.")
    ] = None,
    serial: Annotated[
        str | None,
        typer.Option(rich_help_panel=_PHONE, help="Which device; by default ANDROID_SERIAL, or the only one."),
    ] = None,
    tool: Annotated[str, typer.Option(rich_help_panel=_PHONE, help="Path of benchmark_model on the device.")] = TOOL,
    threads: Annotated[int, typer.Option(min=1, rich_help_panel=_PHONE, help="Threads of the interpreter.")] = 1,
    flags: Annotated[
        str, typer.Option(rich_help_panel=_PHONE, help="More flags of benchmark_model: '--use_gpu=true'.")
    ] = "",
    rounds: Annotated[
        int, typer.Option(min=FEWEST_ROUNDS, help="How often each model is timed; fewer give no 95 % interval.")
    ] = ROUNDS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A .json file for all times.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time the picks of a run on an Android device, with adb and benchmark_model."""
    from autoselect import benchmark as run_benchmark
    from autoselect.cli.results import print_json

    with watching() as watcher:
        timings = run_benchmark(
            directory,
            whole=whole,
            also=also or (),
            reference=reference,
            serial=serial,
            tool=tool,
            threads=threads,
            flags=flags,
            rounds=rounds,
            output=output,
            force=force,
            listener=watcher,
        )
    if as_json:
        print_json(timings)
    else:
        print_lines(timings.lines())
    failed = [model["name"] for model in timings.models if model["error"]]
    for name in failed:
        warn(f"{name} could not be timed.")
    if failed:
        raise typer.Exit(PreparationError.exit_code)
