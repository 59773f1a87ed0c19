from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from flatbuffers import flexbuffers

from autoselect.compilers.emulation import DISPATCH_OP, EmulatedRunner, emulation_versions, require_emulation
from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.domain.recipe import Recipe
from autoselect.errors import ScoreError, UsageError
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

emulated = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "onnxruntime_qnn")),
    reason="needs onnxruntime and onnxruntime-qnn",
)
STEP = 1 / 256
"""Of an int8 softmax."""


def libraries() -> Path:
    spec = importlib.util.find_spec("onnxruntime_qnn")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def opened(content: bytes) -> EmulatedRunner:
    return EmulatedRunner(content, libraries=libraries())


@functools.cache
def compiled(content: bytes) -> bytes:
    return PluginCompiler(read_target("qualcomm-sm8750")).compiled(content, timeout_seconds=120.0)[1]


@functools.cache
def built(state: str) -> bytes:
    """The net of every common op with all its nodes in one state."""
    prepared = zoo.cnn().prepared
    names = frozenset(node.name for node in prepared.nodes)
    recipes = {
        "int8": Recipe(),
        "int8 interface": Recipe(io_type="int8"),
        "int16": Recipe(int16_nodes=names),
        "float": Recipe(denylisted_nodes=names, fallback="float"),
    }
    return prepared.builder.build(recipes[state]).content


@functools.cache
def hybrid_run() -> bytes:
    """Two hybrid convolutions in a row, both read later on, between ops in float."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        x = tf.nn.relu(x * 2.0)
        y = tf.nn.conv2d(x, zoo.weights(3, 3, 8, 16), 1, "SAME")
        z = tf.nn.conv2d(y, zoo.weights(3, 3, 16, 16, seed=1), 1, "SAME")
        return tf.nn.tanh(tf.nn.max_pool2d(z, 2, 2, "SAME") - tf.nn.max_pool2d(y, 2, 2, "SAME"))

    prepared = zoo.from_function(call, (1, 8, 8, 8)).prepared
    names = frozenset(node.name for node in prepared.nodes)
    return prepared.builder.build(Recipe(denylisted_nodes=names, fallback="drq")).content


@functools.cache
def two_ways() -> zoo.Source:
    """Inputs of one shape and outputs of one shape, each of its own."""
    import tensorflow as tf

    def call(x0: Any, x1: Any) -> dict[str, Any]:
        return {"zeta": tf.nn.tanh(x0 + x1), "alpha": x1 - 2.0 * x0, "product": x0 * x1}

    return zoo.from_function(call, (1, 8), (1, 8))


@functools.cache
def lookup() -> bytes:
    """An input of indices, outputs of indices, of truths and of a single number."""
    import tensorflow as tf

    table = zoo.weights(10, 4)

    def call(x0: Any, x1: Any) -> dict[str, Any]:
        y = tf.gather(table, x0) + x1
        return {"best": tf.argmax(x1, -1, output_type=tf.int32), "positive": x1 > 0.0, "sum": tf.reduce_sum(y)}

    specs = [tf.TensorSpec((1, 3), tf.int32, name="x0"), tf.TensorSpec((1, 3, 4), tf.float32, name="x1")]
    return zoo.Source(tf.function(call, autograph=False).get_concrete_function(*specs), ()).float_model


def inputs_of(runner: Runner | EmulatedRunner, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        spec.key: rng.integers(0, 10, spec.shape).astype(spec.dtype)
        if spec.dtype.name == "int32"
        else rng.normal(size=spec.shape).astype(np.float32)
        for spec in runner.inputs
    }


def op_types(content: bytes) -> list[str]:
    return [op.op_type for op in reader.read_graph(fb.parse(content)).ops]


# The model, how far it may be from LiteRT's CPU, pieces of the NPU, and what is left to the CPU.
MODELS: dict[str, tuple[Callable[[], bytes], float, int, list[str]]] = {
    "int8": (lambda: built("int8"), 2 * STEP, 1, []),
    "int8 interface": (lambda: built("int8 interface"), 2 * STEP, 1, []),
    "float": (lambda: built("float"), 0.005, 1, []),
    "int16, two pieces": (lambda: built("int16"), 0.005, 2, ["DEPTHWISE_CONV_2D"]),
    # Float16 moves the ranges, and some of the levels, that a hybrid kernel finds in its input.
    "hybrid, a run of two on the CPU": (hybrid_run, 0.03, 2, ["CONV_2D", "CONV_2D"]),
}


@emulated
@pytest.mark.parametrize(("make", "most", "pieces", "left"), MODELS.values(), ids=MODELS)
def test_the_pieces_in_turn_give_what_the_cpu_gives(
    make: Callable[[], bytes], most: float, pieces: int, left: list[str]
) -> None:
    content = compiled(make())
    kinds = op_types(content)
    assert (kinds.count(DISPATCH_OP), [kind for kind in kinds if kind != DISPATCH_OP]) == (pieces, left)
    on_cpu, on_npu = Runner(make()), opened(content)
    assert (on_npu.inputs, on_npu.outputs) == (on_cpu.inputs, on_cpu.outputs)
    for seed in range(4):
        sample = inputs_of(on_cpu, seed)
        for key, expected in on_cpu(sample).items():
            found = on_npu(sample)[key]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=0, atol=most)


def with_unread_parts() -> bytes:
    """Of two ops of several parts one part is read by nobody; between them is an op that the NPU leaves."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        first, _, third = tf.split(tf.tanh(x), 3, -1)
        _, half = tf.split(tf.exp(first * tf.nn.relu(third)), 2, 1)
        return tf.sigmoid(half)

    return zoo.tensorflow_integer(zoo.from_function(call, (1, 4, 12)))


