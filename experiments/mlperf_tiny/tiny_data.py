"""Samples of the tasks. No sample that calibrates is scored, and no sample of the search is held out."""

from __future__ import annotations

import csv
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

Labelled = tuple[np.ndarray, np.ndarray]
"""Samples, (n, ...) float32, and their classes, (n,)."""
KWS_SCALE, KWS_ZERO_POINT = 0.5847029089927673, 83
"""Those of the input of ``kws_ref_model.tflite``, with which the benchmark's spectrograms are quantized."""


def _stacked(pairs: Iterable[tuple[np.ndarray, int]]) -> Labelled:
    x, y = zip(*pairs, strict=True)
    return np.stack(x), np.array(y)


def kws_calibration() -> Iterator[list[np.ndarray]]:
    """100 spectrograms."""
    return loaders.kws_calibration()


def kws_search() -> Labelled:
    """1,000 spectrograms: every second of those that are scored."""
    x, y = _stacked(loaders.kws_evaluation())
    return x[::2], y[::2]


def kws_heldout() -> Labelled:
    """The other 1,000."""
    x, y = _stacked(loaders.kws_evaluation())
    return x[1::2], y[1::2]


def images(part: str, chosen: Iterable[int] | None = None) -> Iterator[tuple[np.ndarray, int]]:
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


def cifar_search() -> Labelled:
    """1,000 test images, 100 of each class."""
    return _stacked(images("test", range(0, 10_000, 10)))


def cifar_heldout() -> Labelled:
    """2,000 other test images, 200 of each class."""
    return _stacked(images("test", (i for i in range(10_000) if i % 10 in (3, 7))))


def kws_accuracy_set(folder: Path) -> Labelled | None:
    """The benchmark's own 1,000 spectrograms, or None if they are not in the folder."""
    return _accuracy_set(folder / "kws01", np.int8, (49, 10, 1), KWS_SCALE, KWS_ZERO_POINT)


def cifar_accuracy_set(folder: Path) -> Labelled | None:
    """The benchmark's own 200 images, never JPEG files, or None if they are not in the folder."""
    return _accuracy_set(folder / "ic01", np.uint8, (32, 32, 3), 1.0, 0)


def cifar_reencoded(folder: Path) -> Labelled | None:
    """The same images as the JPEG files have them: of each the one of all test images that is nearest.

    Raises:
        ValueError: If two have the same nearest image, or one has another class.
    """
    found = cifar_accuracy_set(folder)
    if found is None:
        return None
    (x, y), (all_x, all_y) = found, _stacked(images("test"))
    mine, others = (part.reshape(len(part), -1) for part in (x, all_x))
    nearest = ((others**2).sum(axis=1) - 2.0 * mine @ others.T).argmin(axis=1)
    if len(set(nearest.tolist())) < len(y) or (all_y[nearest] != y).any():
        raise ValueError("not every image of ic01 is among the JPEG files")
    return all_x[nearest], y


def _accuracy_set(folder: Path, kind: type, shape: tuple[int, ...], scale: float, zero_point: int) -> Labelled | None:
    """A folder of the benchmark's runner: ``y_labels.csv`` has raw files, how many classes there are, and the class."""
    if not (folder / "y_labels.csv").exists():
        return None
    with (folder / "y_labels.csv").open(encoding="utf-8") as file:
        rows = [(row[0], int(row[2])) for row in csv.reader(file) if row]
    raw = np.stack([np.fromfile(folder / name, dtype=kind).reshape(shape) for name, _ in rows])
    return (raw.astype(np.float32) - zero_point) * np.float32(scale), np.array([label for _, label in rows])
