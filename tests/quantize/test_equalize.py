"""Equalization: the float model computes the same bits, and the layers' weights range alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.quantize import equalize
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def tf() -> Any:
    import tensorflow

    return tensorflow


UNEVEN = np.exp2(np.arange(16) - 8.0).astype(np.float32)
"""Factors of the channels that only scaling can make even."""


def two_layers(between: Callable[[Any], Any], *, level: float = 0.0) -> zoo.Prepared:
    """Two convolutions whose channels are uneven in opposite ways."""
    first, second = zoo.weights(3, 3, 3, 16) * UNEVEN, zoo.weights(1, 1, 16, 8, seed=1) / UNEVEN[:, None]

    def call(x: Any) -> Any:
        return tf().nn.conv2d(between(tf().nn.conv2d(x, first, 1, "SAME") + level), second, 1, "SAME")

    return zoo.from_function(call, (1, 6, 6, 3)).prepared


BETWEEN = {
    "nothing": (lambda x: x, 1),
    "RELU": (tf().nn.relu, 1),
    "RELU6": (tf().nn.relu6, 1),
    "RELU6 that clips every channel": (lambda x: tf().nn.relu6(x + 1000.0), 0),
    "a sigmoid": (tf().nn.sigmoid, 0),
    "another reader": (lambda x: tf().nn.relu(x) * (1.0 + tf().nn.relu(x)), 0),
}


@pytest.mark.parametrize(("between", "expected"), BETWEEN.values(), ids=BETWEEN)
def test_pairs_are_scaled_where_nothing_between_can_tell(between: Callable[[Any], Any], expected: int) -> None:
    prepared = two_layers(between)
    content, found = equalize.equalize(prepared.calibrated.content, prepared.fed)
    assert len(found) == expected
    assert (content != prepared.calibrated.content) is bool(expected)
    ours, theirs = Runner(content), Runner(prepared.calibrated.content)
    for sample in prepared.fed():
        for key, value in theirs(sample).items():
            np.testing.assert_array_equal(ours(sample)[key], value)


def test_the_weights_of_both_layers_range_alike_afterwards() -> None:
    prepared = two_layers(tf().nn.relu)
    model = fb.parse(equalize.equalize(prepared.calibrated.content, prepared.fed)[0])
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
    after = fb.parse(equalize.equalize(prepared.calibrated.content, prepared.fed)[0])
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
    assert equalize.find_pairs(fb.parse(shared().calibrated.content)) == []


def test_ranges_between_the_layers_are_those_of_the_scaled_model() -> None:
    prepared = two_layers(tf().nn.relu)
    calibrated, model = prepared.kit.calibrated(("equalization",))
    tensor = int(model.subgraphs[0].operators[0].outputs[0])
    runner = Runner(calibrated.content, preserve_all_tensors=True)
    values = []
    for sample in prepared.fed():
        runner(sample)
        values.append(runner.tensor(tensor))
    assert model.subgraphs[0].tensors[tensor].quantization.max[0] == np.max(values)
