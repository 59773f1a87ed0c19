"""Integer models that another quantizer made, as what candidates take their integer ops from."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from reviewing import Reviewed

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError
from autoselect.quantize.building import proof
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.parts import find_nodes
from autoselect.quantize.building.wholes import Wholes, make_wholes
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import adoption, alignment, normalise
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites import names
from autoselect.sources.integer_files import settled
from autoselect.sources.keras_models import from_keras
from autoselect.sources.tflite_files import from_bytes
from autoselect.sources.wishes import NO_WISHES
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

tensorflow = zoo.tensorflow_integer


def litert(source: zoo.Source) -> bytes:
    return zoo.litert_integer(source.float_model)


def unnamed(content: bytes) -> bytes:
    """The same without the name of any tensor, and without signatures."""
    model = fb.parse(content)
    for number, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.name = f"t{number}".encode()
    model.signatureDefs = None
    return fb.serialise(model)


def swapped(content: bytes) -> bytes:
    """The same with inputs and outputs in the opposite order."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    graph.inputs, graph.outputs = graph.inputs[::-1].copy(), graph.outputs[::-1].copy()
    return fb.serialise(model)


def with_outputs_swapped(content: bytes) -> bytes:
    """The same with outputs in the opposite order."""
    model = fb.parse(content)
    model.subgraphs[0].outputs = model.subgraphs[0].outputs[::-1].copy()
    return fb.serialise(model)


@functools.cache
def heads() -> zoo.Source:
    """Two layers of different sizes on one input, each an output."""
    import tensorflow as tf

    first, second = zoo.weights(6, 4), zoo.weights(6, 3, seed=1)
    return zoo.from_function(lambda x: {"a": tf.matmul(x, first), "b": tf.nn.tanh(tf.matmul(x, second))}, (1, 6))


@functools.cache
def branches() -> zoo.Source:
    """Three matrices of one shape on one input, as a transformer's query, key and value, and a residual sum."""
    import tensorflow as tf

    query, key, value = (zoo.weights(12, 12, seed=seed) for seed in range(3))

    def call(x: Any) -> Any:
        q, k, v = (tf.matmul(x, matrix) for matrix in (query, key, value))
        scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True))
        return tf.nn.relu(tf.matmul(scores, v)) + x

    return zoo.from_function(call, (6, 12))


@functools.cache
def flattened() -> zoo.Source:
    """Layers between which the converter leaves RESHAPEs, one of which the quantizer merges into a layer."""
    import tensorflow as tf

    matrix, second = zoo.weights(16, 16), zoo.weights(32, 4, seed=1)

    def call(x: Any) -> Any:
        x = tf.reshape(tf.nn.relu(tf.matmul(tf.reshape(x, (2, 16)), matrix)), (1, 32))
        return tf.reshape(tf.matmul(x, second), (1, 1, 4))

    return zoo.from_function(call, (1, 2, 4, 4))


@functools.cache
def joined() -> zoo.Source:
    """Branches of different ranges, concatenated with the input: their scales are brought together there."""
    import tensorflow as tf

    first, second = zoo.weights(3, 3, 2, 4), zoo.weights(1, 1, 10, 4, seed=1)

    def call(x: Any) -> Any:
        y = tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME"))
        y = tf.concat([y, tf.nn.sigmoid(y), x], -1)
        return tf.reduce_mean(tf.nn.conv2d(y, second, 1, "SAME"), [1, 2])

    return zoo.from_function(call, (1, 6, 6, 2))


@functools.cache
def fused() -> zoo.Source:
    """A convolution that pads, one that a PAD of the same shape stands before, and a mean that keeps its axes."""
    import tensorflow as tf

    first, second, third = zoo.weights(3, 3, 2, 2), zoo.weights(3, 3, 2, 4, seed=1), zoo.weights(1, 1, 4, 3, seed=2)

    def call(x: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME"))
        x = tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), second, 2, "VALID")
        return tf.nn.conv2d(tf.reduce_mean(tf.nn.relu(x), [1, 2], keepdims=True), third, 1, "SAME")

    return zoo.from_function(call, (1, 8, 8, 2))


