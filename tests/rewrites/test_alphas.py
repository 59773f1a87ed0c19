"""Alphas of PRELU get the axes that the quantizer wants, without a change of outputs."""

from __future__ import annotations

import numpy as np
import pytest
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.sources import tflite_files
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def with_alphas(shape: tuple[int, ...]) -> bytes:
    """A net whose two PRELU read one alpha, of this shape."""
    import tensorflow as tf

    slopes = np.array([0.1, 0.2, 0.4], np.float32).reshape(1, 1, 3)

    def call(x: tf.Tensor) -> tf.Tensor:
        for number in range(2):
            x = tf.nn.conv2d(x, zoo.weights(1, 1, 3, 3, seed=number), 1, "SAME")
            x = tf.nn.relu(x) + -slopes * tf.nn.relu(-x)
        return x

    model = fb.parse(zoo.from_function(call, (1, 4, 4, 3)).float_model)
    graph = model.subgraphs[0]
    ops = [op for op in graph.operators if fb.op_type(model, op) == "PRELU"]
    for op in ops:
        graph.tensors[op.inputs[1]].shape = np.array(shape, np.int32)
    assert len(ops) == 2, [fb.op_type(model, op) for op in graph.operators]
    return fb.serialise(model)


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (3,), (1, 3)])
def test_the_outputs_are_the_same_and_it_can_be_quantized(shape: tuple[int, ...]) -> None:
    content, plain = with_alphas(shape), with_alphas((1, 1, 3))
    found, as_it_is = tflite_files.from_bytes(content), tflite_files.from_bytes(plain)
    assert [note.split(" had ")[0] for note in found.notes] == ["2 PRELU"]
    assert as_it_is.notes == ()
    [sample] = zoo.random_samples(plain, 1)
    ours, theirs = (next(iter(Runner(one)(sample[0]).values())) for one in (found.content, content))
    assert ours.tobytes() == theirs.tobytes()
    assert set(zoo.prepare(found.content).builder.build(Recipe()).kinds.values()) == {"integer"}


def test_where_the_shape_of_the_input_is_left_out_it_is_found_first() -> None:
    model = fb.parse(with_alphas((1, 1, 1, 3)))
    graph = model.subgraphs[0]
    for op in graph.operators[:-1]:
        graph.tensors[op.outputs[0]].shape = np.array([], np.int32)
    found = tflite_files.from_bytes(fb.serialise(model))
    assert set(zoo.prepare(found.content).builder.build(Recipe()).kinds.values()) == {"integer"}
