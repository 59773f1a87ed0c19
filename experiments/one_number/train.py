"""Trains a small segmentation net of depthwise convolutions, and makes its channels uneven; its function stays."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent))
import scenes

from autoselect.tflite.runner import Runner

SEED, BATCH = 5, 64
BLOCKS = ((24, 1, 1), (32, 2, 1), (48, 1, 1), (48, 1, 2), (64, 1, 2), (64, 1, 4))
"""Channels, stride and dilation of each pair of a depthwise and a pointwise convolution."""


def _normal(x: Any, name: str) -> Any:
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x))


def make_model() -> Any:
    """Logits of each class for each pixel, from features of a quarter of the size."""
    image = keras.Input((scenes.SIZE, scenes.SIZE, 3))
    conv = keras.layers.Conv2D(16, 3, 2, "same", use_bias=False, name="stem")
    x = _normal(conv(image), "stem")
    for number, (channels, stride, dilation) in enumerate(BLOCKS):
        depthwise = keras.layers.DepthwiseConv2D(
            3, stride, "same", dilation_rate=dilation, use_bias=False, name=f"depthwise{number}"
        )
        x = _normal(depthwise(x), f"depthwise{number}")
        x = _normal(keras.layers.Conv2D(channels, 1, use_bias=False, name=f"point{number}")(x), f"point{number}")
    logits = keras.layers.Conv2D(scenes.CLASSES, 1, name="logits")(x)
    return keras.Model(image, keras.layers.UpSampling2D(4, interpolation="bilinear")(logits))


def uneven(model: Any, decades: float, seed: int = 0) -> None:
    """Spread the channels between each depthwise convolution and the next pointwise one, which divides by the same.

    A ReLU lets any scale pass. After months of training batch normalization often leaves channels as uneven as that.

    Args:
        model: Changed in place; its function is not.
        decades: Scales go from 10 to the power of minus this to 1, evenly in their logarithm.
        seed: Of the scales.
    """
    rng = np.random.default_rng(seed)
    for number in range(len(BLOCKS)):
        normal, point = model.get_layer(f"depthwise{number}_bn"), model.get_layer(f"point{number}")
        gamma, beta, *moving = normal.get_weights()
        scales = 10.0 ** rng.uniform(-decades, 0.0, len(gamma))
        normal.set_weights([gamma * scales, beta * scales, *moving])
        point.set_weights([point.get_weights()[0] / scales[:, None]])


def trained(images: int, epochs: int) -> Any:
    """A net trained on scenes of their own."""
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    pairs = list(scenes.scenes(scenes.TRAINING, images))
    x, y = np.stack([image for image, _ in pairs]), np.stack([labels for _, labels in pairs])
    model = make_model()
    rate = keras.optimizers.schedules.CosineDecay(5e-3, epochs * -(-images // BATCH))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=2)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, make channels uneven, save as .tflite, and print the mean IoU before and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="A .tflite file.")
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--decades", type=float, default=1.5)
    options = parser.parse_args(arguments)
    model = trained(options.images, options.epochs)
    for decades in (0.0, options.decades):
        uneven(model, decades)
        image = keras.Input(model.input_shape[1:], batch_size=1)
        content = bytes(tf.lite.TFLiteConverter.from_keras_model(keras.Model(image, model(image))).convert())
        print(f"{decades} decades: mean IoU {scenes.one_number(Runner(content), 'heldout'):.1%}")
    model.save(options.output.with_suffix(".keras"))
    options.output.write_bytes(content)


if __name__ == "__main__":
    main()
