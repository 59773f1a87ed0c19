"""Search and held-out parts of the benchmark's cases; fixed, so that every seed scores on the same samples.

The benchmark reads no held-out score, so held-out parts are short: they keep the end of each run cheap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

from autoselect import embedded

HELDOUT_COUNT = 10
FSRCNN_COUNT = 24
UNSEEN_WINDOWS, UNSEEN_SEED = 10_000, 20_260

Sample = tuple[np.ndarray, Any]


def _search(samples: Callable[[], Iterable[Sample]]) -> Iterator[Sample]:
    """Every second sample."""
    return islice(samples(), 0, None, 2)


def _heldout(samples: Callable[[], Iterable[Sample]]) -> Iterator[Sample]:
    """The first few of the others."""
    return islice(samples(), 1, 2 * HELDOUT_COUNT, 2)


def pump_calibration() -> Iterator[list[np.ndarray]]:
    """100 windows."""
    return embedded.calibration()


def pump_search() -> Iterator[Sample]:
    """1,000 windows."""
    return embedded.search_samples()


def pump_heldout() -> Iterator[Sample]:
    """10 windows."""
    return islice(embedded.heldout_samples(), HELDOUT_COUNT)


def pump_unseen() -> Iterator[Sample]:
    """10,000 windows of other machines."""
    windows, labels = embedded.make_windows(np.random.default_rng(UNSEEN_SEED), UNSEEN_WINDOWS)
    return ((window, int(label)) for window, label in zip(windows, labels, strict=True))


def imagenet_calibration() -> Iterator[list[np.ndarray]]:
    """100 images."""
    return loaders.imagenet_calibration()


def imagenet_search() -> Iterator[Sample]:
    """450 images."""
    return loaders.imagenet_search()


def imagenet_heldout() -> Iterator[Sample]:
    """10 images."""
    return islice(loaders.imagenet_heldout(), HELDOUT_COUNT)


def imagenet_unseen() -> Iterator[Sample]:
    """450 images."""
    return loaders.imagenet_heldout()


def fsrcnn_calibration() -> Iterator[list[np.ndarray]]:
    """24 crops."""
    return loaders.fsrcnn_calibration()


def fsrcnn_search() -> Iterator[Sample]:
    """24 crops, spread over the set."""
    return islice(loaders.fsrcnn_evaluation(), 0, 8 * FSRCNN_COUNT, 8)


def fsrcnn_heldout() -> Iterator[Sample]:
    """2 crops."""
    return islice(loaders.fsrcnn_evaluation(), 1, 16, 8)


def fsrcnn_unseen() -> Iterator[Sample]:
    """182 crops."""
    return (sample for i, sample in enumerate(loaders.fsrcnn_evaluation()) if i % 8)


def kws_calibration() -> Iterator[list[np.ndarray]]:
    """100 spectrograms."""
    return loaders.kws_calibration()


def kws_search() -> Iterator[Sample]:
    """1,000 spectrograms."""
    return _search(loaders.kws_evaluation)


def kws_heldout() -> Iterator[Sample]:
    """10 spectrograms."""
    return _heldout(loaders.kws_evaluation)


def kws_unseen() -> Iterator[Sample]:
    """The other half."""
    return islice(loaders.kws_evaluation(), 1, None, 2)


def har_calibration() -> Iterator[list[np.ndarray]]:
    """100 training windows."""
    return loaders.har_calibration()


def har_search() -> Iterator[Sample]:
    """500 test windows."""
    return _search(loaders.har_evaluation)


def har_heldout() -> Iterator[Sample]:
    """10 test windows."""
    return _heldout(loaders.har_evaluation)


def cifar_calibration() -> Iterator[list[np.ndarray]]:
    """100 training images."""
    return loaders.cifar_calibration()


def cifar_search() -> Iterator[Sample]:
    """500 test images, 50 of each class."""
    return _search(loaders.cifar_evaluation)


def cifar_heldout() -> Iterator[Sample]:
    """10 test images."""
    return _heldout(loaders.cifar_evaluation)