@emulated
def test_parts_that_nobody_reads_keep_no_piece_from_running() -> None:
    """As in the first step of an unrolled recurrent layer."""
    content = with_unread_parts()
    made, on_cpu = compiled(content), Runner(content)
    assert op_types(made) == [DISPATCH_OP, "EXP", DISPATCH_OP]
    on_npu = EmulatedRunner(made, libraries=libraries(), source=content)
    sample = inputs_of(on_cpu)
    np.testing.assert_allclose(on_npu(sample)["output_0"], on_cpu(sample)["output_0"], rtol=0, atol=2 * STEP)
    with pytest.raises(ScoreError, match="Inconsistent output"):  # Once this runs, the source is not needed.
        opened(made)(sample)


SEVERAL_ENDS = {
    "floats": lambda: two_ways().float_model,
    "int8 interface": lambda: zoo.tensorflow_integer(two_ways(), "int8"),
    "uint8 interface": lambda: zoo.tensorflow_integer(two_ways(), "uint8"),
    "indices, truths and a single number": lookup,
}


@emulated
@pytest.mark.parametrize("make", SEVERAL_ENDS.values(), ids=SEVERAL_ENDS)
def test_inputs_and_outputs_are_told_apart(make: Callable[[], bytes]) -> None:
    on_cpu, on_npu = Runner(make()), opened(compiled(make()))
    sample = inputs_of(on_cpu)
    expected, found = on_cpu(sample), on_npu(sample)
    assert list(found) == list(expected)
    for key, values in expected.items():
        assert (found[key].dtype, found[key].shape) == (values.dtype, values.shape)
        np.testing.assert_allclose(found[key], values, rtol=0, atol=0.02)


@emulated
def test_a_repeat_is_the_same_bit_for_bit_in_this_runner_and_in_another() -> None:
    first, second = opened(compiled(built("int16"))), opened(compiled(built("int16")))
    sample, other = inputs_of(first), inputs_of(first, 1)
    expected = first(sample)
    first(other)
    first.reset()
    for found in (first(sample), first.step(sample), second(sample)):
        for key, values in expected.items():
            np.testing.assert_array_equal(found[key], values)
    assert first.inference_seconds > 0


@emulated
def test_a_model_without_pieces_runs_on_the_cpu_alone() -> None:
    on_cpu, on_npu = Runner(built("int8")), opened(built("int8"))
    sample = inputs_of(on_cpu)
    np.testing.assert_array_equal(on_npu(sample)["output_0"], on_cpu(sample)["output_0"])


def without_options(content: bytes) -> bytes:
    model = fb.parse(content)
    for op in model.subgraphs[0].operators:
        op.customOptions = None
    return fb.serialise(model)


def other_options(content: bytes) -> bytes:
    model = fb.parse(content)
    for op in model.subgraphs[0].operators:
        op.customOptions = np.frombuffer(b"\x01\x02\x03", np.uint8)
    return fb.serialise(model)


def zeros(content: bytes) -> bytes:
    """All of the binary but its length."""
    options = fb.parse(content).subgraphs[0].operators[0].customOptions
    start = flexbuffers.Loads(bytes(options))["bytecode_offset"]
    return content[:start] + bytes(len(content) - start)


def without_producer(content: bytes) -> bytes:
    model = fb.parse(content)
    del model.subgraphs[0].operators[0]
    return fb.serialise(model)


DAMAGED = {
    "no model": (lambda _: b"nothing", "cannot be read"),
    "cut off within the graph": (lambda content: content[:200], "cannot be read"),
    "cut off within a binary": (lambda content: content[:-64], "damaged or cut off"),
    "binaries of zeros": (zeros, "The emulation of the NPU fails"),
    "no options": (without_options, "does not say where its binary is"),
    "options of another kind": (other_options, "does not say where its binary is"),
    "a piece is missing": (without_producer, "is read before a piece computes it"),
}


@emulated
@pytest.mark.parametrize(("damage", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises(ScoreError, match=words):
        opened(damage(compiled(built("int8"))))


@emulated
def test_pieces_in_a_wrong_order_are_refused() -> None:
    content, room = compiled(built("int16")), 1 << 20
    model = fb.parse(content)
    for op in model.subgraphs[0].operators:
        if op.customOptions is not None and len(op.customOptions):
            options = flexbuffers.Loads(bytes(op.customOptions))
            options["bytecode_offset"] += room
            op.customOptions = np.frombuffer(flexbuffers.Dumps(options), np.uint8)

    def written() -> bytes:
        return fb.serialise(model).ljust(room, b"\0") + content

    opened(written())
    model.subgraphs[0].operators.reverse()
    with pytest.raises(ScoreError, match="piece computes"):
        opened(written())


@emulated
def test_a_piece_within_a_loop_is_refused() -> None:
    with pytest.raises(ScoreError, match="a loop"):
        opened(compiled(zoo.loop().float_model))


@emulated
def test_a_model_with_variables_is_refused() -> None:
    with pytest.raises(ScoreError, match="has variables"):
        opened(zoo.lstm().float_model)


@emulated
def test_inputs_of_another_shape_or_name_are_refused() -> None:
    runner = opened(compiled(built("int8")))
    with pytest.raises(ScoreError, match="emulation"):
        runner(np.zeros((1, 8, 9, 3), np.float32))
    with pytest.raises(ScoreError, match="'wrong'"):
        runner({"wrong": np.zeros((1, 8), np.float32)})


@emulated
def test_the_versions_name_both_packages() -> None:
    assert set(emulation_versions()) == {"onnxruntime", "onnxruntime-qnn"}


def test_without_the_packages_the_command_that_installs_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=" onnxruntime onnxruntime-qnn;"):
        require_emulation()
