"""Trains a MobileNetV3-Small on CIFAR-10 enlarged to 64x64: a real model of 111 nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

from autoselect.tflite.runner import Runner

SEED = 11
SIZE = 64
CLASSES = 10
BATCH = 256
MOMENTUM = 0.9
"""Of batch normalization. With the 0.999 of Keras Applications the moving statistics of so few steps are still those of
the first, and the model answers by chance."""


def make_model() -> Any:
    """MobileNetV3-Small (Howard et al. 2019) as Keras Applications builds it, inputs in -1..1."""
    model = keras.applications.MobileNetV3Small(
        input_shape=(SIZE, SIZE, 3), weights=None, classes=CLASSES, include_preprocessing=False
    )
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = MOMENTUM
    return model


def _augmented(image: Any, label: Any) -> Any:
    image = tf.image.random_flip_left_right(tf.cast(image, tf.float32))
    image = tf.image.random_crop(tf.pad(image, [[6, 6], [6, 6], [0, 0]], mode="REFLECT"), [SIZE, SIZE, 3])
    return image, label


def uneven(model: Any, decades: float, seed: int = 0) -> Any:
    """The same function with uneven channels where blocks meet: what batch normalization leaves is spread.

    What a block's projection writes is linear, so its channels may have any scale if all that reads them divides by
    it. Projections that are added share their scales.

    Args:
        model: As :func:`make_model` gives it.
        decades: Scales go from 10 to the power of minus this to 1, evenly in their logarithm.
        seed: Of the scales.
    """
    found, rng = keras.models.clone_model(model), np.random.default_rng(seed)
    found.set_weights(model.get_weights())
    layers = {layer.name: layer for layer in found.layers}
    scales, readers = np.ones(0), {1 + i: f"expanded_conv_{1 + i}/expand" for i in range(10)} | {11: "Conv_1"}
    for block, reader in readers.items():
        writer = f"expanded_conv_{block - 1}" if block > 1 else "expanded_conv"
        if f"{writer}/Add" not in layers:
            scales = 10.0 ** rng.uniform(-decades, 0.0, layers[f"{writer}/project"].filters)
        gamma, beta, *moving = layers[f"{writer}/project/BatchNorm"].get_weights()
        layers[f"{writer}/project/BatchNorm"].set_weights([gamma * scales, beta * scales, *moving])
        layers[reader].set_weights([layers[reader].get_weights()[0] / scales[:, None]])
    return found


def converter_of(model: Any) -> Any:
    """TensorFlow's converter of it, batch 1."""
    signature = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32)
    function = tf.function(lambda image: model(image, training=False)).get_concrete_function(signature)
    return tf.lite.TFLiteConverter.from_concrete_functions([function], model)


def accuracy(content: bytes) -> float:
    """Share of the test images that a .tflite model gets right."""
    runner = Runner(content)
    pairs = [(next(iter(runner(image[None]).values())).argmax(), label) for image, label in loaders.cifar_evaluation()]
    return sum(answer == label for answer, label in pairs) / len(pairs)


def trained(epochs: int, images: int, backup: Path | None = None) -> Any:
    """Train on evenly spaced images; from the last whole epoch that ``backup`` holds, if there is one."""
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    x, y = (part[:: 50_000 // images] for part in loaders.cifar_training())
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).map(_augmented).batch(BATCH).prefetch(1)
    steps = epochs * -(-len(x) // BATCH)
    model = make_model()
    rate = keras.optimizers.schedules.CosineDecay(1e-4, steps, warmup_target=3e-3, warmup_steps=steps // 12)
    model.compile(optimizer=keras.optimizers.AdamW(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    kept = [keras.callbacks.BackupAndRestore(str(backup))] if backup else []
    model.fit(data, epochs=epochs, verbose=2, callbacks=kept)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and save the model as .tflite, batch 1, and print how good it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="A .tflite file; the weights lie beside it.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=50_000, help="Training images.")
    options = parser.parse_args(arguments)
    model = trained(options.epochs, options.images, options.output.with_suffix(".backup"))
    model.save_weights(options.output.with_suffix(".weights.h5"))
    content = bytes(converter_of(model).convert())
    options.output.write_bytes(content)
    print(f"{accuracy(content):.1%} of the test images are right")


if __name__ == "__main__":
    main()