def unfused(content: bytes) -> bytes:
    """As an older converter leaves it: with a PAD before the first convolution, and a mean before a RESHAPE."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    padded = next(op for op in graph.operators if fb.op_type(model, op) == "CONV_2D")
    mean = next(op for op in graph.operators if fb.op_type(model, op) == "MEAN")

    def between(tensor: int, op_type: str, values: list[Any], shape: tuple[int, ...]) -> tuple[fb.Operator, int]:
        """An op that reads a constant too; beside it the place of a new tensor like one of the model's."""
        constant, new = schema.TensorT(), copy.copy(graph.tensors[tensor])
        constant.name, constant.type = op_type.encode(), schema.TensorType.INT32
        constant.buffer = editing.add_buffer(model, np.array(values, np.int32))
        constant.shape = np.array(np.shape(values), np.int32)
        new.name, new.shape = f"{op_type}/new".encode(), np.array(shape, np.int32)
        graph.tensors += [constant, new]
        op = schema.OperatorT()
        op.opcodeIndex, op.outputs = editing.add_code(model, op_type), np.array([len(graph.tensors) - 1], np.int32)
        op.inputs = np.array([tensor, len(graph.tensors) - 2], np.int32)
        return op, len(graph.tensors) - 1

    pad, place = between(int(padded.inputs[0]), "PAD", [[0, 0], [1, 1], [1, 1], [0, 0]], (1, 10, 10, 2))
    padded.inputs = np.array([place, *padded.inputs[1:]], np.int32)
    padded.builtinOptions.padding = schema.Padding.VALID
    reshape, place = between(int(mean.outputs[0]), "RESHAPE", [1, 1, 1, 4], (1, 4))
    reshape.inputs, reshape.outputs = np.array([place, reshape.inputs[1]], np.int32), mean.outputs
    mean.outputs, mean.builtinOptions.keepDims = np.array([place], np.int32), False
    size, _ = between(place, "SHAPE", [], (2,))
    size.inputs, graph.tensors[-1].type = np.array([place], np.int32), schema.TensorType.INT32
    graph.tensors[-1].quantization = None
    rows = {id(padded): [pad, padded], id(mean): [mean, size, reshape]}
    graph.operators = [one for op in graph.operators for one in rows.get(id(op), [op])]
    return fb.serialise(model)


@functools.cache
def free_batch() -> zoo.Source:
    """A Keras model whose batch is free when it is quantized, under other names than the float model's."""
    import tensorflow as tf

    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 6), name="sequence"),
            layers.Dense(12, activation="relu"),
            layers.Conv1D(8, 3, padding="causal"),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    return _Free(model)


def pooled(*, trained: bool) -> zoo.Source:
    """A pool whose output has two scales in training, and after it an op whose output has none yet."""
    import tensorflow as tf

    kernel, factors = zoo.weights(3, 3, 2, 8), zoo.weights(8, seed=1)

    def rounded(x: Any, limit: float) -> Any:
        return tf.quantization.fake_quant_with_min_max_args(x, -limit, limit) if trained else x

    def call(x: Any) -> Any:
        y = rounded(tf.nn.conv2d(rounded(x, 3.0), rounded(kernel, 1.0), 1, "SAME"), 9.0)
        y = rounded(tf.nn.avg_pool2d(y, 2, 2, "VALID"), 6.0)
        return rounded(tf.reduce_mean(y * factors + 0.5, [1, 2]), 4.0)

    return zoo.from_function(call, (1, 8, 8, 2))


def trained(source: zoo.Source) -> bytes:
    """With quantization simulated, and with ranges of calibration where that has none."""
    return pooled(trained=True).fiq(zoo.random_samples(source.float_model))


class _Free(zoo.Source):
    def __init__(self, model: Any) -> None:
        super().__init__(None, model)

    def converter(self) -> Any:
        import tensorflow as tf

        return tf.lite.TFLiteConverter.from_keras_model(self.variables)

    @functools.cached_property
    def float_model(self) -> bytes:
        return from_bytes(from_keras(self.variables, NO_WISHES).content).content


