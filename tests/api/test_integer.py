"""A search among the ops of an integer model that another quantizer made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pump
import pytest
import zoo

import autoselect
from autoselect.errors import ModelError, RecipeError, RunFolderError, UsageError
from autoselect.quantize.preparing import litert
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

SAMPLES = np.random.default_rng(0).normal(size=(60, 8, 8, 3)).astype(np.float32)
CALIBRATION, EVALUATION = SAMPLES[:7], SAMPLES[7:]

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors")  # litert-quantizer's own


def net(keras: ModuleType, *, seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 3), name="image"),
            layers.Conv2D(6, 3, activation="relu"),
            layers.DepthwiseConv2D(3),
            layers.Flatten(),
            layers.Dense(4, activation="softmax"),
        ]
    )


def converted(model: Any, *, quantized: bool = True) -> bytes:
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = _dataset
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def _dataset() -> Iterator[list[np.ndarray]]:
    for sample in CALIBRATION:
        yield [sample[np.newaxis]]


def search(model: Any, integer: Any, output: Path, **changes: Any) -> autoselect.Run:
    settings = {"calibration": CALIBRATION, "evaluation": EVALUATION, "metric": "agreement", "trials": 6, "workers": 1}
    return autoselect.search(model, integer=integer, output=output, **{"early_exit": False, **settings, **changes})


def test_fewer_bits_do_not_go_with_weights_of_another_quantizer(tmp_path: Path) -> None:
    model = net(pytest.importorskip("keras"))
    float_model, integer = converted(model, quantized=False), converted(model)
    with pytest.raises(UsageError, match="weights: 5"):
        search(float_model, integer, tmp_path / "run", weights=5, objectives=("accuracy", "download"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3's own, when it saves
def test_what_the_converter_made_of_the_same_keras_model(tmp_path: Path) -> None:
    """Int8 inputs, a free batch, names of another conversion; the manifest, a resume and a build know the file."""
    model = net(pytest.importorskip("keras"))
    path = tmp_path / "int8.tflite"
    path.write_bytes(converted(model))
    model.save(tmp_path / "model.keras")
    run = search(tmp_path / "model.keras", path, tmp_path / "run")
    assert run.status == "complete"
    manifest = json.loads((run.directory / "manifest.json").read_text())
    assert manifest["sources"]["integer"] == str(path)
    assert manifest["hashes"]["integer"] == pump.sha256(path)
    assert manifest["settings"]["repairs"] == []
    assert not any("for bit" in message for message in manifest["warnings"])
    assert not list(run.directory.rglob("*.build.py"))
    assert not (run.directory / "calibrated.tflite").exists()
    integer = run.trials[run.trials["float_ops"] == 0].iloc[0]
    assert integer["state"] == "complete"
    member = run.front["id"].iloc[0]
    built = autoselect.build(
        run.directory / "front" / f"{member}.recipe.json",
        model=tmp_path / "model.keras",
        integer=path,
        calibration=CALIBRATION,
        output=tmp_path / "built.tflite",
    )
    assert built["sha256"] == pump.sha256(run.model_path(member))
    again = {"calibration": CALIBRATION, "evaluation": EVALUATION}
    assert autoselect.resume(run.directory, trials=7, **again).status == "complete"
    path.write_bytes(zoo.litert_integer(converted(model, quantized=False)))
    with pytest.raises(RunFolderError, match="another integer"):
        autoselect.resume(run.directory, trials=8, **again)


@pytest.mark.slow
def test_samples_that_the_integer_model_cannot_hold_are_told_of(tmp_path: Path) -> None:
    """An integer model for 0 to 1 beside samples of 0 to 255."""
    model = net(pytest.importorskip("keras"))
    float_model, integer = converted(model, quantized=False), converted(model)
    scaled = [255.0 * abs(sample) for sample in SAMPLES]
    inputs = {"calibration": scaled[:7], "evaluation": scaled[7:]}
    told = search(float_model, integer, tmp_path / "other", **inputs).summary["warnings"]
    assert sum("are clipped" in message for message in told) == 1
    plain = search(float_model, integer, tmp_path / "own").summary["warnings"]
    assert not any("clipped" in message for message in plain)


@pytest.mark.parametrize("io_type", ["float32", "int8", "uint8"])
def test_what_litert_quantizer_made(io_type: str, tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    integer = zoo.litert_integer(content)
    run = search(content, integer, tmp_path / "run", io_type=io_type)
    assert run.status == "complete"
    plain = run.trials[run.trials["float_ops"] == 0].iloc[0]
    assert plain["state"] == "complete"
    recipe = autoselect.Recipe(io_type=io_type)  # type: ignore[arg-type]
    autoselect.build(
        recipe, model=content, integer=integer, calibration=CALIBRATION, output=tmp_path / "all_integer.tflite"
    )
    found = (tmp_path / "all_integer.tflite").read_bytes()
    assert {str(spec.dtype) for spec in reader.input_specs(fb.parse(found))} == {io_type}
    ours, theirs = Runner(found), Runner(integer)
    step = fb.scales(fb.parse(integer).subgraphs[0].tensors[fb.parse(integer).subgraphs[0].outputs[0]])[0]
    for sample in EVALUATION[:5]:
        pairs = zip(ours(sample[np.newaxis]).values(), theirs(sample[np.newaxis]).values(), strict=True)
        for one, other in pairs:  # Levels of the input that lie half-way are rounded by the kernel or by the caller.
            np.testing.assert_allclose(one, other, rtol=0, atol=0 if io_type == "int8" else 1.01 * step)


def fingerprints(run: autoselect.Run) -> list[Any]:
    return list(run.trials[["recipe", "sha256"]].itertuples(index=False, name=None))


def made(content: bytes, *, per_channel: bool = True) -> litert.IntegerModels:
    return litert.integer_models(content, ({"x0": s[np.newaxis]} for s in CALIBRATION), per_channel=per_channel)


@pytest.mark.parametrize("per_channel", [True, False])
def test_litert_quantizer_may_make_it(per_channel: bool, tmp_path: Path) -> None:
    """As if its model had been given; a build and a resume ask it again."""
    content, options = zoo.cnn().float_model, {"per_channel": per_channel, "int16": False}
    run = search(content, None, tmp_path / "run", quantizer="litert", **options)
    given = made(content, per_channel=per_channel).int8
    assert fingerprints(run) == fingerprints(search(content, given, tmp_path / "given", **options))
    assert not run.manifest["warnings"]
    assert run.manifest["settings"]["quantizer"] == "litert"
    member = run.front["id"].iloc[0]
    built = autoselect.build(
        run.directory / "front" / f"{member}.recipe.json",
        model=content,
        quantizer="litert",
        calibration=CALIBRATION,
        output=tmp_path / "built.tflite",
    )
    assert built["sha256"] == pump.sha256(run.model_path(member))
    again = autoselect.resume(run.directory, trials=8, model=content, calibration=CALIBRATION, evaluation=EVALUATION)
    assert fingerprints(again)[:6] == fingerprints(run)


def test_its_16_bit_model_is_taken_too(tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    run = search(content, None, tmp_path / "run", quantizer="litert", trials=12)
    assert not run.manifest["warnings"]  # All 16-bit is its model bit for bit, or there would be one.
    wide = run.trials[run.trials["origin"] == "baseline:int16"].iloc[0]
    assert (wide["state"], wide["float_ops"]) == ("complete", 0)
    autoselect.build(
        autoselect.Recipe.from_json(wide["recipe"]),
        model=content,
        quantizer="litert",
        calibration=CALIBRATION,
        output=tmp_path / "int16.tflite",
    )
    theirs = made(content).int16
    assert theirs is not None
    ours, their_runner = Runner((tmp_path / "int16.tflite").read_bytes()), Runner(theirs)
    for sample in EVALUATION[:5]:
        for one, other in zip(
            ours(sample[np.newaxis]).values(), their_runner(sample[np.newaxis]).values(), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_litert_quantizer_takes_a_file_without_signature(tmp_path: Path) -> None:
    model = fb.parse(zoo.cnn().float_model)
    model.signatureDefs = None
    found = autoselect.diagnose(
        fb.serialise(model), quantizer="litert", calibration=CALIBRATION, debug_samples=3, figures=False
    )
    assert np.isfinite(found.layer_statistics["rmse/scale"]).all()


def test_what_does_not_go_with_another_quantizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zoo.cnn().float_model
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"integer": zoo.litert_integer(content), "quantizer": "litert"},
            "--integer brings a model, and --quantizer litert makes one",
        ),
        ({"integer": None, "quantizer": "litert", "repairs": ["bias"]}, "Repairs do not go with.*got bias"),
        ({"integer": None, "quantizer": "onnx"}, "quantizer: .*got 'onnx'"),
    ]
    for number, (changes, why) in enumerate(refused):
        with pytest.raises(UsageError, match=why):
            search(content, output=tmp_path / str(number), **changes)
    with pytest.raises(UsageError, match=r"--quantizer: .*got 'onnx'"):
        autoselect.build(
            autoselect.Recipe(), model=content, quantizer="onnx", calibration=CALIBRATION, output=tmp_path / "m.tflite"
        )
    monkeypatch.setattr(litert, "_PACKAGE", "no_such_package")
    with pytest.raises(UsageError, match=r"pip install 'autoselect\[litert\]'"):
        search(content, None, tmp_path / "missing", quantizer="litert")
    assert not list(tmp_path.iterdir())


def test_a_diagnosis_compares_every_node_with_the_float_model(tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    found = autoselect.diagnose(
        content, integer=zoo.litert_integer(content), calibration=CALIBRATION, ablate=2, whole_model=True, figures=False
    )
    rows = found.layer_statistics
    assert len(rows) == 8
    assert not rows["verified"].any()
    assert np.isfinite(rows["rmse/scale"]).all()
    assert set(rows["bias_reason"]) == {"the integer model is given, with its biases"}


def test_the_granularity_is_the_files_own(tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    integer = zoo.tensorflow_integer(zoo.cnn(), per_channel=False)
    run = search(content, integer, tmp_path / "run", trials=2)
    manifest = json.loads((run.directory / "manifest.json").read_text())
    assert manifest["settings"]["per_channel"] is False
    assert [m for m in manifest["warnings"] if "per tensor" in m]
    with pytest.raises(RunFolderError, match=r"a live \w+\. Pass"):
        autoselect.resume(run.directory, model=content)


def refused() -> dict[str, tuple[Any, type[Exception], str]]:
    from autoselect.tflite.flatbuffer import parse, serialise

    def scrambled() -> bytes:
        model = parse(zoo.tensorflow_integer(zoo.cnn()))
        rng = np.random.default_rng(0)
        for tensor in model.subgraphs[0].tensors:
            if fb.TENSOR_DTYPES[tensor.type] == "int8" and fb.is_constant(model, tensor):
                data = model.buffers[tensor.buffer].data
                model.buffers[tensor.buffer].data = rng.permutation(np.asarray(data))
        return serialise(model)

    integer = zoo.tensorflow_integer(zoo.cnn())
    return {
        "other weights": (scrambled(), ModelError, "its weights are others.*Pass the integer model"),
        "other shapes": (zoo.tensorflow_integer(zoo.two_inputs()), ModelError, "has 3 inputs, the float model has 1"),
        "a float model": (zoo.cnn().float_model, ModelError, "--integer.*it is a float model"),
        "dynamic range": (zoo.cnn().drq(), ModelError, "--integer.*only its weights are quantized"),
        "cut off": (integer[: len(integer) // 2], ModelError, "--integer.*damaged or cut off"),
        "no model": (b"nothing", ModelError, "--integer.*Expected a TFLite file"),
        "no file": (Path("nowhere.tflite"), ModelError, "--integer.*There is no model file nowhere"),
    }


def test_what_does_not_belong_to_the_float_model_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    for name, (integer, error, words) in refused().items():
        with subtests.test(name):
            with pytest.raises(error, match=words):
                search(content, integer, tmp_path / name)
            assert not (tmp_path / name / "manifest.json").exists()


def test_what_the_integer_model_has_in_float_is_told_where_it_is_named(tmp_path: Path) -> None:
    content, path = zoo.cnn().float_model, tmp_path / "mixed.tflite"
    mixed = autoselect.Recipe(denylisted_ops=frozenset({"SOFTMAX"}), fallback="float")
    built = autoselect.build(mixed, model=content, calibration=CALIBRATION, output=path)
    [name] = [node for node, kind in built.kinds.items() if kind == "float"]
    everything: list[dict[str, Any]] = [
        {"denylisted_ops": {"SOFTMAX"}},
        {"denylisted_nodes": {name}},
        {"denylisted_nodes": {f"{name[:-1]}*"}},
    ]
    for named in everything:
        with pytest.raises(RecipeError, match="in float"):
            autoselect.build(
                autoselect.Recipe(**named), model=content, integer=path, calibration=CALIBRATION, output=tmp_path / "x"
            )
    with pytest.raises(RecipeError, match="in float"):
        autoselect.diagnose(content, integer=path, calibration=CALIBRATION, recipe=mixed, figures=False)
    for pattern in ("SOFTMAX", name):
        with pytest.raises(UsageError, match=f"--keep-float: '{re.escape(pattern)}' "):
            search(content, path, tmp_path / "run", keep_float=[pattern])


def test_repairs_and_a_quantized_model_in_the_floats_place_are_refused(tmp_path: Path) -> None:
    content, integer = zoo.cnn().float_model, zoo.tensorflow_integer(zoo.cnn())
    with pytest.raises(UsageError, match=r"^Repairs .*bias, equalization"):
        search(content, integer, tmp_path / "run", repairs=("bias", "equalization"))
    recipe = autoselect.Recipe(repairs=("bias",))
    with pytest.raises(UsageError, match=r"^Repairs "):
        autoselect.build(recipe, model=content, integer=integer, calibration=CALIBRATION, output=tmp_path / "x.tflite")
    with pytest.raises(ModelError, match=r"quantized already.*--integer"):
        autoselect.search(integer, calibration=CALIBRATION, evaluation=EVALUATION, metric="agreement")
