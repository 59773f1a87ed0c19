"""What workers do to see whether a model gives the same outputs each time; knows no scores.

LiteRT's delegates were seen to give other outputs for the same bytes and inputs now and then; its plain kernels never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import spread_rows
from autoselect.cases.open_case import open_case
from autoselect.runs.files import write_bytes
from autoselect.tflite.runner import Outputs, Runner

_SAMPLES = 4
_RUNS = 2

Run = Callable[[Mapping[str, np.ndarray]], Outputs]


def repeats(make: Callable[[], Run], samples: Iterable[Mapping[str, np.ndarray]], runs: int = _RUNS) -> bool:
    """Whether fresh interpreters agree bit for bit on every output of every sample.

    Args:
        make: Loads the model anew.
        samples: Inputs by name.
        runs: How often the model is loaded, at least 2.
    """
    first, *others = (make() for _ in range(runs))
    for sample in samples:
        expected = {key: value.copy() for key, value in first(sample).items()}
        for other in others:
            found = other(sample)
            if any(found[key].tobytes() != value.tobytes() for key, value in expected.items()):
                return False
    return True


def check(root: Path, sha256: str) -> bool:
    """Run a candidate (or the float model) twice; one that does not repeat runs on plain kernels from then on.

    Args:
        root: A prepared case.
        sha256: Of the candidate.

    Returns:
        Whether it gave the same outputs, bit for bit, on a few calibration samples.

    Raises:
        ScoreError: If the interpreter cannot run it.
        StorageError: If it cannot be noted.
    """
    case = open_case(root)
    content = case.files.candidate(sha256).read_bytes()
    store = case.samples("calibration")
    same = repeats(lambda: Runner(content), (store.inputs(i) for i in spread_rows(len(store), _SAMPLES)))
    if not same:
        write_bytes(case.files.plain_kernels(sha256), b"")
    return same
