"""What workers do to see whether a model gives the same outputs each time; knows no scores.

LiteRT's delegates were seen to give other outputs for the same bytes and inputs now and then; its plain kernels never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import Run, outputs_of, spread_rows
from autoselect.cases.open_case import open_case
from autoselect.runs.files import write_bytes
from autoselect.tflite.runner import Outputs, Runner

_SAMPLES = 4
RUNS_AT_LEAST = 2 * _SAMPLES
"""Inferences of a check: two interpreters run all samples."""
MOST_RUNS = 200
"""What happens once in 66 runs, as was seen, stays unseen in 200 with a probability of 5 %."""


def repeats(
    make: Callable[[], Run],
    samples: Iterable[Mapping[str, np.ndarray]],
    *,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Whether fresh interpreters agree bit for bit on every output.

    The second interpreter runs every sample, and each one after it the next sample only: loading counts, and is soon
    done.

    Args:
        make: Loads the model anew.
        samples: Inputs by name, at least one.
        seconds: After which no more are loaded; two are in any case, and ``MOST_RUNS`` at most.
        clock: Gives the time in seconds.
    """
    start, drawn, first = clock(), list(samples), make()
    expected = outputs_of(first, drawn)
    for number in range(1, MOST_RUNS):
        places = range(len(drawn)) if number == 1 else [number % len(drawn)]
        other = make()
        if not all(_same(other(drawn[place]), expected[place]) for place in places):
            return False
        if clock() - start >= seconds:
            break
    return True


def _same(outputs: Outputs, expected: Outputs) -> bool:
    return all(outputs[key].tobytes() == value.tobytes() for key, value in expected.items())


def check(root: Path, sha256: str, seconds: float) -> bool:
    """Run a candidate (or the float model) again and again; one that does not repeat has plain kernels from then on.

    Returns:
        Whether it gave the same outputs, bit for bit, on a few calibration samples.

    Raises:
        ScoreError: If the interpreter cannot run it.
        StorageError: If it cannot be noted.
    """
    case = open_case(root)
    content = case.as_scored(sha256)
    store = case.samples("calibration")
    picked = (store.inputs(i) for i in spread_rows(len(store), _SAMPLES))
    same = repeats(lambda: Runner(content), picked, seconds=seconds)
    if not same:
        write_bytes(case.files.plain_kernels(sha256), b"")
    return same
