"""Which models are asked about: those of the zoo, and nets that are made here, with what calibrates them."""

from __future__ import annotations

import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))
import nursery
import samples
from models import MODELS as ZOO
from models import ROOT, WHEELS

from autoselect import embedded

SIDE = 96
"""Of the pictures that the nets of Keras Applications read, in pixels: a small one, for speed."""

Samples = list[dict[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model.

    Attributes:
        path: Gives the file; raises ``AbsentError`` of the zoo where it cannot be had.
        samples: Gives so many inputs, by key, from the keys in the order of the file.
        shapes: Of inputs with free sizes beside the batch, by name.
        large: Left out by ``--but-largest``.
    """

    path: Callable[[], Path]
    samples: Callable[[Sequence[str], int], Samples]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    large: bool = False


def _in_order(make: Callable[[], Iterator[Any]]) -> Callable[[Sequence[str], int], Samples]:
    return lambda keys, count: [dict(zip(keys, row, strict=True)) for row in itertools.islice(make(), count)]


def of_zoo(name: str) -> Model:
    model = ZOO[name]
    return Model(path=model.path, samples=_in_order(model.samples), shapes=model.shapes, large=model.large)


def of_nursery(name: str) -> Model:
    """A small net as users write them; it is made once a run."""

    def sources() -> nursery.Sources:
        root = WHEELS / "nursery"
        root.mkdir(parents=True, exist_ok=True)
        return nursery.grown(name, root)

    def rows(keys: Sequence[str], count: int) -> Samples:
        arrays = sources().calibration
        return [{key: arrays[key][i : i + 1] for key in keys} for i in range(count)]

    return Model(path=lambda: sources().tflite, samples=rows)


def of_keras(name: str, low: float, high: float) -> Model:
    """A net of Keras Applications without trained weights, for pictures of ``SIDE``."""

    def path() -> Path:
        found = WHEELS / "keras" / f"{name}.keras"
        if not found.exists():
            found.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=found.parent) as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # What Keras says of its own ways of saving.
                made = Path(folder) / found.name
                _drawn(name).save(made)
                made.rename(found)
        return found

    return Model(path=path, samples=_in_order(lambda: samples.images(ROOT, SIDE, low, high)))


def _drawn(name: str) -> Any:
    """The net with seeded random weights, and statistics of the batches that are no ones and zeros."""
    import keras

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(SIDE, SIDE, 3), classes=100)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            size = len(layer.get_weights()[0])
            (scale, variance), (offset, mean) = rng.uniform(0.7, 1.3, (2, size)), rng.normal(0.0, 0.1, (2, size))
            layer.set_weights([scale, offset, mean, variance])
        elif isinstance(layer, keras.layers.DepthwiseConv2D):
            kernel, *rest = layer.get_weights()
            layer.set_weights([rng.normal(0.0, np.prod(kernel.shape[:2]) ** -0.5, kernel.shape), *rest])
    return model


_TWICE = ("MobileNetV1-0.25 (.h5)", "DS-CNN (SavedModel)")
"""Models of the zoo that it has from two sources."""

MODELS: dict[str, Model] = {
    "pump monitor": Model(path=embedded.model_path, samples=_in_order(embedded.calibration)),
    **{name: of_zoo(name) for name in ZOO if name not in _TWICE},
    "EfficientNet-B0, 96 pixels": of_keras("EfficientNetB0", 0.0, 255.0),
    "MobileNetV2, 96 pixels": of_keras("MobileNetV2", -1.0, 1.0),
    "ResNet50, 96 pixels": of_keras("ResNet50", -128.0, 127.0),
    **{name: of_nursery(name) for name in nursery.NETS},
}
