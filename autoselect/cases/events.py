"""What a search tells whoever watches it; a listener is any callable that takes one event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    """A stage begins; ``total`` counts its steps where they are known, ``done`` those that were done before.

    Stages of a search in order: ``model``, ``data``, ``calibrate``, ``reference``, ``repeats``, ``repairs``,
    ``levels``, ``float``, ``probes``, ``plan``, ``trials``, ``picks``, ``compile``, ``emulate``, ``repeats``,
    ``heldout``, ``write``; of a check, after ``reference``, ``estimate``; of a diagnosis: ``model``, ``data``,
    ``calibrate``, ``build``, ``measure``, ``ablation``, ``figures``.
    """

    stage: str
    total: int | None = None
    done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """One trial has ended.

    Attributes:
        number: Of the trial, from 0.
        origin: ``baseline:…``, the sampler's name, or ``user``.
        score: The metric, None for a failed trial.
        size_bytes: Of the candidate, None for a failed trial.
        penalty: Fragmentation penalty, None for a failed trial.
        reused: True where the score was known already (equal recipe or equal bytes).
        error: Why the trial failed, None where it did not.
        dropped: True where the candidate was dropped after part of the samples.
        drop: Loss of the metric against float, None for a failed or dropped trial.
    """

    number: int
    origin: str
    score: float | None
    size_bytes: int | None
    penalty: float | None
    reused: bool
    error: str | None
    dropped: bool = False
    drop: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """One step of the current stage is done (a held-out score, a reference part)."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEarly:
    """The current stage ends before all of its steps are done, which is no fault; ``reason`` is a sentence's end."""

    stage: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something the user should know that does not stop the run."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something that is good to know and makes nothing worse."""

    message: str


STAGES: Mapping[str, str] = {
    "model": "reading the model",
    "data": "reading the samples",
    "calibrate": "calibrating",
    "estimate": "timing one candidate",
    "build": "building the model to measure",
    "measure": "measuring the layers",
    "ablation": "leaving single nodes in and out",
    "figures": "drawing",
    "reference": "running the float model",
    "repairs": "trying repairs",
    "levels": "weighing fewer levels",
    "float": "scoring the float model",
    "probes": "trying units alone",
    "plan": "planning the candidates",
    "trials": "trials",
    "picks": "choosing the picks",
    "compile": "compiling the front",
    "emulate": "running the front on the emulated chip",
    "repeats": "repeating outputs",
    "heldout": "held-out check",
    "latency": "timing the front",
    "write": "writing the run",
}
"""What a reader sees for each stage."""

Event = StageStarted | TrialFinished | StepFinished | EndedEarly | Warned | Noted
Listener = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """The listener that does nothing."""


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
    outcome = "dropped by racing" if trial.dropped else f"score {trial.score:.6g}, penalty {trial.penalty:.6g}"
    size = "" if trial.size_bytes is None else f", {trial.size_bytes} bytes"
    return f"{outcome}{size}{', known already' if trial.reused else ''}"
