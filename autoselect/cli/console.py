"""The two streams, the progress of a search, and what the user sees of an error."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import IO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from autoselect.cases.events import (
    STAGES,
    EndedEarly,
    Event,
    Listener,
    Noted,
    StageStarted,
    TrialFinished,
    Warned,
    ignore,
)
from autoselect.cli.progress import WAITS, JsonLines, PlainLog, Tally, clock
from autoselect.domain.words import clean, counted
from autoselect.errors import EXIT_INTERRUPTED, AutoselectError, StorageError
from autoselect.isolation.interrupts import ends_like_ctrl_c


class Count(ProgressColumn):
    """``4/10``, also of a stage that ended there; empty where nothing is counted."""

    def render(self, task: Task) -> Text:
        """Write the cell."""
        of = task.fields["of"]
        return Text("" if of is None else f"{int(task.completed)}/{of}", style="progress.download", no_wrap=True)


class Time(ProgressColumn):
    """Time spent, which moves while nothing else does, and ``<`` the time left where that can be told."""

    def render(self, task: Task) -> Text:
        """Write the cell."""
        left = None if task.finished or task.fields["of"] is None else task.time_remaining
        text = clock(task.elapsed or 0.0) + ("" if left is None else f"<{clock(left)}")
        return Text(text, style="progress.elapsed", no_wrap=True)


class Written(Console):
    """A console that leaves it to others what happens if nobody reads it; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Raise the error again that rich has caught."""
        raise BrokenPipeError("nobody reads the output any more")


def out() -> Console:
    """The stream of results."""
    return Written(file=sys.stdout, highlight=False)


def err() -> Console:
    """The stream of messages and progress."""
    return Written(file=sys.stderr, highlight=False)


@contextlib.contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Turn what the body raises into a message on stderr and an exit code.

    Raises:
        typer.Exit: With the exit code of the error's class, 130 for Ctrl-C or SIGTERM, 141 if nobody reads the output
            any more, 1 for an unexpected exception.
    """
    try:
        with ends_like_ctrl_c():
            yield
    except (typer.Exit, typer.BadParameter):
        raise  # Typer tells of them.
    except BrokenPipeError as exc:  # Who read the output has closed it, as `head` does.
        write_to_nobody()
        raise typer.Exit(128 + signal.SIGPIPE) from exc  # As a shell has it of a program that the signal ends.
    except AutoselectError as exc:
        _complain(f"Error: {exc}", debug=debug)
        raise typer.Exit(exc.exit_code) from exc
    except KeyboardInterrupt as exc:
        _complain(f"Stopped. {exc}".rstrip(), debug=debug)
        raise typer.Exit(EXIT_INTERRUPTED) from exc
    except OSError as exc:
        if exc.errno not in _OF_THE_MACHINE:
            raise _unexpected(exc, debug=debug) from exc
        _complain(f"Error: {exc.filename or 'A file'} cannot be used: {exc.strerror}.", debug=debug)
        raise typer.Exit(StorageError.exit_code) from exc
    except Exception as exc:  # the last line of defence; nothing is decided here
        raise _unexpected(exc, debug=debug) from exc


_RIGHTS, _ROOM = (errno.EACCES, errno.EPERM, errno.EROFS), (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_THE_MACHINE = (*_RIGHTS, *_ROOM, errno.EMFILE, errno.ENFILE, errno.EIO)
"""What the system refuses, whatever the program does; the last ones are too many files at once, and a broken disk."""


def write_to_nobody() -> None:
    """Redirect stdout and stderr to the null device, so that neither a later write fails nor the flush at exit."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # It is no file.
            os.dup2(nobody, stream.fileno())
    os.close(nobody)


def _unexpected(exc: Exception, *, debug: bool) -> typer.Exit:
    hint = "" if debug else " --debug shows the traceback."
    _complain(f"Error: {type(exc).__name__}: {exc}. This is a bug, please report it.{hint}", debug=debug)
    return typer.Exit(1)


def _complain(message: str, *, debug: bool) -> None:
    try:
        if debug:
            traceback.print_exc()
        _say(err(), message, style="red")
    except BrokenPipeError:  # The exit code still tells.
        write_to_nobody()


def _say(console: Console, message: str, style: str | None = None) -> None:
    """Print a message as one line."""
    console.print(clean(" ".join(message.split())), style=style, markup=False, soft_wrap=True)


def print_lines(lines: Iterable[str], title: str | None = None) -> None:
    """Print results, each line as wide as it is, under a title."""
    console = out()
    if title is not None:
        console.print(f"\n{title}", style="bold", markup=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Print one warning on stderr."""
    _say(err(), f"Warning: {message}", style="yellow")


@contextlib.contextmanager
def results_only_on_stdout() -> Iterator[None]:
    """Send to stderr what the body, native code and its processes write to stdout.

    A model's library or a user's metric may print; results must stay readable by a machine.
    """
    with contextlib.redirect_stdout(sys.stderr), _descriptor_to_stderr():
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
def watching(
    stream: IO[str] | None = None, *, quiet: bool = False, verbose: bool = False, as_json: bool = False
) -> Iterator[Watcher]:
    """Show the progress of a search.

    On stderr: bars on a terminal, plain lines where it is none or ``NO_COLOR`` is set, warnings only where asked to be
    quiet. For machines: events as lines of JSON on stdout, and warnings on stderr.
    """
    console = Written(file=stream or sys.stderr, highlight=False)
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(_kept_stdout()) if as_json else None
        stack.enter_context(results_only_on_stdout())
        if verbose:
            stack.enter_context(_log_shown(console))
        if results is not None:
            yield Watcher(console, None, JsonLines(results))
        elif quiet:
            yield Watcher(console, None)
        elif not console.is_terminal or os.environ.get("NO_COLOR"):
            yield Watcher(console, None, PlainLog(lambda line: console.print(line, markup=False, soft_wrap=True)))
        else:
            watcher = Watcher(console, stack.enter_context(_bars(console)))
            yield watcher
            watcher.close_stage()


@contextlib.contextmanager
def _kept_stdout() -> Iterator[IO[str]]:
    """The stream of results, which stays it while everything else that is written to stdout goes to stderr."""
    try:
        descriptor = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):  # no file, as in tests, or closed
        yield sys.stdout
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        yield stream


