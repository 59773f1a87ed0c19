"""Means over the channels of maps become means over those of rows, with the same bits at the outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import zoo
from zoo import tf

from autoselect.compilers.vela import VelaCompiler
from autoselect.domain.recipe import Recipe
from autoselect.quantize.preparing.normalise import normalise
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference


def shapes_of_means(content: bytes) -> list[tuple[int, ...]]:
    model = fb.parse(content)
    graph = model.subgraphs[0]
    return [fb.shape_of(graph.tensors[op.inputs[0]]) for op in graph.operators if fb.op_type(model, op) == "MEAN"]


def mean(*axes: int, keep: bool = True) -> Callable[[Any], Any]:
    return lambda x: tf().math.tanh(tf().reduce_mean(tf().nn.relu(x), axes, keepdims=keep))


def normalization(x: Any) -> Any:
    """A layer normalization over channels, as blocks of convolutions have it."""
    x = tf().nn.conv2d(x, zoo.weights(1, 1, 8, 8), 1, "SAME")
    centred = x - tf().reduce_mean(x, -1, keepdims=True)
    scaled = centred * tf().math.rsqrt(tf().reduce_mean(centred * centred, -1, keepdims=True) + 1e-3)
    return tf().nn.conv2d(scaled, zoo.weights(1, 1, 8, 8, seed=1), 1, "SAME")


ROWS = [
    pytest.param(mean(-1), (1, 6, 5, 8), [(1, 30, 8)], id="channels of a map"),
    pytest.param(mean(3, keep=False), (1, 6, 5, 8), [(1, 30, 8)], id="without their axis"),
    pytest.param(mean(-1), (1, 2, 3, 4, 8), [(1, 24, 8)], id="of windows"),
    pytest.param(mean(-1), (3, 6, 8), [(1, 18, 8)], id="of several rows"),
    pytest.param(normalization, (1, 6, 5, 8), [(1, 30, 8)] * 2, id="a layer normalization"),
]
KEPT = [
    pytest.param(mean(-1), (1, 6, 8), id="of a row"),
    pytest.param(mean(-1), (1, 1, 6, 8), id="of a map of one line"),
    pytest.param(mean(1, 2), (1, 6, 5, 8), id="of height and width"),
    pytest.param(mean(1, 3), (1, 6, 5, 8), id="of channels and lines"),
    pytest.param(mean(-1), (1, 6, 5, 1), id="of one channel"),
]


@pytest.mark.parametrize(("call", "shape", "expected"), ROWS)
def test_a_mean_over_channels_of_a_map_is_that_of_a_row(
    call: Callable[[Any], Any], shape: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    content = zoo.from_function(call, shape).float_model
    found = normalise(content)
    assert shapes_of_means(found.content) == expected
    assert shapes_of_means(normalise(content, exact_rewrites=False).content) == shapes_of_means(content)
    samples = [dict(zip(["x0"], sample, strict=True)) for sample in zoo.random_samples(content, 4)]
    for delegates in (False, True):
        assert difference(content, found.content, samples, delegates=delegates) == 0.0
    assert shapes_of_means(normalise(found.content).content) == expected


@pytest.mark.parametrize(("call", "shape"), KEPT)
def test_other_means_stay(call: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    content = zoo.from_function(call, shape).float_model
    assert shapes_of_means(normalise(content).content) == shapes_of_means(content)


@pytest.mark.parametrize("int16", [False, True], ids=["8 bits", "16 bits"])
def test_in_integers_the_bits_are_the_same(int16: bool) -> None:
    content = zoo.from_function(normalization, (1, 6, 5, 8)).float_model
    ways = (normalise, partial(normalise, exact_rewrites=False))
    contents = []
    for way in ways:
        prepared = zoo.prepare(content, normalised_by=way)
        nodes = frozenset(node.name for node in prepared.nodes) if int16 else frozenset()
        contents.append(prepared.builder.build(Recipe(int16_nodes=nodes)).content)
    assert shapes_of_means(contents[0]) != shapes_of_means(contents[1])
    samples = [dict(zip(["x0"], sample, strict=True)) for sample in zoo.random_samples(content, 4, seed=1)]
    assert difference(contents[1], contents[0], samples, delegates=False) == 0.0


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_vela_leaves_no_mean_to_the_cpu(name: str) -> None:
    pytest.importorskip("ethosu")
    content, chip = zoo.from_function(normalization, (1, 6, 5, 8)).float_model, read_target(name)
    built = [
        zoo.prepare(content, normalised_by=way).builder.build(Recipe(io_type="int8")).content
        for way in (normalise, partial(normalise, exact_rewrites=False))
    ]
    found, before = (VelaCompiler(chip).compile(one, timeout_seconds=120.0) for one in built)
    assert (found.segments, found.host_ops) == (1, {})
    assert before.host_ops == {"MEAN": 2}
    assert found.cost < before.cost
