"""Variables that are only read become constants; a model that keeps a state is refused."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.errors import ModelError
from autoselect.sources import loading
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


def test_variables_that_are_only_read_become_constants() -> None:
    found = loading.float_model(file(), signature="infer")
    assert found.notes[1:] == ("Variables became constants, with the initial values in the file: 2.",)
    [graph] = (model := fb.parse(found.content)).subgraphs
    assert {fb.op_type(model, op) for op in graph.operators} == {"BATCH_MATMUL", "TANH"}
    runner, rng = Runner(found.content), np.random.default_rng(0)
    for sample in rng.normal(size=(4, 1, 16)).astype(np.float32):
        [got] = runner(sample).values()
        assert got == pytest.approx(np.tanh(sample @ INTO) @ BACK, abs=1e-5)


@pytest.mark.parametrize("source", [file, folder], ids=["a .tflite", "a SavedModel"])
def test_a_model_that_keeps_a_state_is_refused(source: Callable[[], Any]) -> None:
    with pytest.raises(ModelError, match=r"keeps a state from run to run: ASSIGN_VARIABLE .* an input and an"):
        loading.float_model(source(), signature="stream")


def test_a_variable_that_a_branch_reads_is_refused() -> None:
    with pytest.raises(ModelError, match=r"cannot be made a constant: IF reads it\. Freeze the variables"):
        loading.float_model(file(), signature="branch")


def test_a_variable_without_an_initial_value_is_refused() -> None:
    model = fb.parse(file())
    for graph in model.subgraphs:
        graph.operators = [op for op in graph.operators if fb.op_type(model, op) != "CALL_ONCE"]
    with pytest.raises(ModelError, match=r"the file has no initial value for it\. .*convert_variables_to_constants_v2"):
        loading.float_model(fb.serialise(model), signature="infer")
