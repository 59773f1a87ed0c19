"""Second-order rounding of whole models: what it gains, what it leaves alone, what it costs and keeps."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from nursery import Sources
from reviewing import Reviewed
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder, Candidate
from autoselect.quantize.repairing import weight_rounding
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weight_rounding import JUDGED_EVERY, NAME
from autoselect.quantize.repairing.weighted_ops import SkipError, quantized_ops, weights_of
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def mixed(content: bytes, count: int, seed: int) -> list[list[np.ndarray]]:
    """Samples whose values are sums of a few: neighbours and channels have much in common."""
    found = []
    for [sample] in zoo.random_samples(content, count, seed):
        smooth = np.cumsum(sample, axis=1) / np.sqrt(sample.shape[1])
        found.append([(smooth + smooth.mean(axis=-1, keepdims=True) + 1.0).astype(np.float32)])
    return found


@functools.cache
def all_types() -> zoo.Prepared:
    """An op of each type, and a convolution in groups."""
    depthwise, last = zoo.weights(3, 3, 8, 2, seed=1), zoo.weights(3, 3, 8, 12, seed=3)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, zoo.weights(3, 3, 4, 8), 2, "SAME") + zoo.weights(8))
        b = tf().nn.relu(tf().nn.depthwise_conv2d(a, depthwise, [1, 1, 1, 1], "SAME") + 1.0)
        c = tf().nn.relu(tf().nn.conv2d(b, zoo.weights(1, 1, 8, 12, seed=2), 1, "VALID"))
        d = tf().nn.relu(tf().nn.conv2d_transpose(c, last, (1, 8, 8, 8), 2))
        return tf().matmul(tf().reshape(d, (-1, 64)), zoo.weights(64, 5, seed=4))

    content = zoo.from_function(call, (1, 8, 8, 4)).float_model
    return zoo.prepare(content, mixed(content, 30, seed=0))


def node_errors(prepared: zoo.Prepared, built: Candidate, samples: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Mean squared error of what each node gives on the float model's own inputs, by rounding its weights alone."""
    float_model, model = fb.parse(prepared.calibrated.content), fb.parse(built.content)
    found = {}
    for index, op in quantized_ops(model, float_model, built.places):
        try:
            _, _, values = weights_of(model, op, float_model, index)
        except SkipError:
            continue
        changed = editing.copied(float_model)
        twin = changed.subgraphs[0].operators[index]
        twin.builtinOptions.fusedActivationFunction = 0
        changed.subgraphs[0].tensors[twin.inputs[1]].buffer = editing.add_buffer(changed, values.astype(np.float32))
        exact = editing.copied(float_model)
        exact.subgraphs[0].operators[index].builtinOptions.fusedActivationFunction = 0
        runners = [Runner(fb.serialise(m), preserve_all_tensors=True) for m in (changed, exact)]
        total = 0.0
        for sample in samples:
            ours, theirs = (_after(runner, sample, int(twin.outputs[0])) for runner in runners)
            total += float(np.mean((ours - theirs) ** 2))
        found[prepared.nodes[[node.index for node in prepared.nodes].index(index)].name] = total / len(samples)
    return found


def _after(runner: Runner, sample: dict[str, np.ndarray], tensor: int) -> np.ndarray:
    runner(sample)
    return runner.tensor(tensor).astype(np.float64)


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
def test_each_node_comes_nearer_to_float_on_samples_that_it_has_not_seen(per_channel: bool) -> None:
    prepared = all_types()
    fresh = [{"x0": array} for [array] in mixed(prepared.calibrated.content, 12, seed=9)]
    plain, rounded = (prepared.builder.build(Recipe(per_channel=per_channel, repairs=r)) for r in ((), (NAME,)))
    before, after = (node_errors(prepared, built, fresh) for built in (plain, rounded))
    assert len(before) == 5
    assert {name: after[name] < before[name] for name in before} == dict.fromkeys(before, True)
    assert sum(after.values()) < 0.7 * sum(before.values())
    assert {name: reasons for name, reasons in rounded.skipped.items() if NAME in reasons} == {}


def judged(prepared: zoo.Prepared) -> list[dict[str, np.ndarray]]:
    return prepared.fed()[JUDGED_EVERY - 1 :: JUDGED_EVERY]


