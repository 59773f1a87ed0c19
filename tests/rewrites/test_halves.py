"""float16 weights are widened without a change of outputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import OpKind
from autoselect.errors import ModelError
from autoselect.sources import loading
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

NOTE = "float16 weights were widened to float32: the same values, in twice the bytes."


def half_floats() -> bytes:
    import tensorflow as tf

    work = zoo.cnn().converter()
    work.optimizations = [tf.lite.Optimize.DEFAULT]
    work.target_spec.supported_types = [tf.float16]
    return bytes(work.convert())


def constants(model: fb.Model, dtype: int) -> list[Any]:
    return [t for t in model.subgraphs[0].tensors if t.type == dtype and fb.is_constant(model, t)]


def test_outputs_are_equal() -> None:
    content = half_floats()
    count = len(constants(fb.parse(content), schema.TensorType.FLOAT16))
    assert count > 0
    assert not loading.needs_worker(content)
    found = loading.float_model(content)
    assert found.notes == (f"{count} {NOTE}",)
    model = fb.parse(found.content)
    assert not any(t.type == schema.TensorType.FLOAT16 for t in model.subgraphs[0].tensors)
    before, after = (reader.read_graph(fb.parse(one)) for one in (content, found.content))
    assert [op.op_type for op in after.ops] == [op.op_type for op in before.ops if op.op_type != "DEQUANTIZE"]
    for delegates in (False, True):
        runners = [Runner(one, delegates=delegates) for one in (content, found.content)]
        for [sample] in zoo.random_samples(content, 4):
            [expected], [got] = (runner(sample).values() for runner in runners)
            assert got.tobytes() == expected.tobytes()


def test_what_widens_weights_is_no_float_op() -> None:
    content = half_floats()
    before, after = (reader.read_graph(fb.parse(one)) for one in (content, loading.float_model(content).content))
    kinds = [Counter(op.kind for op in graph.ops if op.kind is not OpKind.NEUTRAL) for graph in (before, after)]
    assert kinds[0] == kinds[1]
    assert kinds[0][OpKind.FLOAT] > 0


def without_dequantize(content: bytes) -> bytes:
    """Some files give a float16 constant to an op directly."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    source = {int(op.outputs[0]): int(op.inputs[0]) for op in graph.operators if fb.op_type(model, op) == "DEQUANTIZE"}
    graph.operators = [op for op in graph.operators if fb.op_type(model, op) != "DEQUANTIZE"]
    for op in graph.operators:
        op.inputs = np.array([source.get(int(i), int(i)) for i in op.inputs], np.int32)
    editing.drop_unused_tensors(model)
    return fb.serialise(model)


def test_constants_that_no_op_widens() -> None:
    content = half_floats()
    assert loading.float_model(without_dequantize(content)) == loading.float_model(content)


def test_tensors_go_on_sharing_a_buffer() -> None:
    model = fb.parse(half_floats())
    first, second = constants(model, schema.TensorType.FLOAT16)[:2]
    second.buffer, second.shape = first.buffer, first.shape
    widened = fb.parse(loading.float_model(fb.serialise(model)).content)
    shared = [t.buffer for t in constants(widened, schema.TensorType.FLOAT32)]
    assert len(set(shared)) < len(shared)


def with_a_quantized_part(content: bytes) -> bytes:
    model = fb.parse(content)
    tensor = schema.TensorT()
    tensor.name, tensor.type, tensor.shape = b"stray;and;more", schema.TensorType.INT8, np.array([1], np.int32)
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale, tensor.quantization.zeroPoint = np.array([0.5], np.float32), np.array([0])
    model.subgraphs[0].tensors.append(tensor)
    return fb.serialise(model)


def with_a_float16_value(content: bytes) -> bytes:
    model = fb.parse(content)
    model.subgraphs[0].tensors[model.subgraphs[0].operators[-1].outputs[0]].type = schema.TensorType.FLOAT16
    return fb.serialise(model)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(
            with_a_quantized_part,
            r"float16 weights and a part that is quantized already: 1 of its tensors .*'stray'.*`optimizations`",
            id="a quantized part",
        ),
        pytest.param(with_a_float16_value, r"computes in float16: tensor '.*' is float16", id="float16 values"),
    ],
)
def test_what_is_refused(spoil: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        loading.float_model(spoil(half_floats()))
