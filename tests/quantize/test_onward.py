"""Means along a model are those of the whole model before each place, and no op runs twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.quantize.repairing import onward
from autoselect.quantize.repairing.onward import Onward
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader, wide_kernels
from autoselect.tflite.runner import Runner

WIDE = frozenset({"*"})


def branches() -> zoo.Prepared:
    """A value that is read again further on, the input among them, and a shape that is computed."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        a = tf.nn.relu(tf.nn.conv2d(x, zoo.weights(3, 3, 4, 4), 1, "SAME"))
        b = tf.nn.conv2d(a, zoo.weights(3, 3, 4, 4, seed=1), 1, "SAME") + x
        c = tf.nn.depthwise_conv2d(b + a, zoo.weights(3, 3, 4, 1, seed=2), [1, 1, 1, 1], "SAME")
        return tf.matmul(tf.reshape(c + x, (1, -1)), zoo.weights(256, 5, seed=3)), tf.nn.relu(b)

    return zoo.prepare(zoo.from_function(call, (1, 8, 8, 4)).float_model, None)


def places(model: fb.Model) -> list[tuple[int, int]]:
    """Each op that reads a computed value, with that value, in order."""
    graph = model.subgraphs[0]
    made = {i for op in graph.operators for i in fb.indices(op.outputs)}
    first = [(place, i) for place, op in enumerate(graph.operators) for i in fb.indices(op.inputs)[:1]]
    return [(place, i) for place, i in first if i in made]


def nearly(model: fb.Model, tensor: int, found: np.ndarray, expected: np.ndarray) -> bool:
    """To a step: LiteRT's own kernels and its delegate's round the middle of two steps differently."""
    step = (fb.scales(model.subgraphs[0].tensors[tensor]) or (0.0,))[0]
    return bool(np.abs(found - expected).max() <= step + 1e-5 * np.abs(expected).max())


def whole_mean(model: fb.Model, tensor: int, samples: list[dict[str, np.ndarray]]) -> np.ndarray:
    content = fb.serialise(model)
    runner, own = Runner(content, preserve_all_tensors=True), model.subgraphs[0].tensors[tensor]
    scale, zero = (np.float32(fb.scales(own)[0]), fb.zero_points_of(own)[0]) if fb.scales(own) else (1.0, 0)
    values = [(value.astype(np.float64) - zero) * scale for _, value in runner.watch(samples, [tensor])]
    return np.asarray(np.mean(values, axis=0))


@pytest.fixture
def ops_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ops each model that is loaded has."""
    found: list[int] = []

    def counting(content: bytes) -> Runner:
        found.append(len(fb.parse(content).subgraphs[0].operators))
        return Runner(content)

    monkeypatch.setattr(onward, "Runner", counting)
    return found


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(denylisted_ops=frozenset({"CONV_2D"})), Recipe(int16_nodes=WIDE)])
def test_means_are_those_of_the_whole_model_and_no_op_runs_twice(recipe: Recipe, ops_run: list[int]) -> None:
    prepared = branches()
    model = fb.parse(prepared.builder.build(recipe).content)
    walk = Onward(model, prepared.fed)
    for place, tensor in (asked := places(model)):
        assert nearly(model, tensor, walk.mean(place, tensor), whole_mean(model, tensor, prepared.fed()))
    assert sum(ops_run) <= asked[-1][0]


def test_shapes_are_those_of_the_run_whatever_the_file_says(ops_run: list[int]) -> None:
    prepared = branches()
    model = fb.parse(prepared.builder.build(Recipe()).content)
    asked, graph = places(model), model.subgraphs[0]
    expected = [whole_mean(model, tensor, prepared.fed()) for _, tensor in asked]
    for i in {i for op in graph.operators for i in fb.indices(op.outputs)}:
        graph.tensors[i].shape = np.ones_like(graph.tensors[i].shape)
    walk = Onward(model, prepared.fed)
    for (place, tensor), mean in zip(asked, expected, strict=True):
        assert nearly(model, tensor, walk.mean(place, tensor), mean)
    assert sum(ops_run) <= asked[-1][0]


@pytest.mark.parametrize("why", ["no room", "resources"])
def test_what_cannot_be_kept_is_computed_again(why: str, ops_run: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = branches()
    model = fb.parse(prepared.builder.build(Recipe()).content)
    asked = places(model)
    expected = [whole_mean(model, tensor, prepared.fed()) for _, tensor in asked]
    if why == "no room":
        monkeypatch.setattr(onward, "_ROOM", 1)
    else:
        handle = schema.TensorT()
        handle.name, handle.type, handle.shape = b"handle", schema.TensorType.RESOURCE, np.zeros(0, np.int32)
        model.subgraphs[0].tensors.append(handle)
    walk = Onward(model, prepared.fed)
    for (place, tensor), mean in zip(asked, expected, strict=True):
        assert nearly(model, tensor, walk.mean(place, tensor), mean)
    assert ops_run == [place if why == "no room" else len(model.subgraphs[0].operators) for place, _ in asked]


def test_means_of_a_model_with_a_state_are_those_of_its_steps() -> None:
    """Each op behind the variable reads what an op further back has assigned on the sample before."""
    prepared = zoo.prepare(zoo.remembering())
    model = fb.parse(prepared.builder.build(Recipe()).content)
    tensors = model.subgraphs[0].tensors
    walk, asked = Onward(model, prepared.fed), [(p, t) for p, t in places(model) if fb.scales(tensors[t])]
    assert len(asked) > 2
    for place, tensor in asked:
        assert nearly(model, tensor, walk.mean(place, tensor), whole_mean(model, tensor, prepared.fed()))


def test_slow_16_bit_convolutions_are_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_kernels, "WORTH_IT", 1)
    prepared = branches()
    model = fb.parse(prepared.builder.build(Recipe(int16_nodes=WIDE)).content)
    ran: list[Mapping[str, str]] = []

    def looked_at(content: bytes) -> Runner:
        graph = reader.read_graph(fb.parse(content))
        ran.extend({op.op_type: graph.tensors[op.inputs[0]].dtype} for op in graph.ops)
        return Runner(content)

    monkeypatch.setattr(onward, "Runner", looked_at)
    walk = Onward(model, prepared.fed)
    for place, tensor in places(model):
        assert nearly(model, tensor, walk.mean(place, tensor), whole_mean(model, tensor, prepared.fed()))
    assert {"CONV_2D": "float32"} in ran
    assert {"CONV_2D": "int16"} not in ran
