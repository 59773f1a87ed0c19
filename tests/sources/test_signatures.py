"""One of several signatures becomes the model."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect.cli.main import app
from autoselect.errors import AutoselectError, DataError, ModelError, UsageError
from autoselect.sources import loading
from autoselect.sources.keras_models import from_keras
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


@functools.cache
def module() -> Any:
    """``encode``, ``choose`` with an IF, and ``decode``, which loops."""
    import tensorflow as tf

    into, back = zoo.weights(16, 8), zoo.weights(8, 5)

    class Coder(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="wide")])
        def encode(self, wide: Any) -> Any:
            return {"code": tf.nn.relu(wide @ into)}

        @tf.function(input_signature=[tf.TensorSpec([1, 8], tf.float32, name="code")])
        def choose(self, code: Any) -> Any:
            up = tf.reduce_sum(code) > 0.0
            return {"answer": tf.cond(up, lambda: tf.nn.relu(code @ back), lambda: code @ (back * 2.0) - 1.0)}

        @tf.function(input_signature=[tf.TensorSpec([1, 8], tf.float32, name="code")])
        def decode(self, code: Any) -> Any:
            steps = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.nn.tanh(x) * 2.0), [0, code])
            return {"y": steps[1] @ back}

    return Coder()


KEYS = ("encode", "choose", "decode")


@functools.cache
def folder() -> Path:
    import tensorflow as tf

    path = Path(tempfile.mkdtemp(prefix="autoselect-test-"))
    tf.saved_model.save(module(), str(path), signatures={key: getattr(module(), key) for key in KEYS})
    return path


@functools.cache
def file() -> bytes:
    import tensorflow as tf

    return bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder()), signature_keys=list(KEYS)).convert())


def of_all_signatures() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """As a converter takes it, but for one signature that it forgets."""
    rng = np.random.default_rng(4)
    for _ in range(8):
        yield "encode", {"wide": rng.uniform(-1.0, 1.0, (1, 16)).astype(np.float32)}
        yield "choose", {"code": rng.uniform(-99.0, 99.0, (1, 8)).astype(np.float32)}


def converter() -> Any:
    import tensorflow as tf

    return tf.lite.TFLiteConverter.from_saved_model(str(folder()), signature_keys=list(KEYS))


@pytest.mark.parametrize("source", [file, folder, converter], ids=["a .tflite", "a SavedModel", "a converter"])
def test_each_signature_has_its_own_samples(source: Callable[[], Any], tmp_path: Path) -> None:
    recipe = autoselect.Recipe(io_type="int8")
    chosen = {"model": source(), "calibration": of_all_signatures, "signature": "encode"}
    autoselect.build(recipe, **chosen, output=tmp_path / "encode.tflite")
    graph = fb.parse((tmp_path / "encode.tflite").read_bytes()).subgraphs[0]
    [index] = graph.inputs
    assert 255 * graph.tensors[index].quantization.scale[0] == pytest.approx(2.0, rel=0.1)
    chosen["signature"] = "decode"
    with pytest.raises(DataError, match=r"'decode'.*'encode', 'choose'"):
        autoselect.build(recipe, **chosen, output=tmp_path / "decode.tflite")


@pytest.mark.parametrize("source", [file, folder], ids=["a .tflite", "a SavedModel"])
@pytest.mark.parametrize("key", KEYS)
def test_the_chosen_one_answers(key: str, source: Callable[[], Any]) -> None:
    found = loading.float_model(source(), wishes_of(key, None))
    assert len(found.notes) == (0 if key == "encode" else 1)  # The others have control flow.
    assert not any("Signature" in note for note in found.notes)
    runner, rng = Runner(found.content), np.random.default_rng(0)
    for _ in range(4):
        sample = rng.normal(size=runner.inputs[0].shape).astype(np.float32)
        [got], [expected] = runner(sample).values(), getattr(module(), key)(sample).values()
        assert got == pytest.approx(expected.numpy(), abs=1e-5)
    model = fb.parse(found.content)
    assert len(model.subgraphs) == {"encode": 1, "choose": 3, "decode": 3}[key]
    assert [(s.signatureKey, s.subgraphIndex) for s in model.signatureDefs][:1] == [
        ((key if source is file else "serving_default").encode(), 0)
    ]


REFUSED: dict[str, tuple[Callable[[], Any], str | None, type[AutoselectError], str]] = {
    "a .tflite, none chosen": (file, None, ModelError, r"several signatures: .*encode.* Choose .*--signature"),
    "a SavedModel, none chosen": (folder, None, ModelError, r"several signatures: .*encode.* Choose .*--signature"),
    "a .tflite, unknown": (file, "encoder", UsageError, r"no signature 'encoder'\. Its signatures: .*encode"),
    "a SavedModel, unknown": (folder, "encoder", UsageError, r"no signature 'encoder'\. Its signatures: .*encode"),
    "a .tflite of one": (lambda: zoo.cnn().float_model, "x", UsageError, "no signature 'x'.* serving_default"),
}


@pytest.mark.parametrize(("source", "key", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(
    source: Callable[[], Any], key: str | None, error: type[AutoselectError], message: str
) -> None:
    with pytest.raises(error, match=message):
        loading.float_model(source(), wishes_of(key, None))


def test_a_file_without_signatures_takes_none() -> None:
    model = fb.parse(zoo.cnn().float_model)
    model.signatureDefs = []
    with pytest.raises(UsageError, match="no signatures, got 'x'"):
        loading.float_model(fb.serialise(model), wishes_of("x", None))


def test_the_only_signature_need_not_be_of_the_first_subgraph() -> None:
    model = fb.parse(zoo.cnn().float_model)
    other = deepcopy(model.subgraphs[0])
    other.outputs = [other.operators[0].outputs[0]]
    model.subgraphs.insert(0, other)
    for signature in model.signatureDefs:
        signature.subgraphIndex = 1
    found = fb.parse(loading.float_model(fb.serialise(model)).content)
    [graph] = found.subgraphs
    assert list(graph.outputs) == list(model.subgraphs[1].outputs)
    assert [signature.subgraphIndex for signature in found.signatureDefs] == [0]


def test_one_that_names_no_outputs_is_left_out() -> None:
    """LiteRT runs such a model; TensorFlow's calibrator refuses it."""
    model = fb.parse(zoo.from_function(lambda x: x * 2.0 + 1.0, (1, 8)).float_model)
    [signature] = model.signatureDefs
    signature.outputs = []
    assert not fb.parse(loading.float_model(fb.serialise(model)).content).signatureDefs


