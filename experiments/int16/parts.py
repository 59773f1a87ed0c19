"""Search and held-out parts of the cases; short, as LiteRT's 16-bit convolutions take sixty times those of int8."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

IMAGES, CROPS = 150, 16

Sample = tuple[np.ndarray, Any]


def imagenet_calibration() -> Iterator[list[np.ndarray]]:
    """100 images."""
    return loaders.imagenet_calibration()


def imagenet_search() -> Iterator[Sample]:
    """150 images."""
    return islice(loaders.imagenet_search(), IMAGES)


def imagenet_heldout() -> Iterator[Sample]:
    """150 others."""
    return islice(loaders.imagenet_heldout(), IMAGES)


def fsrcnn_calibration() -> Iterator[list[np.ndarray]]:
    """24 crops."""
    return loaders.fsrcnn_calibration()


def fsrcnn_search() -> Iterator[Sample]:
    """16 crops."""
    return islice(loaders.fsrcnn_evaluation(), 0, 2 * CROPS, 2)


def fsrcnn_heldout() -> Iterator[Sample]:
    """16 others."""
    return islice(loaders.fsrcnn_evaluation(), 1, 2 * CROPS, 2)
