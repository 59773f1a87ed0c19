"""Small nets as their authors convert them: batch free, shapes behind a RESHAPE left over from it."""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zoo

from autoselect.domain.tensors import TensorSpec
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


def transformer(keras: Any) -> Any:
    layers = keras.layers
    tokens = layers.Input((10,), name="tokens", dtype="int32")
    x = layers.Embedding(20, 8)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x))
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def mixer(keras: Any) -> Any:
    layers = keras.layers
    image = layers.Input((12, 8), name="patches")
    x = layers.Permute((2, 1))(image)
    x = layers.Permute((2, 1))(layers.Dense(12, activation="relu")(x))
    return keras.Model(image, layers.Dense(4)(layers.Flatten()(layers.Dense(8)(image + x))))


def causal(keras: Any) -> Any:
    layers = keras.layers
    wave = layers.Input((16, 3), name="wave")
    x = layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu")(wave)
    x = layers.Conv1D(6, 3, padding="causal", dilation_rate=4, activation="relu")(x)
    return keras.Model(wave, layers.Dense(2)(x))


NETS: dict[str, Callable[[Any], Any]] = {
    "transformer": transformer,
    "mixer": mixer,
    "causal convolutions": causal,
}


@functools.cache
def converted(name: str) -> bytes:
    """A net of Keras 3 straight from ``TFLiteConverter``, its batch free."""
    import keras
    import tensorflow as tf

    model = zoo.randomise(NETS[name](keras))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(Path(folder), format="tf_saved_model", verbose=False)
        return bytes(tf.lite.TFLiteConverter.from_saved_model(folder).convert())


def samples_of(content: bytes, count: int) -> list[dict[str, np.ndarray]]:
    """Random inputs by key, batch 1; integers from 0 to 8."""
    rng = np.random.default_rng(0)

    def one(spec: TensorSpec) -> np.ndarray:
        drawn = rng.normal(size=spec.shape) if spec.dtype.kind == "f" else rng.integers(0, 9, spec.shape)
        return drawn.astype(spec.dtype)

    specs = reader.input_specs(fb.parse(content))
    return [{spec.key: one(spec) for spec in specs} for _ in range(count)]
