from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp


def summed(model: fb.Model) -> int:
    """Size of the file from its parts."""
    graph = model.subgraphs[0]
    activations = {int(i) for row in (*(op.outputs for op in graph.operators), graph.inputs) for i in row}
    tensors = [
        fp.tensor_footprint(model, tensor, is_constant=i not in activations and not tensor.isVariable)
        for i, tensor in enumerate(graph.tensors)
    ]
    whole = fp.total([fp.frame(model), *tensors, *(fp.op_footprint(model, op) for op in graph.operators)])
    return fp.file_size(whole.own + sum(whole.items.values()))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: zoo.cnn().prepared, id="CNN"),
        pytest.param(lambda: zoo.lstm().prepared, id="recurrent"),
        pytest.param(lambda: zoo.two_inputs().prepared, id="several inputs"),
    ],
)
@pytest.mark.parametrize("denied", [frozenset(), frozenset({"*"})], ids=["integer", "left out"])
def test_a_file_is_the_sum_of_its_parts(make: Callable[[], zoo.Prepared], denied: frozenset[str]) -> None:
    content = make().builder.build(Recipe(denylisted_nodes=denied)).content
    assert summed(fb.parse(content)) == len(content)


@pytest.mark.parametrize("make", [zoo.cnn, zoo.lstm], ids=["CNN", "recurrent"])
def test_parts_of_one_form_take_equally_many_bytes(
    make: Callable[[], zoo.Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of one part and taken for another is what packing that other one says."""
    contents = [make().prepared.builder.build(Recipe(denylisted_nodes=frozenset(d))).content for d in ((), ("*",))]
    remembered = [parts_of(fb.parse(content)) for content in contents]
    asked = fp._pack.cache_info()
    monkeypatch.setattr(fp, "_pack", fp._pack.__wrapped__)
    assert [parts_of(fb.parse(content)) for content in contents] == remembered
    assert asked.hits > asked.misses


def parts_of(model: fb.Model) -> list[fp.Footprint]:
    graph = model.subgraphs[0]
    tensors = [fp.tensor_footprint(model, tensor, is_constant=False) for tensor in graph.tensors]
    return [*tensors, *(fp.op_footprint(model, op) for op in graph.operators)]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 30, 31])
def test_a_name_and_zero_points_of_any_length(length: int) -> None:
    model = fb.parse(zoo.cnn().float_model)
    for i, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.name = b"n" * (length + i % 3)
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale = np.ones(length, np.float32)
        tensor.quantization.zeroPoint = np.full(length, i % 2, np.int64)
    editing.share_equal_constants(model)
    editing.drop_unused_buffers(model)
    assert summed(model) == len(fb.serialise(model))


def test_equal_constants_share_a_tensor_and_equal_bytes_a_buffer() -> None:
    model = fb.parse(zoo.two_inputs().float_model)
    graph = model.subgraphs[0]
    values = np.arange(4, dtype=np.float32)
    readers = [op for op in graph.operators if len(op.inputs) == 2][:3]
    for op, name in zip(readers, (b"one", b"one", b"other"), strict=True):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, [4], editing.add_buffer(model, values)
        graph.tensors.append(tensor)
        op.inputs = np.array([op.inputs[0], len(graph.tensors) - 1], dtype=np.int32)
    editing.share_equal_constants(model)
    one, again, other = (graph.tensors[op.inputs[1]] for op in readers)
    assert one is again is not other
    assert one.buffer == other.buffer
    assert fb.constant_values(model, other).tolist() == [0.0, 1.0, 2.0, 3.0]
