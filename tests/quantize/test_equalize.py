"""Equalization: the float model computes the same bits, and the layers' weights range alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed
from zoo import tf

from autoselect.quantize.repairing import equalize, ranges
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

UNEVEN = np.exp2(np.arange(16) - 8.0).astype(np.float32)
"""Factors of the channels that only scaling can make even."""


def two_layers(between: Callable[[Any], Any], *, level: float = 0.0) -> zoo.Prepared:
    """Two convolutions whose channels are uneven in opposite ways."""
    first, second = zoo.weights(3, 3, 3, 16) * UNEVEN, zoo.weights(1, 1, 16, 8, seed=1) / UNEVEN[:, None]

    def call(x: Any) -> Any:
        return tf().nn.conv2d(between(tf().nn.conv2d(x, first, 1, "SAME") + level), second, 1, "SAME")

    return zoo.from_function(call, (1, 6, 6, 3)).prepared


SLOPES = np.linspace(-0.9, 0.9, 16, dtype=np.float32).reshape(1, 1, 16)
BETWEEN = {
    "nothing": (lambda x: x, None),
    "RELU": (tf().nn.relu, None),
    "RELU6": (tf().nn.relu6, None),
    "PRELU": (lambda x: tf().nn.relu(x) + -SLOPES * tf().nn.relu(-x), None),
    "RELU6 that clips every channel": (lambda x: tf().nn.relu6(x + 1000.0), "a clip is in the way"),
    "TANH": (tf().nn.tanh, "TANH follows it"),
    "a sigmoid": (tf().nn.sigmoid, "LOGISTIC follows it"),
    "another reader": (lambda x: tf().nn.relu(x) * (1.0 + tf().nn.relu(x)), "several readers"),
}


@pytest.mark.parametrize(("between", "reason"), BETWEEN.values(), ids=BETWEEN)
def test_pairs_are_scaled_where_nothing_between_can_tell(
    reviewed: Reviewed, between: Callable[[Any], Any], reason: str | None
) -> None:
    prepared = two_layers(between)
    found = equalize.equalize(prepared.calibrated.file, prepared.fed)
    [first, second] = layers(prepared.calibrated.content)
    assert len(found.pairs) == (reason is None)
    assert (found.file.content != prepared.calibrated.content) is (reason is None)
    assert (reason is None and first not in found.reasons) or str(reason) in found.reasons[first]
    reviewed("the last layer is not equalized", found.reasons[second])
    assert_equal_outputs(prepared, found.file.content)


def layers(content: bytes) -> list[int]:
    """Places of the convolutions."""
    model = fb.parse(content)
    return [i for i, op in enumerate(model.subgraphs[0].operators) if fb.op_type(model, op) == "CONV_2D"]


def assert_equal_outputs(prepared: zoo.Prepared, content: bytes) -> None:
    ours, theirs = Runner(content), Runner(prepared.calibrated.content)
    for sample in prepared.fed():
        for key, value in theirs(sample).items():
            np.testing.assert_array_equal(ours(sample)[key], value)


def test_slopes_of_either_sign_are_met_below_zero() -> None:
    """So the PRELU row above has shown something."""
    prepared = two_layers(BETWEEN["PRELU"][0])
    model = fb.parse(prepared.calibrated.content)
    [at] = [i for i, op in enumerate(model.subgraphs[0].operators) if fb.op_type(model, op) == "PRELU"]
    op = model.subgraphs[0].operators[at]
    slopes = fb.constant_values(model, model.subgraphs[0].tensors[op.inputs[1]]).ravel()
    runner = Runner(prepared.calibrated.content, preserve_all_tensors=True)
    runner(prepared.fed()[0])
    below = runner.tensor(int(op.inputs[0])).min(axis=(0, 1, 2)) < 0.0
    assert (slopes[below] < 0.0).any()
    assert (slopes[below] > 0.0).any()


def test_the_weights_of_both_layers_range_alike_afterwards() -> None:
    prepared = two_layers(tf().nn.relu)
    model = equalize.equalize(prepared.calibrated.file, prepared.fed).file.copied()
    first, second = (
        fb.constant_values(model, model.subgraphs[0].tensors[op.inputs[1]]) for op in model.subgraphs[0].operators
    )
    ratios = np.abs(first).max(axis=(1, 2, 3)) / np.abs(second).max(axis=(0, 1, 2))
    # The best power of two leaves each of them within the square root of two of their geometric mean.
    assert ratios.max() <= 2.1
    assert ratios.min() >= 1 / 2.1


def test_a_clip_that_some_channels_reach_leaves_those_alone() -> None:
    prepared = two_layers(tf().nn.relu6)
    before = fb.parse(prepared.calibrated.content)
    peaks = equalize.channel_peaks(
        prepared.calibrated.content, prepared.fed(), [int(before.subgraphs[0].operators[0].outputs[0])]
    )
    [peak] = peaks.values()
    assert (peak >= 6.0).any()
    after = equalize.equalize(prepared.calibrated.file, prepared.fed).file.copied()
    weights = [
        fb.constant_values(m, m.subgraphs[0].tensors[m.subgraphs[0].operators[0].inputs[1]]) for m in (before, after)
    ]
    unchanged = (weights[0] == weights[1]).all(axis=(1, 2, 3))
    assert unchanged[peak >= 6.0].all()
    assert not unchanged.all()


@functools.cache
def shared() -> zoo.Prepared:
    matrix = zoo.weights(16, 16) * UNEVEN

    def call(x: Any) -> Any:
        return tf().matmul(tf().nn.relu(tf().matmul(x, matrix)), matrix)

    return zoo.from_function(call, (1, 16)).prepared


def test_layers_that_share_their_weights_are_left_alone() -> None:
    pairs, reasons = equalize.find_pairs(fb.parse(shared().calibrated.content))
    assert pairs == []
    assert ["alone reads" in reason for reason in reasons.values()] == [True, True]


def test_ranges_between_the_layers_are_those_of_the_scaled_model() -> None:
    prepared = two_layers(tf().nn.relu)
    calibrated, model = prepared.kit.calibrated(("equalization",)), prepared.kit.float_model(("equalization",))
    tensor = int(model.subgraphs[0].operators[0].outputs[0])
    runner = Runner(calibrated.content, preserve_all_tensors=True)
    values = []
    for sample in prepared.fed():
        runner(sample)
        values.append(runner.tensor(tensor))
    assert model.subgraphs[0].tensors[tensor].quantization.max[0] == np.max(values)


@pytest.mark.parametrize("between", [tf().nn.relu, tf().nn.relu6, tf().nn.tanh], ids=["RELU", "RELU6", "TANH"])
def test_only_what_lies_between_layers_is_measured_again(
    between: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other tensors hold is known from the plain model, and the same."""
    prepared = two_layers(between)
    kit = RepairKit(prepared.calibrated, prepared.fed)
    expected = ranges.measure(kit.calibrated(("equalization",)).file, prepared.fed())
    plain = kit._ranges(False)
    added: list[ranges.Histogram] = []
    add = ranges.Histogram.add
    monkeypatch.setattr(ranges.Histogram, "add", lambda self, values: (added.append(self), add(self, values))[1])
    found = kit._ranges(True)
    assert found == expected
    pairs = equalize.find_pairs(fb.parse(prepared.calibrated.content))[0]
    some = next(iter(plain.values()))
    assert len(added) < len(some) * len(prepared.fed())
    assert bool(added) is bool(pairs)


