"""The two streams, the progress of a search, and what the user sees of an error."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import typer

from autoselect.cases.events import Event, StageStarted, StepFinished, TrialFinished, Warned
from autoselect.errors import EXIT_INTERRUPTED, AutoselectError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_STAGES = {
    "model": "reading the model",
    "data": "reading the samples",
    "calibrate": "calibrating",
    "measure": "measuring the layers",
    "ablation": "leaving single nodes in and out",
    "figures": "drawing",
    "reference": "float model",
    "repairs": "trying repairs",
    "probes": "trying units alone",
    "trials": "trials",
    "heldout": "held-out check",
    "write": "writing the run",
}
_FAILURES_SHOWN = 3
_UNEXPECTED_EXIT = 1


def out() -> Console:
    """The stream of results."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    """The stream of messages and progress."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False)


@contextlib.contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Turn what the body raises into a message on stderr and an exit code.

    Args:
        debug: Show the traceback too.

    Raises:
        typer.Exit: With the exit code of the error's class, 130 for Ctrl-C, 1 for an unexpected exception.
    """
    try:
        yield
    except typer.Exit:
        raise
    except AutoselectError as exc:
        _complain(f"Error: {exc}", debug=debug)
        raise typer.Exit(exc.exit_code) from exc
    except KeyboardInterrupt as exc:
        _complain("Stopped.", debug=debug)
        raise typer.Exit(EXIT_INTERRUPTED) from exc
    except Exception as exc:  # the last line of defence; nothing is decided here
        hint = "" if debug else " --debug shows the traceback."
        _complain(f"Error: {type(exc).__name__}: {exc}. This is a bug, please report it.{hint}", debug=debug)
        raise typer.Exit(_UNEXPECTED_EXIT) from exc


def _complain(message: str, *, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    err().print(" ".join(message.split()), style="red", markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Print one warning on stderr."""
    err().print(f"Warning: {' '.join(message.split())}", style="yellow", markup=False, soft_wrap=True)


@contextlib.contextmanager
def results_only_on_stdout() -> Iterator[None]:
    """Send to stderr what the body, native code and its processes write to stdout.

    A model's library or a user's metric may print; results must stay readable by a machine.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(_descriptor_to_stderr())
        yield


@contextlib.contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    try:
        kept = os.dup(1)
    except OSError:  # stdout is closed: there is nothing to protect
        yield
        return
    try:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def watching(stream: IO[str] | None = None) -> Iterator[Watcher]:
    """Show the progress of a search on stderr: bars on a terminal, else warnings only.

    Yields:
        The listener to hand over.
    """
    from rich.console import Console

    console = Console(file=stream or sys.stderr, highlight=False)
    with results_only_on_stdout():
        if not console.is_terminal or os.environ.get("NO_COLOR"):
            yield Watcher(console, None)
            return
        with _bars(console) as progress:
            yield Watcher(console, progress)


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    text, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}", style="dim")
    return Progress(
        SpinnerColumn(finished_text="✓"),
        text,
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        Elapsed(),
        Remaining(),
        note,
        console=console,
    )


class Watcher:
    """The listener of the command line.

    Args:
        console: Where warnings go.
        progress: The bars; None for a quiet stream.
    """

    def __init__(self, console: Console, progress: Progress | None) -> None:
        self.warned: set[str] = set()
        self._console = console
        self._progress = progress
        self._stage: TaskID | None = None
        self._first_number: int | None = None
        self._finished = self._failed = self._reused = 0

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, Warned):
            self._warn(event.message)
        elif isinstance(event, StageStarted):
            self._start(event)
        elif isinstance(event, StepFinished):
            self._advance()
        else:
            self._count(event)

    def _warn(self, message: str) -> None:
        if message in self.warned:
            return
        self.warned.add(message)
        self._console.print(f"Warning: {' '.join(message.split())}", style="yellow", markup=False, soft_wrap=True)

    def _start(self, event: StageStarted) -> None:
        if self._progress is None:
            return
        self._close_stage()
        name = _STAGES.get(event.stage, event.stage)
        self._stage = self._progress.add_task(name, total=event.total, note="")
        if event.stage == "write":
            self._close_stage()

    def _close_stage(self) -> None:
        """Mark the stage as done: a stage of unknown length ends where the next one begins."""
        if self._progress is not None and self._stage is not None:
            task = next(t for t in self._progress.tasks if t.id == self._stage)
            done = int(task.completed) or 1
            self._progress.update(self._stage, total=task.total or done, completed=done)

    def _advance(self) -> None:
        if self._progress is not None and self._stage is not None:
            self._progress.advance(self._stage)

    def _count(self, event: TrialFinished) -> None:
        if self._first_number is None:
            self._first_number = event.number  # a resumed search goes on in the middle
        self._finished += 1
        self._reused += event.reused
        if event.error is not None:
            self._failed += 1
            self._show_failure(event)
        if self._progress is not None and self._stage is not None:
            done = self._first_number + self._finished
            note = f"{self._reused} reused, {self._failed} failed"
            self._progress.update(self._stage, completed=done, note=note)

    def _show_failure(self, event: TrialFinished) -> None:
        if self._progress is not None and self._failed <= _FAILURES_SHOWN:
            more = " Further failures are listed in trials.csv." if self._failed == _FAILURES_SHOWN else ""
            text = f"Trial {event.number} failed: {' '.join(str(event.error).split())}{more}"
            self._console.print(text, style="dim", markup=False, soft_wrap=True)
