"""Shapes in a file are as they are when it runs, whatever the file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
import zoo
from reviewing import Reviewed

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError, UsageError
from autoselect.quantize.preparing import calibration, converter
from autoselect.rewrites import names
from autoselect.sources import loading, sample_sizes, shapes
from autoselect.sources.tflite_files import FloatModel, free_inputs
from autoselect.sources.wishes import NO_WISHES, FreeInput, FreeSizes, parse_shapes, sizes_of, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


def stale(content: bytes) -> bytes:
    """Without its signatures a file of a free batch looks fixed, but holds shapes of no batch."""
    model = fb.parse(content)
    assert shapes.has_free_sizes(model)
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None
    return fb.serialise(model)


def assert_quantizable(content: bytes) -> None:
    samples = nets.samples_of(content, 4)
    model = calibration.calibrate(TfliteFile(content), [list(sample.values()) for sample in samples])
    names.canonicalise(model)
    built = converter.quantize(TfliteFile(model=model), denylisted=(), recipe=Recipe()).content
    [found], [expected] = Runner(built)(samples[0]).values(), Runner(content)(samples[0]).values()
    assert found == pytest.approx(expected, abs=0.05 * float(np.ptp(expected)) + 0.01)


@pytest.mark.parametrize("spoil", [lambda content: content, stale], ids=["free batch", "stale shapes"])
@pytest.mark.parametrize("name", nets.NETS)
def test_nets_straight_from_the_converter(reviewed: Reviewed, name: str, spoil: Callable[[bytes], bytes]) -> None:
    original = nets.converted(name)
    source = spoil(original)
    assert loading.needs_worker(source)
    found = loading.float_model(source)
    model = fb.parse(found.content)
    assert shapes.is_settled(model)
    assert not loading.needs_worker(found.content)
    if source is original:
        assert found.notes == ()
    else:
        reviewed("shapes that did not fit", [note.split(":")[0] for note in found.notes])
    for sample in nets.samples_of(found.content, 3):
        values = list(sample.values())
        kernels = [shapes.Kernels(one, [v.shape for v in values]) for one in (original, found.content)]
        expected, got = (one.run(values) for one in kernels)
        assert [v.tobytes() for v in got] == [v.tobytes() for v in expected]
    assert_quantizable(found.content)


def without_shapes(content: bytes) -> bytes:
    """As old converters wrote what lies behind an op whose shape they did not know."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    for tensor in graph.tensors:
        if not fb.is_constant(model, tensor) and tensor not in [graph.tensors[i] for i in graph.inputs]:
            tensor.shape, tensor.shapeSignature, tensor.hasRank = None, None, False
    return fb.serialise(model)


def test_shapes_that_a_file_leaves_out_are_found() -> None:
    content = zoo.cnn().float_model
    found = loading.float_model(without_shapes(content))
    original, settled = fb.parse(content).subgraphs[0], fb.parse(found.content).subgraphs[0]
    assert [fb.shape_of(t) for t in settled.tensors] == [fb.shape_of(t) for t in original.tensors]
    assert_quantizable(found.content)


