"""``autoselect watch``."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from autoselect.cli.command import with_debug

_START_SECONDS = 2.0


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
    from autoselect.api.watching import find_program
    from autoselect.api.watching import watch as command_of

    command = command_of(directory, host=host, port=port)
    if not (run or open_browser):
        print(shlex.join(command))
        return
    _serve([find_program(), *command[1:]], f"http://{host}:{port}/" if open_browser else None)


def _serve(command: list[str], url: str | None) -> None:
    import subprocess
    import threading

    if url is not None:
        threading.Timer(_START_SECONDS, typer.launch, [url]).start()
    raise typer.Exit(subprocess.run(command, check=False).returncode)
