"""Small nets as ordinary users write them, each as three sources; knows Keras, nothing of autoselect.

Each net is a Keras model with a free batch and seeded weights, written as a ``.tflite`` straight from
``TFLiteConverter``, as a ``.keras`` file and as a SavedModel folder. The batch stays free in all three. Only of the net
with a fused LSTM the SavedModel and the ``.tflite`` have batch 1: with a free batch TensorFlow's converter refuses it
(``'tf.TensorListReserve' op requires element_shape to be static``).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from filelock import FileLock

COUNT = 24
"""Samples that calibrate, and as many that are scored on."""

Samples = dict[str, np.ndarray]
"""Arrays of many samples by input name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """One net.

    Attributes:
        make: Gives the model, without weights of its own; called with the Keras that the net is of.
        keras: ``keras``, or ``tf_keras`` where only that keeps an op fused.
        op_types: Some op types that the ``.tflite`` must have: what the net is here for.
        tokens: Count of distinct tokens, for inputs of integers; 0 for inputs of floats.
    """

    make: Callable[[ModuleType], Any]
    keras: str = "keras"
    op_types: frozenset[str]
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """One net on disk.

    Attributes:
        tflite: Straight from ``TFLiteConverter``, its batch free.
        keras: A ``.keras`` file.
        saved_model: A SavedModel folder.
        calibration: Arrays by input name.
        evaluation: Likewise; no sample of ``calibration`` is in it.
        targets: For each sample of ``evaluation`` what the Keras model says of it (its first output), and noise of
            2 % beside it, so that float itself has a score.
    """

    tflite: Path
    keras: Path
    saved_model: Path
    calibration: Samples
    evaluation: Samples
    targets: np.ndarray

    def by_suffix(self, suffix: str) -> Path:
        """One of ``.tflite``, ``.keras`` and, for the folder, an empty text."""
        return {".tflite": self.tflite, ".keras": self.keras, "": self.saved_model}[suffix]


# ---------------------------------------------------------------------------------------------- the nets


def transformer(keras: ModuleType) -> Any:
    """Token ids, one block of attention and one of dense layers, each with a residual sum and a norm."""
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(40, 16)(tokens)
    y = keras.layers.MultiHeadAttention(num_heads=2, key_dim=8)(x, x)
    x = keras.layers.LayerNormalization()(x + y)
    y = keras.layers.Dense(16)(keras.layers.Dense(32, activation="gelu")(x))
    x = keras.layers.LayerNormalization()(x + y)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(4, activation="softmax", name="label")(x))


def mixer(keras: ModuleType) -> Any:
    """Dense layers on sequences, along tokens and along channels in turn."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(24, 4, strides=4)(image)
    x = keras.layers.Reshape((16, 24))(x)
    y = keras.layers.Permute((2, 1))(keras.layers.LayerNormalization()(x))
    y = keras.layers.Dense(16)(keras.layers.Dense(32, activation="gelu")(y))
    x = x + keras.layers.Permute((2, 1))(y)
    y = keras.layers.Dense(32, activation="gelu")(keras.layers.LayerNormalization()(x))
    x = x + keras.layers.Dense(24)(y)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(image, keras.layers.Dense(5)(x))


def causal(keras: ModuleType) -> Any:
    """Dilated convolutions that look back only, with gates and residual sums."""
    wave = keras.Input((32, 4), name="wave")
    x = keras.layers.Conv1D(16, 1)(wave)
    for rate in (1, 2):
        y = keras.layers.Conv1D(16, 3, padding="causal", dilation_rate=rate, activation="tanh")(x)
        gate = keras.layers.Conv1D(16, 3, padding="causal", dilation_rate=rate, activation="sigmoid")(x)
        x = x + keras.layers.Conv1D(16, 1)(y * gate)
    return keras.Model(wave, keras.layers.Conv1D(3, 1)(keras.layers.ReLU()(x)))


def unet(keras: ModuleType) -> Any:
    """Down and up again, each level joined to the one it came from."""
    image = keras.Input((16, 16, 3), name="image")
    top = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    middle = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(keras.layers.MaxPooling2D()(top))
    x = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(keras.layers.MaxPooling2D()(middle))
    x = keras.layers.Concatenate()([keras.layers.UpSampling2D(interpolation="bilinear")(x), middle])
    x = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = keras.layers.Concatenate()([keras.layers.UpSampling2D()(x), top])
    return keras.Model(image, keras.layers.Conv2D(2, 1, activation="sigmoid")(x))


def squeeze_excite(keras: ModuleType) -> Any:
    """Inverted residuals whose channels are weighed, with swish."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="swish")(image)
    for _ in range(2):
        y = keras.layers.BatchNormalization()(keras.layers.Conv2D(32, 1, use_bias=False)(x))
        y = keras.layers.DepthwiseConv2D(3, padding="same", activation="swish")(keras.activations.swish(y))
        weights = keras.layers.GlobalAveragePooling2D(keepdims=True)(y)
        weights = keras.layers.Conv2D(8, 1, activation="swish")(weights)
        y = y * keras.layers.Conv2D(32, 1, activation="sigmoid")(weights)
        x = x + keras.layers.Conv2D(8, 1)(y)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, keras.layers.Dense(6, activation="softmax")(x))


