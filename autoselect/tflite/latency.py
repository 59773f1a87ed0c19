"""Times a model on LiteRT, on this host: warm-up, repetitions, median and quartiles; knows nothing of searches.

LiteRT's Python interpreter has no profiler, so there are no times of single ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autoselect.tflite.runner import Runner

_WARM_UPS = 3
_FEWEST, _MOST = 5, 50
_ENOUGH_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Time of one inference, milliseconds: median and quartiles of so many repetitions."""

    median: float
    low: float
    high: float
    runs: int


def latency_of(content: bytes, sample: Mapping[str, np.ndarray], *, threads: int = 1) -> Latency:
    """Time one model on one sample, with LiteRT's default delegates.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    runner = Runner(content, num_threads=threads)

    def seconds() -> float:
        before = runner.inference_seconds
        runner(sample)
        return runner.inference_seconds - before

    return repeated(seconds)


def repeated(seconds: Callable[[], float]) -> Latency:
    """Run until half a second is measured, 5 to 50 times, after three runs that do not count; ``seconds`` runs once."""
    for _ in range(_WARM_UPS):
        seconds()
    times: list[float] = []
    while len(times) < _FEWEST or (len(times) < _MOST and sum(times) < _ENOUGH_SECONDS):
        times.append(seconds())
    low, median, high = (1e3 * float(value) for value in np.percentile(times, [25, 50, 75]))
    return Latency(median=median, low=low, high=high, runs=len(times))
