"""Weights of fewer levels: how many there are, what they are worth, and how they go with all else that is repaired."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import acting
from autoselect.errors import RecipeError
from autoselect.quantize.building.build import Candidate
from autoselect.quantize.repairing.fewer_levels import top_of
from autoselect.quantize.repairing.weighted_ops import dequantized, quantized_ops
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

BITS = (4, 5, 6, 7)


@functools.cache
def layers() -> zoo.Prepared:
    """A layer of each type with weights."""
    depthwise, last = zoo.weights(3, 3, 8, 2, seed=1), zoo.weights(3, 3, 8, 12, seed=3)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, zoo.weights(3, 3, 4, 8), 2, "SAME") + zoo.weights(8))
        b = tf().nn.relu(tf().nn.depthwise_conv2d(a, depthwise, [1, 1, 1, 1], "SAME") + 1.0)
        c = tf().nn.relu(tf().nn.conv2d(b, zoo.weights(1, 1, 16, 12, seed=2), 1, "VALID"))
        d = tf().nn.relu(tf().nn.conv2d_transpose(c, last, (1, 8, 8, 8), 2))
        return tf().matmul(tf().reshape(d, (1, -1)), zoo.weights(512, 5, seed=4)) + zoo.weights(5, seed=5)

    content = zoo.from_function(call, (1, 8, 8, 4)).float_model
    return zoo.prepare(content, zoo.random_samples(content, 30))


def levels_of(built: Candidate, node: str) -> np.ndarray:
    """The levels of the weights of a node as they are stored."""
    prepared, model = layers(), fb.parse(built.content)
    index = next(n.index for n in prepared.nodes if n.name == node)
    op = model.subgraphs[0].operators[built.places[index]]
    return np.asarray(fb.constant_values(model, model.subgraphs[0].tensors[op.inputs[1]]))


def weighted() -> list[str]:
    prepared = layers()
    model, float_model = fb.parse(prepared.builder.build(Recipe()).content), fb.parse(prepared.calibrated.content)
    found = {index for index, _ in quantized_ops(model, float_model, prepared.builder.build(Recipe()).places)}
    return [node.name for node in prepared.nodes if node.index in found]


def error(recipe: Recipe) -> float:
    """Mean squared distance of the outputs from float's, over their mean square."""
    prepared = layers()
    built, exact = Runner(prepared.builder.build(recipe).content), Runner(prepared.calibrated.content)
    pairs = [(next(iter(built(s).values())).copy(), next(iter(exact(s).values())).copy()) for s in prepared.fed()]
    noise = sum(float(np.sum((ours - theirs) ** 2)) for ours, theirs in pairs)
    return noise / sum(float(np.sum(theirs**2)) for _, theirs in pairs)


@pytest.mark.parametrize("width", ["8 bits", "16 bits", "hybrid"])
@pytest.mark.parametrize("bits", BITS)
def test_each_node_has_at_most_so_many_levels(bits: int, width: str) -> None:
    names = frozenset(weighted())
    recipes = {
        "8 bits": Recipe(),
        "16 bits": Recipe(int16_nodes=names),
        "hybrid": Recipe(denylisted_nodes=names),
    }
    built = layers().builder.build(replace(recipes[width], repairs=(f"levels-{bits}",)))
    plain = layers().builder.build(recipes[width])
    assert (built.kinds, len(built.content)) == (plain.kinds, len(plain.content))
    counts = dict[str, tuple[int, int]]()
    for name in names:
        if built.kinds[name] == "float":  # There is no hybrid kernel for it.
            continue
        assert not built.skipped[name].get(f"levels-{bits}"), name
        counts[name] = len(np.unique(levels_of(built, name))), len(np.unique(levels_of(plain, name)))
    assert counts
    assert all(fewer < 2**bits for fewer, _ in counts.values())
    assert sum(fewer for fewer, _ in counts.values()) < 0.9 * sum(before for _, before in counts.values())


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_fewer_the_levels_the_larger_the_error(per_channel: bool) -> None:
    errors = [error(Recipe(repairs=(f"levels-{bits}",), per_channel=per_channel)) for bits in BITS]
    assert errors == sorted(errors, reverse=True)
    # An error of rounding falls by four for each bit; 8 bits of activations set a floor.
    assert 2.0 < errors[0] / errors[1] < 8.0
    assert errors[-1] < 4.0 * error(Recipe(per_channel=per_channel))


