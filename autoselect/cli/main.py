"""The command ``autoselect``: gathers the commands."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from autoselect._version import __version__
from autoselect.cli.building import build, compile_model
from autoselect.cli.config_file import init
from autoselect.cli.diagnose import diagnose
from autoselect.cli.evaluate import evaluate
from autoselect.cli.inspect import inspect
from autoselect.cli.parsing import Command, Group, ShortHelp
from autoselect.cli.run_folders import benchmark, compare, merge, pick, report, show, watch
from autoselect.cli.search import check, demo, resume, search
from autoselect.cli.what_if import explore, what_if

app = typer.Typer(
    name="autoselect",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_RUNS = (demo, init, check, search, resume, show, pick, what_if, explore, merge, compare, benchmark, report, watch)
_MODELS = (build, evaluate, inspect, compile_model, diagnose)
_NAMES = {compile_model: "compile"}
"""Names of commands that are not called like their function, because Python has one of that name."""
for command in (*_RUNS, *_MODELS):
    shown = ShortHelp if command in (search, check, diagnose) else Command
    app.command(_NAMES.get(command), cls=shown)(command)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"autoselect {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Find which layers of a TensorFlow Lite / LiteRT model to leave out of full-integer quantization.

    Exit codes: 0 done, 1 to 9 an error, 10 no model met the limits, 130 stopped with Ctrl-C (see resume).
    """


def main() -> None:
    """Run the command line; what the terminal's encoding lacks is printed as ``?``."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="autoselect")


def _open_what_is_closed() -> None:
    """Give each standard stream that the caller has closed (``2>&-``) a file that nobody reads.

    Else the next file that is opened is taken for it, by native code too.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        stream if stream is not None else os.fdopen(number, mode, encoding="utf-8", closefd=False)
        for number, (stream, mode) in enumerate([(sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")])
    )
