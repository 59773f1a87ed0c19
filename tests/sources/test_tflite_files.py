"""A file is brought into the form that TensorFlow's quantizer takes, whoever wrote it."""

from __future__ import annotations

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError
from autoselect.sources import tflite_files
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def by_litert_torch(content: bytes) -> bytes:
    """The model with the metadata that litert-torch gives to whatever it converts."""
    model = fb.parse(content)
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"keep_stablehlo_constant", editing.add_buffer(model, np.frombuffer(b"true", np.uint8))
    model.metadata = [*(model.metadata or []), entry]
    return fb.serialise(model)


def test_a_model_by_litert_torch_becomes_integer_throughout() -> None:
    plain = zoo.cnn().float_model
    content = tflite_files.from_bytes(by_litert_torch(plain)).content
    built, expected = (zoo.prepare(one).builder.build(Recipe()) for one in (content, plain))
    assert set(expected.kinds.values()) == {"integer"}
    assert list(built.kinds.values()) == list(expected.kinds.values())
    [sample] = zoo.random_samples(plain, 1)
    first, second = (next(iter(Runner(one.content)(sample[0]).values())) for one in (built, expected))
    assert first.tobytes() == second.tobytes()


def test_other_metadata_stay() -> None:
    plain = zoo.cnn().float_model
    loaded = fb.parse(tflite_files.from_bytes(by_litert_torch(plain)).content)
    assert [entry.name for entry in loaded.metadata] == [entry.name for entry in fb.parse(plain).metadata]
    assert tflite_files.from_bytes(plain).content is plain


def without_ops(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    graph.operators, model.operatorCodes, graph.outputs = [], [], graph.inputs


def with_flex(model: fb.Model) -> None:
    code = model.operatorCodes[model.subgraphs[0].operators[0].opcodeIndex]
    code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, b"FlexMatrixInverse"


REFUSED = {
    "no ops": (without_ops, "The model has no ops, so there is nothing to quantize."),
    "ops of TensorFlow": (with_flex, "ops of TensorFlow itself: FlexMatrixInverse.*without `SELECT_TF_OPS`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_refused_with_its_reason(name: str) -> None:
    spoil, message = REFUSED[name]
    model = fb.parse(zoo.cnn().float_model)
    spoil(model)
    with pytest.raises(ModelError, match=message):
        tflite_files.from_bytes(fb.serialise(model))