def test_shapes_are_found_where_zero_is_no_value() -> None:
    import tensorflow as tf

    call = tf.function(lambda wave, rate: wave * tf.cast(16 // rate, tf.float32))
    specs = tf.TensorSpec([None, 8], tf.float32, name="wave"), tf.TensorSpec([8], tf.int32, name="rate")
    function = call.get_concrete_function(*specs)
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    assert Runner(loading.float_model(content).content).outputs[0].shape == (1, 8)


def test_a_model_whose_integers_must_rise_is_taken() -> None:
    import tensorflow as tf

    call = tf.function(tf.math.segment_sum)
    function = call.get_concrete_function(tf.TensorSpec([6, 4], tf.float32), tf.TensorSpec([6], tf.int32))
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    found = fb.parse(loading.float_model(content).content).subgraphs[0]
    assert found.tensors[found.outputs[0]].shapeSignature.tolist() == [-1, 4]  # It depends on the values.


def test_a_file_of_true_shapes_is_taken_as_it_is() -> None:
    content = zoo.cnn().float_model
    assert not loading.needs_worker(content)
    assert loading.float_model(content) == FloatModel(content=content)


def with_empty_signatures(model: fb.Model) -> None:
    """As some writers leave them, beside one that says something."""
    first, *others = (model.subgraphs[0].tensors[place] for place in model.subgraphs[0].inputs)
    first.shapeSignature = np.array([-1, *fb.shape_of(first)[1:]], np.int32)
    for tensor in others:
        tensor.shapeSignature = np.zeros(0, np.int32)


def with_negative_sizes(model: fb.Model) -> None:
    """Where the schema has them in the signature; LiteRT takes none."""
    for tensor in model.subgraphs[0].tensors:
        if not fb.is_constant(model, tensor) and fb.shape_of(tensor)[:1] == (1,):
            tensor.shape = np.array([-1, *fb.shape_of(tensor)[1:]], np.int32)


@pytest.mark.parametrize("spoil", [with_empty_signatures, with_negative_sizes])
def test_sizes_in_odd_places_are_read(spoil: Callable[[fb.Model], None]) -> None:
    plain = zoo.two_inputs().float_model
    model = fb.parse(plain)
    spoil(model)
    content = fb.serialise(model)
    assert loading.needs_worker(content)
    found = loading.float_model(content)
    assert found.notes == ()
    specs = [reader.input_specs(fb.parse(one)) for one in (found.content, plain)]
    assert specs[0] == specs[1]


def test_a_size_that_depends_on_values_stays_free() -> None:
    import tensorflow as tf

    call = tf.function(lambda x: tf.boolean_mask(x, x > 0.0) * 2.0)
    function = call.get_concrete_function(tf.TensorSpec([8], tf.float32))
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    model = fb.parse(shapes.settled_shapes(fb.parse(content)))
    graph = model.subgraphs[0]
    assert graph.tensors[graph.inputs[0]].shapeSignature is None
    assert graph.tensors[graph.outputs[0]].shapeSignature.tolist() == [-1]


def test_a_batch_stays_free_where_pinning_changes_outputs(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "same_outputs", lambda settled, inputs, expected: False)
    found = loading.float_model(nets.converted("mixer"))
    [one] = free_inputs(fb.parse(found.content))
    assert one.sizes == (None, 12, 8)
    reviewed("a batch that stays free", found.notes)
    assert Runner(found.content).inputs[0].shape == (1, 12, 8)


def test_floats_that_are_indices_are_given_indices() -> None:
    import tensorflow as tf

    table = tf.constant(zoo.weights(5, 4))
    call = tf.function(lambda words: tf.reduce_mean(tf.gather(table, tf.cast(words, tf.int32)), 1))
    function = call.get_concrete_function(tf.TensorSpec([None, 40], tf.float32))
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    found = Runner(loading.float_model(content).content)
    assert found.inputs[0].shape == (1, 40)
    [output] = found(np.full((1, 40), 3, np.float32)).values()
    assert output == pytest.approx(np.asarray(table)[3:4])


def other_weights(content: bytes) -> bytes:
    model = fb.parse(content)
    largest = max(model.buffers, key=lambda buffer: 0 if buffer.data is None else len(buffer.data))
    largest.data = (np.asarray(largest.data, np.uint8).view(np.float32) * 1.5).view(np.uint8)
    return fb.serialise(model)


def test_same_outputs_tells_models_apart() -> None:
    settled = shapes.settled_shapes(fb.parse(nets.converted("mixer")))
    kernels = shapes.Kernels(nets.converted("mixer"), [(1, 12, 8)])
    inputs, expected = shapes.on_random_inputs(fb.parse(settled), [(1, 12, 8)], kernels.run)
    assert shapes.same_outputs(settled, inputs, expected)
    assert not shapes.same_outputs(other_weights(settled), inputs, expected)


# -------------------------------------------------------------------------------------------------- --shape


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(["audio=1x16000"], {"audio": (1, 16000)}, id="one"),
        pytest.param(["a=1", "serving_default_b:0=1x2x3"], {"a": (1,), "serving_default_b:0": (1, 2, 3)}, id="two"),
    ],
)
def test_texts_of_shapes(texts: list[str], expected: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(texts) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        pytest.param(["audio"], "such as audio=1x16000; got 'audio'", id="no sizes"),
        pytest.param(["audio=1,16000"], "got 'audio=1,16000'", id="commas"),
        pytest.param(["audio=1xN"], "got 'audio=1xN'", id="a letter"),
        pytest.param(["audio=1x-1"], "got 'audio=1x-1'", id="negative"),
        pytest.param(["=1x2"], "got '=1x2'", id="no name"),
        pytest.param(["a=1x2", "a=1x3"], "'a' comes twice", id="twice"),
    ],
)
def test_texts_that_are_no_shapes(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_shapes(texts)


@pytest.mark.parametrize("shape", [(), (1, 0), (1, -3), (1.0, 2.0), "1x2", (True, 2), 5], ids=repr)
def test_values_that_are_no_shapes(shape: Any) -> None:
    with pytest.raises(UsageError, match="'x' must"):
        wishes_of(None, {"x": shape})


IMAGE = FreeInput(key="image", name="serving_default_image:0", sizes=(None, 8, None, 3))
MASK = FreeInput(key="mask", name="mask:0", sizes=(None, 5))


def test_sizes_are_fixed_by_any_name() -> None:
    for name in ("image", "serving_default_image:0", "serving_default_image"):
        assert sizes_of([IMAGE, MASK], ((name, (1, 8, 6, 3)),)) == {"image": (1, 8, 6, 3), "mask": (1, 5)}


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        pytest.param("picture", (1, 8, 6, 3), r"no input 'picture'.*: image=\?x8x\?x3, mask=\?x5", id="name"),
        pytest.param("image", (8, 6, 3), r"expected 4 sizes, as in image=\?x8x\?x3, got 3: image=8x6x3", id="rank"),
        pytest.param("image", (1, 9, 6, 3), "axis 1 of input 'image' is fixed to 8 in the model, got 9", id="fixed"),
    ],
)
def test_shapes_that_do_not_fit(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sizes_of([IMAGE, MASK], ((name, shape),))


def test_what_stays_free_names_the_option() -> None:
    with pytest.raises(FreeSizes, match=r"image=\?x8x\?x3\. .*--shape image=1x8x64x3") as caught:
        sizes_of([IMAGE, MASK], ())
    assert caught.value.exit_code == ModelError.exit_code


# -------------------------------------------------------------------------------- sizes taken from samples


def rows(*widths: int) -> Callable[[], Iterator[list[np.ndarray]]]:
    return lambda: iter([[np.zeros((1, 8, width, 3), np.float32), np.zeros((1, 5), np.float32)] for width in widths])


SAMPLES: dict[str, object] = {
    "a function": rows(6, 6, 6),
    "a list": list(rows(6, 6)()),
    "dicts": [{"mask": np.zeros((1, 5)), "image": np.zeros((1, 8, 6, 3))}],
    "without a batch axis": [[np.zeros((8, 6, 3)), np.zeros(5)]],
    "signature and dict": [(None, {"image": np.zeros((1, 8, 6, 3)), "mask": np.zeros((1, 5))})],
    "stacks": {"image": np.zeros((9, 8, 6, 3)), "mask": np.zeros((9, 5))},
    "stacks with a batch axis": {"image": np.zeros((9, 1, 8, 6, 3)), "mask": np.zeros((9, 1, 5))},
}


@pytest.mark.parametrize("name", ["image", "x", "anything"])
def test_a_sole_array_has_the_sizes_of_a_sole_input(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **{name: np.zeros((9, 8, 6, 3))})
    found = sample_sizes.sizes_in_samples(tmp_path / "data.npz", FreeSizes((IMAGE,)), chosen={})
    assert found == {"image": (1, 8, 6, 3)}


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_sizes_of_samples_that_agree(samples: object) -> None:
    free = FreeSizes((IMAGE, MASK))
    assert sample_sizes.sizes_in_samples(samples, free, chosen={}) == {"image": (1, 8, 6, 3)}
    assert sample_sizes.sizes_in_samples(samples, free, chosen={"image": (1, 8, 2, 3)}) == {}


def test_sizes_are_those_of_the_signature_that_was_chosen() -> None:
    samples = [(name, {"image": np.zeros((1, size, 6, 3))}) for name, size in (("encode", 4), ("decode", 8))]
    found = sample_sizes.sizes_in_samples(samples, FreeSizes((IMAGE,)), chosen={}, signature="decode")
    assert found == {"image": (1, 8, 6, 3)}


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        pytest.param(rows(6, 7), r"1x8x6x3 in the first, 1x8x7x3 in sample 1 .*--shape image=1x8x6x3", id="differ"),
        pytest.param(rows(6)(), r"Fix them with --shape", id="a generator object, which is read once"),
        pytest.param([[np.zeros((1, 9, 6, 3)), np.zeros(5)]], r"Fix them with --shape", id="not of the fixed sizes"),
        pytest.param([[np.zeros((6, 3)), np.zeros(5)]], r"Fix them with --shape", id="another rank"),
        pytest.param({"image": np.zeros((8, 6, 3)), "mask": np.zeros((8, 5))}, r"Fix them with --shape", id="rows"),
        pytest.param({"mask": np.zeros((9, 5))}, r"Fix them with --shape", id="not there"),
    ],
)
def test_samples_that_do_not_say(samples: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        sample_sizes.sizes_in_samples(samples, FreeSizes((IMAGE, MASK)), chosen={})


def free_width() -> bytes:
    import tensorflow as tf

    call = tf.function(lambda x: tf.reduce_mean(tf.nn.conv2d(x, zoo.weights(3, 3, 3, 4), 1, "SAME"), [1, 2]))
    function = call.get_concrete_function(tf.TensorSpec([None, 8, None, 3], name="image"))
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())


