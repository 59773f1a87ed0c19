"""Search and held-out parts of FSRCNN; short, as the model takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

CROPS = 16

Sample = tuple[np.ndarray, Any]


def fsrcnn_calibration() -> Iterator[list[np.ndarray]]:
    """24 crops."""
    return loaders.fsrcnn_calibration()


def fsrcnn_search() -> Iterator[Sample]:
    """16 crops."""
    return islice(loaders.fsrcnn_evaluation(), 0, 2 * CROPS, 2)


def fsrcnn_heldout() -> Iterator[Sample]:
    """16 others."""
    return islice(loaders.fsrcnn_evaluation(), 1, 2 * CROPS, 2)
