"""A file is brought into the form that TensorFlow's quantizer takes, whoever wrote it."""

from __future__ import annotations

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError
from autoselect.sources import tflite_files
from autoselect.tflite import editing, reader
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


def test_names_that_are_no_utf_8_are_written_anew() -> None:
    """LiteRT runs such a file; TensorFlow's quantizer ends with a UnicodeDecodeError."""
    model = fb.parse(zoo.cnn().float_model)
    for number, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.name = b"\xff\xfe" + str(number % 2).encode()
    content = tflite_files.from_bytes(fb.serialise(model)).content
    assert {tensor.name.decode() for tensor in fb.parse(content).subgraphs[0].tensors} == {
        "\ufffd\ufffd0",
        "\ufffd\ufffd1",
    }
    assert set(zoo.prepare(content).builder.build(Recipe()).kinds.values()) == {"integer"}


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_subgraph_that_nothing_runs_is_dropped(is_signed: bool) -> None:
    """LiteRT runs such a file; TensorFlow's calibrator refuses it."""
    model = fb.parse(zoo.cnn().float_model)
    model.signatureDefs = model.signatureDefs if is_signed else None
    unread = schema.SubGraphT()
    unread.tensors, unread.operators, unread.name = [], [], b"left over"
    unread.inputs = unread.outputs = np.zeros(0, np.int32)
    model.subgraphs.append(unread)
    content = tflite_files.from_bytes(fb.serialise(model)).content
    assert len(fb.parse(content).subgraphs) == 1
    assert set(zoo.prepare(content).builder.build(Recipe()).kinds.values()) == {"integer"}


def without_ops(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    graph.operators, model.operatorCodes, graph.outputs = [], [], graph.inputs


def with_flex(model: fb.Model) -> None:
    code = model.operatorCodes[model.subgraphs[0].operators[0].opcodeIndex]
    code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, b"FlexMatrixInverse"


def with_packed_weights(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    weights = next(graph.tensors[op.inputs[1]] for op in graph.operators if fb.op_type(model, op) == "CONV_2D")
    levels = np.zeros(fb.shape_of(weights), np.int8)
    weights.type, weights.buffer = schema.TensorType.INT4, editing.add_buffer(model, fb.packed_nibbles(levels))
    weights.quantization = editing.symmetric(np.full(len(levels), 0.1, np.float32))


def with_blocks(model: fb.Model) -> None:
    with_packed_weights(model)
    [weights] = (t for t in model.subgraphs[0].tensors if t.type == schema.TensorType.INT4)
    weights.quantization = schema.QuantizationParametersT()
    weights.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
    weights.quantization.details = schema.BlockwiseQuantizationT()


def without_operands(model: fb.Model) -> None:
    op = model.subgraphs[0].operators[-1]
    op.opcodeIndex, op.inputs = editing.add_code(model, "RELU"), []
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.NONE, None


def without_values(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    graph.tensors[graph.operators[0].inputs[1]].buffer = 0


def over_a_constant(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    written = graph.tensors[graph.operators[0].outputs[0]]
    written.buffer = editing.add_buffer(model, np.zeros(fb.shape_of(written), np.float32))


REFUSED = {
    "no ops": (without_ops, "The model has no ops, so there is nothing to quantize."),
    "ops of TensorFlow": (with_flex, "ops of TensorFlow itself: FlexMatrixInverse.*without `SELECT_TF_OPS`"),
    "weights of 4 bits": (with_packed_weights, "quantized already: 1 of its tensors are integers with a scale"),
    "weights in blocks": (with_blocks, "quantized already: 1 of its tensors are integers with a scale"),
    "no operands": (without_operands, "damaged: a RELU reads or writes nothing"),
    "no values": (without_values, "damaged .*reads what nothing writes"),
    "over a constant": (over_a_constant, "damaged .*writes over a constant"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_refused_with_its_reason(name: str) -> None:
    spoil, message = REFUSED[name]
    model = fb.parse(zoo.cnn().float_model)
    spoil(model)
    with pytest.raises(ModelError, match=message):
        tflite_files.from_bytes(fb.serialise(model))


def test_metadata_need_no_name() -> None:
    model = fb.parse(zoo.cnn().float_model)
    model.metadata = [schema.MetadataT()]
    content = tflite_files.from_bytes(fb.serialise(model)).content
    [spec] = reader.input_specs(fb.parse(content))
    assert spec.shape == (1, 8, 8, 3)
