"""Keras nets of kinds whose published weights are not at hand: a transformer, a style-transfer net, a long chain."""

from __future__ import annotations

import sys
from typing import Any


def transformer(shape: tuple[int, int, int]) -> Any:
    """A vision transformer of twelve layers, of the width of ViT-Tiny."""
    from keras import Model, layers, ops

    given = layers.Input(shape)
    x = layers.Reshape((-1, 192))(layers.Conv2D(192, 16, 16)(given))
    x = x + layers.Embedding(x.shape[1], 192)(ops.arange(x.shape[1]))
    for _ in range(12):
        read = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(3, 64)(read, read)
        x = x + layers.Dense(192)(layers.Dense(768, activation="gelu")(layers.LayerNormalization()(x)))
    return Model(given, layers.Dense(1000)(layers.GlobalAveragePooling1D()(x)))


def style_transfer(shape: tuple[int, int, int]) -> Any:
    """An image to an image, as Johnson, Alahi and Fei-Fei ("Perceptual Losses", 2016): five residual blocks."""
    from keras import Model, layers

    def convolved(x: Any, count: int, side: int, stride: int = 1) -> Any:
        return layers.BatchNormalization()(layers.Conv2D(count, side, stride, padding="same", use_bias=False)(x))

    given = layers.Input(shape)
    x = given
    for count, side, stride in ((32, 9, 1), (64, 3, 2), (128, 3, 2)):
        x = layers.ReLU()(convolved(x, count, side, stride))
    for _ in range(5):
        x = x + convolved(layers.ReLU()(convolved(x, 128, 3)), 128, 3)
    for count in (64, 32):
        x = layers.ReLU()(convolved(layers.UpSampling2D()(x), count, 3))
    return Model(given, layers.Conv2D(3, 9, padding="same")(x))


def wide_chain(shape: tuple[int, int, int]) -> Any:
    """Two thousand ops whose inference takes as many multiplications as that of ResNet-50."""
    return chain(shape, width=32)


def chain(shape: tuple[int, int, int], width: int = 8) -> Any:
    """Two thousand ops: five hundred residual blocks of few channels."""
    from keras import Model, layers

    sys.setrecursionlimit(20_000)  # Keras goes through a net's depth by recursion.
    given = layers.Input(shape)
    x = layers.Conv2D(width, 3, 4, padding="same")(given)
    for _ in range(500):
        inner = layers.Conv2D(width, 1, activation="relu")(x)
        x = layers.ReLU()(x + layers.Conv2D(width, 1)(layers.DepthwiseConv2D(3, padding="same")(inner)) * 0.1)
    return Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
