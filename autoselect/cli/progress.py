"""How far a search is, for logs and machines: counts of its trials, plain lines, JSON lines; knows no bars."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import IO

from autoselect.cases.events import STAGES, EndedEarly, Event, Noted, StageStarted, StepFinished, TrialFinished, Warned
from autoselect.domain.words import counted
from autoselect.runs.files import plain

WAITS: Mapping[str, str] = {
    "model": "TensorFlow is loaded where it has to convert",
    "calibrate": "a worker measures ranges and layers",
    "build": "a worker quantizes the model",
    "plan": "a worker builds what candidates are made of",
    "picks": "how sure each model's score is",
    "write": "tables, figures, page",
}
"""What takes the time in stages that count nothing."""

_LINE_EVERY_SECONDS = 10.0
_NAMES: Mapping[type[Event], str] = {
    StageStarted: "stage",
    StepFinished: "step",
    TrialFinished: "trial",
    EndedEarly: "ended_early",
    Warned: "warning",
    Noted: "note",
}


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Tally:
    """Counts the trials of a search and keeps the best score.

    Attributes:
        done: Trials of the search so far, those of earlier processes included.
        before: Those of them that were done when the stage began.
    """

    def __init__(self) -> None:
        """Start from nothing."""
        self.done = self.before = self.finished = self.failed = self.reused = self.dropped = 0
        self._best: TrialFinished | None = None

    def begin(self, stage: StageStarted) -> None:
        """Count from what was done before the stage."""
        self.done = self.before = stage.done

    def add(self, event: TrialFinished) -> None:
        """Count one trial."""
        self.done += 1
        self.finished += 1
        self.reused += event.reused
        self.dropped += event.dropped and not event.reused
        self.failed += event.error is not None
        if event.drop is not None and (self._best is None or self._best.drop is None or event.drop < self._best.drop):
            self._best = event

    @property
    def saved(self) -> int:
        """Evaluations that were not needed in full: known already, or dropped after part of the samples."""
        return self.reused + self.dropped

    def note(self) -> str:
        """``best 0.9310, 12 evaluations saved, 1 failed``; what is zero is left out."""
        parts = [f"best {self._best.score:.4g}"] if self._best is not None and self._best.score is not None else []
        parts += [f"{counted(self.saved, 'evaluation')} saved"] if self.saved else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)


class PlainLog:
    """A listener that writes whole lines, for logs: each stage, and every few seconds how far it is."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._tally = Tally()
        self._total: int | None = None
        self._steps = 0
        self._begun = self._told = clock()
        self._open = False

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, StageStarted):
            self._start(event)
        elif isinstance(event, TrialFinished):
            self._tally.add(event)
            if self._clock() - self._told >= _LINE_EVERY_SECONDS:
                self._tell()
            else:
                self._open = True
        elif isinstance(event, StepFinished):
            self._steps += 1
            if self._steps < (self._total or 0) and self._clock() - self._told >= _LINE_EVERY_SECONDS:
                self._tell_steps()
        elif isinstance(event, EndedEarly):
            self._tell()
            self._write(f"ended early: {event.reason}")
        elif isinstance(event, Noted):
            self._write(f"Note: {event.message}")

    def _start(self, event: StageStarted) -> None:
        if self._open:
            self._tell()
        if self._total is None and (seconds := self._clock() - self._begun) >= _LINE_EVERY_SECONDS:
            self._write(f"  done in {clock(seconds)}")
        self._total, self._begun, self._told = event.total, self._clock(), self._clock()
        self._steps = 0
        self._tally.begin(event)
        count = f" ({event.total})" if event.total else ""
        self._write(f"{STAGES.get(event.stage, event.stage)}{count}")

    def _tell(self) -> None:
        self._told, self._open = self._clock(), False
        of = f"/{self._total}" if self._total else ""
        here = self._tally.done - self._tally.before  # The stage may begin more than once.
        parts = [f"trials {self._tally.done}{of}", self._tally.note(), self._left(self._tally.done, here)]
        self._write(", ".join(filter(None, parts)))

    def _tell_steps(self) -> None:
        self._told = self._clock()
        self._write(f"  {self._steps} of {self._total}, {self._left(self._steps, self._steps)}")

    def _left(self, done: int, here: int) -> str:
        """Time left at the pace of this stage, which did ``here`` of what is done; nothing at the end."""
        left = (self._total or 0) - done
        if left <= 0 or not here:
            return ""
        return f"about {clock(left * (self._told - self._begun) / here)} left"


class JsonLines:
    """A listener that writes each event as a line of JSON."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._stream.write(json.dumps({"event": _NAMES[type(event)], **plain(asdict(event))}, allow_nan=False) + "\n")
        self._stream.flush()
