"""Small models with seeded weights, and what TensorFlow's own converter makes of them."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.parts import find_nodes
from autoselect.quantize.building.wholes import make_wholes
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import calibration, normalise
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


def tf() -> Any:
    """TensorFlow, imported only by tests that run."""
    import tensorflow

    return tensorflow


@dataclass(frozen=True, eq=False)
class Source:
    """A pinned concrete function with the object that holds its variables, and TensorFlow's conversions of it."""

    function: Any
    variables: Any

    @functools.cached_property
    def _saved(self) -> str:
        """The function as a SavedModel: a converter of the bare function makes a WHILE of a fused LSTM."""
        import tensorflow as tf

        module = tf.Module()
        module.function, module.kept = self.function, self.variables
        folder = tempfile.mkdtemp(prefix="autoselect-test-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        tf.saved_model.save(module, folder, signatures=self.function)
        return folder

    def converter(self) -> Any:
        import tensorflow as tf

        return tf.lite.TFLiteConverter.from_saved_model(self._saved)

    @functools.cached_property
    def float_model(self) -> bytes:
        return bytes(self.converter().convert())

    def drq(self, *, per_channel: bool = True) -> bytes:
        """Dynamic-range quantization of the whole model, by TensorFlow."""
        import tensorflow as tf

        work = self.converter()
        work.optimizations = [tf.lite.Optimize.DEFAULT]
        work._experimental_disable_per_channel = not per_channel
        return bytes(work.convert())

    def fiq(self, samples: Sequence[Sequence[np.ndarray]], *, per_channel: bool = True) -> bytes:
        """Full-integer quantization of the whole model, by TensorFlow, with float inputs and outputs."""
        import tensorflow as tf

        work = self.converter()
        work.optimizations = [tf.lite.Optimize.DEFAULT]
        # The signature's keys name the inputs, whatever their order.
        keys = [s.key for s in reader.input_specs(fb.parse(self.float_model))]
        work.representative_dataset = lambda: (dict(zip(keys, s, strict=True)) for s in samples)
        work.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        work._experimental_disable_per_channel = not per_channel
        return bytes(work.convert())

    @functools.cached_property
    def prepared(self) -> Prepared:
        return prepare(self.float_model)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A float model that is calibrated and whose nodes are known."""

    calibrated: CalibratedModel
    nodes: tuple[Any, ...]
    samples: list[list[np.ndarray]]

    @functools.cached_property
    def builder(self) -> Builder:
        return Builder(self.calibrated, self.nodes, self.kit)

    @functools.cached_property
    def kit(self) -> RepairKit:
        return RepairKit(self.calibrated, self.fed)

    def fed(self) -> list[dict[str, np.ndarray]]:
        """The samples by key."""
        keys = [s.key for s in reader.input_specs(fb.parse(self.calibrated.content))]
        return [dict(zip(keys, sample, strict=True)) for sample in self.samples]


@functools.cache
def prepared_file(path: Path) -> Prepared:
    """A model file, prepared once."""
    return prepare(path.read_bytes())


def random_samples(content: bytes, count: int = 3, seed: int = 0) -> list[list[np.ndarray]]:
    """Normal inputs, in the model's order."""
    rng = np.random.default_rng(seed)
    specs = reader.input_specs(fb.parse(content))
    return [[rng.normal(size=s.shape).astype(s.dtype) for s in specs] for _ in range(count)]


def prepare(
    content: bytes,
    samples: list[list[np.ndarray]] | None = None,
    normalised_by: Callable[[bytes], normalise.Normalised] = normalise.normalise,
) -> Prepared:
    samples = random_samples(content) if samples is None else samples
    normalised = normalised_by(content)
    calibrated = calibration.calibrated_model(normalised.file, samples, normalised.node_names)
    wholes = make_wholes(RepairKit(calibrated), Recipe())
    return Prepared(calibrated=calibrated, nodes=find_nodes(wholes), samples=samples)


def from_function(call: Callable[..., Any], *shapes: Sequence[int]) -> Source:
    """Wrap a function of float tensors; its inputs are called ``x0``, ``x1``..."""
    import tensorflow as tf

    specs = [tf.TensorSpec(shape, tf.float32, name=f"x{i}") for i, shape in enumerate(shapes)]
    return Source(tf.function(call, autograph=False).get_concrete_function(*specs), ())


def from_keras(model: Any) -> Source:
    """Wrap a Keras model of one input, its batch pinned to 1."""
    import tensorflow as tf

    spec = tf.TensorSpec([1, *model.inputs[0].shape[1:]], tf.float32, name="x")
    call = tf.function(lambda x: model(x, training=False), autograph=False)
    return Source(call.get_concrete_function(spec), model.variables)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.1, size=shape).astype(np.float32)


def randomise(model: Any, seed: int = 0) -> Any:
    """Seeded weights whatever the layers' own initialisers draw."""
    rng = np.random.default_rng(seed)
    model.set_weights([np.abs(w) if (w == 1).all() else rng.normal(0.0, 0.1, w.shape) for w in model.get_weights()])
    return model


@functools.cache
def deep_conv_lstm(*, steps: int = 24, units: int = 128) -> Source:
    """Four convolutions, two LSTMs and a dense layer; tf-keras keeps the LSTMs fused."""
    import tf_keras

    layers = [tf_keras.Input((steps, 6, 1))]
    layers += [tf_keras.layers.Conv2D(64, (5, 1), activation="relu") for _ in range(4)]
    layers += [tf_keras.layers.Reshape((steps - 16, 6 * 64))]
    layers += [tf_keras.layers.LSTM(units, return_sequences=True), tf_keras.layers.LSTM(units)]
    layers += [tf_keras.layers.Dense(6, activation="softmax")]
    return from_keras(randomise(tf_keras.Sequential(layers)))


