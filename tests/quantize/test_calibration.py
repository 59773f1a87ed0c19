"""Calibration without TensorFlow's calibrator: its ranges, and models that it dies of."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError, PreparationError
from autoselect.quantize.preparing import calibration, converter
from autoselect.rewrites import names
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


def convert(call: Callable[[Any], Any], *shape: int) -> bytes:
    import tensorflow as tf

    function = tf.function(call).get_concrete_function(tf.TensorSpec(shape, tf.float32, name="x"))
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())


@functools.cache
def chain() -> bytes:
    """Ops that never work in place, so that the calibrator reads what each wrote."""
    import tensorflow as tf

    return convert(lambda x: tf.nn.tanh(x @ zoo.weights(16, 8)) @ zoo.weights(8, 5), 1, 16)


@functools.cache
def branching() -> bytes:
    import tensorflow as tf

    def call(x: Any) -> Any:
        x = tf.nn.relu(x @ zoo.weights(16, 8))
        more = tf.reduce_sum(x) > 3.0
        return tf.cond(more, lambda: tf.nn.relu(x * 2.0), lambda: tf.nn.tanh(x) - 1.0) @ zoo.weights(8, 5)

    return convert(call, 1, 16)


@functools.cache
def looping() -> bytes:
    import tensorflow as tf

    def call(x: Any) -> Any:
        first = x @ zoo.weights(16, 8)
        _, last = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.nn.tanh(v) * 2.0), [0, first])
        return last @ zoo.weights(8, 5)

    return convert(call, 1, 16)


def ranges(content: bytes) -> dict[str, tuple[float, float]]:
    graph = fb.parse(content).subgraphs[0]
    found = [(fb.tensor_name(t), t.quantization) for t in graph.tensors if t.quantization is not None]
    return {name: (float(q.min[0]), float(q.max[0])) for name, q in found if q.min is not None}


def samples(count: int = 6) -> list[list[np.ndarray]]:
    return zoo.random_samples(chain(), count)


def branch_ops(content: bytes, index: int) -> Counter[tuple[str, str]]:
    return Counter((op.op_type, op.kind.value) for op in reader.read_graph(fb.parse(content), index).ops)


def test_the_ranges_are_the_calibrators() -> None:
    """But for the last bit: the two builds of the kernels round differently."""
    theirs = ranges(converter.calibrate(TfliteFile(chain()), samples()).content)
    ours = calibration.with_found_ranges(fb.parse(chain()), calibration.found_ranges(TfliteFile(chain()), samples()))
    assert len(theirs) == 4
    assert ranges(fb.serialise(ours)).keys() == theirs.keys()
    for name, (low, high) in ranges(fb.serialise(ours)).items():
        assert (low, high) == pytest.approx(theirs[name], rel=1e-5), name


def test_a_model_without_control_flow_goes_to_the_calibrator() -> None:
    assert fb.serialise(calibration.calibrate(TfliteFile(chain()), samples())) == fb.serialise(
        converter.calibrate(TfliteFile(chain()), samples()).model
    )


@pytest.mark.parametrize(
    ("make", "op_type", "outside"),
    [
        pytest.param(branching, "IF", {"FULLY_CONNECTED", "SUM", "GREATER"}, id="IF"),
        pytest.param(looping, "WHILE", {"FULLY_CONNECTED"}, id="WHILE"),
    ],
)
def test_all_but_the_branches_is_quantized(make: Callable[[], bytes], op_type: str, outside: set[str]) -> None:
    content = make()
    calibrated = calibration.calibrate(TfliteFile(content), samples())
    name_map = names.canonicalise(calibrated)
    denied = [names.canonical_name(at) for at in range(len(calibrated.subgraphs[0].operators))]
    whole, nothing = (
        converter.quantize(TfliteFile(model=calibrated), denylisted=chosen, recipe=Recipe()).content
        for chosen in ((), denied)
    )
    graph = reader.read_graph(fb.parse(whole))
    assert {op.op_type for op in graph.ops if op.kind.value == "integer"} == outside
    assert op_type in {op.op_type for op in graph.ops}
    for built in (whole, nothing):
        for branch in (1, 2):
            assert branch_ops(built, branch) == branch_ops(content, branch)
        assert len(fb.parse(built).signatureDefs) == 1
    assert len(name_map.outputs) == 1
    for sample in zoo.random_samples(content, 5):
        [expected], [integer], [same] = (Runner(one)(sample[0]).values() for one in (content, whole, nothing))
        assert same.tobytes() == expected.tobytes()
        assert integer == pytest.approx(expected, abs=0.05 * float(np.abs(expected).max()) + 0.05)


def test_a_state_is_calibrated_as_steps_reach_it() -> None:
    """Half of a sum stays: its range after many steps is about twice that after each first one."""
    content = zoo.remembering()
    source = TfliteFile(content)
    samples = [[np.full((1, 8), 10.0, np.float32)]] * 20
    found = calibration.found_ranges(source, samples)
    runner, stepped = Runner(content, preserve_all_tensors=True), {index: list[float]() for index in found}
    for [x] in samples:
        runner.step(x)
        for index, seen in stepped.items():
            seen.extend(runner.tensor(index).ravel().tolist())
    assert found == {index: pytest.approx((min(seen), max(seen))) for index, seen in stepped.items()}
    runner.reset()
    runner.step(samples[0][0])
    assert any(found[index][1] > 1.5 * runner.tensor(index).max() > 0.0 for index in found)


def test_a_wrong_sample_is_refused() -> None:
    with pytest.raises(PreparationError, match="Calibrating"):
        calibration.calibrate(TfliteFile(looping()), [[np.zeros((1, 3), np.float32)]])


def test_custom_ops_without_a_kernel_are_named() -> None:
    model = fb.parse(chain())
    code = model.operatorCodes[model.subgraphs[0].operators[0].opcodeIndex]
    code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, b"NoSuchOp"
    with pytest.raises(ModelError, match=r"custom ops .*: NoSuchOp"):
        calibration.calibrate(TfliteFile(model=model), samples())


def test_a_sample_that_the_model_does_not_take_is_blamed() -> None:
    import tensorflow as tf

    content = zoo.from_function(lambda x: tf.gather(zoo.weights(4, 3), tf.cast(x, tf.int32)), [1, 2]).float_model
    with pytest.raises(PreparationError, match=r"calibration sample: .*of bounds.* Check"):
        calibration.calibrate(TfliteFile(content), [[np.full((1, 2), 9.0, np.float32)]])
