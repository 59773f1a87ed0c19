"""The analysis against TensorFlow's own analyzer, and against the flatbuffers library where that is silent."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.embedded import model_bytes
from autoselect.errors import ModelError
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.analysis import analyse
from autoselect.tflite.tflite_file import TfliteFile


@functools.cache
def fiq() -> bytes:
    return zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model))


@functools.cache
def drq() -> bytes:
    return zoo.cnn().drq()


@functools.cache
def recurrent_drq() -> bytes:
    return zoo.lstm().drq()


@functools.cache
def mixed() -> bytes:
    """Integers with a float island in the middle."""
    return zoo.cnn().prepared.builder.build(Recipe(denylisted_ops=frozenset({"ADD"}), fallback="float")).content


@functools.cache
def loop() -> bytes:
    """A WHILE with its condition and body: three subgraphs."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.nn.relu(tf.matmul(y, zoo.weights(4, 4)))

        return tf.while_loop(lambda i, _: i < 3, body, (tf.constant(0), x))[1]

    return zoo.from_function(call, (1, 4)).float_model


@functools.cache
def two_signatures() -> bytes:
    """Two functions in one file: two subgraphs."""
    import tempfile

    import tensorflow as tf

    spec = tf.TensorSpec([1, 4], tf.float32, name="x")
    module = tf.Module()
    module.double = tf.function(lambda x: {"y": x * 2.0}).get_concrete_function(spec)
    module.dense = tf.function(lambda x: {"z": tf.matmul(x, zoo.weights(4, 3)) + 1.0}).get_concrete_function(spec)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"double": module.double, "dense": module.dense})
        return bytes(tf.lite.TFLiteConverter.from_saved_model(folder, ["double", "dense"]).convert())


@functools.cache
def with_strays() -> bytes:
    """The CNN with two buffers that nothing points at, one of zeros, one of ones, and one that metadata point at."""
    model = fb.parse(zoo.cnn().float_model)
    editing.add_buffer(model, np.zeros(20, np.uint8))
    editing.add_buffer(model, np.ones(33, np.uint8))
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"note", editing.add_buffer(model, np.ones(40, np.uint8))
    model.metadata.append(entry)
    return fb.serialise(model)


MODELS = [
    pytest.param(lambda: zoo.cnn().float_model, id="float"),
    pytest.param(drq, id="dynamic range"),
    pytest.param(fiq, id="full integer"),
    pytest.param(mixed, id="mixed"),
    pytest.param(lambda: zoo.lstm().float_model, id="recurrent"),
    pytest.param(recurrent_drq, id="recurrent, dynamic range"),
    pytest.param(lambda: zoo.two_inputs().float_model, id="several inputs"),
    pytest.param(two_signatures, id="two subgraphs"),
    pytest.param(loop, id="loop"),
    pytest.param(with_strays, id="stray buffers"),
    pytest.param(model_bytes, id="embedded"),
]


class Told(dict[str, Any]):
    """A dict whose values are attributes, too."""

    __getattr__ = dict.__getitem__


def analysed(content: bytes) -> Any:
    return told(analyse(TfliteFile(content)))


def told(value: Any) -> Any:
    if isinstance(value, dict):
        return Told({name: told(one) for name, one in value.items()})
    return tuple(map(told, value)) if isinstance(value, tuple) else value


def official(content: bytes) -> str:
    """What ``tf.lite.experimental.Analyzer`` prints."""
    import tensorflow as tf

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        tf.lite.experimental.Analyzer.analyze(model_content=content)
    return printed.getvalue()


def numbers(text: str) -> tuple[int, ...]:
    """Tensor numbers in ``T#1_0, T#1_2[3]``."""
    return tuple(int(n) for n in re.findall(r"T#(?:\d+_)?(-?\d+)", text))


