"""Ops that change shapes alone are integer wherever their input is."""

from __future__ import annotations

from copy import copy

import numpy as np
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.quantize.preparing import converter
from autoselect.quantize.preparing.carried import carry_levels
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def left_in_float() -> tuple[zoo.Prepared, bytes]:
    """A model, and what the quantizer makes of it, with two more shapes of its output behind each other in float."""
    import tensorflow as tf

    prepared = zoo.from_function(lambda x: tf.tanh(tf.matmul(x, zoo.weights(8, 16))), (1, 8)).prepared
    model = fb.parse(converter.quantize(prepared.calibrated.content, denylisted=(), recipe=Recipe()))
    graph = model.subgraphs[0]
    last = int(graph.outputs[0])
    for shape in ((2, 8), (1, 4, 4)):
        result = copy(graph.tensors[last])
        result.name, result.shape, result.shapeSignature = b"as %d" % len(shape), np.array(shape, np.int32), None
        wanted = editing.add_constant(model, f"shape {len(shape)}", np.array(shape, np.int32))
        graph.tensors.append(result)
        graph.operators.append(editing.new_op(model, "RESHAPE", [last, wanted], len(graph.tensors) - 1))
        last = len(graph.tensors) - 1
    graph.outputs, model.signatureDefs = np.array([graph.outputs[0], last], np.int32), []
    return prepared, fb.serialise(model)


def float_ops(content: bytes) -> list[str]:
    graph = reader.read_graph(fb.parse(content))
    reads = [(op.op_type, graph.tensors[op.inputs[0]].dtype) for op in graph.ops]
    return [name for name, dtype in reads if dtype == "float32" and name != "QUANTIZE"]


def test_shapes_of_an_integer_value_are_integer_and_outputs_equal() -> None:
    prepared, plain = left_in_float()
    carried = carry_levels(plain)
    assert float_ops(plain) == ["RESHAPE", "RESHAPE"]
    assert float_ops(carried) == []
    for sample in prepared.samples:
        ours, theirs = (Runner(content)(sample[0]) for content in (carried, plain))
        assert [value.shape for value in ours.values()] == [(1, 16), (1, 4, 4)]
        for one, other in zip(ours.values(), theirs.values(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_model_without_such_ops_stays_as_it_is() -> None:
    prepared = zoo.from_function(lambda x: x * 2.0 + zoo.weights(8), (1, 8)).prepared
    plain = converter.quantize(prepared.calibrated.content, denylisted=(), recipe=Recipe())
    assert carry_levels(plain) is plain
