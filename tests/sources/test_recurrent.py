"""Recurrent Keras layers lose their loop where they can, and answer as before."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed

from autoselect.errors import ModelError
from autoselect.sources import loading, recurrent
from autoselect.sources.keras_models import from_keras
from autoselect.sources.saved_models import LackingOps
from autoselect.sources.tflite_files import FloatModel, from_bytes
from autoselect.sources.wishes import FreeSizes, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"
NAMES = ["Keras 3", pytest.param("tf-keras", marks=pytest.mark.slow)]


def keras_of(name: str) -> Any:
    import keras
    import tf_keras

    return {"Keras 3": keras, "tf-keras": tf_keras}[name]


def loaded(model: Any, **shapes: tuple[int, ...]) -> FloatModel:
    found = from_keras(model, wishes_of(None, shapes))
    return from_bytes(found.content).noted(*found.notes)


def op_types(content: bytes) -> set[str]:
    return {op.op_type for op in reader.read_graph(fb.parse(content)).ops}


def assert_answers_like(content: bytes, model: Any) -> None:
    rng, runner = np.random.default_rng(0), Runner(content)
    names = [tensor.name.split(":")[0] for tensor in model.inputs]
    specs = {spec.key.removeprefix("serving_default_").split(":")[0]: spec for spec in runner.inputs}
    sample = {name: rng.normal(size=specs[name].shape).astype(np.float32) for name in names}
    found = list(runner({specs[name].key: value for name, value in sample.items()}).values())
    given = list(sample.values())
    expected = model(given[0] if len(given) == 1 else given, training=False)
    assert found[0] == pytest.approx(np.asarray(expected), abs=1e-5)


def plain(keras: Any, layer: Any, *, length: int | None = 4, seed: int = 0) -> Any:
    layers = [keras.layers.Input((length, 4), name="wave"), layer, keras.layers.Dense(3)]
    return zoo.randomise(keras.Sequential(layers), seed)


def two_inputs(keras: Any) -> Any:
    frames, extra = keras.layers.Input((3, 4, 4), name="zed"), keras.layers.Input((3,), name="alpha")
    rows = keras.layers.TimeDistributed(keras.layers.SimpleRNN(8))(frames)
    joined = keras.layers.Concatenate()([keras.layers.GlobalAveragePooling1D()(rows), extra])
    return zoo.randomise(keras.Model([frames, extra], keras.layers.Dense(2)(joined)))


MODELS: dict[str, Callable[[Any], Any]] = {
    "GRU": lambda keras: plain(keras, keras.layers.GRU(8)),
    "SimpleRNN": lambda keras: plain(keras, keras.layers.SimpleRNN(8)),
    "LSTM": lambda keras: plain(keras, keras.layers.LSTM(8)),
    "Bidirectional": lambda keras: plain(keras, keras.layers.Bidirectional(keras.layers.GRU(4))),
    "RNN of a cell": lambda keras: plain(keras, keras.layers.RNN(keras.layers.GRUCell(8))),
    "TimeDistributed, two inputs": two_inputs,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_loop_is_left(reviewed: Reviewed, name: str, make: Callable[[Any], Any]) -> None:
    model = make(keras_of(name))
    switches = [layer.unroll for layer in recurrent.layers_of(model, is_tf_keras=name == "tf-keras")]
    found = loaded(model)
    assert_answers_like(found.content, model)
    kept = op_types(found.content)
    assert "WHILE" not in kept
    if FUSED in kept:  # tf-keras's LSTM needs no unrolling.
        assert (name, found.notes) == ("tf-keras", ())
    else:
        reviewed("recurrent layers that are unrolled", [note.split(":")[0] for note in found.notes])
    assert [layer.unroll for layer in recurrent.layers_of(model, is_tf_keras=name == "tf-keras")] == switches


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layer", ["GRU", "LSTM"])
def test_words_are_indices_though_they_come_as_floats(name: str, layer: str) -> None:
    keras = keras_of(name)
    layers = [
        keras.layers.Input((12,), name="words"),
        keras.layers.Embedding(5, 4),
        getattr(keras.layers, layer)(6),
        keras.layers.Dense(3),
    ]
    model = zoo.randomise(keras.Sequential(layers), 0)
    found = loaded(model)
    assert "WHILE" not in op_types(found.content)
    words = np.random.default_rng(0).integers(0, 5, (1, 12)).astype(np.float32)
    [output] = Runner(found.content)(words).values()
    assert output == pytest.approx(np.asarray(model(words, training=False)), abs=1e-5)


@pytest.mark.slow
def test_the_lstm_of_tf_keras_stays_fused() -> None:
    keras = keras_of("tf-keras")
    model = plain(keras, keras.layers.LSTM(8))
    assert FUSED in op_types(loaded(model).content)


@pytest.mark.parametrize(("name", "suffix"), [("Keras 3", ".keras"), ("tf-keras", ".h5")])
def test_files_are_unrolled_too(name: str, suffix: str, tmp_path: Path) -> None:
    keras = keras_of(name)
    model = plain(keras, keras.layers.GRU(8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's own: it advertises another format.
        model.save(tmp_path / f"model{suffix}")
    found = loading.float_model(tmp_path / f"model{suffix}")
    assert "WHILE" not in op_types(found.content)
    assert len(found.notes) == 1
    assert_answers_like(found.content, model)


@pytest.mark.parametrize("name", NAMES)
def test_a_free_length_is_fixed_by_a_shape(name: str) -> None:
    keras = keras_of(name)
    model = plain(keras, keras.layers.GRU(8), length=None)
    with pytest.raises(FreeSizes, match=r"wave=\?x\?x4\. .*--shape"):
        loaded(model)
    found = loaded(model, wave=(1, 5, 4))
    assert Runner(found.content).inputs[0].shape == (1, 5, 4)
    assert_answers_like(found.content, model)


@pytest.mark.parametrize("name", NAMES)
def test_a_long_sequence_stays_a_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "LONGEST_UNROLLED", 3)
    keras = keras_of(name)
    model = plain(keras, keras.layers.GRU(8))
    found = loaded(model)
    assert "WHILE" in op_types(found.content)
    assert_answers_like(found.content, model)
    limit, control = found.notes
    assert ": 'gru" in limit
    assert re.search(r"\b4 steps .*\b3\b", limit)
    assert "(WHILE)" in control


def test_outputs_that_change_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keras = keras_of("tf-keras")
    model = plain(keras, keras.layers.GRU(8))
    other = loaded(plain(keras, keras.layers.GRU(8), seed=1)).content
    with pytest.raises(ModelError, match=r"layers 'gru.* unrolled"):
        recurrent.converted(model, lambda: other, is_tf_keras=True)


@pytest.mark.parametrize("longest", [3, 256])
def test_an_op_that_litert_lacks_is_not_told_of_the_recurrent_layers(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "LONGEST_UNROLLED", longest)  # Of the 4 steps all are unrolled, or none.
    keras = keras_of("Keras 3")
    layers = keras.layers
    pooled = [layers.Input((4, 4, 4, 2), name="clip"), layers.MaxPooling3D((1, 2, 2)), layers.Reshape((4, 8))]
    with pytest.raises(LackingOps) as caught:
        loaded(keras.Sequential([*pooled, layers.GRU(8)]))
    assert "MaxPool3D" in str(caught.value)
    assert "gru" not in str(caught.value)


def test_a_saved_model_of_tensor_lists_names_the_source_that_works(tmp_path: Path) -> None:
    keras = keras_of("Keras 3")
    model = plain(keras, keras.layers.LSTM(8))
    model.export(tmp_path / "saved", verbose=False)
    with pytest.raises(ModelError, match=r"tensor list.*\.keras or \.h5 file"):
        loading.float_model(tmp_path / "saved")