def two_ways(keras: ModuleType) -> Any:
    """Two inputs, named against the alphabet, and two outputs."""
    wide, narrow = keras.Input((24,), name="wide"), keras.Input((6,), name="narrow")
    x = keras.layers.Dense(32, activation="relu")(wide)
    both = keras.layers.Concatenate()([x, keras.layers.Dense(8, activation="tanh")(narrow)])
    zeta = keras.layers.Dense(3, name="zeta")(both)
    return keras.Model([wide, narrow], [zeta, keras.layers.Dense(5, activation="softmax", name="alpha")(both)])


def autoencoder(keras: ModuleType) -> Any:
    """Dense layers that narrow and widen again, with batch normalisation."""
    frame = keras.Input((48,), name="frame")
    x = frame
    for units in (32, 16, 4, 16, 32):
        x = keras.layers.BatchNormalization()(keras.layers.Dense(units)(x))
        x = keras.layers.ReLU()(x)
    return keras.Model(frame, keras.layers.Dense(48)(x))


def unrolled_gru(keras: ModuleType) -> Any:
    """A GRU without a loop: every step has ops of its own."""
    steps = keras.Input((4, 8), name="steps")
    x = keras.layers.GRU(12, unroll=True)(steps)
    return keras.Model(steps, keras.layers.Dense(4)(x))


def fused_lstm(keras: ModuleType) -> Any:
    """A convolution, an LSTM that stays one op, and a dense layer."""
    steps = keras.Input((8, 6), name="steps")
    x = keras.layers.Conv1D(16, 3, padding="same", activation="relu")(steps)
    x = keras.layers.LSTM(16)(x)
    return keras.Model(steps, keras.layers.Dense(4)(x))


def group_norm(keras: ModuleType) -> Any:
    """Group normalisation, PRELU and ELU."""
    image = keras.Input((12, 12, 3), name="image")
    x = keras.layers.Conv2D(16, 3, padding="same")(image)
    x = keras.layers.PReLU(shared_axes=[1, 2])(keras.layers.GroupNormalization(4)(x))
    x = keras.layers.Conv2D(16, 3, strides=2)(x)
    x = keras.layers.ELU()(keras.layers.GroupNormalization(4)(x))
    return keras.Model(image, keras.layers.Dense(5)(keras.layers.Flatten()(x)))