def test_one_that_names_a_tensor_inside_is_left_out() -> None:
    """LiteRT runs such a model, but its candidates have no such tensor to give out."""
    model = fb.parse(zoo.cnn().float_model)
    [signature], graph = model.signatureDefs, model.subgraphs[0]
    inner = deepcopy(signature.outputs[0])
    inner.name, inner.tensorIndex = b"inner", int(graph.operators[0].outputs[0])
    signature.outputs.append(inner)
    assert not fb.parse(loading.float_model(fb.serialise(model)).content).signatureDefs


def test_a_keras_model_takes_none() -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(UsageError, match="no signatures, got 'x'"):
        from_keras(model, wishes_of("x", None))


def test_the_default_signature_is_taken_and_said(reviewed: Reviewed, tmp_path: Path) -> None:
    import tensorflow as tf

    functions = {"serving_default": module().encode, "choose": module().choose}
    tf.saved_model.save(module(), str(tmp_path / "saved"), signatures=functions)
    found = loading.float_model(tmp_path / "saved")
    reviewed("one signature of two", found.notes)
    assert Runner(found.content).inputs[0].shape == (1, 16)


@pytest.mark.parametrize("source", [file, folder], ids=["a .tflite", "a SavedModel"])
def test_the_chosen_one_is_scored(source: Callable[[], Any]) -> None:
    """And no other one, though its inputs were as wide: what is scored has to be said."""
    inputs = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    answers = np.stack([module().decode(row[np.newaxis])["y"].numpy()[0] for row in inputs])
    scored = {
        key: autoselect.evaluate(
            source(), evaluation=(inputs, answers), metric="mse", signature=key, reference=source()
        )
        for key in ("choose", "decode")
    }
    assert scored["decode"].score == pytest.approx(0.0, abs=1e-9)
    assert scored["choose"].score > 0.01
    assert scored["decode"].drop == scored["choose"].drop == 0.0
    with pytest.raises(ModelError):
        autoselect.evaluate(source(), evaluation=(inputs, answers), metric="mse")
    found = autoselect.inspect(source(), evaluation=(inputs, answers), metric="mse", signature="decode")
    assert found.score["value"] == scored["decode"].score


def test_the_command_line_scores_the_chosen_one(tmp_path: Path) -> None:
    (tmp_path / "coder.tflite").write_bytes(file())
    inputs = np.ones((4, 8), np.float32)
    np.savez(tmp_path / "data.npz", x=inputs, y=np.zeros((4, 5), np.float32))
    command = [
        "evaluate",
        str(tmp_path / "coder.tflite"),
        "--evaluation",
        str(tmp_path / "data.npz"),
        "--metric",
        "mse",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == ModelError.exit_code
    done = CliRunner().invoke(app, [*command, "--signature", "choose"])
    assert done.exit_code == 0, done.output
