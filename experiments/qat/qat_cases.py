"""The two nets of the study and their samples: no sample trains and is scored, no sample of a search is held out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

EXPERIMENTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXPERIMENTS / "real_models"))
import loaders  # noqa: E402 - found by the path above

from autoselect import embedded  # noqa: E402

Samples = tuple[np.ndarray, np.ndarray]
"""Inputs and their classes."""

WINDOWS = {"training": 24_000, "unseen": 10_000}
UNSEEN_SEED = 20_260
SPECTROGRAMS = {"training": 2_400, "search": 1_000}
"""Of those of the test set that differ; all others are held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One net.

    Attributes:
        title: In tables.
        training: Trains, in float and with quantization simulated; its first 100 samples calibrate.
        search: What searches score candidates on.
        heldout: What the table is about.
        epochs: Of the training that starts from the float net.
        rate: Its first learning rate.
    """

    title: str
    training: Callable[[], Samples]
    search: Callable[[], Samples]
    heldout: Callable[[], Samples]
    epochs: int
    rate: float

    def calibration(self) -> Iterator[list[np.ndarray]]:
        """100 training samples."""
        for sample in self.training()[0][:100]:
            yield [sample[None]]


@cache
def pump(part: str) -> Samples:
    """Windows of the simulated pump: ``training``, ``search`` or ``unseen``."""
    if part == "training":
        return embedded.training_windows(WINDOWS[part])
    if part == "unseen":
        return embedded.make_windows(np.random.default_rng(UNSEEN_SEED), WINDOWS[part])
    windows, labels = zip(*embedded.search_samples(), strict=True)
    return np.stack(windows), np.array(labels)


@cache
def keywords(part: str) -> Samples:
    """Spectrograms of the Speech Commands test set, each once: ``training``, ``search`` or ``heldout``."""
    with np.load(loaders.KWS / "speech_commands_test_mfcc.npz") as data:
        x, y = data["x"][..., None], data["y"]
    _, first = np.unique(x.reshape(len(x), -1), axis=0, return_index=True)
    order = np.random.default_rng(0).permutation(np.sort(first))
    ends = np.cumsum([0, *SPECTROGRAMS.values(), len(order)])
    place = [*SPECTROGRAMS, "heldout"].index(part)
    chosen = order[ends[place] : ends[place + 1]]
    return x[chosen], y[chosen]


CASES = {
    "pump": Case(
        title="pump monitor",
        training=lambda: pump("training"),
        search=lambda: pump("search"),
        heldout=lambda: pump("unseen"),
        epochs=8,
        rate=1e-3,
    ),
    "ds_cnn": Case(
        title="keyword spotting, DS-CNN",
        training=lambda: keywords("training"),
        search=lambda: keywords("search"),
        heldout=lambda: keywords("heldout"),
        epochs=10,
        rate=1e-4,
    ),
}
