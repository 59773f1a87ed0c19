"""Live Keras models and converters as the source of a search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pump
import pytest
from ai_edge_litert.interpreter import Interpreter

import autoselect
from autoselect.errors import ModelError, RunFolderError

SAMPLES = np.random.default_rng(0).normal(size=(60, 8, 8, 1)).astype(np.float32)
CALIBRATION, EVALUATION = SAMPLES[:7], SAMPLES[7:]


def small_model(keras: ModuleType) -> Any:
    """A convolution with ReLU, a mean and a dense layer: three ops, whatever the Keras."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1), name="image"),
            layers.Conv2D(6, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )


def dataset() -> Iterator[list[np.ndarray]]:
    for sample in CALIBRATION:
        yield [sample[np.newaxis]]


def kerases() -> list[Any]:
    return [pytest.param("keras", id="Keras 3"), pytest.param("tf_keras", id="tf-keras")]


def search(model: Any, output: Path, **changes: Any) -> autoselect.Run:
    settings = {"evaluation": EVALUATION, "metric": "agreement", "trials": 5, "workers": 1}
    return autoselect.search(model, output=output, **settings | changes)


@pytest.mark.parametrize("name", kerases())
def test_a_live_model(name: str, tmp_path: Path) -> None:
    model = small_model(pytest.importorskip(name))
    run = search(model, tmp_path / "run", calibration=CALIBRATION)
    assert run.layer_statistics["op_name"].tolist() == ["CONV_2D", "MEAN", "FULLY_CONNECTED"]
    assert run.layer_statistics["macs"].tolist() == [6 * 6 * 6 * 9, 0, 6 * 4]
    assert run.status == "complete"
    assert run.summary["references"]["float"]["agreement"] == 1.0
    content = run.model_path(run.front["id"].iloc[-1]).read_bytes()
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 8, 8, 1]
    with pytest.raises(RunFolderError, match=r"live model.*model="):
        autoselect.resume(run.directory)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3's own, when it saves
@pytest.mark.parametrize("name", kerases())
def test_a_saved_model_is_the_live_one(name: str, tmp_path: Path) -> None:
    """The same candidates come from the file as from the object that was saved."""
    model = small_model(pytest.importorskip(name))
    model.save(tmp_path / "model.keras")
    recipe = autoselect.Recipe(denylisted_ops=frozenset({"MEAN"}))
    hashes = [
        autoselect.build(recipe, model=source, calibration=CALIBRATION, output=tmp_path / "out.tflite")["sha256"]
        for source in (model, tmp_path / "model.keras")
    ]
    assert hashes[0] == hashes[1] == pump.sha256(tmp_path / "out.tflite")


def converter_of(model: Any, **options: Any) -> Any:
    import tensorflow as tf

    spec = tf.TensorSpec([1, 8, 8, 1], tf.float32, name="image")
    call = tf.function(model.call, autograph=False).get_concrete_function(spec)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([call], model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    for name, value in options.items():
        setattr(converter, name, value)
    return converter


def test_a_converter_brings_its_data_and_options(tmp_path: Path) -> None:
    import tensorflow as tf

    converter = converter_of(
        small_model(pytest.importorskip("tf_keras")),
        representative_dataset=dataset,
        inference_input_type=tf.int8,
        inference_output_type=tf.int8,
        _experimental_disable_per_channel=True,
    )
    run = search(converter, tmp_path / "run")
    assert run.manifest["counts"]["calibration"] == 7
    for text in run.trials["recipe"]:
        recipe = json.loads(text)
        assert (recipe["io_type"], recipe["per_channel"]) == ("int8", False)
    first = run.trials.iloc[0]
    assert (first["origin"], first["float_ops"]) == ("baseline:fiq", 0)
    built = autoselect.build(
        run.directory / "front" / f"{run.front['id'].iloc[0]}.recipe.json",
        model=converter,
        output=tmp_path / "built.tflite",
    )
    assert built["sha256"] == run.front["sha256"].iloc[0]
    interpreter = Interpreter(model_content=(tmp_path / "built.tflite").read_bytes())
    interpreter.allocate_tensors()
    assert interpreter.get_input_details()[0]["dtype"] == np.int8
    assert interpreter.get_output_details()[0]["dtype"] == np.int8
    weights = [t for t in interpreter.get_tensor_details() if len(t["shape"]) == 4 and t["shape"][0] == 6]
    assert [len(t["quantization_parameters"]["scales"]) for t in weights] == [1]
    assert converter.optimizations == [tf.lite.Optimize.DEFAULT]  # The user's converter is left as it was.
    assert converter.inference_input_type == tf.int8
    assert converter.representative_dataset is not None


def test_what_is_given_goes_before_what_a_converter_brings(tmp_path: Path) -> None:
    converter = converter_of(small_model(pytest.importorskip("tf_keras")), representative_dataset=dataset)
    run = search(converter, tmp_path / "run", calibration=CALIBRATION[:4], io_type="uint8", trials=3)
    assert run.manifest["counts"]["calibration"] == 4
    assert json.loads(run.trials["recipe"].iloc[0])["io_type"] == "uint8"
    assert json.loads(run.trials["recipe"].iloc[0])["per_channel"] is True


# ------------------------------------------------------------------------------------ what has to be made ready first


def said(events: list[Any]) -> list[str]:
    from autoselect.cases.events import Warned

    return [event.message for event in events if isinstance(event, Warned)]


def free_length() -> bytes:
    import tensorflow as tf

    kernel = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    call = tf.function(lambda x: tf.reduce_mean(tf.nn.relu(tf.nn.conv1d(x, kernel, 1, "SAME")), axis=1))
    function = call.get_concrete_function(tf.TensorSpec([None, None, 4], tf.float32, name="wave"))
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())


