"""Trains the pump monitor that ships as the embedded case; knows nothing of quantization.

The model takes raw physical units: its normalization is its first layer. One branch looks at the waveform,
the other at the energy in a bank of learned filters; a small convolutional trunk joins them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras  # That of Keras 2, if TF_USE_LEGACY_KERAS says so.

from autoselect.embedded import CHANNEL_NAMES, CLASS_NAMES, heldout_samples, training_windows
from autoselect.embedded.data import WINDOW_LENGTH

SEED = 7
TRAIN_COUNT = 24_000
EPOCHS = 8
BATCH_SIZE = 128
PEAK_LEARNING_RATE = 3e-3

layers = keras.layers


def main() -> None:
    """Train, report the held-out accuracy, convert without optimization and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="path of the float .tflite file to write")
    output: Path = parser.parse_args().output
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    windows, labels = training_windows(TRAIN_COUNT)
    model = build_model(mean=windows.mean(axis=(0, 1, 2)), variance=windows.var(axis=(0, 1, 2)))
    fit(model, windows, labels)
    print(f"held-out accuracy in Keras: {heldout_accuracy_percent(model):.2f} %")
    content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    output.write_bytes(content)
    print(f"wrote {output}, {len(content)} bytes")


def build_model(mean: np.ndarray, variance: np.ndarray) -> keras.Model:
    """Build the untrained model.

    Args:
        mean: Shape (6,), mean of each channel over the training windows, in the channel's unit.
        variance: Shape (6,), variance of each channel, in the channel's unit squared.

    Returns:
        A model from windows of shape (batch, 64, 1, 6) to class probabilities of shape (batch, 8).
    """
    window = keras.Input((WINDOW_LENGTH, 1, len(CHANNEL_NAMES)), name="window")
    normalized = layers.Normalization(mean=mean, variance=variance, name="normalization")(window)
    x = layers.Concatenate(name="features")([_waveform_branch(normalized), _energy_branch(normalized)])
    x = shortcut = layers.ReLU(name="merge_relu")(_separable(x, 64, name="merge"))
    x = layers.Add(name="residual_add")([_separable(x, 64, name="residual"), shortcut])
    x = layers.ReLU(name="residual_relu")(x)
    x = layers.ReLU(name="top_relu")(_separable(x, 96, name="top", stride=2))
    x = layers.GlobalAveragePooling2D(name="trunk_mean")(x)
    x = layers.Dense(64, activation="relu", name="hidden")(x)
    x = layers.Dense(len(CLASS_NAMES), activation="softmax", name="classes")(x)
    return keras.Model(window, x, name="pump_monitor")


def _waveform_branch(normalized: keras.KerasTensor) -> keras.KerasTensor:
    """Return strided convolution features with a swish, shape (batch, 16, 1, 24)."""
    x = layers.Conv2D(24, (9, 1), strides=4, padding="same", use_bias=False, name="stem")(normalized)
    x = layers.BatchNormalization(name="stem_bn")(x)
    return layers.Activation("swish", name="stem_swish")(x)


def _energy_branch(normalized: keras.KerasTensor) -> keras.KerasTensor:
    """Return the mean energy of four learned filters a channel, shape (batch, 16, 1, 24)."""
    x = layers.DepthwiseConv2D((9, 1), depth_multiplier=4, padding="same", name="filterbank")(normalized)
    x = layers.Multiply(name="energy")([x, x])
    x = layers.AveragePooling2D((4, 1), name="energy_pool")(x)
    return layers.BatchNormalization(name="energy_bn")(x)


def _separable(x: keras.KerasTensor, filters: int, *, name: str, stride: int = 1) -> keras.KerasTensor:
    """Return a depthwise-separable convolution, five steps wide, without a last activation."""
    depthwise = layers.DepthwiseConv2D((5, 1), strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise")
    x = layers.BatchNormalization(name=f"{name}_depthwise_bn")(depthwise(x))
    x = layers.ReLU(name=f"{name}_depthwise_relu")(x)
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_pointwise")(x)
    return layers.BatchNormalization(name=f"{name}_pointwise_bn")(x)


def fit(model: keras.Model, windows: np.ndarray, labels: np.ndarray) -> None:
    """Train in place on windows of shape (count, 64, 1, 6) and labels of shape (count,)."""
    steps = EPOCHS * len(windows) // BATCH_SIZE
    schedule = keras.optimizers.schedules.CosineDecay(PEAK_LEARNING_RATE, steps)
    model.compile(
        optimizer=keras.optimizers.Adam(schedule),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(windows, labels, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)


def heldout_accuracy_percent(model: keras.Model) -> float:
    """Return the share of held-out windows that the model classifies rightly, in percent."""
    windows, labels = zip(*heldout_samples(), strict=True)
    predictions = model.predict(np.stack(windows), verbose=0).argmax(axis=1)
    return 100.0 * float(np.mean(predictions == np.array(labels)))


if __name__ == "__main__":
    main()
