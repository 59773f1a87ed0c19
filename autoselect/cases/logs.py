"""Events as records of Python's ``logging``, under the logger ``autoselect``; knows no handlers."""

from __future__ import annotations

import logging

from autoselect.cases.events import EndedEarly, Event, Listener, Noted, StageStarted, TrialFinished, Warned

LOGGER = logging.getLogger("autoselect")


def logged(listener: Listener) -> Listener:
    """A listener that logs each event and passes it on: warnings as such, steps for debugging, the rest as info."""

    def told(event: Event) -> None:
        if isinstance(event, Warned):
            LOGGER.warning("%s", event.message)
        elif isinstance(event, Noted):
            LOGGER.info("%s", event.message)
        elif isinstance(event, StageStarted):
            LOGGER.info("stage %s%s", event.stage, f", {event.total} steps" if event.total else "")
        elif isinstance(event, EndedEarly):
            LOGGER.info("stage %s ends early: %s", event.stage, event.reason)
        elif isinstance(event, TrialFinished):
            LOGGER.info("trial %d, %s: %s", event.number, event.origin, _outcome(event))
        else:
            LOGGER.debug("step of %s", event.stage)
        listener(event)

    return told


def _outcome(trial: TrialFinished) -> str:
    if trial.error is not None:
        return f"failed. {trial.error}"
    told = "dropped by racing" if trial.dropped else f"score {trial.score:.6g}, penalty {trial.penalty:.6g}"
    size = "" if trial.size_bytes is None else f", {trial.size_bytes} bytes"
    return f"{told}{size}{', known already' if trial.reused else ''}"
