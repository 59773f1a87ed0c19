"""Files that parse and yet are no model."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from autoselect.embedded import model_bytes
from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb


def written(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=fb.FILE_IDENTIFIER)
    return bytes(builder.Output())


def out_of_range(model: Any) -> None:
    model.subgraphs[0].outputs = np.array([9999], dtype=np.int32)


def unknown_kind(model: Any) -> None:
    model.subgraphs[0].tensors[0].type = 77


def endless_shape(model: Any) -> None:
    model.subgraphs[0].tensors[0].shape = np.full(4, 2**31 - 1, dtype=np.int32)


def negative_shape(model: Any) -> None:
    model.subgraphs[0].tensors[0].shape = np.array([-7], dtype=np.int32)


def short_constant(model: Any) -> None:
    tensor = next(t for t in model.subgraphs[0].tensors if fb.is_constant(model, t))
    model.buffers[tensor.buffer].data = model.buffers[tensor.buffer].data[:-1]


def lost_signature(model: Any) -> None:
    model.signatureDefs[0].inputs[0].tensorIndex = 9999


def lost_metadata(model: Any) -> None:
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"notes", 9999
    model.metadata = [entry]


def left_out_output(model: Any) -> None:
    model.subgraphs[0].outputs = np.array([-1, 0], dtype=np.int32)


def endless_scale(model: Any) -> None:
    parameters = schema.QuantizationParametersT()
    parameters.scale, parameters.zeroPoint = np.array([np.inf], np.float32), np.zeros(1, np.int64)
    model.subgraphs[0].tensors[0].quantization = parameters


def negative_scale(model: Any) -> None:
    endless_scale(model)
    model.subgraphs[0].tensors[0].quantization.scale = np.array([0.1, -0.1], np.float32)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(left_out_output, "names a tensor that is not there", id="an output that is left out"),
        pytest.param(endless_scale, "infinite or below 0", id="an infinite scale"),
        pytest.param(negative_scale, "infinite or below 0", id="a negative scale"),
        pytest.param(out_of_range, "names a tensor that is not there", id="an output that is not there"),
        pytest.param(unknown_kind, "unknown type 77", id="an unknown type"),
        pytest.param(endless_shape, r"of the shape \[2147483647", id="a shape of 2 to the 124"),
        pytest.param(negative_shape, r"of the shape \[-7\]", id="a negative size"),
        pytest.param(short_constant, r"\d+ bytes for a constant", id="a constant that is cut off"),
        pytest.param(lost_signature, "list index out of range", id="a signature of a tensor that is not there"),
        pytest.param(lost_metadata, "list index out of range", id="metadata in a buffer that is not there"),
    ],
)
def test_what_leads_nowhere_is_refused(harm: Callable[[Any], None], words: str) -> None:
    model = fb.parse(model_bytes())
    harm(model)
    with pytest.raises(ModelError, match=rf"cut off .*{words}"):
        fb.parse(written(model))


def same_tables(count: int) -> bytes:
    """A subgraph of ``count`` tensors that all are one table, ``count`` times."""
    builder = flatbuffers.Builder(1024)
    schema.TensorStart(builder)
    tensor = schema.TensorEnd(builder)
    tensors = _vector(builder, [tensor] * count)
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    graph = schema.SubGraphEnd(builder)
    return _model(builder, [graph] * count)


def same_name(count: int, length: int) -> bytes:
    """Tensors whose name is one text of ``length`` bytes."""
    builder = flatbuffers.Builder(1024)
    name = builder.CreateString("n" * length)
    tensors = []
    for _ in range(count):
        schema.TensorStart(builder)
        schema.TensorAddName(builder, name)
        tensors.append(schema.TensorEnd(builder))
    row = _vector(builder, tensors)
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, row)
    return _model(builder, [schema.SubGraphEnd(builder)])


def _vector(builder: flatbuffers.Builder, places: list[int]) -> int:
    builder.StartVector(4, len(places), 4)
    for place in places:
        builder.PrependUOffsetTRelative(place)
    return int(builder.EndVector())


def _model(builder: flatbuffers.Builder, graphs: list[int]) -> bytes:
    row = _vector(builder, graphs)
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, row)
    builder.Finish(schema.ModelEnd(builder), file_identifier=fb.FILE_IDENTIFIER)
    return bytes(builder.Output())


BOMB = """
import sys
import test_soundness
from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb

content = getattr(test_soundness, sys.argv[1])(*map(int, sys.argv[2:]))
for read in (fb.parse, fb.parse_interface):
    try:
        read(content)
    except ModelError as exc:
        print(exc)
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        pytest.param(("same_tables", "20000"), "entries in", id="400 million tensors in 160 KB"),
        pytest.param(("same_name", "3000", "10000000"), "names that are longer", id="30 GB of names in 10 MB"),
    ],
)
def test_a_file_that_unpacks_to_far_more_is_refused_within_half_a_gigabyte(bomb: tuple[str, ...], words: str) -> None:
    limit = 4 << 30
    out = subprocess.run(
        [sys.executable, "-c", BOMB, *bomb],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    ).stdout.splitlines()
    assert len(out) == 3
    assert all(words in line for line in out[:2])
    assert int(out[2]) < 512 * 1024