def official_subgraphs(text: str) -> list[dict[str, Any]]:
    """Its subgraphs: name, inputs, outputs, ops, tensors."""
    parts = re.split(r"^Subgraph#\d+", text.partition("\n----")[0], flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        head = re.match(r" ?(.*?)\((.*)\) -> \[(.*)\]", part)
        assert head is not None
        ops = re.findall(r"^  Op#\d+ (\w+)\((.*)\) -> \[(.*)\]", part, flags=re.MULTILINE)
        tensors = re.findall(r"^  (T#\S+?)\((.*)\) (shape\S*:.*)$", part, flags=re.MULTILINE)
        found.append(
            {
                "name": head[1],
                "inputs": numbers(head[2]),
                "outputs": numbers(head[3]),
                "ops": [(name, numbers(inputs), numbers(outputs)) for name, inputs, outputs in ops],
                "tensors": [(numbers(number)[0], name, *_details(rest)) for number, name, rest in tensors],
            }
        )
    return found


def _details(text: str) -> tuple[tuple[int, ...], str, tuple[int, int] | None]:
    """Shape, dtype, and of a constant its bytes and its buffer."""
    shape = re.match(r"shape\w*:\[(.*?)\]", text)
    dtype = re.search(r"type:(\w+)", text)
    constant = re.search(r"RO (\d+) bytes, buffer: (\d+)", text)
    assert shape is not None
    assert dtype is not None
    return (
        tuple(int(n) for n in re.findall(r"-?\d+", shape[1])),
        dtype[1].lower(),
        (int(constant[1]), int(constant[2])) if constant else None,
    )


def ours(graph: Any) -> dict[str, Any]:
    return {
        "name": graph.name,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "ops": [(op.op_type, op.inputs, op.outputs) for op in graph.ops],
        "tensors": [
            (
                t.index,
                t.name,
                t.shape if t.shape_signature is None else t.shape_signature,
                t.dtype,
                (t.size_bytes, t.buffer) if t.is_constant else None,
            )
            for t in graph.tensors
        ],
    }


@pytest.mark.parametrize("make", MODELS)
def test_subgraphs_ops_and_tensors_are_those_of_the_official_analyzer(make: Callable[[], bytes]) -> None:
    text, found = official(make()), analysed(make())
    expected = official_subgraphs(text)
    count = re.search(r"model has '(\d+)' subgraph", text)
    assert count is not None
    assert len(found.subgraphs) == len(expected) == int(count[1])
    assert all(part["ops"] and part["tensors"] for part in expected)
    assert [ours(graph) for graph in found.subgraphs] == expected
    assert sum(found.ops_by_type.values()) == sum(found.ops_by_kind.values()) == sum(len(p["ops"]) for p in expected)
    assert sum(found.tensors_by_dtype.values()) == sum(len(p["tensors"]) for p in expected)


@pytest.mark.parametrize("make", MODELS)
def test_sizes_are_those_of_the_official_analyzer(make: Callable[[], bytes]) -> None:
    text, found = official(make()), analysed(make())
    printed = {name.strip(" ()"): int(n) for name, n in re.findall(r"^([ (\w)-]+): +(\d+) bytes", text, re.MULTILINE)}
    sizes = found.sizes
    assert printed["Model size"] == found.size_bytes == len(make())
    assert printed["Total data buffer size"] == found.buffers.data_bytes
    assert printed["Total data buffer size"] == sizes.weights_bytes + sizes.metadata_bytes + sizes.unused_bytes
    assert printed["Non-data buffer size"] == sizes.rest_bytes
    assert printed["Zero value buffers"] == found.buffers.zero_bytes


@pytest.mark.parametrize("make", MODELS)
def test_signatures_are_those_of_the_official_analyzer(make: Callable[[], bytes]) -> None:
    text, found = official(make()), analysed(make())
    parts = re.split(r"^Signature#\d+ key: ", text, flags=re.MULTILINE)[1:]
    assert len(found.signatures) == len(parts)
    for part, signature in zip(parts, found.signatures, strict=True):
        head, _, rest = part.partition("- Inputs:")
        inputs, _, outputs = rest.partition("- Outputs:")
        assert head.splitlines()[0] == f"'{signature.key}'"
        assert f"Subgraph#{signature.subgraph}\n" in head
        for side, expected in ((signature.inputs, inputs), (signature.outputs, outputs.partition("\n---")[0])):
            rows = re.findall(r"'(.*)' : (T#\S+)", expected)
            assert side == {name: numbers(tensor)[0] for name, tensor in rows}


@pytest.mark.parametrize("make", MODELS)
def test_buffers_are_counted_as_they_lie_in_the_file(make: Callable[[], bytes]) -> None:
    model, found = schema.Model.GetRootAs(make(), 0), analysed(make()).buffers
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    used = {g.Tensors(i).Buffer() for g in graphs for i in range(g.TensorsLength())}
    used |= {model.Metadata(i).Buffer() for i in range(model.MetadataLength())}
    assert found.count == model.BuffersLength()
    assert found.unused == tuple(i for i in range(1, model.BuffersLength()) if i not in used)
    data = [_data(model.Buffers(i)) for i in range(found.count)]
    assert found.zero == tuple(i for i, raw in enumerate(data) if raw and not raw.strip(b"\0"))


def _data(buffer: Any) -> bytes:
    return bytes(buffer.DataAsNumpy()) if buffer.DataLength() else b""


def test_stray_buffers_by_hand() -> None:
    before, after = analysed(fb.serialise(fb.parse(zoo.cnn().float_model))), analysed(with_strays())
    first = before.buffers.count
    assert after.buffers.count == first + 3
    assert after.buffers.unused == (*before.buffers.unused, first, first + 1)
    assert after.buffers.zero == (*before.buffers.zero, first)
    assert after.sizes.unused_bytes == before.sizes.unused_bytes + 20 + 33
    assert after.sizes.metadata_bytes == before.sizes.metadata_bytes + 40
    assert after.sizes.weights_bytes == before.sizes.weights_bytes
    assert [(entry.name, entry.size_bytes) for entry in after.metadata][-1] == ("note", 40)


def test_kinds_and_quantization() -> None:
    kinds = {name: analysed(make()).ops_by_kind for name, make in {"fiq": fiq, "mixed": mixed}.items()}
    assert kinds["fiq"] == {"integer": 8, "boundary": 2}
    assert kinds["mixed"]["float"] == 1
    assert analysed(drq()).ops_by_kind == {"float": 7, "hybrid": 1}
    (graph,) = analysed(fiq()).subgraphs
    depthwise = next(op for op in graph.ops if op.op_type == "DEPTHWISE_CONV_2D")
    assert depthwise.kind == OpKind.INTEGER.value
    activation, weight = (graph.tensors[i].quantization for i in depthwise.inputs[:2])
    assert activation is not None
    assert (activation.scale_count, activation.axis) == (1, None)
    assert weight is not None
    assert (weight.scale_count, weight.axis, weight.zero_point) == (16, 3, 0)
    assert graph.tensors[graph.inputs[0]].quantization is None


def test_scales_are_those_of_the_interpreter() -> None:
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(model_content=fiq()).get_tensor_details()
    (graph,) = analysed(fiq()).subgraphs
    for detail in details[: len(graph.tensors)]:
        theirs, found = detail["quantization_parameters"], graph.tensors[detail["index"]].quantization
        assert (found is None) == (len(theirs["scales"]) == 0)
        if found is not None:
            assert found.scale == theirs["scales"][0]
            assert (found.zero_point, found.scale_count) == (theirs["zero_points"][0], len(theirs["scales"]))


@pytest.mark.parametrize("make", MODELS)
def test_it_is_the_same_as_json(make: Callable[[], bytes]) -> None:
    plain = analysed(make())
    read = json.loads(json.dumps(plain))
    assert read["sizes"] == plain["sizes"]
    assert len(read["subgraphs"][0]["ops"]) == len(plain["subgraphs"][0]["ops"])
    assert read["subgraphs"][0]["ops"][0]["kind"] in {kind.value for kind in OpKind}


def test_metadata_of_old_files_are_no_unused_buffers() -> None:
    model = fb.parse(zoo.cnn().float_model)
    index = editing.add_buffer(model, np.ones(24, np.uint8))
    model.metadataBuffer = np.array([index], dtype=np.int32)
    before, after = analysed(zoo.cnn().float_model), analysed(fb.serialise(model))
    assert after.buffers.unused == before.buffers.unused
    assert after.sizes.metadata_bytes == before.sizes.metadata_bytes + 24


def written(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def first_input(model: Any, tensor: int) -> None:
    op = model.subgraphs[0].operators[0]
    op.inputs = np.array([tensor, *op.inputs[1:]], dtype=np.int32)


def circle(model: Any) -> None:
    first_input(model, model.subgraphs[0].operators[-1].outputs[0])


def missing_tensor(model: Any) -> None:
    first_input(model, 10_000)


def missing_output(model: Any) -> None:
    model.subgraphs[0].outputs = np.array([10_000], dtype=np.int32)


def unknown_dtype(model: Any) -> None:
    model.subgraphs[0].tensors[0].type = 100


def missing_subgraph(model: Any) -> None:
    model.signatureDefs[0].subgraphIndex = 7


def missing_metadata(model: Any) -> None:
    model.metadata[0].buffer = 10_000


@pytest.mark.parametrize(
    "harm", [circle, missing_tensor, missing_output, unknown_dtype, missing_subgraph, missing_metadata]
)
def test_what_does_not_fit_together_is_a_model_error(harm: Callable[[Any], None]) -> None:
    model = fb.parse(zoo.cnn().float_model)
    harm(model)
    with pytest.raises(ModelError, match=r"fit together|cut off"):
        analysed(written(model))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_file_is_analysed_or_is_a_model_error(data: st.DataObject) -> None:
    content = bytearray(zoo.two_inputs().float_model)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ModelError):
        found = analysed(bytes(content))
        assert sum(found["sizes"].values()) == len(content)


@pytest.mark.real
def test_real_models_have_the_official_counts(real_data: Path) -> None:
    paths = sorted(real_data.glob("*/*.tflite"))
    assert paths
    for path in paths:
        content = path.read_bytes()
        text, found = official(content), analysed(content)
        assert [ours(graph) for graph in found.subgraphs] == official_subgraphs(text)
        assert re.search(rf"data buffer size: +{found.buffers.data_bytes} bytes", text)
