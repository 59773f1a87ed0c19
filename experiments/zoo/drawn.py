"""Keras nets with random weights, whose normalisations have the statistics of real pictures."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.sources.keras_models import from_keras


def converted(path: Path, net: str | Callable[..., Any], pictures: Sequence[np.ndarray]) -> Path:
    """The float file of a net, made where it is not there yet; it gives logits.

    Args:
        path: Of the file.
        net: Its name in ``keras.applications``, or what makes it of a shape.
        pictures: That give the statistics of batches, each of shape (1, height, width, channels).
    """
    if path.exists():
        return path
    import keras

    keras.utils.set_random_seed(0)
    shape = pictures[0].shape[1:]
    if isinstance(net, str):
        model = getattr(keras.applications, net)(weights=None, input_shape=shape, classifier_activation=None)
    else:
        model = net(shape)
    normalised = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    if normalised:
        for layer in normalised:
            layer.momentum = 0.0
        model(np.concatenate(pictures), training=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, contextlib.redirect_stdout(sys.stderr):
        saved = Path(folder) / path.name
        saved.write_bytes(from_keras(model).content)  # With a free batch TensorFlow refuses some nets.
        saved.rename(path)
    return path
