"""UCI HAR in several units: what calibrates, is searched on and is held out; no subject is in two of them.

Windows of the data overlap by half, in no order. Of the test subjects' those are taken that do not overlap.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

GAINS = {
    "normalised": (1.0, 1.0, 1.0, 0.5, 0.5, 0.5),
    "raw": (1000.0, 1000.0, 1000.0, 57.3, 57.3, 57.3),
    "scaled": (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0),
}
"""Of acceleration in g and angular rate in rad/s: both near one; milli-g and degrees/s; a gain for each channel."""
SEARCHED = (2, 4, 9, 10)
"""Test subjects that candidates are scored on; the other five are held out."""
CALIBRATING = 100


def training(units: str) -> tuple[np.ndarray, np.ndarray]:
    """All windows of the 21 training subjects, float32 (7352, 128, 6), with their labels."""
    x, y, _ = _part("train", units)
    return x, y


def calibration(units: str) -> Iterator[list[np.ndarray]]:
    """100 training windows."""
    for window in training(units)[0][::73][:CALIBRATING]:
        yield [window[None]]


def search(units: str) -> tuple[np.ndarray, np.ndarray]:
    """Every second window of four test subjects."""
    x, y, _ = _of_subjects(units, SEARCHED)
    return x[::2], y[::2]


def heldout(units: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of the other five, with the subject of each."""
    return _of_subjects(units, sorted(set(np.unique(_part("test", units)[2]).tolist()) - set(SEARCHED)))


def _of_subjects(units: str, chosen: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, subjects = _part("test", units)
    rows = _apart(x, np.flatnonzero(np.isin(subjects, chosen)))
    return x[rows], y[rows], subjects[rows]


def _apart(x: np.ndarray, rows: np.ndarray) -> list[int]:
    """Those of the rows that share no half with one before them."""
    seen, found = set[bytes](), []
    for row in rows:
        halves = {half.tobytes() for half in np.split(x[row], 2)}
        if seen.isdisjoint(halves):
            seen |= halves
            found.append(int(row))
    return found


def _part(name: str, units: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.load(loaders.HAR / f"{name}.npz") as data:
        x = data["x"].astype(np.float32) * np.array(GAINS[units], dtype=np.float32)
        return x, data["y"].astype(np.int64), data["subject"]
