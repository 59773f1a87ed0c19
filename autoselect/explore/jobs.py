"""What takes longer than an answer: builds, scores and further trials, one by one, each in a process of its own.

A job is a command of autoselect. Whoever kills it, or the server, finds the run folder as whole as after any stop.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from autoselect.cases.events import STAGES
from autoselect.errors import EXIT_NOTHING_FEASIBLE, AutoselectError, UsageError
from autoselect.isolation.tether import Tethered

LOGGER = logging.getLogger("autoselect")

State = Literal["waiting", "working", "done", "failed", "stopped"]
Event = Mapping[str, Any]

_FINE = (0, EXIT_NOTHING_FEASIBLE)
_KEPT_EVENTS = 10_000


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One job.

    Attributes:
        kind: What it does: ``build``, ``score`` or ``search``.
        name: What it does it to, in words.
        arguments: Of the command, asked for when its turn has come.
        told: Makes the result from the command's trial and result events, once the command has ended well.
        trials: Trials that it adds, None if that is not known; :attr:`share` counts to it, since the total that a
            search tells has earlier trials.
        state: How far it is.
        progress: For the page: the stage of the command while it works, else the state.
        share: How much of what it does now is done, 0 to 1; None if that is not known.
        result: Once it is done.
        error: Why it failed, in words.
        file: Where it writes the model, which is there once it is done; None if it makes none.
        id: Its name in addresses.
    """

    kind: str
    name: str
    arguments: Callable[[], Sequence[str]]
    told: Callable[[Sequence[Event]], Mapping[str, Any]]
    trials: int | None = None
    state: State = "waiting"
    progress: str = "waiting"
    share: float | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    file: Path | None = None
    id: str = field(default_factory=partial(secrets.token_hex, 4))

    def row(self) -> dict[str, Any]:
        """What a page shows."""
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "state": self.state,
            "progress": self.progress,
            "share": self.share,
            "result": None if self.result is None else dict(self.result),
            "error": self.error,
            "file": self.state == "done" and self.file is not None and self.file.exists(),
        }


@dataclass(slots=True)
class _Progress:
    """Where a command is, by the events that it tells."""

    job: Job
    events: list[Event] = field(default_factory=list)
    total: int | None = None
    done: int = 0

    def take(self, line: str) -> None:
        try:
            event: Any = json.loads(line)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        kind = event.get("event")
        if kind == "stage":
            stage, own = str(event["stage"]), self.job.trials if event["stage"] == "trials" else None
            self.total, self.done = (own, 0) if own else (event.get("total"), event.get("done") or 0)
            self.job.progress = STAGES.get(stage, stage)
        elif kind in ("trial", "step"):
            self.done += 1
        if kind in ("trial", "result", None) and len(self.events) < _KEPT_EVENTS:
            self.events.append(event)
        self.job.share = min(self.done / self.total, 1.0) if self.total else None


class Jobs:
    """Does jobs one at a time, in the order in which they came."""

    def __init__(self, folder: Path, after: Callable[[Job], None]) -> None:
        """Start with none.

        Args:
            folder: For what jobs make and what commands complain of.
            after: Called when the command of a job has ended, before the state becomes ``done`` or ``failed``. A job
                that is stopped has its state already. It is not called if the command never started.
        """
        self._folder, self._after = folder, after
        self._jobs: dict[str, Job] = {}
        self._changed, self._closed = threading.Condition(), False
        self._running: Tethered | None = None
        self._worker = threading.Thread(target=self._work, name="autoselect-jobs", daemon=True)
        self._worker.start()

    def add(self, job: Job) -> None:
        """Let the command of a job run once those before it have ended."""
        with self._changed:
            self._jobs[job.id] = job
            self._changed.notify_all()

    def rows(self) -> list[dict[str, Any]]:
        """All of them, in the order in which they came."""
        with self._changed:
            return [job.row() for job in self._jobs.values()]

    def get(self, id_: str) -> Job | None:
        """One of them; None if there is none of that id."""
        return self._jobs.get(id_)

    @property
    def are_busy(self) -> bool:
        """Whether any job works or waits."""
        with self._changed:
            return any(job.state in ("waiting", "working") for job in self._jobs.values())

    def stop(self, job: Job) -> None:
        """Stop a job; one that has ended stays as it is."""
        with self._changed:
            if job.state == "waiting":
                job.state, job.progress = "stopped", "stopped before it began"
            elif job.state == "working":
                job.state, job.progress = "stopped", "stopped"
                if self._running is not None:
                    self._running.kill()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop all of them, and wait for their ends."""
        with self._changed:
            self._closed = True
            waiting = list(self._jobs.values())
        for job in waiting:
            self.stop(job)
        with self._changed:
            self._changed.notify_all()
        self._worker.join()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._do(job)
            except AutoselectError as exc:
                self._end(job, "failed", str(exc))
            except Exception as exc:  # The next job has its turn, whatever this one met.
                LOGGER.exception("A job of the page failed.")
                self._end(job, "failed", f"{type(exc).__name__}: {exc}. This is a bug, please report it.")

    def _next(self) -> Job | None:
        with self._changed:
            while not self._closed:
                job = next((job for job in self._jobs.values() if job.state == "waiting"), None)
                if job is not None:
                    job.state, job.progress = "working", "starting"
                    return job
                self._changed.wait()
            return None

    def _do(self, job: Job) -> None:
        """Run a command to its end.

        Raises:
            AutoselectError: If it failed, in words.
        """
        progress = _Progress(job)
        with (self._folder / f"{job.id}.log").open("w+", encoding="utf-8", errors="replace") as errors:
            command = [sys.executable, "-m", "autoselect", *job.arguments()]
            with Tethered(command, errors=errors, environment=_environment()) as running:
                self._hold(job, running)
                for line in running.process.stdout or ():
                    progress.take(line)
                code = running.process.wait()
                self._hold(job, None)
            errors.seek(0)
            said = errors.read()
        self._after(job)
        if job.state == "stopped":
            return
        if code not in _FINE:
            raise UsageError(_complaint(said) or f"The command ended with the code {code}.")
        job.result = job.told(progress.events)
        self._end(job, "done", None)

    def _hold(self, job: Job, running: Tethered | None) -> None:
        """Let it be stopped while it runs; it may have been stopped before."""
        with self._changed:
            self._running = running
            if running is not None and job.state == "stopped":
                running.kill()

    def _end(self, job: Job, state: State, error: str | None) -> None:
        with self._changed:
            if job.state == "working":
                job.state, job.error, job.progress, job.share = state, error, state, None


def _environment() -> dict[str, str]:
    """The environment of this process; modules are where it finds them, such as a metric beside a notebook."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _complaint(said: str) -> str:
    """What a command said of its failure: its last error, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return next(iter(errors[-1:] or lines[-1:]), "")
