"""Trains a DeepConvLSTM on UCI HAR; tf-keras, whose LSTM converts to the fused op."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras as keras

sys.path.insert(0, str(Path(__file__).resolve().parent))
import har_data

SEED = 7
CLASSES = 6


def make_model() -> Any:
    """Four convolutions over time, two LSTMs, one dense layer (Ordonez and Roggen 2016, at this data's size)."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((128, 6), name="window"),
            layers.Reshape((128, 6, 1)),
            *[layers.Conv2D(64, (5, 1), activation="relu") for _ in range(4)],
            layers.Reshape((112, 6 * 64)),
            layers.LSTM(128, return_sequences=True),
            layers.LSTM(128),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def converted(model: Any) -> bytes:
    """As a float ``.tflite`` of batch 1."""
    signature = tf.TensorSpec((1, 128, 6), tf.float32)
    function = tf.function(lambda window: model(window, training=False)).get_concrete_function(signature)
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], model).convert())


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="A .tflite or .keras file.")
    parser.add_argument("--units", choices=list(har_data.GAINS), default="normalised")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args(arguments)
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    model = make_model()
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = har_data.training(options.units)
    model.fit(x, y, batch_size=64, epochs=options.epochs, verbose=2)
    if options.output.suffix == ".tflite":
        options.output.write_bytes(converted(model))
    else:
        model.save(options.output)


if __name__ == "__main__":
    main()
