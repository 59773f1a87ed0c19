"""Loaders for real models and data, read from the folder that AUTOSELECT_REAL_DATA names.

Each is used as ``package.module:function`` on the command line; calibration and scoring samples are disjoint.
"""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(os.environ.get("AUTOSELECT_REAL_DATA", "../shared/data"))
IMAGENET = ROOT / "mobilenet_v1_025_imagenet"
FSRCNN = ROOT / "fsrcnn_x2"
KWS = ROOT / "kws_dscnn"
HAR = ROOT / "uci_har"
CIFAR = ROOT / "cifar10_jpeg"

EVERY = 10
"""Every tenth sample calibrates; the others are scored on."""


def _images() -> list[dict[str, str]]:
    with (IMAGENET / "labels.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _image(row: dict[str, str]) -> np.ndarray:
    """One image, float32 (224, 224, 3) in -1..1."""
    with Image.open(IMAGENET / "images" / row["file"]) as image:
        return np.asarray(image.convert("RGB"), dtype=np.float32) / 127.5 - 1.0


def imagenet_calibration() -> Iterator[list[np.ndarray]]:
    """100 images."""
    for row in _images()[::EVERY]:
        yield [_image(row)[None]]


def imagenet_evaluation() -> Iterator[tuple[np.ndarray, int]]:
    """900 images with their labels."""
    for i, row in enumerate(_images()):
        if i % EVERY:
            yield _image(row), int(row["label"])


def imagenet_search() -> Iterator[tuple[np.ndarray, int]]:
    """Every second of the 900 images."""
    yield from (pair for i, pair in enumerate(imagenet_evaluation()) if i % 2 == 0)


def imagenet_heldout() -> Iterator[tuple[np.ndarray, int]]:
    """The other 450."""
    yield from (pair for i, pair in enumerate(imagenet_evaluation()) if i % 2)


def fsrcnn_calibration() -> Iterator[list[np.ndarray]]:
    """24 luma crops in 0..1, (1, 160, 160, 1)."""
    low = np.load(FSRCNN / "coco_luma_crops.npz")["lr"]
    for crop in low[::EVERY]:
        yield [crop[None, :, :, None].astype(np.float32) / 255.0]


def fsrcnn_evaluation() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """208 crops and their originals in 0..1, (320, 320, 1)."""
    data = np.load(FSRCNN / "coco_luma_crops.npz")
    for i, (low, high) in enumerate(zip(data["lr"], data["hr"], strict=True)):
        if i % EVERY:
            yield low[:, :, None].astype(np.float32) / 255.0, high[:, :, None].astype(np.float32) / 255.0


def kws_calibration() -> Iterator[list[np.ndarray]]:
    """100 spectrograms, (1, 49, 10, 1)."""
    x = np.load(KWS / "speech_commands_test_mfcc.npz")["x"]
    for sample in x[::EVERY][:100]:
        yield [sample[None, :, :, None]]


def kws_evaluation() -> Iterator[tuple[np.ndarray, int]]:
    """2,000 spectrograms with their labels; recordings that occur twice in the set are left out."""
    data = np.load(KWS / "speech_commands_test_mfcc.npz")
    x, y = data["x"], data["y"]
    seen = {sample.tobytes() for sample in x[::EVERY]}
    left = 2000
    for i in range(len(x)):
        if i % EVERY and left and x[i].tobytes() not in seen:
            seen.add(x[i].tobytes())
            left -= 1
            yield x[i][:, :, None], int(y[i])


def _har(part: str) -> tuple[np.ndarray, np.ndarray]:
    """All windows (n, 128, 6), total acceleration in g and angular rate in units of 2 rad/s."""
    data = np.load(HAR / f"{part}.npz")
    x = data["x"].astype(np.float32)
    scale = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], dtype=np.float32)
    return x / scale, data["y"]


def har_calibration() -> Iterator[list[np.ndarray]]:
    """100 training windows."""
    for window in _har("train")[0][::73][:100]:
        yield [window[None]]


def har_evaluation() -> Iterator[tuple[np.ndarray, int]]:
    """1,000 test windows with their labels; half of them are searched on."""
    x, y = _har("test")
    for i in np.random.default_rng(0).permutation(len(x))[:1000]:
        yield x[i], int(y[i])


def _cifar(part: str, indices: Iterable[int] | None = None) -> Iterator[tuple[np.ndarray, int]]:
    """CIFAR-10 images enlarged to (64, 64, 3), float32 in -1..1, with their class in alphabetical order."""
    with zipfile.ZipFile(CIFAR / f"{part}.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        classes = sorted({name.split("/")[-2] for name in names})
        for i in range(len(names)) if indices is None else indices:
            with archive.open(names[i]) as file, Image.open(file) as image:
                large = image.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
            yield np.asarray(large, dtype=np.float32) / 127.5 - 1.0, classes.index(names[i].split("/")[-2])


def cifar_training() -> tuple[np.ndarray, np.ndarray]:
    """All 50,000 training images as float16, (50000, 64, 64, 3), with labels."""
    x = np.empty((50_000, 64, 64, 3), dtype=np.float16)
    y = np.empty(50_000, dtype=np.int64)
    for i, (image, label) in enumerate(_cifar("train")):
        x[i], y[i] = image, label
    return x, y


def cifar_calibration() -> Iterator[list[np.ndarray]]:
    """100 training images."""
    for image, _ in _cifar("train", range(0, 50_000, 500)):
        yield [image[None]]


def cifar_evaluation() -> Iterator[tuple[np.ndarray, int]]:
    """1,000 test images with their labels, 100 of each class."""
    yield from _cifar("test", range(0, 10_000, 10))
