"""Samples of the two tasks. No sample that calibrates is scored, and no sample of the search is held out."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

Sample = tuple[np.ndarray, int]


def kws_calibration() -> Iterator[list[np.ndarray]]:
    """100 spectrograms."""
    return loaders.kws_calibration()


def kws_search() -> Iterator[Sample]:
    """1,000 spectrograms: every second of those that are scored."""
    return islice(loaders.kws_evaluation(), 0, None, 2)


def kws_heldout() -> Iterator[Sample]:
    """The other 1,000."""
    return islice(loaders.kws_evaluation(), 1, None, 2)


def images(part: str, chosen: Iterable[int] | None = None) -> Iterator[Sample]:
    """CIFAR-10 images as raw pixels, float32 (32, 32, 3) in 0..255, with their class in alphabetical order."""
    with zipfile.ZipFile(loaders.CIFAR / f"{part}.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        classes = sorted({name.split("/")[-2] for name in names})
        for i in range(len(names)) if chosen is None else chosen:
            with archive.open(names[i]) as file, Image.open(file) as image:
                pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
            yield pixels, classes.index(names[i].split("/")[-2])


def cifar_calibration() -> Iterator[list[np.ndarray]]:
    """200 training images."""
    for pixels, _ in images("train", range(0, 50_000, 250)):
        yield [pixels[None]]


def cifar_search() -> Iterator[Sample]:
    """1,000 test images, 100 of each class."""
    return images("test", range(0, 10_000, 10))


def cifar_heldout() -> Iterator[Sample]:
    """2,000 other test images, 200 of each class."""
    return images("test", (i for i in range(10_000) if i % 10 in (3, 7)))


def kws_all() -> Iterator[Sample]:
    """All 4,890 spectrograms of the official test set, those of calibration and search among them."""
    found = np.load(loaders.KWS / "speech_commands_test_mfcc.npz")
    return ((x[:, :, None], int(y)) for x, y in zip(found["x"], found["y"], strict=True))
