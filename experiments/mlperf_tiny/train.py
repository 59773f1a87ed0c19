"""Trains the ResNet-8 of MLPerf Tiny's image classification on CIFAR-10."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
import tiny_data

from autoselect.tflite.runner import Runner

SEED = 3
BATCH = 128
HIGHEST_RATE = 4e-3
CLASSES = 10
SIZE = 32


def make_model() -> Any:
    """``resnet_v1_eembc`` of mlcommons/tiny: raw pixels, three stacks of 16, 32 and 64 filters, 1x1 shortcuts."""
    layers = keras.layers

    def convolved(x: Any, filters: int, size: int, stride: int) -> Any:
        options = {"padding": "same", "kernel_initializer": "he_normal"}
        weights = keras.regularizers.l2(1e-4)
        return layers.Conv2D(filters, size, strides=stride, kernel_regularizer=weights, **options)(x)

    def normalised(x: Any) -> Any:
        return layers.BatchNormalization(momentum=0.9)(x)

    pixels = layers.Input((SIZE, SIZE, 3))
    x = layers.ReLU()(normalised(convolved(pixels, 16, 3, 1)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = layers.ReLU()(normalised(convolved(x, filters, 3, stride)))
        y = normalised(convolved(y, filters, 3, 1))
        shortcut = x if stride == 1 else convolved(x, filters, 1, stride)
        x = layers.ReLU()(layers.Add()([shortcut, y]))
    x = layers.Flatten()(layers.AveragePooling2D(SIZE // 4)(x))
    return keras.Model(pixels, layers.Dense(CLASSES, activation="softmax", kernel_initializer="he_normal")(x))


def augmented(images: Any, labels: Any) -> Any:
    """A batch flipped image by image, and shifted as a whole by up to four pixels."""
    images = tf.image.random_flip_left_right(tf.cast(images, tf.float32))
    padded = tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]], mode="REFLECT")
    return tf.image.random_crop(padded, [tf.shape(images)[0], SIZE, SIZE, 3]), labels


def trained(x: np.ndarray, y: np.ndarray, epochs: int, backup: Path, batch: int = BATCH) -> Any:
    """Train from the start, or from the last whole epoch that ``backup`` holds."""
    keras.utils.set_random_seed(SEED)
    samples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(batch).map(augmented).prefetch(2)
    steps = epochs * -(-len(x) // batch)
    model = make_model()
    rate = keras.optimizers.schedules.CosineDecay(1e-4, steps, warmup_target=HIGHEST_RATE, warmup_steps=steps // 5)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    kept = keras.callbacks.BackupAndRestore(str(backup))
    model.fit(samples, epochs=epochs, verbose=2, callbacks=[kept])
    return model


def converted(model: Any) -> bytes:
    """As a float ``.tflite`` of batch 1."""
    signature = tf.TensorSpec((1, SIZE, SIZE, 3), tf.float32)
    function = tf.function(lambda image: model(image, training=False)).get_concrete_function(signature)
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], model).convert())


def accuracy(content: bytes) -> float:
    """Share of all test images that a model gets right."""
    runner = Runner(content)
    pairs = tiny_data.images("test")
    hits = [int(next(iter(runner(image[None]).values())).argmax()) == label for image, label in pairs]
    return sum(hits) / len(hits)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save the model as ``.tflite`` and print how good it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="File of the model; what is trained lies beside it.")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(arguments)
    pairs = list(tiny_data.images("train"))
    x, y = np.stack([image for image, _ in pairs]).astype(np.uint8), np.array([label for _, label in pairs])
    content = converted(trained(x, y, options.epochs, options.output.with_suffix(".backup")))
    options.output.write_bytes(content)
    print(f"{accuracy(content):.2%} of the test images are right")


if __name__ == "__main__":
    main()
