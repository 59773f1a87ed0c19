from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import unpacking

MODELS = [
    pytest.param(lambda: zoo.cnn().float_model, id="float"),
    pytest.param(lambda: zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model)), id="full integer"),
    pytest.param(lambda: zoo.lstm().float_model, id="recurrent"),
    pytest.param(lambda: zoo.loop().float_model, id="several subgraphs"),
    pytest.param(zoo.remembering, id="variables"),
]


def as_values(part: Any) -> Any:
    """Objects of the schema as plain values, types of vectors included."""
    if isinstance(part, np.ndarray):
        return part.dtype.str, part.tolist()
    if isinstance(part, list):
        return [as_values(one) for one in part]
    if hasattr(part, "__dict__"):
        return type(part).__name__, {name: as_values(value) for name, value in vars(part).items()}
    return part


def unpacked(content: bytes) -> Any:
    return unpacking.model(schema.Model.GetRootAs(content, 0), content, unpacking.Tables(content))


def generated(content: bytes) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


@pytest.mark.parametrize("make", MODELS)
def test_unpacks_what_generated_code_unpacks(make: Any) -> None:
    assert as_values(unpacked(make())) == as_values(generated(make()))


def test_rare_parts_are_those_of_the_generated_code() -> None:
    model = fb.parse(zoo.cnn().float_model)
    graph = model.subgraphs[0]
    tensor, op = graph.tensors[1], graph.operators[0]
    tensor.sparsity = schema.SparsityParametersT()
    tensor.sparsity.traversalOrder = np.array([0, 1], np.int32)
    graph.tensors[2].variantTensors = [schema.VariantSubTypeT()]  # type: ignore[attr-defined]
    graph.tensors[3].quantization = schema.QuantizationParametersT()
    graph.tensors[3].quantization.detailsType = schema.QuantizationDetails.CustomQuantization
    graph.tensors[3].quantization.details = schema.CustomQuantizationT()
    op.mutatingVariableInputs = [True, False]  # type: ignore[attr-defined]
    graph.operators[1].builtinOptions2Type = schema.BuiltinOptions2.StablehloConcatenateOptions  # type: ignore[attr-defined]
    graph.operators[1].builtinOptions2 = schema.StablehloConcatenateOptionsT()
    content = fb.serialise(model)
    assert as_values(unpacked(content)) == as_values(generated(content))


def test_a_schema_with_further_fields_is_read_by_the_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_IS_KNOWN", False)
    content = zoo.cnn().float_model
    assert as_values(unpacked(content)) == as_values(generated(content))


@pytest.mark.parametrize("make", MODELS)
def test_the_plain_builder_writes_what_reads_the_same(make: Any) -> None:
    written = fb.serialise(fb.parse(make()))
    builder = flatbuffers.Builder(len(written))
    builder.Finish(generated(written).Pack(builder), file_identifier=fb.FILE_IDENTIFIER)
    assert as_values(generated(bytes(builder.Output()))) == as_values(generated(written))
