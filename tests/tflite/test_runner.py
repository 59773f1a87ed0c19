from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import ScoreError
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner, quantized


def tensorflow_outputs(content: bytes, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The signature's outputs by TensorFlow's own interpreter."""
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = tf.lite.Interpreter(model_content=content).get_signature_runner()
    return dict(runner(**inputs))


def built(io_type: str) -> bytes:
    return zoo.cnn().prepared.builder.build(Recipe(io_type=io_type)).content  # type: ignore[arg-type]


@pytest.mark.parametrize(("io_type", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_integer_models_take_and_give_float(io_type: str, low: int, high: int) -> None:
    content = built(io_type)
    model = fb.parse(content)
    [scale], [zero] = _parameters(model, model.subgraphs[0].inputs[0])
    [out_scale], [out_zero] = _parameters(model, model.subgraphs[0].outputs[0])
    levels = np.random.default_rng(1).integers(low, high + 1, (1, 8, 8, 3))
    raw = tensorflow_outputs(content, {"x0": levels.astype(io_type)})
    [expected] = [(v.astype(np.float64) - out_zero) * out_scale for v in raw.values()]
    # A third of a step aside, so that rounding matters.
    values = (levels + 0.3 - zero) * scale
    [found] = Runner(content)(values.astype(np.float32)).values()
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-6)
    assert np.ptp(expected) > out_scale


NO_BYTES = {
    "fractions": np.linspace(0.0, 1.0, 8, dtype=np.float32),
    "too large": np.arange(250, 258),
    "negative": np.arange(-1, 7, dtype=np.int8),
    "not finite": np.full(8, np.nan, np.float32),
}


@pytest.mark.parametrize("values", NO_BYTES.values(), ids=NO_BYTES)
def test_numbers_that_the_input_does_not_hold_are_refused(values: np.ndarray) -> None:
    """Converted they would be other numbers: 0.9 is 0, 256 is 0, -1 is 255."""
    detail = {"name": "picture", "dtype": np.uint8, "quantization_parameters": {"scales": []}}
    with pytest.raises(ScoreError, match="'picture'"):
        quantized(values, detail)
    whole = quantized(np.clip(np.nan_to_num(np.round(values)), 0, 255), detail)
    assert whole.dtype == np.uint8


@pytest.mark.parametrize("io_type", ["int8", "uint8"])
def test_values_beyond_the_range_are_cut_off(io_type: str) -> None:
    content = built(io_type)
    model = fb.parse(content)
    [scale], [zero] = _parameters(model, model.subgraphs[0].inputs[0])
    info = np.iinfo(io_type)
    sign = np.sign(np.random.default_rng(2).normal(size=(1, 8, 8, 3))).astype(np.float32)
    edge = np.where(sign > 0, (info.max - zero) * scale, (info.min - zero) * scale).astype(np.float32)
    runner = Runner(content)
    [far], [at_edge] = runner(sign * 1e6).values(), runner(edge).values()
    assert np.array_equal(far, at_edge)


def _parameters(model: Any, index: int) -> tuple[list[float], list[int]]:
    parameters = model.subgraphs[0].tensors[index].quantization
    return list(parameters.scale), list(parameters.zeroPoint)


def test_levels_are_fed_as_they_are() -> None:
    content = built("int8")
    levels = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 3)).astype(np.int8)
    model = fb.parse(content)
    [scale], [zero] = _parameters(model, model.subgraphs[0].inputs[0])
    runner = Runner(content)
    [from_levels], [from_values] = runner(levels).values(), runner((levels - float(zero)) * scale).values()
    assert np.array_equal(from_levels, from_values)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_scalar_input_stays_a_scalar(dtype: str) -> None:
    tf = zoo.tf()
    specs = [tf.TensorSpec((1, 4), tf.float32, name="x"), tf.TensorSpec((), dtype, name="factor")]
    function = tf.function(lambda x, factor: x * tf.cast(factor, tf.float32), input_signature=specs)
    content = zoo.Source(function.get_concrete_function(), function).float_model
    values = np.arange(4, dtype=np.float32)[np.newaxis]
    [found] = Runner(content)({"x": values, "factor": np.array(3, dtype)}).values()
    assert found.tolist() == [[0.0, 3.0, 6.0, 9.0]]


def three_inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {key: rng.normal(size=(1, n)).astype(np.float32) for key, n in (("x0", 6), ("x1", 4), ("x2", 1))}


@pytest.mark.parametrize("order", [["x0", "x1", "x2"], ["x2", "x1", "x0"], ["x1", "x2", "x0"]])
def test_inputs_are_matched_by_key_whatever_their_order(order: list[str]) -> None:
    content, inputs = zoo.two_inputs().float_model, three_inputs()
    found = Runner(content)({key: inputs[key] for key in order})
    expected = tensorflow_outputs(content, inputs)
    assert set(found) == set(expected) == {"total", "product"}
    assert all(found[key] == pytest.approx(expected[key], abs=1e-6) for key in expected)


def test_inputs_may_go_by_tensor_name() -> None:
    runner, inputs = Runner(zoo.two_inputs().float_model), three_inputs()
    by_name = {spec.name: inputs[spec.key] for spec in runner.inputs}
    assert set(by_name) != set(inputs)
    expected, found = runner(inputs), runner(by_name)
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


@functools.cache
def alike_inputs() -> bytes:
    """A model of two inputs that have one shape."""
    return zoo.from_function(lambda x, y: x - 2.0 * y, (1, 4), (1, 4)).float_model


def test_inputs_under_names_of_another_source_go_by_place() -> None:
    runner, values = Runner(alike_inputs()), [np.full((1, 4), value, np.float32) for value in (5, 1)]
    known = dict(zip((spec.key for spec in runner.inputs), values, strict=True))
    [expected], [found] = runner(known).values(), runner(dict(zip("ab", values, strict=True))).values()
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("names", [("X1", "x0"), ("x0", "X1"), ("x0",), ("a", "b", "c"), ()])
def test_an_input_of_an_unknown_name_takes_no_other_place(names: tuple[str, ...]) -> None:
    values = {name: np.full((1, 4), i, np.float32) for i, name in enumerate(names)}
    with pytest.raises(ScoreError, match=r"'x[01]'"):
        Runner(alike_inputs())(values)


def test_a_sample_without_its_batch_axis_is_told() -> None:
    with pytest.raises(ScoreError, match=r"'x0'.*\(1, 4\).*\(4,\)"):
        Runner(alike_inputs())({"x0": np.zeros(4, np.float32), "x1": np.zeros((1, 4), np.float32)})


def test_numbered_outputs_come_in_the_order_of_their_numbers() -> None:
    source = zoo.from_function(lambda x: tuple(x * float(i + 1) for i in range(12)), (1, 4))
    found = Runner(source.float_model)(np.ones((1, 4), np.float32))
    assert list(found) == [f"output_{i}" for i in range(12)]
    assert [float(v[0, 0]) for v in found.values()] == [float(i + 1) for i in range(12)]


@pytest.mark.parametrize("model", [lambda: zoo.lstm().float_model, zoo.remembering], ids=["tensors", "resources"])
def test_state_does_not_leak_from_one_sample_to_the_next(model: Callable[[], bytes]) -> None:
    content = model()
    one, two = (sample[0] for sample in zoo.random_samples(content, 2))
    runner = Runner(content)
    [first] = runner(one).values()
    [other] = runner(two).values()
    [again] = runner(one).values()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("model", [lambda: zoo.lstm().float_model, zoo.remembering], ids=["tensors", "resources"])
def test_a_streaming_model_keeps_its_state_between_steps(model: Callable[[], bytes]) -> None:
    content = model()
    [sample] = zoo.random_samples(content, 1)
    runner = Runner(content)
    [first] = runner(sample[0]).values()
    [second] = runner.step(sample[0]).values()
    assert not np.allclose(first, second)
    runner.reset()
    [fresh] = runner.step(sample[0]).values()
    assert np.array_equal(first, fresh)


def test_calibration_samples_are_steps_of_a_model_that_assigns_variables() -> None:
    """A fused LSTM begins each sample anew: its samples are whole sequences."""
    content = zoo.remembering()
    one, two = (sample[0] for sample in zoo.random_samples(content, 2))
    runner, stepping = Runner(content), Runner(content)
    runner.reset()
    for sample in (one, two, one):
        assert np.array_equal(*(next(iter(run(sample).values())) for run in (runner.step, stepping.go_on)))
    content = zoo.lstm().float_model
    one, two = (sample[0] for sample in zoo.random_samples(content, 2))
    runner, stepping = Runner(content), Runner(content)
    for sample in (one, two, one):
        assert np.array_equal(*(next(iter(run(sample).values())) for run in (runner, stepping.go_on)))


def test_watched_samples_are_steps_unless_each_is_to_be_fresh() -> None:
    content = zoo.remembering()
    ((sample, *_),) = zoo.random_samples(content, 1)
    index = int(fb.parse(content).subgraphs[0].outputs[0])
    runner = Runner(content, readable=[index])
    fresh = [value.copy() for _, value in runner.watch([sample, sample], [index], each_fresh=True)]
    runner.reset()
    steps = [value.copy() for _, value in runner.watch([sample, sample], [index])]
    assert np.array_equal(fresh[0], fresh[1])
    assert np.array_equal(fresh[0], steps[0])
    assert not np.allclose(steps[0], steps[1])


def test_an_output_outlives_the_next_run() -> None:
    content = zoo.cnn().float_model
    one, two = (sample[0] for sample in zoo.random_samples(content, 2))
    runner = Runner(content)
    [first] = runner(one).values()
    kept = first.copy()
    runner(two)
    assert np.array_equal(first, kept)


def test_intermediate_tensors_can_be_read() -> None:
    content = zoo.cnn().float_model
    runner = Runner(content, preserve_all_tensors=True)
    [sample] = zoo.random_samples(content, 1)
    [output] = runner(sample[0]).values()
    model = fb.parse(content)
    before_softmax = runner.tensor(int(model.subgraphs[0].operators[-1].inputs[0]))
    powers = np.exp(before_softmax - before_softmax.max())
    assert output == pytest.approx(powers / powers.sum(), abs=1e-6)


def test_a_model_that_cannot_run_is_a_score_error() -> None:
    model = fb.parse(zoo.cnn().float_model)
    code = model.operatorCodes[model.subgraphs[0].operators[0].opcodeIndex]
    code.builtinCode, code.customCode = 32, b"NoSuchOp"  # 32: CUSTOM
    with pytest.raises(ScoreError, match="refuses"):
        Runner(fb.serialise(model))


def test_a_kernel_that_fails_on_a_sample_is_a_score_error() -> None:
    import tensorflow as tf

    source = zoo.from_function(lambda x: x / (tf.nn.relu(x) + 0.001), (1, 8))
    samples = [[np.full((1, 8), value, np.float32)] for value in (-1.0, 100.0)]
    whole = Runner(zoo.prepare(source.float_model, samples).builder.build(Recipe()).content)
    with pytest.raises(ScoreError, match=r"a sample: .*div"):
        whole(samples[0][0])


@pytest.mark.parametrize("delegates", [True, False])
def test_an_error_names_the_op_that_fails_in_the_file_that_is_shipped(delegates: bool) -> None:
    import tensorflow as tf

    def picked(x: Any, row: Any) -> Any:
        return tf.gather(tf.tanh(x) @ zoo.weights(4, 4), tf.cast(row, tf.int32))

    content = zoo.from_function(picked, (3, 4), (1,)).float_model
    model = fb.parse(content)
    places = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    good, bad = ({"x0": np.ones((3, 4), np.float32), "x1": np.array([row], np.float32)} for row in (2, 9))
    for stands_for in (None, content):
        runner = Runner(content, delegates=delegates, stands_for=stands_for)
        runner(good)
        with pytest.raises(ScoreError, match="a sample") as caught:
            runner(bad)
        assert caught.value.op == places.index("GATHER")


def test_an_output_without_elements_is_an_array_of_its_shape() -> None:
    source = zoo.from_function(lambda x: (x[:, 2:2] * 2.0, zoo.tf().tanh(x)), (1, 4))
    shapes = [value.shape for value in Runner(source.float_model)(np.ones((1, 4), np.float32)).values()]
    assert sorted(shapes) == [(1, 0), (1, 4)]


def in_a_branch(content: bytes) -> bytes:
    """A model whose only op is a condition that always holds, with the model as both branches."""
    model = fb.parse(content)
    inner, main = model.subgraphs[0], schema.SubGraphT()
    ends = [copy(inner.tensors[i]) for i in (*inner.inputs, *inner.outputs)]
    holds = schema.TensorT()
    holds.name, holds.type, holds.shape = b"holds", schema.TensorType.BOOL, np.array([1], np.int32)
    holds.buffer = editing.add_buffer(model, np.array([True]))
    op = editing.new_op(model, "IF", [2, 0], 1)
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.IfOptions, schema.IfOptionsT()
    op.builtinOptions.thenSubgraphIndex = op.builtinOptions.elseSubgraphIndex = 1
    main.tensors, main.operators = [*ends, holds], [op]
    main.inputs, main.outputs = np.array([0], np.int32), np.array([1], np.int32)
    for one in (one for graph in model.subgraphs for one in graph.operators):
        if hasattr(one.builtinOptions, "initSubgraphIndex"):
            one.builtinOptions.initSubgraphIndex += 1
    model.subgraphs, model.signatureDefs = [main, *model.subgraphs], None
    return fb.serialise(model)


@pytest.mark.parametrize("make", [lambda: zoo.lstm().float_model, zoo.remembering], ids=["tensors", "resources"])
def test_a_state_within_a_branch_is_fresh_for_each_sample(make: Callable[[], bytes]) -> None:
    content = in_a_branch(make())
    one, other = (sample[0] for sample in zoo.random_samples(content, 2))
    runner = Runner(content)
    first, _, again = (next(iter(runner(x).values())) for x in (one, other, one))
    assert np.array_equal(first, again)