def test_channels_that_a_layer_does_not_use_are_left_alone() -> None:
    first, second = zoo.weights(3, 3, 3, 16) * UNEVEN, zoo.weights(1, 1, 16, 8, seed=1) / UNEVEN[:, None]
    first[..., 3], second[:, :, 5] = 0.0, 0.0

    def call(x: Any) -> Any:
        return tf().nn.conv2d(tf().nn.conv2d(x, first, 1, "SAME") + 1.0, second, 1, "SAME")

    prepared = zoo.from_function(call, (1, 6, 6, 3)).prepared
    found = equalize.equalize(prepared.calibrated.file, prepared.fed)
    assert len(found.pairs) == 1
    before, after = (weights_of_first(content) for content in (prepared.calibrated.content, found.file.content))
    assert [(before[i] == after[i]).all() for i in range(2, 7)] == [False, True, False, True, False]
    assert_equal_outputs(prepared, found.file.content)


def weights_of_first(content: bytes) -> np.ndarray:
    model = fb.parse(content)
    op = model.subgraphs[0].operators[layers(content)[0]]
    return fb.constant_values(model, model.subgraphs[0].tensors[op.inputs[1]])


def test_a_single_differing_bit_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = two_layers(tf().nn.relu)
    real = equalize._multiply

    def off(model: Any, tensor: Any, scales: np.ndarray, axis: int) -> None:
        real(model, tensor, np.nextafter(scales, np.float32(np.inf)), axis)

    monkeypatch.setattr(equalize, "_multiply", off)
    found = equalize.equalize(prepared.calibrated.file, prepared.fed)
    assert (found.file.content, found.pairs) == (prepared.calibrated.content, ())
    assert "other bits" in found.reasons[layers(prepared.calibrated.content)[0]]


def test_a_layer_whose_output_is_the_bias_of_the_next_is_no_first_of_a_pair() -> None:
    prepared = two_layers(lambda x: x)
    model = fb.parse(prepared.calibrated.content)
    first, second = (model.subgraphs[0].operators[at] for at in layers(prepared.calibrated.content))
    second.inputs = np.array([model.subgraphs[0].inputs[0], second.inputs[1], first.outputs[0]], dtype=np.int32)
    pairs, reasons = equalize.find_pairs(model)
    assert pairs == []
    assert "another operand" in next(iter(reasons.values()))


def test_weights_that_a_branch_reads_too_stay_as_they_are() -> None:
    """The samples may never run the branch, so that equal outputs say nothing of it."""
    prepared = two_layers(tf().nn.relu)
    assert equalize.equalize(prepared.calibrated.file, prepared.fed).pairs
    model = prepared.calibrated.file.copied()
    main, branch = model.subgraphs[0], copy(model.subgraphs[0])
    pairs, _ = equalize.find_pairs(model)
    branch.tensors, branch.operators = [copy(main.tensors[main.operators[pairs[0].second].inputs[1]])], []
    branch.inputs = branch.outputs = np.array([0], np.int32)
    model.subgraphs = [main, branch]
    found = equalize.equalize(TfliteFile(fb.serialise(model)), prepared.fed)
    assert not found.pairs
    assert "a branch" in found.reasons[pairs[0].first]
