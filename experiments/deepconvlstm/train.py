"""Trains a DeepConvLSTM on UCI HAR; tf-keras, whose LSTM converts to the fused op."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

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


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    model = make_model()
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = loaders.har_training()
    model.fit(x, np.asarray(y), batch_size=64, epochs=arguments.epochs, verbose=2)
    model.save(arguments.output)


if __name__ == "__main__":
    main()