def given(content: bytes, integer: bytes) -> tuple[CalibratedModel, Wholes]:
    normalised = normalise.normalise(content)
    model = fb.parse(normalised.content)
    key = names.canonicalise(model, normalised.node_names)
    taken = settled(adoption.ordered(TfliteFile(integer), model, key), model)
    calibrated = CalibratedModel(file=TfliteFile(model=model), names=key, integer=taken.content)
    return calibrated, make_wholes(RepairKit(calibrated), Recipe())


def rows() -> list[Any]:
    made: dict[str, tuple[Callable[[], zoo.Source], Callable[[zoo.Source], bytes]]] = {
        "TensorFlow, float inputs": (zoo.cnn, lambda s: s.fiq(zoo.random_samples(s.float_model))),
        "TensorFlow, int8 inputs": (zoo.cnn, tensorflow),
        "TensorFlow, uint8 inputs": (zoo.cnn, lambda s: tensorflow(s, "uint8")),
        "TensorFlow, one scale per tensor": (zoo.cnn, lambda s: tensorflow(s, per_channel=False)),
        "litert-quantizer": (zoo.cnn, litert),
        "no names": (zoo.cnn, lambda s: unnamed(tensorflow(s))),
        "several inputs and outputs": (zoo.two_inputs, tensorflow),
        "several inputs, in another order": (zoo.two_inputs, lambda s: swapped(tensorflow(s))),
        "outputs in another order, no names": (heads, lambda s: with_outputs_swapped(unnamed(tensorflow(s)))),
        "several inputs, litert-quantizer": (zoo.two_inputs, litert),
        "fused LSTM": (zoo.lstm, tensorflow),
        "fused LSTM that stays float": (zoo.lstm, litert),
        "one matrix for several layers": (zoo.shared_weights, lambda s: unnamed(tensorflow(s))),
        "layers of one shape side by side, no names": (branches, lambda s: unnamed(tensorflow(s))),
        "layers of one shape side by side, litert-quantizer": (branches, litert),
        "merged RESHAPE": (flattened, tensorflow),
        "RESHAPE that the other did not merge": (flattened, litert),
        "scales brought together": (joined, tensorflow),
        "scales brought together, uint8": (joined, lambda s: tensorflow(s, "uint8")),
        "scales brought together, litert-quantizer": (joined, litert),
        "Keras with a free batch": (free_batch, tensorflow),
        "of a converter that fuses less": (fused, lambda s: unfused(tensorflow(s))),
        "quantization-aware training": (functools.partial(pooled, trained=False), trained),
    }
    return [pytest.param(source, make, id=name) for name, (source, make) in made.items()]


@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors")  # litert-quantizer, when it calibrates
@pytest.mark.parametrize(("source", "make"), rows())
def test_candidates_are_stitched_of_a_given_integer_model(
    source: Callable[[], zoo.Source], make: Callable[[zoo.Source], bytes]
) -> None:
    """All float is the float model, all integer the given one, bit for bit; what is between has its exact size."""
    content = source().float_model
    integer = make(source())
    calibrated, wholes = given(content, integer)
    nodes = find_nodes(wholes)
    builder = Builder(calibrated, nodes)
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    samples = [dict(zip(keys, sample, strict=True)) for sample in zoo.random_samples(content, 2)]
    told = proof.remarks(
        builder,
        nodes,
        wholes,
        float_model=content,
        integer_model=calibrated.integer or b"",
        samples=samples,
        per_channel=True,
        is_given=True,
    )
    assert not [message for message in told if "for bit" in message or "cannot leave" in message]
    rng = np.random.default_rng(0)
    for io_type in ("float32", "int8", "uint8"):
        denied = [place for place in range(len(nodes)) if rng.random() < 0.5]
        left_out = frozenset(nodes[place].name for place in denied)
        for fallback in ("float", "drq"):
            recipe = Recipe(denylisted_nodes=left_out, fallback=fallback, io_type=io_type)  # type: ignore[arg-type]
            candidate = builder.build(recipe)
            assert len(candidate.content) == builder.blueprint(recipe).plan(denied, fallback).size_bytes
            assert {name for name, kind in candidate.kinds.items() if kind == "integer"}.isdisjoint(left_out)
            found = {str(spec.dtype) for spec in reader.input_specs(fb.parse(candidate.content))}
            assert found <= {io_type, "float32"}
            assert all(np.isfinite(value).all() for value in Runner(candidate.content)(samples[0]).values())


