"""Scenes to segment: shapes of several textures on photographs, with a class for each pair of the two."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect

SIZE = 64
SHAPES, TEXTURES = 5, 3
CLASSES = 1 + SHAPES * TEXTURES
"""Class 0 is the background."""
DRAW = "AUTOSELECT_DRAW"
"""Environment variable: number of the draw of search and held-out images."""
IMAGES = "AUTOSELECT_IMAGES"
"""Environment variable: how many images a search has, 80 if it is not set."""
HELDOUT_IMAGES, CALIBRATION_IMAGES = 400, 64
TRAINING = 0
"""Seed of the training images; the other parts have seeds from 1 on."""


@cache
def photographs(training: bool) -> np.ndarray:
    """Float32 (n, 64, 64, 3) in -1..1; those of training are in no other part."""
    if training:
        return loaders.cifar_training()[0][::10].astype(np.float32)
    return np.stack([image for image, _ in loaders.cifar_evaluation()]).astype(np.float32)


def _inside(shape: int, dy: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """Which pixels a shape of radius 1 covers: disc, square, triangle, cross, ring."""
    radius = np.hypot(dy, dx)
    masks = (
        radius < 1.0,
        np.maximum(abs(dy), abs(dx)) < 0.85,
        (dy > -0.9) & (dy < 0.9) & (abs(dx) < (dy + 0.9) / 1.8),
        np.minimum(abs(dy), abs(dx)) < 0.3,
        (radius < 1.0) & (radius > 0.55),
    )
    return np.asarray(masks[shape] & (np.maximum(abs(dy), abs(dx)) < 1.0))


def _filled(texture: int, rng: np.random.Generator, photo: np.ndarray) -> np.ndarray:
    """Pixels of a texture: one colour, stripes of two, or another photograph in negative."""
    one, two = rng.uniform(-1.0, 1.0, (2, 3))
    if texture == 0:
        return np.broadcast_to(one, photo.shape) + rng.normal(scale=0.05, size=photo.shape)
    if texture == 1:
        y, x = np.mgrid[:SIZE, :SIZE]
        angle, period = rng.uniform(0.0, np.pi), rng.uniform(4.0, 8.0)
        wave = np.sin(2.0 * np.pi * (np.cos(angle) * x + np.sin(angle) * y) / period)[..., None] > 0.0
        return np.where(wave, one, two)
    return -photo


_SHARES = 1.0 / np.arange(1, CLASSES)
"""Few scenes have the last classes, as in most data sets of segmentation."""


def scene(rng: np.random.Generator, photos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A photograph with one to three shapes: float32 (64, 64, 3) and labels uint8 (64, 64)."""
    image, labels = photos[rng.integers(len(photos))].copy(), np.zeros((SIZE, SIZE), np.uint8)
    y, x = np.mgrid[:SIZE, :SIZE]
    for _ in range(rng.integers(1, 4)):
        kind = int(rng.choice(CLASSES - 1, p=_SHARES / _SHARES.sum()))
        shape, texture = kind % SHAPES, kind // SHAPES
        middle, radius = rng.uniform(12.0, SIZE - 12.0, 2), rng.uniform(9.0, 20.0)
        inside = _inside(shape, (y - middle[0]) / radius, (x - middle[1]) / radius)
        image[inside] = _filled(texture, rng, photos[rng.integers(len(photos))])[inside]
        labels[inside] = 1 + kind
    noisy = image + rng.normal(scale=rng.uniform(0.0, 0.15), size=image.shape)
    return noisy.clip(-1.0, 1.0).astype(np.float32), labels


def scenes(seed: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """So many scenes of a seed."""
    rng, photos = np.random.default_rng(seed), photographs(seed == TRAINING)
    return (scene(rng, photos) for _ in range(count))


def _draw() -> int:
    return int(os.environ.get(DRAW, "0"))


@cache
def part(split: str, draw: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The scenes of a part: ``search`` or ``heldout``."""
    seed = 1000 * (draw + 1) + (split == "heldout")
    return list(scenes(seed, int(os.environ.get(IMAGES, "80")) if split == "search" else HELDOUT_IMAGES))


def calibration() -> Iterator[list[np.ndarray]]:
    """Scenes of no part."""
    return ([image[None]] for image, _ in scenes(999, CALIBRATION_IMAGES))


def mean_iou(counts: np.ndarray) -> float:
    """Of the confusion counts of some images, shape (n, classes, classes)."""
    confusion = counts.sum(axis=0)
    hits = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    return float(np.mean(hits[union > 0] / union[union > 0]))


def confusions(runner: Any, split: str) -> np.ndarray:
    """Confusion counts of each image, shape (n_images, classes, classes)."""
    counts = []
    for image, labels in part(split, _draw()):
        classes = next(iter(runner(image[None]).values()))[0].argmax(axis=-1)
        pairs = labels.astype(np.int64).ravel() * CLASSES + classes.ravel()
        counts.append(np.bincount(pairs, minlength=CLASSES**2).reshape(CLASSES, CLASSES))
    return np.array(counts)


def one_number(runner: Any, split: str = "search") -> float:
    """The mean IoU of all images."""
    return mean_iou(confusions(runner, split))


def number_of_search(runner: Any) -> float:
    """The mean IoU of the search images; without a parameter ``split`` there is no held-out check."""
    return one_number(runner, "search")


def parts(runner: Any, split: str = "search") -> autoselect.Parts:
    """The same, with what it is made of."""
    return autoselect.Parts(confusions(runner, split), score=mean_iou)