NURSERY = ["residual", "mixer"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NURSERY)
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
def test_no_node_is_worse_on_the_samples_that_are_kept_apart(
    name: str, per_channel: bool, grown: Callable[[str], Sources]
) -> None:
    prepared = nursery_net(grown(name))
    plain, rounded = (prepared.builder.build(Recipe(per_channel=per_channel, repairs=r)) for r in ((), (NAME,)))
    before, after = (node_errors(prepared, built, judged(prepared)) for built in (plain, rounded))
    assert [node for node in before if after[node] > 1.01 * before[node]] == []
    assert sum(after.values()) < 0.9 * sum(before.values())
    assert len(rounded.content) == len(plain.content)


def nursery_net(sources: Sources) -> zoo.Prepared:
    from autoselect.sources import loading

    content = loading.float_model(sources.tflite).content
    count = len(next(iter(sources.calibration.values())))
    rows = [[values[i : i + 1] for values in sources.calibration.values()] for i in range(count)]
    return zoo.prepare(content, rows)


def test_few_samples_change_nothing(reviewed: Reviewed) -> None:
    prepared = zoo.prepare(all_types().calibrated.content, all_types().samples[: JUDGED_EVERY - 1])
    plain, rounded = (prepared.builder.build(Recipe(repairs=repairs)) for repairs in ((), (NAME,)))
    assert rounded.content == plain.content
    reviewed("too few samples to round by", {reasons[NAME] for reasons in rounded.skipped.values() if reasons})


def test_weights_that_are_as_good_as_zero_have_scales_that_kernels_take() -> None:
    """Weight decay brings the weights of a channel that nobody needs down to numbers of few digits."""
    matrix, added = zoo.weights(32, 64) * np.float32(1e-39), zoo.weights(64)
    content = zoo.from_function(lambda x: tf().nn.relu(tf().matmul(x, matrix) + added), (1, 32)).float_model
    prepared = zoo.prepare(content, zoo.random_samples(content, 2 * JUDGED_EVERY))
    built = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), repairs=("bias", "levels-5")))
    tensors = fb.parse(built.content).subgraphs[0].tensors
    assert min(min(fb.scales(tensor), default=1.0) for tensor in tensors) > np.finfo(np.float32).tiny
    assert Runner(built.content)(prepared.fed()[0])


def test_weights_of_several_ops_keep_their_levels(reviewed: Reviewed) -> None:
    content = zoo.shared_weights().float_model
    prepared = zoo.prepare(content, zoo.random_samples(content, 10))
    rounded = prepared.builder.build(Recipe(repairs=(NAME,)))
    found = [reasons[NAME] for reasons in rounded.skipped.values() if NAME in reasons]
    assert found
    reviewed("weights of several ops", set(found))


def test_inputs_that_are_no_numbers_leave_the_levels(reviewed: Reviewed) -> None:
    prepared = all_types()
    samples = [{"x0": np.full_like(sample["x0"], np.inf)} for sample in prepared.fed()]
    kit = RepairKit(prepared.calibrated, lambda: samples)
    built = Builder(prepared.calibrated, prepared.nodes, kit).build(Recipe(repairs=(NAME,)))
    assert built.content == prepared.builder.build(Recipe()).content
    reviewed("inputs that are no numbers", sorted({r[NAME] for r in built.skipped.values() if NAME in r}))