@pytest.mark.parametrize("source", [heads, zoo.two_inputs], ids=["other shapes", "equal shapes"])
def test_outputs_without_names_are_matched_by_what_computes_them(source: Callable[[], zoo.Source]) -> None:
    integer = unnamed(tensorflow(source()))
    model = fb.parse(source().float_model)
    key = names.canonicalise(model)
    assert adoption.ordered(TfliteFile(integer), model, key).content == integer
    found = adoption.ordered(TfliteFile(with_outputs_swapped(integer)), model, key).model
    assert list(found.subgraphs[0].outputs) == list(fb.parse(integer).subgraphs[0].outputs)


def test_integers_that_pass_through_float_on_their_way_to_integers_are_converted_at_once() -> None:
    """Converters write so what training and calibration gave different scales."""
    source = pooled(trained=False)
    integer = trained(source)
    calibrated, wholes = given(source.float_model, integer)
    candidate = Builder(calibrated, find_nodes(wholes)).build(Recipe())
    before, after = ([op.op_type for op in reader.read_graph(fb.parse(c)).ops] for c in (integer, candidate.content))
    assert before[3:6] == ["QUANTIZE", "DEQUANTIZE", "QUANTIZE"]
    assert after == [*before[:4], *before[5:]]


def test_layers_of_one_shape_are_told_apart_by_their_weights() -> None:
    """Without names nothing else tells the three matrices apart."""
    _, wholes = given(branches().float_model, unnamed(tensorflow(branches())))
    float_model, model = wholes.in_float.model, wholes.integer.model
    found = [
        alignment.similarity(
            model, model.subgraphs[0].operators[place], float_model, float_model.subgraphs[0].operators[index]
        )
        for index, place in wholes.integer.places.items()
    ]
    weighted = [value for value in found if value is not None]
    assert len(weighted) == 3
    assert min(weighted) > 0.99


def refusals() -> list[Any]:
    import tensorflow as tf

    def net(size: int, *, seed: int = 0, act: Any = None, inner: int = 8) -> zoo.Source:
        def call(x: Any) -> Any:
            x = tf.nn.conv2d(x, zoo.weights(3, 3, 2, inner, seed=seed), 1, "SAME")
            return tf.nn.conv2d((act or tf.nn.relu)(x), zoo.weights(3, 3, inner, 4, seed=seed + 1), 1, "SAME")

        return zoo.from_function(call, (1, size, size, 2))

    made = {
        "other weights": (net(6, seed=5), r"its weights are others.*cosine.*(median of 2 ops.*).*CONV_2D"),
        "other sizes": (net(8), r"input '.*' has the shape \(1, 8, 8, 2\), the float model's .*\(1, 6, 6, 2\)"),
        "other width": (net(6, inner=9), r"1 of its 2 ops match no float op: CONV_2D '.*' \(1, 6, 6, 9\)"),
        "other activation": (net(6, act=tf.nn.relu6), "match no float op: CONV_2D"),
        "another op": (net(6, act=tf.nn.tanh), "match no float op: .*TANH"),
        "other inputs": (zoo.two_inputs(), "has 3 inputs, the float model has 1"),
    }
    float_model = net(6).float_model
    return [pytest.param(float_model, tensorflow(other), words, id=name) for name, (other, words) in made.items()]


def test_an_integer_model_of_another_float_model_is_refused(reviewed: Reviewed, subtests: pytest.Subtests) -> None:
    for row in refusals():
        float_model, integer, words = row.values
        with subtests.test(row.id), pytest.raises(ModelError) as caught:
            given(float_model, integer)
        assert re.search(words, str(caught.value)), str(caught.value)
        reviewed("what to do with an integer model of another float model", str(caught.value).split(". ")[-1])