def test_one_node_may_have_fewer_levels_and_counts_instead_of_the_whole_model() -> None:
    first, second, *others = weighted()
    built = layers().builder.build(Recipe(repairs=("levels-7", f"levels-4:{first}", f"levels-5:{second}")))
    counts = {name: len(np.unique(levels_of(built, name))) for name in (first, second, *others)}
    assert counts[first] <= 15
    assert 15 < counts[second] <= 31
    assert all(31 < counts[name] <= 127 for name in others[1:])
    plain, alone = (layers().builder.build(Recipe(repairs=r)) for r in ((), (f"levels-4:{first}",)))
    for name in (second, *others):
        assert np.array_equal(levels_of(plain, name), levels_of(alone, name))


def test_rounding_makes_up_for_errors_of_fewer_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of fewer levels are rounded by what their errors do together, whether the recipe says so or not."""
    both, alone = (layers().builder.build(Recipe(repairs=r)) for r in (("levels-5", "rounding-gptq"), ("levels-5",)))
    assert both.content == alone.content
    rounded = error(Recipe(repairs=("levels-5",)))
    monkeypatch.setattr("autoselect.quantize.repairing.weight_rounding.MOST_BYTES", 0)
    plain = zoo.prepare(layers().calibrated.content, zoo.random_samples(layers().calibrated.content, 30))
    built = plain.builder.build(Recipe(repairs=("levels-5",)))
    assert built.content != alone.content
    runner, exact = Runner(built.content), Runner(plain.calibrated.content)
    nearest = [
        float(np.sum((next(iter(runner(s).values())) - next(iter(exact(s).values()))) ** 2)) for s in plain.fed()
    ]
    scale = sum(float(np.sum(next(iter(exact(s).values())) ** 2)) for s in plain.fed())
    assert rounded < sum(nearest) / scale


@functools.cache
def loud_and_quiet(scale: float) -> zoo.Prepared:
    """A dense layer whose largest weights read inputs of this scale, and whose other weights read inputs of 1."""
    weights = zoo.weights(64, 24, seed=7) * np.where(np.arange(64) < 4, 6.0, 1.0)[:, None].astype(np.float32)

    def call(x: Any) -> Any:
        return tf().nn.tanh(tf().matmul(x + 0.1, weights) * 0.1)

    content = zoo.from_function(call, (1, 64)).float_model
    loudness = np.where(np.arange(64) < 4, scale, 1.0).astype(np.float32)
    samples = [[x * loudness for x in sample] for sample in zoo.random_samples(content, 200)]
    return zoo.prepare(content, samples)


def reached(scale: float) -> float:
    """The largest value that 4-bit weights have, as a share of the largest float weight, in the median channel."""
    prepared = loud_and_quiet(scale)
    model = fb.parse(prepared.builder.build(Recipe(repairs=("levels-4",))).content)
    float_model = fb.parse(prepared.calibrated.content)
    weights = [
        each.subgraphs[0].tensors[op.inputs[1]]
        for each in (model, float_model)
        for op in each.subgraphs[0].operators
        if fb.op_type(each, op) == "FULLY_CONNECTED"
    ]
    top = np.abs(fb.constant_values(model, weights[0])).max(axis=1) * np.array(fb.scales(weights[0]))
    return float(np.median(top / np.abs(fb.constant_values(float_model, weights[1])).max(axis=1)))


def test_scales_suit_the_inputs_that_weights_meet() -> None:
    """Large weights are clipped if they meet small inputs, and kept if they meet large ones."""
    assert reached(0.01) < reached(1.0) < reached(6.0)


def test_hybrid_weights_of_fewer_levels_are_rounded_too() -> None:
    prepared = loud_and_quiet(6.0)
    nodes = frozenset(node.name for node in prepared.nodes)
    recipe = Recipe(denylisted_nodes=nodes, repairs=("levels-4",))
    exact = Runner(prepared.calibrated.content)
    built = prepared.builder.build(recipe)
    assert "hybrid" in built.kinds.values()
    reasons = [why for skipped in built.skipped.values() for why in skipped.values()]
    assert not [why for why in reasons if "hybrid" in why]
    nearest = loud_and_quiet.__wrapped__(6.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoselect.quantize.repairing.weight_rounding.MOST_BYTES", 0)
        plain = nearest.builder.build(recipe)
    errors = [
        sum(
            float(np.sum((next(iter(Runner(c)(s).values())) - next(iter(exact(s).values()))) ** 2))
            for s in prepared.fed()
        )
        for c in (built.content, plain.content)
    ]
    assert errors[0] < errors[1]


@functools.cache
def large_steps() -> zoo.Prepared:
    """A layer whose weights are so large beside its output that a bias could not be told in units of coarse levels."""
    weights = np.ones((1, 1, 2, 1), np.float32) * np.array([40.0, -40.0], np.float32)[:, None]

    def call(x: Any) -> Any:
        same = tf().concat([x, x + 0.01 * tf().sin(x)], axis=-1)
        return tf().nn.conv2d(same, weights, 1, "SAME") + np.float32(0.07)

    content = zoo.from_function(call, (1, 4, 4, 1)).float_model
    return zoo.prepare(content, zoo.random_samples(content, 20))


def test_levels_are_stored_further_apart_where_their_unit_could_not_tell_a_bias() -> None:
    prepared = large_steps()
    built = prepared.builder.build(Recipe(repairs=("levels-4",)))
    model = fb.parse(built.content)
    node = next(n for n in prepared.nodes if n.op_type == "CONV_2D")
    op, tensors = model.subgraphs[0].operators[built.places[node.index]], model.subgraphs[0].tensors
    stored = fb.constant_values(model, tensors[op.inputs[1]])
    unit = (
        fb.scales(tensors[op.inputs[0]])[0] * fb.scales(tensors[op.inputs[1]])[0] / fb.scales(tensors[op.outputs[0]])[0]
    )
    coarse = unit * np.abs(stored).max() / top_of("levels-4")
    assert coarse > 1.0  # With neighbouring levels the unit of the bias would exceed a step of the output,
    assert unit <= 1.0 or np.abs(stored).max() > 64  # so they are not neighbours, or as far apart as 8 bits allow.
    bias = dequantized(model, tensors[op.inputs[2]])
    assert abs(float(bias[0]) - 0.07) <= fb.scales(tensors[op.inputs[2]])[0]


def test_levels_of_a_float_node_change_nothing_and_count_as_nothing() -> None:
    first = weighted()[0]
    source = Recipe(denylisted_nodes=frozenset({first}), fallback="float")
    plain, asked = (layers().builder.build(replace(source, repairs=r)) for r in ((), (f"levels-4:{first}",)))
    assert plain.content == asked.content
    assert acting((f"levels-4:{first}", "bias"), {"integer"}, {first}) == ("bias",)
    assert acting((f"levels-4:{first}",), {"integer"}, set()) == (f"levels-4:{first}",)


def test_a_node_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(RecipeError, match="'nowhere'"):
        layers().builder.build(Recipe(repairs=("levels-4:nowhere",)))


def test_layers_that_share_their_weights_have_each_the_levels_and_scales_of_one_alone() -> None:
    prepared = zoo.shared_weights().prepared
    built = prepared.builder.build(Recipe(repairs=("levels-5",)))
    model, float_model = fb.parse(built.content), fb.parse(prepared.calibrated.content)
    first, *others = [
        dequantized(model, model.subgraphs[0].tensors[op.inputs[1]])
        for _, op in quantized_ops(model, float_model, built.places)
    ]
    assert len(others) == 2
    for values in others:
        np.testing.assert_array_equal(values, first)
