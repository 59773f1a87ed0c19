"""What stands in for LiteRT's 16-bit convolutions gives their outputs, to a step of 16 bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader, wide_kernels
from autoselect.tflite.runner import Runner

SLOW = {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}


@functools.cache
def convolutions() -> zoo.Prepared:
    """With strides, dilation, a fused activation, a value that two layers read, and a layer without a bias."""
    import tensorflow as tf

    first, second, third = zoo.weights(3, 3, 4, 8), zoo.weights(3, 3, 8, 1, seed=1), zoo.weights(3, 3, 6, 8, seed=2)
    last = zoo.weights(1, 1, 8, 6, seed=3)

    def call(x: Any) -> Any:
        a = tf.nn.relu6(tf.nn.conv2d(x, first, 2, "SAME") + zoo.weights(8, seed=4))
        b = tf.nn.depthwise_conv2d(a, second, (1, 1, 1, 1), "SAME", dilations=(2, 2)) + zoo.weights(8, seed=5)
        c = tf.nn.conv2d(a + b, last, 1, "VALID")
        up = tf.nn.conv2d_transpose(b, third, (1, 16, 16, 6), 2) + zoo.weights(6, seed=6)
        return {"c": tf.nn.softmax(c), "up": up}

    return zoo.from_function(call, (1, 16, 16, 4)).prepared


@functools.cache
def wide(per_channel: bool) -> bytes:
    built = convolutions().builder.build(Recipe(int16_nodes=frozenset({"*"}), per_channel=per_channel))
    return built.content


def ops(content: bytes) -> list[tuple[str, str]]:
    """Type of each op, and of what it reads."""
    graph = reader.read_graph(fb.parse(content))
    return [(op.op_type, graph.tensors[op.inputs[-1]].dtype) for op in graph.ops if op.inputs]


@pytest.mark.parametrize("per_channel", [True, False])
def test_outputs_differ_by_a_few_steps_at_most(per_channel: bool) -> None:
    content = wide(per_channel)
    stood_in = wide_kernels.stand_in(content)
    assert {(kind, "int16") for kind in SLOW} <= set(ops(content))
    assert not {(kind, "int16") for kind in SLOW} & set(ops(stood_in))
    kernels, other = Runner(content), Runner(stood_in)
    assert (kernels.inputs, kernels.outputs) == (other.inputs, other.outputs)
    differ = []
    for sample in convolutions().samples[:4]:
        inputs = dict(zip([s.key for s in kernels.inputs], sample, strict=True))
        expected = {key: value.copy() for key, value in kernels(inputs).items()}
        for key, value in other(inputs).items():
            steps = np.abs(value - expected[key]) / (np.abs(expected[key]).max() / 32767)
            assert steps.max() <= 4
            differ.append(np.mean(steps > 0.5))
    assert np.mean(differ) < 0.15


def test_they_are_counted() -> None:
    graph = reader.read_graph(fb.parse(wide(True)))
    macs = sum(op.macs for op in graph.ops if op.op_type in SLOW)
    assert wide_kernels.slow_macs(wide(True)) == macs > 0
    narrow = convolutions().builder.build(Recipe()).content
    assert wide_kernels.slow_macs(narrow) == 0
    one = next(op for op in graph.ops if op.op_type == "CONV_2D")
    alone = frozenset({graph.tensors[one.outputs[0]].name})
    built = convolutions().builder.build(Recipe(int16_nodes=alone)).content
    assert wide_kernels.slow_macs(built) == one.macs
