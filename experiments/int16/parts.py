"""Search and held-out parts of FSRCNN and of DeepLab; short, as these models take long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders
from PIL import Image

CROPS = 16
DEEPLAB = loaders.ROOT / "zoo" / "deeplabv3_257_mv_gpu.tflite"
"""TensorFlow's DeepLab V3 with a MobileNetV2, as published for its GPU delegate."""
SIDE, PICTURES = 257, 100

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


def _pictures(start: int, step: int, count: int) -> Iterator[np.ndarray]:
    """Photographs as DeepLab reads them, float32 (257, 257, 3) in -1..1."""
    files = sorted((loaders.IMAGENET / "images").iterdir())
    for file in files[start::step][:count]:
        with Image.open(file) as image:
            scaled = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        yield np.asarray(scaled, dtype=np.float32) / 127.5 - 1.0


def deeplab_calibration() -> Iterator[list[np.ndarray]]:
    """100 photographs."""
    return ([picture[None]] for picture in _pictures(0, 10, PICTURES))


def deeplab_search() -> Iterator[np.ndarray]:
    """100 others."""
    return _pictures(1, 10, PICTURES)


def deeplab_heldout() -> Iterator[np.ndarray]:
    """100 others."""
    return _pictures(2, 10, PICTURES)