def dilated_depthwise(keras: ModuleType) -> Any:
    """Depthwise convolutions with holes beside each other, as in segmentation."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu6")(image)
    branches = [
        keras.layers.DepthwiseConv2D(3, dilation_rate=rate, padding="same", activation="relu6")(x) for rate in (1, 2, 3)
    ]
    x = keras.layers.Conv2D(16, 1, activation="relu")(keras.layers.Concatenate()(branches))
    return keras.Model(image, keras.layers.Conv2D(4, 1)(x))


def transposed(keras: ModuleType) -> Any:
    """A generator: noise to a picture, by transposed convolutions."""
    noise = keras.Input((16,), name="noise")
    x = keras.layers.Reshape((4, 4, 16))(keras.layers.Dense(256)(noise))
    x = keras.layers.LeakyReLU(negative_slope=0.2)(keras.layers.BatchNormalization()(x))
    x = keras.layers.Conv2DTranspose(16, 4, strides=2, padding="same")(x)
    x = keras.layers.LeakyReLU(negative_slope=0.2)(x)
    return keras.Model(noise, keras.layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh")(x))


def pools(keras: ModuleType) -> Any:
    """An average pool, a sum, a mean and a maximum, side by side."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(12, 3, padding="same", activation="relu")(image)
    x = keras.layers.AveragePooling2D(2)(x)
    ops = keras.ops
    parts = [ops.sum(x, axis=(1, 2)) * 0.02, ops.mean(x, axis=(1, 2)), ops.max(x, axis=(1, 2))]
    return keras.Model(image, keras.layers.Dense(5)(keras.layers.Concatenate()(parts)))


def recommender(keras: ModuleType) -> Any:
    """Two tables of embeddings, one product, dense layers."""
    user = keras.Input((4,), dtype="int32", name="user")
    mine = keras.layers.Flatten()(keras.layers.Embedding(50, 12)(user))
    theirs = keras.layers.Flatten()(keras.layers.Embedding(50, 12)(user))
    x = keras.layers.Concatenate()([mine * theirs, mine])
    x = keras.layers.Dense(24, activation="relu")(x)
    return keras.Model(user, keras.layers.Dense(3)(x))


