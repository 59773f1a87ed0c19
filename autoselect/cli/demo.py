"""``autoselect demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cases.events import Listener
from autoselect.cli.command import with_run
from autoselect.cli.options import option_of
from autoselect.runs.run import Run


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
