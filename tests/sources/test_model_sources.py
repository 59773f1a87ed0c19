from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.api.source import source_bytes
from autoselect.data.fit import fit_sample
from autoselect.errors import ModelError, UsageError
from autoselect.sources import keras_models, loading
from autoselect.sources.keras_models import from_keras, is_keras_model
from autoselect.sources.saved_models import ConverterOptions, from_converter, is_converter
from autoselect.sources.tflite_files import from_bytes
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner


def keras_of(name: str) -> Any:
    import keras
    import tf_keras

    return {"Keras 3": keras, "tf-keras": tf_keras}[name]


@functools.cache
def image_model(name: str) -> Any:
    """One image in, class probabilities out; the batch is free."""
    keras = keras_of(name)
    layers = [keras.layers.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, activation="relu")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Flatten(), keras.layers.Dropout(0.5)]
    layers += [keras.layers.Dense(5, activation="softmax")]
    return zoo.randomise(keras.Sequential(layers))


@functools.cache
def pair_model(name: str) -> Any:
    """Two inputs, named against the alphabet, and two outputs."""
    keras = keras_of(name)
    wide, narrow = keras.layers.Input((6,), name="wide"), keras.layers.Input((3,), name="narrow")
    joined = keras.layers.Concatenate()([keras.layers.Dense(4)(wide), narrow])
    outputs = [keras.layers.Dense(2, name="zeta")(joined), keras.layers.Dense(5, name="alpha")(joined)]
    return zoo.randomise(keras.Model([wide, narrow], outputs))


