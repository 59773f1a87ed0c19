"""``autoselect benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.console import print_lines, warn, watching
from autoselect.cli.options import AsJson
from autoselect.errors import PreparationError
from autoselect.tflite.device import FEWEST_ROUNDS, ROUNDS, TOOL

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
        found = run_benchmark(
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
        print_json(found)
    else:
        print_lines(found.lines())
    failed = [model["name"] for model in found.models if model["error"]]
    for name in failed:
        warn(f"{name} could not be timed.")
    if failed:
        raise typer.Exit(PreparationError.exit_code)
