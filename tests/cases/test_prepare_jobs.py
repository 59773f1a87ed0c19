"""What workers prepare before the first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zoo

from autoselect.cases import prepare_jobs
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepared import Prepared, load_prepared
from autoselect.data.samples import SampleStore
from autoselect.quantize.preparing import normalise
from autoselect.runs.files import write_bytes
from autoselect.tflite import comparing, editing, reader
from autoselect.tflite import flatbuffer as fb


def unfolded(offset: float = 0.0) -> bytes:
    """A file of a converter that does not fold: the quantizer puts the constant of the ADD into the next bias.

    An offset that comes and goes amplifies the rounding of what is between.
    """
    import tensorflow as tf

    def call(x: Any) -> Any:
        first = tf.abs(tf.nn.conv2d(x, zoo.weights(3, 3, 3, 8), 1, "SAME") + np.float32(offset))
        last = zoo.weights(1, 1, 8, 8, seed=1)
        second = tf.nn.conv2d(tf.floor(first + 0.3), last, 1, "VALID")
        return second + (zoo.weights(8, seed=2) - np.float32(offset) * last.sum(axis=(0, 1, 2)))

    model = fb.parse(zoo.from_function(call, (1, 8, 8, 3)).float_model)
    graph = model.subgraphs[0]
    [floor] = [op for op in graph.operators if fb.op_type(model, op) == "FLOOR"]
    editing.drop_copies(model, graph, fb.indices(floor.inputs), lambda op: op is floor)
    editing.drop_unused_tensors(model)
    editing.tidy(model)
    return fb.serialise(model)


def prepared(content: bytes, root: Path) -> Prepared:
    files = CaseFiles(root=root)
    write_bytes(files.float_model, content)
    specs = reader.input_specs(fb.parse(content))
    samples = (({specs[0].key: sample}, None) for [sample] in zoo.random_samples(content, 6))
    SampleStore.write(files.samples("calibration"), samples, specs)
    out = root / "out"
    out.mkdir()
    prepare_jobs.prepare(root, out, 0, per_channel=True, quantizer="tensorflow")
    return load_prepared(out)


def test_what_the_quantizer_folds_is_folded_where_rounding_alone_tells(tmp_path: Path) -> None:
    found = prepared(unfolded(), tmp_path)
    assert [op.op_type for op in found.graph.ops] == ["CONV_2D", "ABS", "CONV_2D"]
    assert len(found.layers.nodes) == len(found.graph.ops)
    assert not found.remarks
    [note] = found.notes
    assert "folded" in note


def test_what_is_folded_without_a_bit_changed_is_not_told(tmp_path: Path) -> None:
    found = prepared(zoo.cnn().float_model, tmp_path)
    assert not found.remarks
    assert not found.notes


def test_a_model_that_amplifies_rounding_is_folded_too(tmp_path: Path) -> None:
    content = unfolded(offset=300.0)
    found = prepared(content, tmp_path)
    samples = [{"x0": sample} for [sample] in zoo.random_samples(content, 6)]
    folded = normalise.normalise(content).content
    assert comparing.difference(content, folded, samples, delegates=False) > comparing.MOST_ROUNDING
    assert [op.op_type for op in found.graph.ops] == ["CONV_2D", "ABS", "CONV_2D"]
    assert not found.remarks


def test_what_a_model_does_not_amplify_is_no_rounding() -> None:
    plain, amplifying = unfolded(), unfolded(offset=300.0)
    samples = [{"x0": sample} for [sample] in zoo.random_samples(plain, 6)]
    assert not comparing.is_rounding(3e-5, plain, samples)
    assert comparing.is_rounding(3e-5, amplifying, samples)
    assert not comparing.is_rounding(0.01, amplifying, samples)