def quietly(save: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save()


def predicted(model: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    found = model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
    return [np.asarray(v) for v in (found if isinstance(found, list) else [found])]


def assert_predicts_like(content: bytes, model: Any) -> None:
    rng = np.random.default_rng(0)
    runner = Runner(content)
    [spec] = runner.inputs
    assert spec.shape == (1, 8, 8, 3)
    for _ in range(3):
        image = rng.normal(size=spec.shape).astype(np.float32)
        [found], [expected] = runner(image).values(), predicted(model, image)
        assert found == pytest.approx(expected, abs=1e-5)
        assert np.ptp(expected) > 0.01


def saved_as(suffix: str, name: str, folder: Path) -> Path:
    path = folder / f"model{suffix}"
    model = image_model(name)
    if suffix:
        quietly(lambda: model.save(path))
    else:
        quietly(lambda: model.export(path, verbose=False) if name == "Keras 3" else model.export(path))
    return path


@pytest.mark.parametrize(
    ("suffix", "name"),
    [
        pytest.param(".keras", "Keras 3", id="a .keras file of Keras 3"),
        pytest.param(".keras", "tf-keras", id="a .keras file of tf-keras"),
        pytest.param(".h5", "Keras 3", id="an .h5 file of Keras 3"),
        pytest.param(".h5", "tf-keras", id="an .h5 file of tf-keras"),
        pytest.param("", "Keras 3", id="a SavedModel of Keras 3"),
        pytest.param("", "tf-keras", id="a SavedModel of tf-keras"),
    ],
)
def test_files_predict_like_their_model(suffix: str, name: str, tmp_path: Path) -> None:
    path = saved_as(suffix, name, tmp_path)
    assert loading.needs_worker(path)
    assert_predicts_like(loading.float_model(path).content, image_model(name))


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_live_models_predict_like_themselves(name: str) -> None:
    model = image_model(name)
    assert is_keras_model(model)
    assert not is_converter(model)
    assert_predicts_like(from_bytes(from_keras(model).content).content, model)


@functools.cache
def residual_model(name: str) -> Any:
    """A layer that is used twice, and a sum behind it, which Keras takes for a bias if it knows a batch of 1."""
    keras = keras_of(name)
    dense = keras.layers.Dense(6)
    given = keras.layers.Input((6,))
    inner = dense(given)
    return zoo.randomise(keras.Model(given, keras.layers.Add()([inner, keras.layers.ReLU()(dense(inner))])))


@pytest.mark.parametrize("make", [image_model, pair_model, residual_model])
def test_a_keras_model_is_traced_once_and_becomes_what_its_own_export_does(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, exported = make("Keras 3"), list[object]()
    monkeypatch.setattr(type(model), "export", lambda *_, **__: exported.append(model))
    at_once = from_keras(model).content
    assert not exported
    monkeypatch.undo()
    monkeypatch.setattr(keras_models, "_is_exported_once", lambda *_: False)
    assert from_keras(model).content == at_once


def called_once() -> Any:
    """Its input has the batch of the call that built it, as after ``fit``."""
    keras = keras_of("Keras 3")
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])
    model(np.zeros((32, 5), np.float32))
    return model


def of_four() -> Any:
    keras = keras_of("Keras 3")
    return keras.Sequential([keras.Input(batch_shape=(4, 5)), keras.layers.Dense(2)])


@pytest.mark.parametrize("make", [called_once, of_four])
def test_a_batch_that_a_keras_model_has_becomes_one(make: Callable[[], Any]) -> None:
    graph = reader.read_graph(fb.parse(from_keras(make()).content))
    assert [graph.tensors[i].shape for i in (*graph.inputs, *graph.outputs)] == [(1, 5), (1, 2)]


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
@pytest.mark.parametrize("how", ["live", "SavedModel"])
def test_several_inputs_and_outputs(name: str, how: str, tmp_path: Path) -> None:
    model = pair_model(name)
    if how == "live":
        content = from_bytes(from_keras(model).content).content
    else:
        quietly(lambda: model.export(tmp_path / "saved"))
        content = loading.float_model(tmp_path / "saved").content
    runner = Runner(content)
    assert {s.key: s.shape for s in runner.inputs} == {"wide": (1, 6), "narrow": (1, 3)}
    rng = np.random.default_rng(1)
    wide, narrow = (rng.normal(size=(1, n)).astype(np.float32) for n in (6, 3))
    found = {v.shape[1]: v for v in runner({"narrow": narrow, "wide": wide}).values()}
    for expected in predicted(model, wide, narrow):
        assert found[expected.shape[1]] == pytest.approx(expected, abs=1e-5)


def test_a_tflite_file_and_its_bytes_are_taken_as_they_are(tmp_path: Path) -> None:
    content = zoo.cnn().float_model
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    assert not loading.needs_worker(path)
    assert not loading.needs_worker(content)
    assert loading.float_model(path).content == loading.float_model(content).content == from_bytes(content).content
    [sample] = zoo.random_samples(content, 1)
    [found], [expected] = (
        Runner(loading.float_model(path).content)(sample[0]).values(),
        Runner(content)(sample[0]).values(),
    )
    assert np.array_equal(found, expected)


def test_a_free_batch_is_pinned_to_one(tmp_path: Path) -> None:
    quietly(lambda: image_model("Keras 3").export(tmp_path / "saved", verbose=False))
    free = bytes(tf().lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved")).convert())
    model = fb.parse(free)
    assert -1 in model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shapeSignature
    pinned = from_bytes(free).content
    assert all(t.shapeSignature is None for t in fb.parse(pinned).subgraphs[0].tensors)
    assert_predicts_like(pinned, image_model("Keras 3"))


@pytest.mark.slow
def test_a_recurrent_keras_model_keeps_its_fused_op(tmp_path: Path) -> None:
    import tf_keras

    model = zoo.randomise(tf_keras.Sequential([tf_keras.Input((8, 6)), tf_keras.layers.LSTM(16)]))
    quietly(lambda: model.save(tmp_path / "model.h5"))
    content = loading.float_model(tmp_path / "model.h5").content
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in [op.op_type for op in reader.read_graph(fb.parse(content)).ops]
    sample = np.random.default_rng(0).normal(size=(1, 8, 6)).astype(np.float32)
    [found], [expected] = Runner(content)(sample).values(), predicted(model, sample)
    assert found == pytest.approx(expected, abs=1e-5)


# -------------------------------------------------------------------------------- a converter of the user's own


def user_converter(*, per_channel: bool = True, io_type: str = "float32") -> Any:
    work = zoo.cnn().converter()
    work.optimizations = [tf().lite.Optimize.DEFAULT]
    work.representative_dataset = lambda: ({"x0": s[0]} for s in zoo.random_samples(zoo.cnn().float_model))
    work.target_spec.supported_ops = [tf().lite.OpsSet.TFLITE_BUILTINS_INT8]
    work.inference_input_type = work.inference_output_type = tf().as_dtype(io_type)
    work._experimental_disable_per_channel = not per_channel
    return work


@pytest.mark.parametrize(("per_channel", "io_type"), [(True, "float32"), (False, "int8"), (True, "uint8")])
def test_a_converter_is_left_as_it_was(per_channel: bool, io_type: str) -> None:
    theirs = user_converter(per_channel=per_channel, io_type=io_type)
    before = {**vars(theirs), "target_spec": dict(vars(theirs.target_spec))}
    dataset = theirs.representative_dataset
    content, options = from_converter(theirs)
    assert {**vars(theirs), "target_spec": dict(vars(theirs.target_spec))} == before
    assert {op.kind.value for op in reader.read_graph(fb.parse(content)).ops} == {"float"}
    assert (options.per_channel, options.io_type) == (per_channel, io_type)
    assert options.representative_dataset is dataset
    kept = bytes(theirs.convert())
    assert kept == bytes(user_converter(per_channel=per_channel, io_type=io_type).convert())
    graph = reader.read_graph(fb.parse(kept))
    assert {op.kind.value for op in graph.ops} <= {"integer", "boundary"}
    assert graph.tensors[graph.inputs[0]].dtype == io_type


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: zoo.cnn().converter(), id="of a SavedModel"),
        pytest.param(lambda: tf().lite.TFLiteConverter.from_keras_model(image_model("Keras 3")), id="of a Keras model"),
        pytest.param(
            lambda: tf().lite.TFLiteConverter.from_concrete_functions([zoo.cnn().function], tf().Module()),
            id="of a concrete function",
        ),
    ],
)
def test_every_kind_of_converter_is_known(make: Callable[[], Any]) -> None:
    converter = make()
    assert is_converter(converter)
    assert not is_keras_model(converter)
    content, options = from_converter(converter)
    assert options == ConverterOptions(representative_dataset=None, per_channel=True, io_type="float32")
    assert reader.input_specs(fb.parse(content))[0].shape == (1, 8, 8, 3)


