"""8-bit numbers that a model casts to float stay in integers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert.interpreter import Interpreter

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import IoType, Recipe
from autoselect.domain.targets import Precision, Rule
from autoselect.domain.verdicts import judge, pins
from autoselect.quantize.preparing.normalise import normalise
from autoselect.rewrites import casts
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

DTYPES = ("uint8", "int8")
SHAPE = (1, 8, 8, 3)
IN_FLOAT = Recipe(denylisted_nodes=frozenset({"*"}), fallback="float")


def numbers(dtype: str, count: int = 12, *, dark: bool = False) -> list[list[np.ndarray]]:
    """Pictures, all of which have few levels if they are dark."""
    ends, rng = np.iinfo(dtype), np.random.default_rng(0)
    high = ends.min + 40 if dark else ends.max + 1
    return [[rng.integers(ends.min, high, SHAPE).astype(dtype)] for _ in range(count)]


def layers(x: Any) -> Any:
    import tensorflow as tf

    kernel = tf.constant(0.2 * zoo.weights(3, 3, 3, 8))
    return tf.nn.relu(tf.nn.conv2d(x / 64.0 - 1.0, kernel, 1, "SAME"))


def cast(x: Any) -> Any:
    import tensorflow as tf

    return layers(tf.cast(x, tf.float32))


def cast_and_read_twice(x: Any) -> Any:
    import tensorflow as tf

    numbers = tf.cast(x, tf.float32)
    return layers(numbers) + 0.01 * tf.reduce_mean(numbers, keepdims=True)


def moved(move: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A model that moves the numbers before it casts them."""

    def call(x: Any) -> Any:
        import tensorflow as tf

        return layers(tf.cast(move(x), tf.float32))

    return call


def pieces(x: Any) -> Any:
    """As the first layer of a detector: four pictures of half the size, side by side."""
    import tensorflow as tf

    return tf.concat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)[..., :3]


def stacked(x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(tf.stack([x, tf.transpose(x, (0, 2, 1, 3))], 1), (2, 8, 8, 3))


def mirrored(x: Any) -> Any:
    import tensorflow as tf

    return tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")


def unstacked(x: Any) -> Any:
    import tensorflow as tf

    first, second, third = tf.unstack(x, axis=-1)
    return tf.stack([third, second, first], -1)


def with_a_constant(x: Any) -> Any:
    import tensorflow as tf

    return tf.concat([x[..., :2], tf.constant(7, x.dtype, SHAPE)[..., :1]], -1)


def framed(x: Any) -> Any:
    import tensorflow as tf

    return tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=7)


