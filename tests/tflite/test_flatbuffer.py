from __future__ import annotations

import tracemalloc
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.errors import ModelError
from autoselect.sources import tflite_files
from autoselect.tflite import analysis, editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.schema_types import names_of_codes
from autoselect.tflite.tflite_file import TfliteFile

MODELS = [
    pytest.param(lambda: zoo.cnn().float_model, id="float"),
    pytest.param(lambda: zoo.cnn().drq(), id="dynamic range"),
    pytest.param(lambda: zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model)), id="full integer"),
    pytest.param(lambda: zoo.lstm().float_model, id="recurrent"),
    pytest.param(lambda: zoo.two_inputs().float_model, id="several inputs"),
]


def data_offsets(content: bytes) -> list[int]:
    """Where the data of each buffer that has any begins in the file, by the flatbuffers library alone."""
    model = schema.Model.GetRootAs(content, 0)
    buffers = [model.Buffers(i) for i in range(model.BuffersLength())]
    return [b._tab.Vector(b._tab.Offset(4)) for b in buffers if b.DataLength()]


def as_old_converters_wrote(content: bytes) -> bytes:
    """The same model with its op types in ``deprecated_builtin_code`` only."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize("make", MODELS)
def test_a_rewritten_model_gives_equal_outputs(make: object) -> None:
    content = make()  # type: ignore[operator]
    rewritten = fb.serialise(fb.parse(content))
    before, after = Runner(content), Runner(rewritten)
    for sample in zoo.random_samples(content):
        inputs = {s.key: v for s, v in zip(before.inputs, sample, strict=True)}
        expected, found = before(inputs), after(inputs)
        assert list(found) == list(expected)
        assert all(np.array_equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("make", MODELS)
def test_rewriting_twice_gives_equal_bytes(make: object) -> None:
    once = fb.serialise(fb.parse(make()))  # type: ignore[operator]
    assert fb.serialise(fb.parse(once)) == once


def test_writing_takes_room_for_a_file_twice_and_no_more() -> None:
    """Once to be put together in, once as bytes: large models are written hundreds of times in a search."""
    model = fb.parse(zoo.cnn().float_model)
    size = 1 << 24
    model.buffers[model.subgraphs[0].tensors[model.subgraphs[0].operators[0].inputs[1]].buffer].data = np.zeros(
        size, np.uint8
    )
    tracemalloc.start()
    try:
        content = fb.serialise(model)
        assert tracemalloc.get_traced_memory()[1] < 2.1 * size
    finally:
        tracemalloc.stop()
    assert len(content) > size


@pytest.mark.parametrize("make", MODELS)
def test_every_buffer_is_aligned(make: object) -> None:
    offsets = data_offsets(fb.serialise(fb.parse(make())))  # type: ignore[operator]
    assert len(offsets) > 2
    assert [o % 16 for o in offsets] == [0] * len(offsets)


def test_an_odd_sized_buffer_is_aligned_too() -> None:
    model = fb.parse(zoo.cnn().float_model)
    for size in (1, 3, 17, 33):
        editing.add_buffer(model, np.arange(size, dtype=np.uint8))
    content = fb.serialise(model)
    assert [o % 16 for o in data_offsets(content)] == [0] * len(data_offsets(content))
    assert fb.parse(content).buffers[-1].data.tolist() == list(range(33))


def test_truncation_is_a_model_error_at_any_length() -> None:
    content = zoo.cnn().float_model
    lengths = {*range(0, 64), *np.linspace(64, len(content) - 1, 150, dtype=int).tolist(), len(content) - 1}
    for length in sorted(lengths):
        with pytest.raises(ModelError, match=r"cut off|TFLite file"):
            fb.parse(content[:length])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_is_a_model_error(data: st.DataObject) -> None:
    content = bytearray(zoo.two_inputs().float_model)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = fb.parse(bytes(content))
    except ModelError:
        return
    assert model.subgraphs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "found '0 bytes'", id="empty"),
        pytest.param(b"TFL3", "found '4 bytes'", id="too short"),
        pytest.param(b"PK\x03\x04" + bytes(60), "identifier 'TFL3'", id="a zip file"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid\n", "git lfs pull", id="an LFS pointer"),
        pytest.param(b"\x89HDF\r\n\x1a\n" + bytes(60), "identifier 'TFL3'", id="an HDF5 file"),
        pytest.param(b"\x08\x00\x00\x00TFL3" + bytes(60), "damaged", id="zeros behind the identifier"),
        pytest.param(b"\xff\xff\xff\x7fTFL3" + bytes(60), "damaged", id="a root beyond the end"),
    ],
)
def test_what_is_no_tflite_file(content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        fb.parse(content)


def test_a_file_of_an_old_converter_is_read_right() -> None:
    content = zoo.cnn().float_model
    old = as_old_converters_wrote(content)
    assert {c.builtinCode for c in schema.ModelT.InitFromObj(schema.Model.GetRootAs(old, 0)).operatorCodes} == {0}
    model, expected = fb.parse(old), fb.parse(content)
    types = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    assert types == [fb.op_type(expected, op) for op in expected.subgraphs[0].operators]
    assert "DEPTHWISE_CONV_2D" in types
    [sample] = zoo.random_samples(content, 1)
    [output] = Runner(fb.serialise(model))(sample[0]).values()
    [reference] = Runner(content)(sample[0]).values()
    assert np.array_equal(output, reference)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda folder: folder / "no.tflite", "There is no model file", id="missing"),
        pytest.param(lambda folder: folder, "cannot be read", id="a folder"),
    ],
)
def test_files_that_cannot_be_read(make: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        fb.read_model_file(make(tmp_path))  # type: ignore[operator]


def test_a_custom_op_has_its_own_name() -> None:
    model = fb.parse(zoo.cnn().float_model)
    code = model.operatorCodes[model.subgraphs[0].operators[0].opcodeIndex]
    code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, b"MyOp"
    assert fb.op_type(fb.parse(fb.serialise(model)), model.subgraphs[0].operators[0]) == "MyOp"


def test_the_old_field_of_metadata_keeps_its_buffers() -> None:
    """MediaPipe's older models have it."""
    model = fb.parse(zoo.cnn().float_model)
    model.buffers.insert(1, schema.BufferT())
    for holder in [*(t for g in model.subgraphs for t in g.tensors), *(model.metadata or [])]:
        holder.buffer += holder.buffer > 0
    model.metadataBuffer = np.array([editing.add_buffer(model, np.arange(5, dtype=np.uint8)), 9999], np.int32)
    editing.drop_unused_buffers(model)
    [place] = model.metadataBuffer
    assert model.buffers[place].data.tolist() == [0, 1, 2, 3, 4]
    assert analysis.analyse(TfliteFile(fb.serialise(model)))["sizes"]["unused_bytes"] == 0


