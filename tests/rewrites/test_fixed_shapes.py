"""What constants and fixed shapes tell is a constant, and nothing else is; outputs keep their bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.quantize.preparing.normalise import as_it_is, normalise
from autoselect.rewrites import names
from autoselect.rewrites.fixed_shapes import MOST_ELEMENTS, fold
from autoselect.sources.shapes import settled_shapes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.comparing import difference


def free_batch(call: Callable[..., Any], *shape: int) -> bytes:
    """A function of one input, converted with a free batch."""
    return zoo.from_function(call, (None, *shape)).float_model


def fixed_batch(call: Callable[..., Any], *shape: int) -> bytes:
    """The same, whose batch was fixed to 1 afterwards, as a source is made ready. Its shape arithmetic is there."""
    return settled_shapes(fb.parse(free_batch(call, *shape)))


def op_types(content: bytes) -> Counter[str]:
    model = fb.parse(content)
    return Counter(fb.op_type(model, op) for op in model.subgraphs[0].operators)


def samples(content: bytes) -> list[dict[str, np.ndarray]]:
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    return [dict(zip(keys, sample, strict=True)) for sample in zoo.random_samples(content)]


def flattened(x: Any) -> Any:
    return tf().reshape(tf().tanh(x), (tf().shape(x)[0], -1))


def flattened_by_product(x: Any) -> Any:
    sizes = tf().shape(x)
    return tf().reshape(tf().tanh(x), tf().stack([tf().reduce_prod(sizes[:2]), sizes[2]]))


def widened(x: Any) -> Any:
    return tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 4, 8), tf().stack([tf().shape(x)[0], 8, 8, 4]), 2)


def filled(x: Any) -> Any:
    return tf().tanh(x) * tf().fill(tf().stack([tf().shape(x)[0], 8]), 2.0)


def counted(x: Any) -> Any:
    return tf().tanh(x) + tf().cast(tf().range(8 * tf().shape(x)[0]), tf().float32)


def measured(x: Any) -> Any:
    return tf().tanh(x) * tf().cast(tf().size(tf().sin(x)), tf().float32)


FOLDED = [
    pytest.param(flattened, (4, 8), {"TANH": 1, "RESHAPE": 1}, id="the batch, of a flattened image"),
    pytest.param(flattened_by_product, (4, 8), {"TANH": 1, "RESHAPE": 1}, id="a product of sizes"),
    pytest.param(widened, (4, 4, 8), {"TRANSPOSE_CONV": 1}, id="the shape that an op writes"),
    pytest.param(filled, (8,), {"TANH": 1, "MUL": 1}, id="real numbers, as many as a size says"),
    pytest.param(counted, (8,), {"TANH": 1, "ADD": 1}, id="positions, in real numbers"),
    pytest.param(measured, (8,), {"TANH": 1, "MUL": 1}, id="the size of what nobody else reads"),
]


@pytest.mark.parametrize(("call", "shape", "left"), FOLDED)
def test_what_shapes_tell_is_folded(call: Callable[..., Any], shape: tuple[int, ...], left: dict[str, int]) -> None:
    content = fixed_batch(call, *shape)
    assert op_types(content).total() > sum(left.values())
    found, plain = normalise(content), normalise(content, exact_rewrites=False)
    for one in (found.content, as_it_is(content, exact_rewrites=True).content):
        assert op_types(one) == left
        assert difference(content, one, samples(content), delegates=False) == 0.0
        assert reader.output_specs(fb.parse(one)) == reader.output_specs(fb.parse(content))
    assert set(found.node_names) <= set(plain.node_names)
    assert {*found.node_names, *found.folded} == set(names.canonicalise(fb.parse(content)).nodes)
    assert not set(found.node_names) & set(found.folded)


@pytest.mark.parametrize(("call", "shape", "left"), FOLDED)
def test_what_is_folded_once_stays_as_it_is(
    call: Callable[..., Any], shape: tuple[int, ...], left: dict[str, int]
) -> None:
    once = normalise(fixed_batch(call, *shape))
    assert normalise(once.content).folded == ()
    assert as_it_is(once.content, exact_rewrites=True).content == once.content
    assert op_types(normalise(once.content).content) == left


def shown(x: Any) -> Any:
    return {"y": tf().tanh(x), "size": tf().shape(x)}


def drawn(x: Any) -> Any:
    return x + tf().random.uniform((1, 8))


def chosen(x: Any) -> Any:
    return tf().tanh(x) * tf().cast(tf().shape(tf().where(x > 0.0))[0], tf().float32)


def large(x: Any) -> Any:
    return tf().tanh(x) + tf().reduce_max(tf().fill(tf().stack([tf().shape(x)[0], 2 * MOST_ELEMENTS]), 2.0) + x[0, 0])


LEFT = [
    pytest.param(flattened, (4, 8), True, {"SHAPE", "STRIDED_SLICE", "PACK"}, id="sizes of a free batch"),
    pytest.param(shown, (8,), False, {"SHAPE"}, id="a size that the model gives out"),
    pytest.param(drawn, (8,), False, {"RANDOM_UNIFORM"}, id="numbers that are drawn"),
    pytest.param(large, (8,), False, {"FILL"}, id="more numbers than a file should hold"),
]


@pytest.mark.parametrize(("call", "shape", "free", "left"), LEFT)
def test_what_differs_or_is_wanted_or_is_large_is_left(
    call: Callable[..., Any], shape: tuple[int, ...], free: bool, left: set[str]
) -> None:
    content = free_batch(call, *shape) if free else fixed_batch(call, *shape)
    assert left <= set(op_types(content))
    assert left <= set(op_types(as_it_is(content, exact_rewrites=True).content))
    assert not free or as_it_is(content, exact_rewrites=True).content == content


def test_the_size_of_what_is_chosen_as_the_model_runs_is_left() -> None:
    content = zoo.from_function(chosen, (1, 8)).float_model
    assert {"WHERE", "SHAPE"} <= set(op_types(as_it_is(content, exact_rewrites=True).content))
    assert normalise(content).folded == normalise(content, exact_rewrites=False).folded


def test_it_says_where_the_ops_that_are_left_were() -> None:
    model = fb.parse(fixed_batch(flattened, 4, 8))
    before = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    places = fold(model)
    assert places == [place for place, op_type in enumerate(before) if op_type in ("TANH", "RESHAPE")]
    assert [fb.op_type(model, op) for op in model.subgraphs[0].operators] == [before[place] for place in places]


def test_a_model_without_shape_arithmetic_keeps_its_bytes() -> None:
    content = zoo.cnn().float_model
    assert as_it_is(content, exact_rewrites=True).content == content
    assert normalise(content) == normalise(content, exact_rewrites=False)
    assert as_it_is(content, exact_rewrites=True) == as_it_is(content)


def test_candidates_have_no_op_beside_their_nodes() -> None:
    def call(x: Any) -> Any:
        rows = tf().nn.relu(tf().nn.conv2d(x, zoo.weights(3, 3, 3, 8), 2, "SAME") + zoo.weights(8))
        return tf().matmul(tf().reshape(rows, (tf().shape(rows)[0], 128)), zoo.weights(128, 4))

    prepared = zoo.prepare(fixed_batch(call, 8, 8, 3))
    assert [node.op_type for node in prepared.nodes] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]
    for recipe in (Recipe(), Recipe(int16_nodes=frozenset({"*"}))):
        built = prepared.builder.build(recipe)
        assert not any(op.kind is OpKind.FLOAT for op in built.graph.ops)
        assert {"STRIDED_SLICE", "PACK"}.isdisjoint(op.op_type for op in built.graph.ops)
