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
from autoselect.errors import RunFolderError

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