def test_dropping_what_is_unused_changes_nothing_else() -> None:
    content = zoo.two_inputs().float_model
    model = fb.parse(content)
    size = len(fb.serialise(model))
    stray = schema.TensorT()
    stray.name, stray.shape, stray.buffer = b"stray", [64], editing.add_buffer(model, np.ones(64, np.float32))
    # In front, so that every index moves.
    _shift_tensors(model)
    model.subgraphs[0].tensors.insert(0, stray)
    editing.drop_unused_tensors(model)
    editing.drop_unused_buffers(model)
    cleaned = fb.serialise(model)
    assert len(cleaned) == size
    runner, reference = Runner(cleaned), Runner(content)
    [sample] = zoo.random_samples(content, 1)
    inputs = {s.key: v for s, v in zip(reference.inputs, sample, strict=True)}
    expected, found = reference(inputs), runner(inputs)
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


def _shift_tensors(model: object) -> None:
    graph = model.subgraphs[0]  # type: ignore[attr-defined]
    for holder in (graph, *graph.operators):
        holder.inputs = [i + 1 if i >= 0 else i for i in holder.inputs]
        holder.outputs = [i + 1 for i in holder.outputs]
    for signature in model.signatureDefs:  # type: ignore[attr-defined]
        for entry in (*signature.inputs, *signature.outputs):
            entry.tensorIndex += 1


def _with_data_behind(content: bytes) -> bytes:
    """The same model, the data of its buffers behind the flatbuffer, as writers of large files keep them."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    rows = {i: fb.buffer_bytes(b) for i, b in enumerate(model.buffers) if b.data is not None and len(b.data)}
    offsets = dict.fromkeys(rows, 16)
    for _ in range(2):  # The second time the size of the flatbuffer is known.
        for i, row in rows.items():
            model.buffers[i].data, model.buffers[i].offset, model.buffers[i].size = None, offsets[i], len(row)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), file_identifier=fb.FILE_IDENTIFIER)
        head = bytes(builder.Output())
        offsets, at = {}, len(head)
        for i, row in rows.items():
            offsets[i], at = at, at + len(row)
    return head + b"".join(rows.values())


def test_data_behind_the_flatbuffer_are_read() -> None:
    content = zoo.cnn().float_model
    moved = _with_data_behind(content)
    assert fb.serialise(fb.parse(moved)) == fb.serialise(fb.parse(content))
    with pytest.raises(ModelError, match="cut off"):
        fb.parse(moved[:-5])


def test_lists_that_a_writer_left_out_are_empty() -> None:
    """C++ writes no empty list of a subgraph: one that does nothing, or that only sets what is kept."""
    model = fb.parse(zoo.loop().float_model)
    idle, holding = schema.SubGraphT(), schema.SubGraphT()
    half = schema.TensorT()
    half.name, half.type, half.shape = b"half", schema.TensorType.FLOAT16, np.array([2], np.int32)
    half.buffer = editing.add_buffer(model, np.ones(2, np.float16))
    holding.tensors = [half]
    model.subgraphs, model.signatureDefs = [*model.subgraphs, idle, holding], None
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=fb.FILE_IDENTIFIER)
    content = bytes(builder.Output())
    kept = fb.parse(fb.serialise(fb.parse(content)))
    assert [len(graph.operators) for graph in kept.subgraphs[-2:]] == [0, 0]
    assert [len(graph.tensors) for graph in kept.subgraphs[-2:]] == [0, 1]
    assert len(fb.parse(tflite_files.from_bytes(content).content).subgraphs) == len(model.subgraphs) - 2


def test_a_model_that_no_file_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fb.parse(zoo.cnn().float_model)
    monkeypatch.setattr(flatbuffers.Builder, "MAX_BUFFER_SIZE", 1 << 10)
    with pytest.raises(ModelError, match="more than 2 GB"):
        fb.serialise(model)


def test_what_python_keeps_of_a_class_is_no_code() -> None:
    """Python 3.13 adds ``__firstlineno__`` to each class."""
    enumeration = type("Enumeration", (), {"__firstlineno__": 4, "ADD": 0, "CONV_2D": 3, "kind": "int8"})
    assert names_of_codes(enumeration) == {0: "ADD", 3: "CONV_2D"}
