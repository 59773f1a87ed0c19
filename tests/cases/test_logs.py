"""What a program reads in its log of a search."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from reviewing import Reviewed

from autoselect.cases.events import EndedEarly, Event, Noted, StageStarted, StepFinished, TrialFinished, Warned, logged

TRIAL = TrialFinished(number=3, origin="tpe", score=0.9, size_bytes=9, penalty=1.5, reused=False, error=None)
EVENTS: list[Event] = [
    StageStarted(stage="model"),
    StageStarted(stage="trials", total=5),
    TRIAL,
    TrialFinished(number=4, origin="tpe", score=None, size_bytes=None, penalty=None, reused=False, error="It broke."),
    EndedEarly(stage="trials", reason="nothing is left to try"),
    StepFinished(stage="heldout"),
    Warned(message="Be careful."),
    Noted(message="Good to know."),
]


def test_each_event_is_a_record_and_goes_on(reviewed: Reviewed, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []
    with caplog.at_level(logging.DEBUG, "autoselect"):
        listener = logged(seen.append)
        for event in EVENTS:
            listener(event)
    assert seen == EVENTS
    reviewed("records of events", [f"{record.levelname} {record.getMessage()}" for record in caplog.records])


def test_without_a_handler_nothing_is_printed() -> None:
    code = "import autoselect, logging; logging.getLogger('autoselect').warning('oh')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
