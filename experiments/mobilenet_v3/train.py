"""Trains a MobileNetV3-Small on CIFAR-10 enlarged to 64x64: a real model of 111 nodes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

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


def accuracy(content: bytes) -> float:
    """Share of the test images that a .tflite model gets right."""
    runner = Runner(content)
    pairs = [(next(iter(runner(image[None]).values())).argmax(), label) for image, label in loaders.cifar_evaluation()]
    return sum(answer == label for answer, label in pairs) / len(pairs)


def main() -> None:
    """Train and save the model as .tflite, batch 1, and print how good it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    x, y = loaders.cifar_training()
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).map(_augmented).batch(BATCH).prefetch(1)
    steps = arguments.epochs * -(-len(x) // BATCH)
    model = make_model()
    rate = keras.optimizers.schedules.CosineDecay(1e-4, steps, warmup_target=3e-3, warmup_steps=steps // 12)
    model.compile(optimizer=keras.optimizers.AdamW(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(data, epochs=arguments.epochs, verbose=2)
    signature = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32)
    function = tf.function(lambda image: model(image, training=False)).get_concrete_function(signature)
    content = tf.lite.TFLiteConverter.from_concrete_functions([function], model).convert()
    arguments.output.write_bytes(content)
    print(f"{accuracy(content):.1%} of the test images are right")


if __name__ == "__main__":
    main()