def test_a_file_takes_the_sizes_and_says_so(reviewed: Reviewed) -> None:
    content = free_width()
    samples = np.zeros((4, 8, 6, 3), np.float32)
    found = sample_sizes.with_sample_sizes(partial(loading.float_model, content), NO_WISHES, samples)
    assert Runner(found.content).inputs[0].shape == (1, 8, 6, 3)
    assert not shapes.has_free_sizes(fb.parse(found.content))
    reviewed("sizes of representative samples", found.notes)
    chosen = loading.float_model(content, wishes_of(None, {"image": (1, 8, 12, 3)}))
    assert (Runner(chosen.content).inputs[0].shape, chosen.notes) == ((1, 8, 12, 3), ())


def test_sizes_that_the_model_cannot_run_are_told(tmp_path: Path) -> None:
    import tensorflow as tf

    call = tf.function(lambda x: tf.nn.conv1d(x, zoo.weights(9, 3, 4), 1, "VALID"))
    function = call.get_concrete_function(tf.TensorSpec([1, None, 3], name="wave"))
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    with pytest.raises(ModelError, match=r"\b1x4x3: "):
        loading.float_model(content, wishes_of(None, {"wave": (1, 4, 3)}))


@pytest.mark.parametrize(
    ("shape", "second"), [((), 1), ((1,), [1]), ((2, 3), [[0, 1, 1]] * 2), ((6,), [0, 0, 0, 1, 1, 1])], ids=str
)
def test_integers_that_rise_end_elsewhere_in_the_second_input(shape: tuple[int, ...], second: Any) -> None:
    first, other = (shapes._rising(number, shape) for number in range(2))
    assert first.shape == other.shape == shape
    assert not first.any()
    assert np.array_equal(other, second)