def padded_in_float(x: Any) -> Any:
    import tensorflow as tf

    return layers(tf.pad(tf.cast(x, tf.float32), [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=-100.0))


def turned(x: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(x, (0, 2, 1, 3))


def gathered(x: Any) -> Any:
    import tensorflow as tf

    return tf.gather(x, [2, 1, 0], axis=-1)


def without_the_last(x: Any) -> Any:
    import tensorflow as tf

    first, second, _ = tf.split(x, 3, -1)
    return tf.concat([second, first, second], -1)


MOVES = [without_the_last, turned, pieces, stacked, mirrored, unstacked, with_a_constant, gathered]
CALLS = [*itertools.product([cast, cast_and_read_twice, *map(moved, MOVES)], DTYPES), (moved(framed), "uint8")]
"""TensorFlow has the last one for ``uint8`` alone."""


def also_read_as_bytes(x: Any) -> Any:
    import tensorflow as tf

    return layers(tf.cast(x, tf.float32)), tf.cast(x, tf.int32)


def also_given_out(x: Any) -> Any:
    import tensorflow as tf

    numbers = tf.cast(x, tf.float32)
    return {"picture": numbers, "found": layers(numbers)}


@functools.cache
def casting(call: Callable[[Any], Any], dtype: str = "uint8", *, dark: bool = False) -> zoo.Prepared:
    """A model of 8-bit numbers, calibrated on such pictures."""
    import tensorflow as tf

    spec = tf.TensorSpec(SHAPE, dtype, name="x0")
    content = zoo.Source(tf.function(call, autograph=False).get_concrete_function(spec), ()).float_model
    return zoo.prepare(content, numbers(dtype, dark=dark))


def kinds(prepared: zoo.Prepared, recipe: Recipe) -> set[OpKind]:
    return {op.kind for op in prepared.builder.build(recipe).graph.ops} - {OpKind.NEUTRAL}


def outputs(content: bytes, samples: list[list[np.ndarray]]) -> list[np.ndarray]:
    return [outputs_of(content, x)[0] for [x] in samples]


def outputs_of(content: bytes, x: np.ndarray) -> list[np.ndarray]:
    return list(Runner(content)({"x0": x}).values())


@pytest.mark.parametrize(("call", "dtype"), CALLS)
def test_all_ops_are_integer(call: Callable[[Any], Any], dtype: str) -> None:
    prepared = casting(call, dtype)
    ours, wide = Recipe(io_type="int8"), Recipe(io_type="int8", int16_nodes=frozenset({"*"}))
    assert kinds(prepared, ours) == {OpKind.INTEGER}
    assert kinds(prepared, wide) == {OpKind.INTEGER, OpKind.INT16}
    samples = numbers(dtype)
    expected = outputs(prepared.builder.build(IN_FLOAT).content, samples)
    for recipe, decibels in ((ours, 30.0), (wide, 40.0)):
        found = outputs(prepared.builder.build(recipe).content, samples)
        noise = np.square(np.subtract(found, expected)).mean() / np.square(expected).mean()
        assert -10.0 * np.log10(noise) > decibels


@pytest.mark.parametrize(("call", "dtype"), CALLS)
def test_no_number_is_rounded_whatever_the_samples_had(call: Callable[[Any], Any], dtype: str) -> None:
    for is_dark in (True, False):
        model = fb.parse(casting(call, dtype, dark=is_dark).builder.build(Recipe()).content)
        graph = model.subgraphs[0]
        first, *others = graph.operators
        assert fb.op_type(model, first) == "QUANTIZE"
        moving = [op for op in others if fb.op_type(model, op) in casts.MOVING]
        ends = [graph.tensors[i] for op in (first, *moving) for i in op.outputs]
        assert {fb.scales(tensor) for tensor in (graph.tensors[first.inputs[0]], *ends)} == {(1.0,)}


@pytest.mark.parametrize(("call", "dtype"), CALLS)
def test_what_is_denylisted_casts_to_float(call: Callable[[Any], Any], dtype: str) -> None:
    prepared = casting(call, dtype)
    built = prepared.builder.build(IN_FLOAT)
    assert {op.op_type for op in built.graph.ops if op.kind is OpKind.FLOAT} >= {"CAST", "CONV_2D"}
    float_model = prepared.calibrated.content
    for ours, source in zip(*(outputs(c, numbers(dtype)) for c in (built.content, float_model)), strict=True):
        np.testing.assert_array_equal(ours, source)


@pytest.mark.parametrize("in_float", [False, True])
@pytest.mark.parametrize(("call", "dtype"), [pair for pair in CALLS if pair[1] == "uint8"])
def test_tflite_micro_runs_all_but_a_float_cast(call: Callable[[Any], Any], dtype: str, *, in_float: bool) -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    prepared = casting(call, dtype)
    others = frozenset(node.name for node in prepared.nodes if in_float and node.op_type != "CAST")
    built = prepared.builder.build(Recipe(denylisted_nodes=others, fallback="float", io_type="int8")).content
    theirs, ours = runtime.Interpreter.from_bytes(built, arena_size=1 << 20), Interpreter(model_content=built)
    ours.allocate_tensors()
    for [x] in numbers(dtype):
        theirs.set_input(x, 0)
        theirs.invoke()
        ours.set_tensor(ours.get_input_details()[0]["index"], x)
        ours.invoke()
        found = ours.get_tensor(ours.get_output_details()[0]["index"])
        np.testing.assert_allclose(theirs.get_output(0).astype(float), found.astype(float), rtol=1e-4, atol=2)
        assert found.std() > 0.3


def test_no_number_is_cut_off_in_16_bits_whatever_the_samples_had() -> None:
    wide = casting(cast, dark=True).builder.build(Recipe(int16_nodes=frozenset({"*"})))
    model = fb.parse(wide.content)
    written = [model.subgraphs[0].tensors[op.outputs[0]] for op in model.subgraphs[0].operators[:2]]
    assert [fb.TENSOR_DTYPES[tensor.type] for tensor in written] == ["int8", "int16"]
    assert fb.scales(written[1])[0] * np.iinfo(np.int16).max > 254.0


def test_a_constant_beside_the_numbers_is_not_cut_off() -> None:
    prepared = casting(padded_in_float)
    built, source = (prepared.builder.build(recipe).content for recipe in (Recipe(), IN_FLOAT))
    for ours, floats in zip(*(outputs(content, numbers("uint8")) for content in (built, source)), strict=True):
        assert np.abs(ours - floats).max() < 0.03 * np.abs(floats).max()


@pytest.mark.parametrize("call", [cast_and_read_twice, moved(turned)])
def test_of_two_equal_casts_one_stays(call: Callable[[Any], Any]) -> None:
    """TensorFlow's converter writes one, others may write two."""
    import tensorflow as tf

    spec = tf.TensorSpec(SHAPE, "uint8", name="x0")
    source = zoo.Source(tf.function(call, autograph=False).get_concrete_function(spec), ()).float_model
    model = fb.parse(source)
    graph = model.subgraphs[0]
    place, first = next((i, op) for i, op in enumerate(graph.operators) if fb.op_type(model, op) == "CAST")
    graph.tensors.append(copy(graph.tensors[first.outputs[0]]))
    graph.tensors[-1].name = b"second"
    second = copy(first)
    second.outputs = [len(graph.tensors) - 1]
    last = [op for op in graph.operators if first.outputs[0] in op.inputs][-1]
    last.inputs = [second.outputs[0] if i == first.outputs[0] else i for i in last.inputs]
    graph.operators.insert(place + 1, second)
    prepared = zoo.prepare(fb.serialise(model), numbers("uint8"))
    assert kinds(prepared, Recipe(io_type="int8")) == {OpKind.INTEGER}
    assert "second" in normalise(fb.serialise(model)).folded


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("io_type", ["float32", "int8", "uint8"])
def test_a_caller_gives_the_numbers_as_before(io_type: IoType, dtype: str) -> None:
    interface = reader.read_interface(casting(cast, dtype).builder.build(Recipe(io_type=io_type)).content)
    assert [str(spec.dtype) for spec in interface.inputs] == [dtype]


@pytest.mark.parametrize("call", [also_given_out, also_read_as_bytes])
def test_numbers_that_are_read_or_made_otherwise_are_cast(call: Callable[[Any], Any]) -> None:
    prepared = casting(call)
    assert "CAST" not in {node.op_type for node in prepared.nodes}
    built = prepared.builder.build(Recipe())
    assert [op.op_type for op in built.graph.ops if op.kind is OpKind.FLOAT] == ["CAST"]
    model = fb.parse(built.content)
    graph = model.subgraphs[0]
    assert not fb.scales(graph.tensors[graph.inputs[0]])
    ends = [graph.tensors[op.outputs[0]] for op in graph.operators if fb.op_type(model, op) == "QUANTIZE"]
    assert [fb.scales(tensor) for tensor in ends] == [(1.0,)]
    [[x]] = numbers("uint8", 1)
    pairs = zip(outputs_of(built.content, x), outputs_of(prepared.calibrated.content, x), strict=True)
    for ours, source in pairs:
        assert np.abs(ours - source).max() < 0.05 * np.abs(source).max()


def test_a_table_stays_in_8_bits() -> None:
    import tensorflow as tf

    table = tf.constant(np.arange(1000).reshape(100, 10) % 251, tf.uint8)
    call = tf.function(lambda x: layers(tf.reshape(tf.cast(tf.gather(table, x), tf.float32)[:, :9], (1, 3, 3, 3))))
    function = call.get_concrete_function(tf.TensorSpec((3,), tf.int32, name="x0"))
    source = zoo.Source(function, ()).float_model
    graph = reader.read_graph(fb.parse(normalise(source).content))
    (cast,) = (op for op in graph.ops if op.op_type == "CAST")
    assert graph.ops[graph.producers()[cast.inputs[0]]].op_type in ("GATHER", "STRIDED_SLICE", "SLICE")


def test_a_target_is_asked_for_what_stands_in_the_place_of_a_cast() -> None:
    prepared = casting(cast)
    rule = Rule(ops=frozenset({"CAST"}), precisions=frozenset({Precision.INT8}), by="runtime", why="no kernel")
    target = replace(read_target("edgetpu"), rules=(rule,))
    graph = reader.read_graph(prepared.calibrated.file.model)
    decided = pins(graph, [node.index for node in prepared.nodes], target, hybrid=True)
    assert not decided.keep_float
    assert judge(prepared.builder.build(Recipe(io_type="int8")).graph, target).left_ops == 0


@pytest.mark.real
def test_no_model_of_the_studies_casts_8_bit_numbers(real_data: Path) -> None:
    """So figures of theirs by the builder before this rewrite are of today."""
    paths = sorted(real_data.rglob("*.tflite"))
    assert paths
    for path in paths:
        model = fb.parse(path.read_bytes())
        tensors, ops = model.subgraphs[0].tensors, model.subgraphs[0].operators
        given = [fb.TENSOR_DTYPES[tensors[op.inputs[0]].type] for op in ops if fb.op_type(model, op) == "CAST"]
        assert set(given).isdisjoint(DTYPES), path
