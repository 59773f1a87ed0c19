"""A 16-bit RELU6 that clips nothing is a RELU, with the same bits; one that clips stays."""

from __future__ import annotations

from typing import Any

import forecasts
import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building import int16
from autoselect.quantize.building.wholes import int16_model, with_int16
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.comparing import difference

RELU, RELU6 = schema.ActivationFunctionType.RELU, schema.ActivationFunctionType.RELU6


def clipped(name: str, gain: float) -> zoo.Prepared:
    """One op of a type with a RELU6 behind it, whose inputs are so many times as large as it takes to clip a few."""

    def call(x: Any) -> Any:
        x = gain * x
        made = {
            "CONV_2D": lambda: tf().nn.conv2d(x, zoo.weights(3, 3, 4, 8), 1, "SAME"),
            "DEPTHWISE_CONV_2D": lambda: tf().nn.depthwise_conv2d(x, zoo.weights(3, 3, 4, 1), [1, 1, 1, 1], "SAME"),
            "FULLY_CONNECTED": lambda: tf().matmul(tf().reshape(x, (36, 4)), zoo.weights(4, 8)),
            "ADD": lambda: x + tf().tanh(x),
            "SUB": lambda: x - tf().tanh(x),
            "MUL": lambda: x * tf().tanh(x),
            "RELU6": lambda: tf().tanh(x) if gain < 1.0 else tf().reshape(x, (36, 4)),
        }
        return tf().nn.relu6(made[name]())

    return zoo.from_function(call, (1, 6, 6, 4)).prepared


def relu6s(model: fb.Model) -> int:
    return sum(_is_fused(op) or fb.op_type(model, op) == "RELU6" for op in model.subgraphs[0].operators)


def loud(prepared: zoo.Prepared) -> list[dict[str, np.ndarray]]:
    """The calibration samples, and ones that reach further than what calibration saw."""
    return [{key: times * value for key, value in fed.items()} for fed in prepared.fed() for times in (1.0, 3.0, -3.0)]


@pytest.mark.parametrize("gain", [0.3, 60.0], ids=["below 6", "beyond 6"])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "RELU6"])
def test_a_16_bit_relu6_of_calibrated_range_is_a_relu_with_the_same_bits(name: str, gain: float) -> None:
    prepared = clipped(name, gain)
    before = int16_model(prepared.kit, Recipe()).content
    model = fb.parse(before)
    assert relu6s(model) == 1
    int16.unclip(model)
    assert relu6s(model) == 0
    after = fb.serialise(model)
    assert len(reader.read_graph(fb.parse(after)).ops) == len(model.subgraphs[0].operators)
    assert difference(before, after, loud(prepared), delegates=False) == 0.0
    assert difference(before, after, loud(prepared)) == 0.0


SCALES = [
    pytest.param(6.0 / 32767.0, True, id="the largest integer is 6"),
    pytest.param(6.0 / 32766.6, True, id="it is a little more, and 6 rounds to it"),
    pytest.param(6.0 / 32766.4, False, id="6 is the one below"),
    pytest.param(6.0 / 1000.0, False, id="much beyond 6"),
    pytest.param(1.0 / 32767.0, True, id="1"),
]


@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "ADD", "RELU6"])
@pytest.mark.parametrize(("scale", "gone"), SCALES)
def test_only_the_scale_tells_whether_it_clips(name: str, scale: float, gone: bool) -> None:
    prepared = clipped(name, 60.0)
    model = int16_model(prepared.kit, Recipe()).taken()
    graph = model.subgraphs[0]
    [op] = [op for op in graph.operators if _is_fused(op) or fb.op_type(model, op) == "RELU6"]
    fb.parameters(graph.tensors[op.outputs[0]]).scale = np.array([scale], np.float32)
    before = fb.serialise(model)
    int16.unclip(model)
    assert (relu6s(model) == 0) is gone
    assert difference(before, fb.serialise(model), loud(prepared), delegates=False) == 0.0
    if not gone:  # It does clip there.
        _force(model)
        assert difference(before, fb.serialise(model), loud(prepared), delegates=False) > 0.0


def _is_fused(op: fb.Operator) -> bool:
    return getattr(op.builtinOptions, "fusedActivationFunction", None) == RELU6


def _force(model: fb.Model) -> None:
    for op in model.subgraphs[0].operators:
        if _is_fused(op):
            op.builtinOptions.fusedActivationFunction = RELU
    for code in model.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.RELU6:
            code.builtinCode = schema.BuiltinOperator.RELU


def test_other_types_than_16_bit_integers_keep_it() -> None:
    prepared = clipped("CONV_2D", 60.0)
    for content in (prepared.calibrated.content, prepared.builder.build(Recipe()).content):
        model = fb.parse(content)
        before = relu6s(model)
        int16.unclip(model)
        assert relu6s(model) == before == 1


def several(x: Any) -> Any:
    """Alone and fused, in 16 bits beside other forms, and a RELU that was one before."""
    a = tf().nn.relu6(tf().nn.conv2d(30.0 * x, zoo.weights(3, 3, 4, 8), 1, "SAME"))
    b = tf().nn.relu6(tf().nn.depthwise_conv2d(a, zoo.weights(3, 3, 8, 1), [1, 1, 1, 1], "SAME"))
    c = tf().nn.relu(tf().reshape(b, (36, 8)) - 0.5)
    return tf().matmul(tf().nn.relu6(tf().sigmoid(c)), zoo.weights(8, 4)) + tf().nn.relu6(tf().tanh(c))[:, :4]


def test_candidates_with_the_rewrite_are_forecast_and_have_the_bits_of_those_without() -> None:
    prepared = zoo.from_function(several, (1, 6, 6, 4)).prepared
    whole, plain = (with_int16(prepared.kit, Recipe(), exact_rewrites=exact).int16 for exact in (True, False))
    assert whole is not None
    assert plain is not None
    assert relu6s(whole.model) == 0 < relu6s(plain.model)
    built = prepared.builder.build(Recipe(int16_nodes=frozenset({"*"})))
    assert relu6s(fb.parse(built.content)) == 0
    reference = int16_model(prepared.kit, Recipe()).content
    assert difference(reference, built.content, loud(prepared), delegates=False) == 0.0
    versions = {fb.OP_TYPES[code.builtinCode]: code.version for code in fb.parse(built.content).operatorCodes}
    assert versions["RELU"] == 3
    assert "RELU6" not in versions


def test_forecasts_of_such_candidates_are_exact() -> None:
    prepared = zoo.from_function(several, (1, 6, 6, 4)).prepared
    forecast = forecasts.forecaster(prepared, Recipe(), int16=True)
    for number, wide in enumerate(forecasts.drawn(prepared.nodes, 8, seed=0)):
        others = [
            node.name for place, node in enumerate(prepared.nodes) if node not in wide and place % 3 == number % 3
        ]
        recipe = Recipe(
            int16_nodes=frozenset(forecasts.escaped(node.name) for node in wide),
            denylisted_nodes=frozenset(map(forecasts.escaped, others)),
            fallback="float",
        )
        assert forecast(recipe) == forecasts.built(prepared.builder.build(recipe))
