"""Variables that are only read become constants; a state stays."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed

import autoselect
from autoselect.errors import ModelError
from autoselect.rewrites import subgraphs
from autoselect.rewrites.rewriting import rewrite
from autoselect.rewrites.taken_in import TAKEN_IN
from autoselect.sources import loading
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

INTO, BACK = zoo.weights(16, 8), zoo.weights(8, 5)
KEYS = ("infer", "update", "branch", "stream")


@functools.cache
def folder() -> Path:
    """A model of which one signature reads weights, others read and write them."""
    import tensorflow as tf

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.into, self.back = tf.Variable(INTO), tf.Variable(BACK)
            self.state = tf.Variable(np.zeros((1, 5), np.float32))

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def infer(self, wide: Any) -> Any:
            return {"y": tf.tanh(wide @ self.into) @ self.back}

        @tf.function(input_signature=[tf.TensorSpec([16, 8], tf.float32), tf.TensorSpec([8, 5], tf.float32)])
        def update(self, into: Any, back: Any) -> Any:
            self.into.assign(into)
            self.back.assign(back)
            return {"into": self.into.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def branch(self, wide: Any) -> Any:
            code = tf.tanh(wide @ self.into)
            return {"y": tf.cond(tf.reduce_sum(wide) > 0.0, lambda: code @ self.back, lambda: code @ -self.back)}

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def stream(self, wide: Any) -> Any:
            self.state.assign(self.state * 0.5 + self.infer(wide)["y"])
            return {"y": self.state.read_value()}

    path, net = Path(tempfile.mkdtemp(prefix="autoselect-test-")), Net()
    tf.saved_model.save(net, str(path), signatures={key: getattr(net, key) for key in KEYS})
    return path


@functools.cache
def file() -> bytes:
    import tensorflow as tf

    return bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder()), signature_keys=list(KEYS)).convert())


def test_variables_that_are_only_read_become_constants(reviewed: Reviewed) -> None:
    found = loading.float_model(file(), wishes_of("infer", None))
    reviewed("variables that are only read", found.notes)
    [graph] = (model := fb.parse(found.content)).subgraphs
    assert {fb.op_type(model, op) for op in graph.operators} == {"BATCH_MATMUL", "TANH"}
    runner, rng = Runner(found.content), np.random.default_rng(0)
    for sample in rng.normal(size=(4, 1, 16)).astype(np.float32):
        [got] = runner(sample).values()
        assert got == pytest.approx(np.tanh(sample @ INTO) @ BACK, abs=1e-5)


@pytest.mark.parametrize("source", [file, folder], ids=["a .tflite", "a SavedModel"])
def test_a_state_stays_and_starts_anew_with_each_sample(reviewed: Reviewed, source: Callable[[], Any]) -> None:
    found = loading.float_model(source(), wishes_of("stream", None))
    reviewed("a state in variables", [note for note in found.notes if "state" in note])
    runner, rng = Runner(found.content), np.random.default_rng(0)
    for sample in rng.normal(size=(3, 1, 16)).astype(np.float32):
        [got] = runner(sample).values()
        assert got == pytest.approx(np.tanh(sample @ INTO) @ BACK, abs=1e-5)
        [again] = runner.step(sample).values()
        assert again == pytest.approx(1.5 * got, abs=1e-5)


def test_a_model_with_a_state_is_searched(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32)
    run = autoselect.search(
        file(),
        signature="stream",
        calibration=samples[:20],
        evaluation=samples[20:],
        metric="sqnr_db",
        trials=4,
        workers=1,
        output=tmp_path / "run",
    )
    assert run.summary["counts"]["failed"] == 0
    assert run.front["sqnr_db"].max() > 40.0
    told = " ".join(run.summary["warnings"])
    assert "READ_VARIABLE, ASSIGN_VARIABLE" in told
    assert "for bit" not in told
    found = autoselect.diagnose(file(), signature="stream", calibration=samples[:20])
    assert set(found.layer_statistics["op_name"]) >= {"TANH", "BATCH_MATMUL"}


def test_a_variable_that_a_branch_reads_is_refused() -> None:
    with pytest.raises(ModelError, match=r": IF reads"):
        loading.float_model(file(), wishes_of("branch", None))


def test_a_variable_without_an_initial_value_is_refused() -> None:
    model = fb.parse(file())
    for graph in model.subgraphs:
        graph.operators = [op for op in graph.operators if fb.op_type(model, op) != "CALL_ONCE"]
    with pytest.raises(ModelError, match="convert_variables_to_constants_v2"):
        loading.float_model(fb.serialise(model), wishes_of("infer", None))


def test_what_only_another_signature_reads_is_not_set_up(tmp_path: Path) -> None:
    """Vela dies of a call that does, and TensorFlow Lite Micro has no tables. One call sets up all there is."""
    import tensorflow as tf

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.into, self.state = tf.Variable(INTO), tf.Variable(np.zeros((1, 8), np.float32))
            pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([3, 4], tf.int64))
            self.table = tf.lookup.StaticHashTable(pairs, -1)

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def plain(self, wide: Any) -> Any:
            return {"y": tf.tanh(wide @ INTO) @ BACK}

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def infer(self, wide: Any) -> Any:
            return {"y": tf.tanh(wide @ self.into) @ BACK}

        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def stream(self, wide: Any) -> Any:
            self.state.assign(self.state * 0.5 + wide @ self.into)
            return {"y": self.state.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([1], tf.string, name="word")])
        def look_up(self, word: Any) -> Any:
            return {"number": self.table.lookup(word)}

    net, keys = Net(), ("plain", "infer", "stream", "look_up")
    tf.saved_model.save(net, str(tmp_path), signatures={key: getattr(net, key) for key in keys})
    content = bytes(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path), signature_keys=list(keys)).convert())
    found = {key: taken_in(content, key) for key in keys}
    assert {key: "CALL_ONCE" in main for key, (main, *_) in found.items()} == {
        "plain": False,
        "infer": False,
        "stream": True,
        "look_up": True,
    }
    assert found["stream"][1:] == [["VAR_HANDLE", "ASSIGN_VARIABLE"]]
    assert found["look_up"][1:] == [["HASHTABLE", "HASHTABLE_IMPORT"]]


def taken_in(content: bytes, signature: str) -> list[list[str]]:
    """Types of the ops of each subgraph of a signature, once it is taken in."""
    model = fb.parse(content)
    places = {s.signatureKey.decode(): s.subgraphIndex or 0 for s in model.signatureDefs}
    subgraphs.make_main(model, places[signature])
    assert "CALL_ONCE" in {fb.op_type(model, op) for op in model.subgraphs[0].operators}
    rewrite(model, TAKEN_IN)
    return [[fb.op_type(model, op) for op in graph.operators] for graph in model.subgraphs]


def test_a_variable_without_what_tells_it_from_others_is_damage() -> None:
    model = fb.parse(file())
    for graph in model.subgraphs:
        for op in graph.operators:
            if fb.op_type(model, op) == "VAR_HANDLE":
                op.builtinOptions = None
    with pytest.raises(ModelError, match="damaged"):
        rewrite(model, TAKEN_IN)
