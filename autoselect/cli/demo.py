"""``autoselect demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.console import reported, watching
from autoselect.cli.options import AsJsonLines, Debug, Quiet, Verbose, Workers, command_line, option_of


def demo(
    *,
    trials: Annotated[int, option_of("trials")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Run folder; a new autoselect-demo by default."),
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Search on the embedded example: a pump monitor that full-integer quantization harms."""
    with reported(debug=debug):
        from autoselect import demo as run_demo
        from autoselect.cli.results import finish

        with watching(quiet=quiet, verbose=verbose, as_json=as_json) as watcher:
            run = run_demo(
                trials=trials, seed=seed, output=output, workers=workers, command=command_line(), listener=watcher
            )
        finish(run, as_json=as_json, warned=watcher.warned)
