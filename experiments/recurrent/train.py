"""Trains the keyword spotter and the forecaster, and writes each as a float model of one step.

Seeds are fixed, but training on another kind of processor rounds otherwise and ends at other weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import nets
import tensorflow as tf

from autoselect.runs.files import write_bytes

SEED = 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Write ``spotter.tflite`` and ``forecaster.tflite``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="Folder of the nets.")
    output: Path = parser.parse_args(arguments).output
    write_bytes(output / "spotter.tflite", spotter())
    write_bytes(output / "forecaster.tflite", forecaster())


def spotter() -> bytes:
    """A GRU over 49 frames of 10 MFCC, then a dense layer."""
    keras.utils.set_random_seed(SEED)
    cell, head = keras.layers.GRUCell(nets.GRU_UNITS), keras.layers.Dense(nets.CLASSES, activation="softmax")
    model = keras.Sequential([keras.layers.Input((49, 10)), keras.layers.RNN(cell), head])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = nets.clips_of("train"), nets.classes_of("train")
    for rate in (3e-3, 1e-3, 3e-4):
        model.optimizer.learning_rate = rate
        model.fit(x, y, batch_size=64, epochs=12, verbose=0)
    return step_model(cell, head, ("h",), nets.GRU_UNITS, 10)


def forecaster() -> bytes:
    """An LSTM that says the value of the next hour."""
    keras.utils.set_random_seed(SEED)
    cell, head = keras.layers.LSTMCell(nets.LSTM_UNITS), keras.layers.Dense(1)
    layers = [keras.layers.Input((nets.HOURS - 1, 1)), keras.layers.RNN(cell, return_sequences=True), head]
    model = keras.Sequential(layers)
    model.compile("adam", "mae")
    series = nets.series_of("train")
    for rate in (1e-2, 3e-3, 1e-3):
        model.optimizer.learning_rate = rate
        model.fit(series[:, :-1], series[:, 1:], batch_size=32, epochs=8, verbose=0)
    return step_model(cell, head, ("h", "c"), nets.LSTM_UNITS, 1)


def step_model(cell: Any, head: Any, states: tuple[str, ...], units: int, features: int) -> bytes:
    """A cell and the layer behind it as a float model of one step."""
    x = keras.Input(batch_shape=(1, features), name="x")
    before = [keras.Input(batch_shape=(1, units), name=name) for name in states]
    answer, after = cell(x, before)
    ends = {"answer": head(answer), **{f"{name}_next": state for name, state in zip(states, after, strict=True)}}
    model = keras.Model([x, *before], ends)
    return bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())


if __name__ == "__main__":
    main()