def residual(keras: ModuleType) -> Any:
    """A small ResNet: strided shortcuts, batch normalisation, one convolution in groups."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(8, 3, padding="same")(image)
    for filters, strides in ((8, 1), (16, 2)):
        y = keras.layers.Conv2D(filters, 3, strides=strides, padding="same")(x)
        y = keras.layers.ReLU()(keras.layers.BatchNormalization()(y))
        y = keras.layers.BatchNormalization()(keras.layers.Conv2D(filters, 3, padding="same", groups=2)(y))
        x = keras.layers.ReLU()(y + keras.layers.Conv2D(filters, 1, strides=strides)(x))
    return keras.Model(image, keras.layers.Dense(6)(keras.layers.GlobalAveragePooling2D()(x)))


def _types(*names: str) -> frozenset[str]:
    return frozenset(names)


NETS: Mapping[str, Net] = {
    "transformer": Net(make=transformer, tokens=40, op_types=_types("GATHER", "BATCH_MATMUL", "SOFTMAX")),
    "mixer": Net(make=mixer, op_types=_types("TRANSPOSE", "FULLY_CONNECTED", "RESHAPE")),
    "causal convolution": Net(make=causal, op_types=_types("PAD", "CONV_2D", "EXPAND_DIMS", "TANH")),
    "U-Net": Net(make=unet, op_types=_types("CONCATENATION", "RESIZE_BILINEAR", "TILE")),
    "squeeze-excite": Net(make=squeeze_excite, op_types=_types("LOGISTIC", "MUL", "MEAN", "DEPTHWISE_CONV_2D")),
    "two inputs, two outputs": Net(make=two_ways, op_types=_types("FULLY_CONNECTED", "CONCATENATION")),
    "autoencoder": Net(make=autoencoder, op_types=_types("FULLY_CONNECTED")),
    "unrolled GRU": Net(make=unrolled_gru, op_types=_types("FULLY_CONNECTED", "LOGISTIC", "TANH")),
    "fused LSTM": Net(make=fused_lstm, keras="tf_keras", op_types=_types("UNIDIRECTIONAL_SEQUENCE_LSTM")),
    "group norm": Net(make=group_norm, op_types=_types("PRELU", "ELU")),
    "dilated depthwise": Net(make=dilated_depthwise, op_types=_types("DEPTHWISE_CONV_2D", "CONCATENATION")),
    "transposed convolution": Net(make=transposed, op_types=_types("TRANSPOSE_CONV", "LEAKY_RELU", "TANH")),
    "pools": Net(make=pools, op_types=_types("AVERAGE_POOL_2D", "SUM", "MEAN", "REDUCE_MAX")),
    "embeddings": Net(make=recommender, tokens=50, op_types=_types("GATHER", "MUL")),
    "residual": Net(make=residual, op_types=_types("CONV_2D", "ADD")),
}


# ---------------------------------------------------------------------------------------- models and data


def model_of(net: Net) -> Any:
    """The net with its weights: the same in every process, whatever was built before."""
    import importlib

    keras = importlib.import_module(net.keras)
    keras.backend.clear_session()  # Else the names of layers go on counting.
    model = net.make(keras)
    rng = np.random.default_rng(0)
    model.set_weights([_drawn(rng, weights) for weights in model.get_weights()])
    return model


def _drawn(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    """Weights in place of the initial ones; those that begin as ones are scales and variances, and stay positive."""
    if like.ndim > 1:
        return rng.normal(0.0, 1.2 / np.sqrt(np.prod(like.shape[:-1])), like.shape)
    return rng.uniform(0.7, 1.3, like.shape) if (like == 1).all() else rng.normal(0.0, 0.1, like.shape)


def samples_of(net: Net, inputs: Mapping[str, tuple[int, ...]], seed: int) -> Samples:
    """Normal values, or tokens, by input name; shapes are without the batch."""
    rng = np.random.default_rng(seed)
    if net.tokens:
        return {key: rng.integers(0, net.tokens, (COUNT, *shape), dtype=np.int32) for key, shape in inputs.items()}
    return {key: rng.normal(size=(COUNT, *shape)).astype(np.float32) for key, shape in inputs.items()}


def input_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """By name, without the batch."""
    return {t.name.split(":")[0]: tuple(int(size) for size in t.shape[1:]) for t in model.inputs}


def grown(name: str, root: Path) -> Sources:
    """The sources of a net, written into a folder of ``root`` by the first process that asks for them."""
    net, folder = NETS[name], root / name.replace(" ", "-").replace(",", "")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as fresh:
                _grow(net, Path(fresh))
                Path(fresh).rename(folder)
    with np.load(folder / "samples.npz") as arrays:
        kept = dict(arrays)
    parts = [{k.removeprefix(part): v for k, v in kept.items() if k.startswith(part)} for part in ("c:", "e:")]
    return Sources(
        tflite=folder / "model.tflite",
        keras=folder / "model.keras",
        saved_model=folder / "saved_model",
        calibration=parts[0],
        evaluation=parts[1],
        targets=kept["targets"],
    )


def _grow(net: Net, folder: Path) -> None:
    import tensorflow as tf

    model = model_of(net)
    saved = folder / "saved_model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What Keras and TensorFlow say of their own ways of saving.
        model.save(folder / "model.keras")
        if net.keras == "keras":
            model.export(saved, format="tf_saved_model", verbose=False)
        else:
            tf.saved_model.save(model, str(saved), signatures=_pinned(model))
        converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
        (folder / "model.tflite").write_bytes(converter.convert())
    shapes = input_shapes(model)
    calibration, evaluation = samples_of(net, shapes, seed=1), samples_of(net, shapes, seed=2)
    arrays = {f"{part}:{k}": v for part, row in (("c", calibration), ("e", evaluation)) for k, v in row.items()}
    np.savez(folder / "samples.npz", targets=_targets(model, evaluation), **arrays)  # type: ignore[arg-type]


def _pinned(model: Any) -> Any:
    import tensorflow as tf

    specs = [tf.TensorSpec([1, *shape], tf.float32, name=name) for name, shape in input_shapes(model).items()]
    return tf.function(lambda x: model(x, training=False)).get_concrete_function(*specs)


def _targets(model: Any, samples: Samples) -> np.ndarray:
    inputs = [samples[name] for name in input_shapes(model)]
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    values = np.asarray(outputs[0] if isinstance(outputs, (list, tuple)) else outputs)
    return values + np.random.default_rng(3).normal(0.0, 0.02 * values.std(), values.shape).astype(np.float32)