WAVES = np.random.default_rng(1).normal(size=(40, 12, 4)).astype(np.float32)
TAKEN = "Free sizes were taken from the representative samples, which agree: wave=1x12x4. Choose others with --shape."


def squares() -> bytes:
    import tensorflow as tf

    kernel = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    call = tf.function(lambda x: tf.square(tf.matmul(x, kernel)))
    function = call.get_concrete_function(tf.TensorSpec([1, 4], tf.float32, name="wave"))
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())


def test_ops_that_are_computed_by_others_are_news_and_no_warning(tmp_path: Path) -> None:
    from autoselect.cases.events import Noted

    events: list[Any] = []
    samples = WAVES[:, 0]
    run = search(
        squares(),
        tmp_path / "run",
        calibration=samples[:10],
        evaluation=samples[10:],
        metric="sqnr_db",
        listener=events.append,
    )
    [note] = [event.message for event in events if isinstance(event, Noted)]
    assert "MUL" in note
    assert run.manifest["notes"] == [note]
    assert not [message for message in [*said(events), *run.summary["warnings"]] if "MUL" in message]
    page = autoselect.write_report(run.directory).read_text(encoding="utf-8")
    assert f"<li>{note}</li>" in page


@pytest.mark.parametrize(("shapes", "notes"), [(None, [TAKEN]), ({"wave": (1, 12, 4)}, [])], ids=["samples", "shape"])
def test_free_sizes(shapes: Any, notes: list[str], tmp_path: Path) -> None:
    events: list[Any] = []
    path = tmp_path / "model.tflite"
    path.write_bytes(free_length())
    run = search(
        path,
        tmp_path / "run",
        calibration=WAVES[:10],
        evaluation=WAVES[10:],
        metric="sqnr_db",
        shapes=shapes,
        listener=events.append,
    )
    assert [note for note in said(events) if "sizes" in note] == notes
    assert [note for note in run.manifest["warnings"] if "sizes" in note] == notes
    content = run.model_path(run.front["id"].iloc[0]).read_bytes()
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 12, 4]
    if shapes is not None:  # They come from the manifest.
        again = autoselect.resume(run.directory, trials=6, calibration=WAVES[:10], evaluation=WAVES[10:])
        assert again.manifest["settings"]["shapes"] == {"wave": [1, 12, 4]}
    built = autoselect.build(
        autoselect.Recipe(), model=path, calibration=WAVES[:10], shapes=shapes, output=tmp_path / "out.tflite"
    )
    assert [note for note in built["warnings"] if "sizes" in note] == notes


def test_free_sizes_without_an_answer(tmp_path: Path) -> None:
    differ = [[WAVES[:1]], [WAVES[:1, :9]]]
    with pytest.raises(ModelError, match=r"1x12x4 .*1x9x4 in sample 1 .*--shape wave=1x12x4"):
        search(free_length(), tmp_path / "run", calibration=differ, evaluation=WAVES, metric="sqnr_db")


def test_a_model_with_a_loop_is_searched_around_it(tmp_path: Path) -> None:
    """Keras 3 makes a WHILE of an LSTM, at which TensorFlow's calibrator ends in a segmentation fault."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    layers = [keras.Input((5, 3), batch_size=1), keras.layers.Dense(6, activation="relu"), keras.layers.LSTM(4)]
    model = keras.Sequential([*layers, keras.layers.Dense(2)])
    (tmp_path / "lstm.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    data = np.random.default_rng(0).normal(size=(40, 5, 3)).astype(np.float32)
    events: list[Any] = []
    run = search(
        tmp_path / "lstm.tflite",
        tmp_path / "run",
        calibration=data[:10],
        evaluation=data[10:],
        metric="sqnr_db",
        listener=events.append,
    )
    assert [note.split(":")[0] for note in said(events)][:1] == ["The model has control flow (WHILE)"]
    assert "FULLY_CONNECTED" in set(run.layer_statistics["op_name"])
    assert "WHILE" not in set(run.layer_statistics["op_name"])
    assert "WHILE" in pump.litert_ops(run.model_path("integer").read_bytes())
    assert run.summary["references"]["fiq"]["sqnr_db"] > 10.0


@pytest.mark.parametrize("name", kerases())
def test_a_live_recurrent_model_is_unrolled(name: str, tmp_path: Path) -> None:
    keras = pytest.importorskip(name)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((None, 4), name="wave"), keras.layers.GRU(6), keras.layers.Dense(3)])
    found = autoselect.diagnose(model, calibration=WAVES[:10, :5], debug_samples=4)
    notes = found.facts["warnings"]
    assert notes[0].replace("12x4", "5x4") == TAKEN.replace("12x4", "5x4")
    assert notes[1].startswith("Recurrent layers")
    assert "WHILE" not in set(found.layer_statistics["op_name"])