@contextlib.contextmanager
def _log_shown(console: Console) -> Iterator[None]:
    """Print what is logged, save warnings, which are printed anyway."""
    logger, handler = logging.getLogger("autoselect"), _LogLines(console)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _LogLines(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            with contextlib.suppress(OSError):  # Nobody reads it any more.
                self._console.print(record.getMessage(), style="dim", markup=False, soft_wrap=True)


def _bars(console: Console) -> Progress:
    text, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}", style="dim")
    bar = BarColumn(bar_width=8)
    return Progress(SpinnerColumn(finished_text="✓"), text, bar, Count(), Time(), note, console=console)


def _lasting(listener: Listener) -> Listener:
    """Pass events on until the first failure to write, because nobody reads or a disk is full; drop later events."""
    heard = [listener]

    def tell(event: Event) -> None:
        try:
            for receiver in heard:
                receiver(event)
        except OSError:
            heard.clear()

    return tell


class Watcher:
    """The listener of the command line."""

    def __init__(self, console: Console, progress: Progress | None, also: Listener = ignore) -> None:
        self.warned: set[str] = set()
        self._console = console
        self._progress = progress
        self._shown, self._also = _lasting(self._show), _lasting(also)
        self._stage: TaskID | None = None
        self._tally = Tally()

    def __call__(self, event: Event) -> None:
        """Take one event; a stream that cannot be written to gets no more of them, and the search goes on."""
        self._shown(event)
        self._also(event)

    def _show(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._warn(event.message)
        elif isinstance(event, StageStarted):
            self._start(event)
        elif isinstance(event, TrialFinished):
            self._count(event)
        elif self._progress is None:
            pass
        elif isinstance(event, EndedEarly):
            self.close_stage()
            _say(self._console, f"Ended early after {counted(self._tally.done, 'trial')}: {event.reason}.")
        elif isinstance(event, Noted):
            _say(self._console, f"Note: {event.message}")
        elif self._stage is not None:
            self._progress.advance(self._stage)

    def _warn(self, message: str) -> None:
        if message in self.warned:
            return
        self.warned.add(message)
        _say(self._console, f"Warning: {message}", style="yellow")

    def _start(self, event: StageStarted) -> None:
        if self._progress is None:
            return
        self.close_stage()
        self._tally.begin(event)
        name, note = STAGES.get(event.stage, event.stage), WAITS.get(event.stage, "")
        self._stage = self._progress.add_task(name, total=event.total, completed=event.done, note=note, of=event.total)

    def close_stage(self) -> None:
        """Mark the stage as done, however far it came: one of unknown length ends where the next one begins."""
        if self._progress is not None and self._stage is not None:
            task = next(t for t in self._progress.tasks if t.id == self._stage)
            note = "" if task.fields["of"] is None else task.fields["note"]
            done = task.completed or 1
            self._progress.update(self._stage, total=done, completed=done, note=note)
            self._progress.stop_task(self._stage)
            self._stage = None

    def _count(self, event: TrialFinished) -> None:
        self._tally.add(event)
        if event.error is not None:
            self._show_failure(event)
        if self._progress is not None and self._stage is not None:
            self._progress.update(self._stage, completed=self._tally.done, note=self._tally.note())

    def _show_failure(self, event: TrialFinished) -> None:
        failures_shown = 3
        failed = self._tally.failed
        if self._progress is not None and failed <= failures_shown:
            more = " Further failures are listed in trials.csv." if failed == failures_shown else ""
            _say(self._console, f"Trial {event.number} failed: {event.error}{more}", style="dim")