def test_an_interface_that_no_recipe_has() -> None:
    theirs = zoo.cnn().converter()
    theirs.inference_input_type = tf().int16
    with pytest.raises(UsageError, match="int16; expected float32, int8 or uint8"):
        from_converter(theirs)


# ------------------------------------------------------------------------------------------------- what is refused


def free_width() -> bytes:
    call = tf().function(lambda x: tf().nn.conv2d(x, zoo.weights(3, 3, 3, 4), 1, "SAME"))
    function = call.get_concrete_function(tf().TensorSpec([1, 8, None, 3]))
    return bytes(tf().lite.TFLiteConverter.from_concrete_functions([function], tf().Module()).convert())


def no_inputs() -> bytes:
    model = fb.parse(zoo.cnn().float_model)
    model.subgraphs[0].inputs, model.signatureDefs = np.array([], np.int32), []
    return fb.serialise(model)


def lost_tensor() -> bytes:
    model = fb.parse(zoo.cnn().float_model)
    op = model.subgraphs[0].operators[1]
    op.inputs = np.array([4000, *op.inputs[1:]], np.int32)
    return fb.serialise(model)


def no_ops() -> bytes:
    model = fb.parse(zoo.cnn().float_model)
    model.subgraphs[0].operators = []
    return fb.serialise(model)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: zoo.cnn().drq(), "quantized already: .*convert it without `optimizations`", id="dynamic"),
        pytest.param(
            lambda: zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model)), "quantized already", id="full integer"
        ),
        pytest.param(free_width, "free sizes beside its batch: ", id="a free width"),
        pytest.param(no_ops, "no ops", id="no ops"),
        pytest.param(no_inputs, "has no inputs", id="no inputs"),
        pytest.param(lost_tensor, r"damaged or cut off .* a tensor that is not there", id="a tensor that is not there"),
        pytest.param(lambda: b"GIF89a" + bytes(40), "Expected a TFLite file", id="no TFLite file"),
    ],
)
def test_bytes_that_are_refused(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        loading.float_model(make())


def free_size_model(name: str) -> Any:
    keras = keras_of(name)
    return keras.Sequential([keras.layers.Input((None, None, 3)), keras.layers.Conv2D(4, 3)])


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_a_live_model_with_free_sizes_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="free sizes"):
        from_keras(free_size_model(name))


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_sizes_that_a_layer_refuses_are_told(name: str) -> None:
    keras = keras_of(name)
    layers = [keras.layers.Input((None, 4), name="letters"), keras.layers.Cropping1D(50), keras.layers.Dense(2)]
    with pytest.raises(ModelError, match=r"of letters=1x20x4\. .*Cropping1D.*\(50, 50\)\. Choose .*--shape"):
        from_keras(keras.Sequential(layers), wishes_of(None, {"letters": (1, 20, 4)}))


