"""Two recurrent nets that run a step at a time, their data and their evaluators of one number.

A keyword spotter (a GRU, fed frame by frame) and a forecaster of a seasonal series (an LSTM). ``train.py`` trains both.
The features of the spotter are read from the folder that AUTOSELECT_REAL_DATA names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from autoselect.tflite.runner import Runner

REAL_DATA = Path(os.environ.get("AUTOSELECT_REAL_DATA", "../shared/data"))
SEED = 0
GRU_UNITS, LSTM_UNITS = 48, 32
CLASSES = 12
SPOTTER_PARTS = {"train": 3390, "calibration": 100, "search": 400, "heldout": 1000}
"""Clips of Speech Commands' test set, in a random order."""
FORECASTER_PARTS = {"train": 400, "calibration": 16, "search": 32, "heldout": 64}
"""Series."""
HOURS = 24 * 14
LEAD_IN = 24
"""Hours whose forecasts are not scored: the state has seen too little."""

Sample = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Net:
    """A net, what is fed back in it, and how it is calibrated and scored.

    Attributes:
        name: In files and tables.
        feedback: Input by output.
        units: Of its states.
        direction: Of the score.
        sequences: Steps of a part, shape (n_sequences, n_steps, n_features).
        score: The evaluator.
    """

    name: str
    feedback: Mapping[str, str]
    units: int
    direction: str
    sequences: Callable[[str], np.ndarray]
    score: Callable[..., float]

    def at_rest(self) -> Iterator[Sample]:
        """Every seventh step of the calibration sequences, each with the state of a sequence that begins."""
        for sequence in self.sequences("calibration"):
            yield from ({"x": step[None], **self.zeros()} for step in sequence[::7])

    def steps(self) -> Iterator[Sample]:
        """All steps of the calibration sequences; the first of each has the state that it begins with."""
        for sequence in self.sequences("calibration"):
            for number, step in enumerate(sequence):
                yield {"x": step[None], **(self.zeros() if number == 0 else {})}

    def zeros(self) -> Sample:
        """The states that a sequence begins with."""
        return {key: np.zeros((1, self.units), np.float32) for key in self.feedback.values()}


def answers(net: Net, runner: Runner, sequence: np.ndarray) -> np.ndarray:
    """What a model answers at each step with its own state fed back, shape (n_steps, n_answers)."""
    states, found = net.zeros(), []
    for step in sequence:
        outputs = runner.step({"x": step[None], **states})
        states = {target: outputs[output] for output, target in net.feedback.items()}
        found.append(outputs["answer"][0])
    return np.array(found)


# ---------------------------------------------------------------------------------------------------- the spotter


@cache
def _clips() -> tuple[np.ndarray, np.ndarray]:
    """All clips in a random order, each feature with mean 0 and deviation 1 over those of training, and the classes."""
    with np.load(REAL_DATA / "kws_dscnn" / "speech_commands_test_mfcc.npz") as data:
        x, y = data["x"], data["y"]
    order = np.random.default_rng(SEED).permutation(len(x))
    x, y = x[order], y[order]
    trained = x[: SPOTTER_PARTS["train"]]
    return ((x - trained.mean((0, 1))) / trained.std((0, 1))).astype(np.float32), y


def _part(name: str) -> slice:
    first = 0
    for part, count in SPOTTER_PARTS.items():
        if part == name:
            return slice(first, first + count)
        first += count
    raise ValueError(f"expected one of {', '.join(SPOTTER_PARTS)}, got {name!r}")


def clips_of(part: str) -> np.ndarray:
    """Clips of a part, shape (n, 49, 10)."""
    return _clips()[0][_part(part)]


def classes_of(part: str) -> np.ndarray:
    """Classes of the clips of a part, shape (n,)."""
    return _clips()[1][_part(part)]


def spotted(runner: Runner, split: str = "search") -> float:
    """The evaluator: accuracy of the answer at the last frame of each clip."""
    right = zip(clips_of(split), classes_of(split), strict=True)
    return float(np.mean([answers(SPOTTER, runner, clip)[-1].argmax() == label for clip, label in right]))


# ------------------------------------------------------------------------------------------------- the forecaster


@cache
def series_of(part: str) -> np.ndarray:
    """Two weeks of an hourly load: a day, a week, a slow drift and noise that lasts; shape (n, HOURS, 1)."""
    rng = np.random.default_rng([SEED, list(FORECASTER_PARTS).index(part)])
    count, hours = FORECASTER_PARTS[part], np.arange(HOURS)
    level, day, week = rng.uniform(0.5, 2.0, (3, count, 1)) * np.array([1.0, 0.6, 0.3])[:, None, None]
    begin = rng.uniform(0.0, 24.0 * 7, (count, 1))
    noise = rng.normal(0.0, 0.08, (count, HOURS))
    for hour in range(1, HOURS):
        noise[:, hour] += 0.7 * noise[:, hour - 1]
    drift = np.cumsum(rng.normal(0.0, 0.01, (count, HOURS)), axis=1)
    daily = day * np.sin(2 * np.pi * (hours + begin) / 24.0) + 0.3 * day * np.sin(4 * np.pi * (hours + begin) / 24.0)
    weekly = week * np.sin(2 * np.pi * (hours + begin) / (24.0 * 7))
    return (level + daily + weekly + drift + noise).astype(np.float32)[:, :, None]


def missed(runner: Runner, split: str = "search") -> float:
    """The evaluator: mean absolute error of the next hour, after the first day of each series."""
    errors = [
        np.abs(answers(FORECASTER, runner, series[:-1]) - series[1:])[LEAD_IN:].mean() for series in series_of(split)
    ]
    return float(np.mean(errors))


SPOTTER = Net(
    name="keyword spotter (GRU)",
    feedback={"h_next": "h"},
    units=GRU_UNITS,
    direction="maximize",
    sequences=clips_of,
    score=spotted,
)
FORECASTER = Net(
    name="forecaster (LSTM)",
    feedback={"h_next": "h", "c_next": "c"},
    units=LSTM_UNITS,
    direction="minimize",
    sequences=series_of,
    score=missed,
)
NETS = {"spotter": SPOTTER, "forecaster": FORECASTER}