@functools.cache
def mobilenet_v3_small() -> Source:
    import tf_keras

    make = tf_keras.applications.MobileNetV3Small
    return from_keras(randomise(make(input_shape=(64, 64, 3), weights=None, classes=10, include_preprocessing=False)))


@functools.cache
def cnn() -> Source:
    """Convolution, depthwise convolution, pooling, a residual sum and a classifier: every common op once."""
    import tensorflow as tf

    first, depthwise, point, dense = weights(3, 3, 3, 16), weights(3, 3, 16, 1), weights(1, 1, 16, 16), weights(256, 5)

    def call(x: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(x, first, 2, "SAME") + weights(16, seed=1))
        y = tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME")
        y = tf.nn.conv2d(y, point, 1, "SAME") + x
        y = tf.nn.max_pool2d(y, 2, 1, "SAME")
        return tf.nn.softmax(tf.matmul(tf.reshape(y, (1, 256)), dense))

    return from_function(call, (1, 8, 8, 3))


@functools.cache
def lstm() -> Source:
    """A small recurrent model with a fused LSTM."""
    import tf_keras

    layers = [tf_keras.Input((8, 6)), tf_keras.layers.LSTM(16), tf_keras.layers.Dense(4)]
    return from_keras(randomise(tf_keras.Sequential(layers)))


@functools.cache
def two_inputs() -> Source:
    """Three inputs of different shapes and two outputs."""
    import tensorflow as tf

    wide = weights(6, 4)

    def call(x0: Any, x1: Any, x2: Any) -> dict[str, Any]:
        mixed = tf.matmul(x0, wide) + x1
        return {"total": mixed + x2, "product": tf.nn.tanh(mixed) * 2.0}

    return from_function(call, (1, 6), (1, 4), (1, 1))


@functools.cache
def loop() -> Source:
    """A loop, whose ops lie in subgraphs of their own, between two layers."""
    import tensorflow as tf

    matrix, dense = weights(6, 6), weights(6, 8)

    def call(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, tf.tanh(tf.matmul(y, matrix))

        return tf.matmul(tf.while_loop(lambda i, _: i < 3, step, step(0, x))[1], dense)

    return from_function(call, (1, 6))


@functools.cache
def remembering() -> bytes:
    """A model that sums up what it has seen in a variable, between two layers."""
    import tensorflow as tf

    class Remembering(tf.Module):
        def __init__(self) -> None:
            self.sum = tf.Variable(np.ones((1, 8), np.float32))

        @tf.function(input_signature=[tf.TensorSpec((1, 8), tf.float32)])
        def call(self, x: Any) -> Any:
            self.sum.assign(self.sum * 0.5 + tf.nn.relu(tf.matmul(x, weights(8, 8))))
            return tf.matmul(self.sum.read_value(), weights(8, 8, seed=1))

    module = Remembering()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.call.get_concrete_function()], module)
    converter.experimental_enable_resource_variables = True
    return bytes(converter.convert())


def from_signature(folder: Path) -> Source:
    """Wrap the serving signature of a SavedModel, its batch pinned to 1."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]
    [(key, spec)] = signature.structured_input_signature[1].items()
    call = tf.function(lambda x: signature(**{key: x}), autograph=False)
    pinned = tf.TensorSpec([1, *spec.shape[1:]], spec.dtype, name="x")
    return Source(call.get_concrete_function(pinned), loaded)


def shared_weights() -> Source:
    """Three layers with one matrix and one bias."""
    import tensorflow as tf

    matrix, added = weights(40, 40), weights(40, seed=1)

    def call(x: Any) -> Any:
        for _ in range(3):
            x = tf.nn.relu(tf.matmul(x, matrix) + added)
        return x

    return from_function(call, (1, 40))


def tensorflow_integer(source: Source, io: str = "int8", *, per_channel: bool = True) -> bytes:
    """What TensorFlow's converter makes of a source, with integer inputs and outputs."""
    import tensorflow as tf

    work = source.converter()
    work.optimizations = [tf.lite.Optimize.DEFAULT]
    keys = [s.key for s in reader.input_specs(fb.parse(source.float_model))]
    samples = random_samples(source.float_model)
    work.representative_dataset = lambda: (s if len(s) == 1 else dict(zip(keys, s, strict=True)) for s in samples)
    work.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    work.inference_input_type = work.inference_output_type = tf.dtypes.as_dtype(io)
    work._experimental_disable_per_channel = not per_channel
    return bytes(work.convert())


def litert_integer(content: bytes, samples: Sequence[Sequence[np.ndarray]] | None = None) -> bytes:
    """What litert-quantizer's static recipe makes of a float model."""
    import pytest

    quantizer = pytest.importorskip("litert_quantizer.quantizer")
    from litert_quantizer import recipe

    model = fb.parse(content)
    keys = [spec.key for spec in reader.input_specs(model)]
    work = quantizer.Quantizer(bytearray(content), recipe.static_wi8_ai8())
    fed = [dict(zip(keys, s, strict=True)) for s in (random_samples(content) if samples is None else samples)]
    found = work.calibrate({model.signatureDefs[0].signatureKey.decode(): fed})
    return bytes(work.quantize(found).quantized_model)