def test_a_file_of_keras_1_is_told_the_way_out(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["model_config"], file.attrs["keras_version"] = '{"class_name": "Sequential"}', "1.2.2"
    with pytest.raises(ModelError, match=r"Keras 1\.2\.2, .*Keras 2\.2"):
        loading.float_model(tmp_path / "old.h5")


def lambda_model(name: str, path: Path) -> None:
    keras = keras_of(name)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Lambda(lambda x: x * 2.0), keras.layers.Dense(2)])
    quietly(lambda: model.save(path))


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_code_in_a_file_is_never_run(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    lambda_model(name, path)
    with pytest.raises(ModelError, match=r"(Lambda|safe).*[\s\S]*export"):
        loading.float_model(path)


def test_older_keras_2_wrote_hdf5_into_files_named_keras(tmp_path: Path) -> None:
    model = saved_as(".h5", "tf-keras", tmp_path)
    renamed = model.rename(tmp_path / "model.keras")
    assert loading.float_model(renamed).content


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_weights_alone_are_no_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    quietly(lambda: image_model(name).save_weights(path))
    with pytest.raises(ModelError, match="weights only"):
        loading.float_model(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("model.h5", b"garbage" * 10, "not a whole HDF5 file", id="h5"),
        pytest.param("model.hdf5", b"", "not a whole HDF5 file", id="empty hdf5"),
        pytest.param("model.keras", b"garbage" * 10, "not a whole .keras file", id="keras"),
        pytest.param("model.tflite", b"garbage" * 10, "Expected a TFLite file", id="tflite"),
        pytest.param("model.onnx", b"garbage" * 10, "Expected a TFLite file", id="another suffix"),
    ],
)
def test_garbage_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        loading.float_model(tmp_path / name)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_file_that_was_cut_off(suffix: str, tmp_path: Path) -> None:
    path = saved_as(suffix, "Keras 3", tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ModelError, match=r"a whole|cannot load"):
        loading.float_model(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda folder: folder / "no.keras", "There is no model at", id="missing"),
        pytest.param(lambda folder: folder, "is no SavedModel folder", id="an empty folder"),
    ],
)
def test_paths_without_a_model(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        loading.float_model(make(tmp_path))


def test_a_folder_that_is_no_model_is_not_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a whole home folder, whose files come and go."""

    def refuse(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "rglob", refuse)
    assert not loading.needs_worker(tmp_path)
    assert source_bytes(tmp_path) == 0


def test_a_damaged_saved_model(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"garbage" * 10)
    with pytest.raises(ModelError, match="the SavedModel"):
        loading.float_model(tmp_path)


def test_a_saved_model_without_a_signature(tmp_path: Path) -> None:
    quietly(lambda: tf().saved_model.save(tf().Module(), str(tmp_path / "saved")))
    with pytest.raises(ModelError, match="no signature"):
        loading.float_model(tmp_path / "saved")


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_a_model_that_was_never_called_is_refused(name: str) -> None:
    keras = keras_of(name)
    with pytest.raises(ModelError, match="SavedModel" if name == "tf-keras" else "export"):
        from_keras(keras.Sequential([keras.layers.Dense(2)]))


def test_an_input_may_have_a_name_that_no_argument_has() -> None:
    keras = keras_of("Keras 3")
    left, right = keras.Input((None, 3), name="my input"), keras.Input((None, 4), name="class")
    model = zoo.randomise(keras.Model([left, right], keras.layers.GRU(2)(left) - keras.layers.GRU(2)(right)))
    found = from_keras(model, wishes_of(None, {"my input": (1, 3, 3), "class": (1, 3, 4)}))
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(1, 3, size)).astype(np.float32) for size in (3, 4)]
    [got] = Runner(found.content)(dict(zip(("my_input", "arg_class"), values, strict=True))).values()
    assert got == pytest.approx(predicted(model, *values)[0], abs=1e-5)


@pytest.mark.parametrize("names", [("入力", "β"), ("a.b", "a_b"), ("_left", "_")], ids=["letters", "alike", "bars"])
def test_inputs_whose_names_become_others_stay_two(names: tuple[str, str]) -> None:
    keras = keras_of("Keras 3")
    assert_takes_lists(keras, [keras.Input((3,), name=name) for name in names])


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_inputs_stay_in_their_order(name: str) -> None:
    keras = keras_of(name)
    assert_takes_lists(keras, [keras.layers.Input((3,), name=one) for one in ("zeta", "alpha", "mid", "beta", "x1")])


def assert_takes_lists(keras: Any, inputs: list[Any]) -> None:
    """A list of values of equal shapes means the same to a model of these inputs and to what is made of it."""
    summed = keras.layers.Add()([keras.layers.Dense(2)(one) for one in inputs])
    model = zoo.randomise(keras.Model(inputs, summed))
    values = list(np.random.default_rng(0).normal(size=(len(inputs), 1, 3)).astype(np.float32))
    runner = Runner(from_bytes(from_keras(model).content).content)
    [sample] = fit_sample(values, runner.inputs, where="sample")
    [got] = runner(sample).values()
    assert got == pytest.approx(predicted(model, *values)[0], abs=1e-5)


@pytest.mark.parametrize("name", ["Keras 3", "tf-keras"])
def test_mixed_precision_is_converted_in_the_float32_of_its_weights(name: str) -> None:
    keras = keras_of(name)
    layers, x = keras.layers, keras.Input((6,), batch_size=1)
    policy = "mixed_float16"
    inner = keras.Sequential([layers.Dense(4, dtype=policy), layers.LayerNormalization(dtype=policy)])
    adapted = layers.Normalization(dtype=policy)
    adapted.adapt(np.random.default_rng(1).normal(1.0, 2.0, (50, 6)).astype(np.float32))
    given = layers.Normalization(mean=0.5, variance=2.0, dtype=policy)
    model = keras.Model(x, inner(layers.Dense(8, activation="relu", dtype=policy)(given(adapted(x)))))
    sample = np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32)
    halves = np.asarray(model(sample)).astype(np.float32)
    found = from_keras(model)
    assert policy in found.notes[0]
    (output,) = Runner(found.content)(sample).values()
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, halves, atol=0.02)
    assert np.asarray(model(sample)).dtype == np.float16  # The user's model is as it was.


def test_what_a_mask_is_computed_of_is_converted_in_float32() -> None:
    """Keras casts it to float16 by an op of the graph."""
    keras = keras_of("Keras 3")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        x = keras.Input((6, 8), batch_size=1)
        model = keras.Model(x, keras.layers.GlobalAveragePooling1D()(keras.layers.Masking()(x)))
    finally:
        keras.config.set_dtype_policy("float32")
    before = [op.dtype for op in model.operations if type(op).__name__ == "Cast"]
    assert "float16" in before
    content = from_keras(model).content
    assert [op.dtype for op in model.operations if type(op).__name__ == "Cast"] == before
    sample = np.random.default_rng(0).normal(size=(1, 6, 8)).astype(np.float32)
    (output,) = Runner(content)(sample).values()
    np.testing.assert_allclose(output, sample.mean(axis=1), atol=1e-5)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Of Keras, as it quantizes.
def test_a_model_that_keras_has_quantized_is_told() -> None:
    keras = keras_of("Keras 3")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="dense")])
    model.layers[0].quantize("int8")
    with pytest.raises(ModelError, match=r"'dense'.*int8"):
        from_keras(model)


def test_a_layer_with_a_state_is_converted_with_its_batch_fixed() -> None:
    """Keras's own export leaves the batch free, which such a layer refuses."""
    keras = keras_of("Keras 3")
    wave = keras.Input(batch_shape=(1, 5, 4), name="wave")
    model = zoo.randomise(keras.Model(wave, keras.layers.GRU(3, stateful=True)(wave)))
    content = from_bytes(from_keras(model).content).content
    runner, values = Runner(content), np.random.default_rng(0).normal(size=(2, 1, 5, 4)).astype(np.float32)
    for value in values:
        model.layers[-1].reset_state()
        [got] = runner(value).values()
        assert got == pytest.approx(predicted(model, value)[0], abs=1e-5)


def test_layers_that_alter_pictures_in_training_are_converted_as_they_are_used() -> None:
    """Keras's own export takes augmentation for a part of the model, nested or not; its ops have no LiteRT form."""
    keras = keras_of("Keras 3")
    layers = keras.layers
    augment = keras.Sequential([layers.RandomFlip(), layers.RandomRotation(0.1)])
    image = keras.Input((8, 8, 3))
    features = layers.BatchNormalization()(layers.Conv2D(4, 3)(augment(image)))
    model = zoo.randomise(keras.Model(image, layers.Dense(2)(layers.Dropout(0.5)(layers.Flatten()(features)))))
    assert_predicts_like(from_keras(model).content, model)


def damaged_keras(folder: Path) -> Path:
    path = saved_as(".keras", "Keras 3", folder)
    content = bytearray(path.read_bytes())
    weights = content.index(b"\x89HDF")
    content[weights + 2000 : weights + 2400] = bytes(400)
    path.write_bytes(content)
    return path


def custom_keras(folder: Path) -> Path:
    keras = keras_of("Keras 3")

    class Scaled(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 2.0

    path = folder / "model.keras"
    quietly(lambda: keras.Sequential([keras.layers.Input((4,)), Scaled()]).save(path))
    return path


def saved_function(folder: Path, spec: Any, call: Callable[[Any], Any]) -> Path:
    function = tf().function(lambda x: {"y": call(x)}, input_signature=[spec])
    quietly(lambda: tf().saved_model.save(tf().Module(), str(folder / "saved"), signatures=function))
    return folder / "saved"


def unranked(folder: Path) -> Path:
    return saved_function(folder, tf().TensorSpec(None, tf().float32, name="x"), lambda x: x * 2.0)


def without_builtin(folder: Path) -> Path:
    return saved_function(folder, tf().TensorSpec((1, 2, 2), tf().float32, name="x"), tf().linalg.inv)


def cut_variables(folder: Path) -> Path:
    path = saved_as("", "Keras 3", folder)
    [data] = (path / "variables").glob("*.data*")
    data.write_bytes(data.read_bytes()[:5])
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(damaged_keras, "CRC", id="damaged weights"),
        pytest.param(custom_keras, "class 'Scaled'", id="a class that is not there"),
        pytest.param(unranked, "axes its input 'x'", id="an unknown number of axes"),
        pytest.param(without_builtin, r"MatrixInverse\..* tf\.MatrixInverse\(tensor<1x2x2xf32>\)", id="no builtin op"),
        pytest.param(cut_variables, "the SavedModel", id="variables that are cut off"),
    ],
)
def test_sources_that_cannot_be_loaded_say_what_is_wrong(
    make: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        loading.float_model(make(tmp_path))