def test_memory_is_bounded_and_what_does_not_fit_is_named(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = all_types()
    at_once = prepared.builder.build(Recipe(repairs=(NAME,)))
    batches = []
    counted = weight_rounding._measure

    def measure(*arguments: Any) -> Any:
        batches.append(len(arguments[2]))
        return counted(*arguments)

    monkeypatch.setattr(weight_rounding, "_measure", measure)
    monkeypatch.setattr(weight_rounding, "TOGETHER_BYTES", 2 * 4 * 108**2)
    built = fresh_builder(prepared).build(Recipe(repairs=(NAME,)))
    assert built.content == at_once.content
    assert len(batches) > 1
    monkeypatch.setattr(weight_rounding, "MOST_BYTES", 2 * 8 * 64**2)
    built = fresh_builder(prepared).build(Recipe(repairs=(NAME,)))
    reviewed("moments that take too much memory", [r[NAME] for r in built.skipped.values() if r])


def test_a_layer_of_many_inputs_and_few_channels_keeps_its_levels(
    reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moments of its inputs are factorised for little. Of all types the transposed convolution has the most."""
    monkeypatch.setattr(weight_rounding, "MOST_WORK", 108**2 // 8 - 1)
    built = fresh_builder(all_types()).build(Recipe(repairs=(NAME,)))
    [reason] = [reasons[NAME] for reasons in built.skipped.values() if reasons]
    reviewed("moments that take too much work", reason)
    monkeypatch.setattr(weight_rounding, "MOST_WORK", 108**2 // 8)
    built = fresh_builder(all_types()).build(Recipe(repairs=(NAME,)))
    assert not any(built.skipped.values())


def test_levels_differ_where_biases_are_corrected_and_whichever_is_asked_for_first() -> None:
    recipes = [Recipe(repairs=(NAME,)), Recipe(repairs=(NAME, "bias"))]
    files = [built_in_order(order) for order in (recipes, recipes[::-1])]
    assert files[0] == files[1]
    both = {repairs: weights_levels(repairs) for repairs in ((NAME,), (NAME, "bias"))}
    assert any(np.any(a != b) for a, b in zip(*both.values(), strict=True))


def built_in_order(recipes: list[Recipe]) -> dict[tuple[str, ...], str]:
    """Hashes by repairs, where the first candidate measures."""
    prepared, kept = all_types(), dict[str, bytes]()

    def keep(name: str, make: Callable[[], bytes]) -> bytes:
        kept[name] = kept.get(name) or make()
        return kept[name]

    builder = Builder(prepared.calibrated, prepared.nodes, RepairKit(prepared.calibrated, prepared.fed, keep))
    return {recipe.repairs: builder.build(recipe).sha256 for recipe in recipes}


def weights_levels(repairs: tuple[str, ...]) -> list[np.ndarray]:
    prepared = all_types()
    built = prepared.builder.build(Recipe(repairs=repairs))
    model, float_model = fb.parse(built.content), fb.parse(prepared.calibrated.content)
    tensors = model.subgraphs[0].tensors
    return [
        fb.constant_values(model, tensors[op.inputs[1]]) for _, op in quantized_ops(model, float_model, built.places)
    ]


def fresh_builder(prepared: zoo.Prepared) -> Builder:
    return Builder(prepared.calibrated, prepared.nodes, RepairKit(prepared.calibrated, prepared.fed))


def test_each_layer_is_measured_once_for_its_levels_and_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for another candidate nor for a build of 16 bits; where biases are corrected there are other levels."""
    prepared, kept, measured = all_types(), dict[str, bytes](), list[int]()
    measure = weight_rounding._measure

    def keep(name: str, make: Callable[[], bytes]) -> bytes:
        if name not in kept:
            kept[name] = make()
        return kept[name]

    def counted(runner: Runner, model: fb.Model, layers: dict[int, Any], samples: Any) -> Any:
        measured.append(len(layers))
        return measure(runner, model, layers, samples)

    monkeypatch.setattr(weight_rounding, "_measure", counted)
    wide = frozenset({prepared.nodes[0].name})
    steps = [
        (Recipe(repairs=(NAME,)), [5]),
        (Recipe(repairs=(NAME,), denylisted_ops=frozenset({"CONV_2D"})), []),
        (Recipe(repairs=(NAME,), int16_nodes=wide), []),
        (Recipe(repairs=(NAME, "bias")), [5]),
        (Recipe(repairs=(NAME, "bias-sequential")), []),
        (Recipe(repairs=("equalization", NAME)), [2]),  # what it changed
        (Recipe(repairs=(NAME, "weights-mse")), [1]),  # the only one whose scales change
    ]
    for recipe, expected in [*steps, *((recipe, []) for recipe, _ in steps)]:
        kit = RepairKit(prepared.calibrated, prepared.fed, keep)
        built = Builder(prepared.calibrated, prepared.nodes, kit).build(recipe)
        assert (recipe.repairs, measured) == (recipe.repairs, expected)
        assert built.content == prepared.builder.build(recipe).content
        measured.clear()


def test_what_was_measured_serves_all_choices_of_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what equalization changed is measured again; the bytes are those of a kit that has measured nothing."""
    prepared, measured = all_types(), list[int]()
    measure = weight_rounding._measure

    def counted(runner: Runner, model: fb.Model, layers: dict[int, Any], samples: Any) -> Any:
        measured.extend(layers)
        return measure(runner, model, layers, samples)

    builder = fresh_builder(prepared)
    monkeypatch.setattr(weight_rounding, "_measure", counted)
    choices = [(NAME,), ("bias", NAME), ("equalization", NAME), ("bias", "equalization", NAME), (NAME, "weights-mse")]
    contents = [builder.build(Recipe(repairs=repairs)).content for repairs in choices]
    changed = [index for index, times in Counter(measured).items() if times > 1]
    assert len(measured) == 5 + len(changed)
    assert 0 < len(changed) < 5
    assert contents == [fresh_builder(prepared).build(Recipe(repairs=repairs)).content for repairs in choices]
