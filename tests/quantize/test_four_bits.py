"""Weights stored in 4 bits: each kernel that is allowed gives the bits of the same weights in 8, by running it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from reviewing import Reviewed
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Candidate
from autoselect.quantize.repairing import four_bits
from autoselect.quantize.repairing.four_bits import KERNELS, Kernel
from autoselect.quantize.repairing.weighted_ops import quantized_ops
from autoselect.tflite import editing, wide_kernels
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.runner import Runner

INT8, INT16, FLOAT = schema.TensorType.INT8, schema.TensorType.INT16, schema.TensorType.FLOAT32


@functools.cache
def one_layer(op_type: str) -> zoo.Prepared:
    """A layer between two others; odd numbers of weights, so many that it may be hybrid."""
    weights = {
        "CONV_2D": (3, 3, 5, 27),
        "DEPTHWISE_CONV_2D": (15, 15, 5, 1),
        "FULLY_CONNECTED": (125, 27),
        "TRANSPOSE_CONV": (3, 3, 7, 5),
    }
    kernel = zoo.weights(*weights[op_type], seed=3) * np.float32(0.3)

    def call(x: Any) -> Any:
        x = tf().nn.relu(x + 0.1)
        if op_type == "CONV_2D":
            return tf().nn.tanh(tf().nn.conv2d(x, kernel, 1, "SAME") + zoo.weights(27))
        if op_type == "DEPTHWISE_CONV_2D":
            return tf().nn.tanh(tf().nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME") + zoo.weights(5))
        if op_type == "TRANSPOSE_CONV":
            return tf().nn.tanh(tf().nn.conv2d_transpose(x, kernel, (1, 10, 10, 7), 2))
        return tf().nn.tanh(tf().matmul(tf().reshape(x, (1, -1)), kernel) + zoo.weights(27))

    content = zoo.from_function(call, (1, 5, 5, 5)).float_model
    return zoo.prepare(content, zoo.random_samples(content, 12))


def built(op_type: str, activation: int, *, per_channel: bool, repair: str = "int4-litert") -> Candidate:
    prepared = one_layer(op_type)
    nodes = frozenset(node.name for node in prepared.nodes)
    state = {INT8: {}, INT16: {"int16_nodes": nodes}, FLOAT: {"denylisted_nodes": nodes}}[activation]
    recipe = Recipe(**state, per_channel=per_channel, repairs=("levels-4", repair))
    return prepared.builder.build(recipe)


def with_types(content: bytes, wanted: int) -> int:
    return sum(t.type == wanted for t in fb.parse(content).subgraphs[0].tensors)


def on_reference_kernels(content: bytes, samples: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """Outputs by LiteRT's own kernels, without delegates."""
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    found = []
    for sample in samples:
        for detail, value in zip(interpreter.get_input_details(), sample.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).copy())
    return found


LITERT = sorted(KERNELS["int4-litert"], key=lambda k: (k.op_type, k.activation, k.per_channel))
INTEGER, HYBRID = ([k for k in LITERT if (k.activation == FLOAT) == is_hybrid] for is_hybrid in (False, True))


def called(kernel: Kernel) -> str:
    return f"{kernel.op_type}-{fb.TENSOR_DTYPES[kernel.activation]}-{kernel.per_channel}"


@pytest.mark.parametrize("kernel", INTEGER, ids=called)
def test_each_kernel_of_litert_gives_the_bits_of_8_bits(kernel: Kernel) -> None:
    found = built(kernel.op_type, kernel.activation, per_channel=kernel.per_channel)
    assert with_types(found.content, schema.TensorType.INT4) == 1
    twin = wide_kernels.in_8_bits(found.content)
    assert with_types(twin, schema.TensorType.INT4) == 0
    assert len(found.content) < len(twin)
    samples = one_layer(kernel.op_type).fed()
    ours, theirs = (on_reference_kernels(content, samples) for content in (found.content, twin))
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert np.unique(np.stack(ours)).size > 10


@pytest.mark.parametrize("kernel", HYBRID, ids=called)
def test_each_hybrid_kernel_is_as_close_to_float_as_with_8_bits_and_is_scored_as_it_is(kernel: Kernel) -> None:
    prepared = one_layer(kernel.op_type)
    nodes = frozenset(node.name for node in prepared.nodes)
    recipe = Recipe(denylisted_nodes=nodes, per_channel=kernel.per_channel, repairs=("levels-4",))
    plain = prepared.builder.build(recipe).content
    packed = prepared.builder.build(replace(recipe, repairs=("levels-4", "int4-litert"))).content
    assert (
        with_types(packed, schema.TensorType.INT4)
        == with_types(wide_kernels.quick(packed), schema.TensorType.INT4)
        == 1
    )
    assert wide_kernels.quick(packed) is packed
    assert len(packed) < len(plain)
    samples = prepared.fed()
    ours, theirs, exact = (on_reference_kernels(c, samples) for c in (packed, plain, prepared.calibrated.content))
    errors = [sum(float(np.sum((a - b) ** 2)) for a, b in zip(each, exact, strict=True)) for each in (ours, theirs)]
    assert 0.0 < errors[0] < 1.1 * errors[1]
    by_delegates = [[next(iter(Runner(c)(sample).values())) for sample in samples] for c in (packed, plain)]
    assert np.allclose(*map(np.stack, by_delegates), atol=1e-5)


def forced(op_type: str, activation: int) -> bytes:
    """The weights stored in 4 bits although the list does not allow it."""
    content = built(op_type, activation, per_channel=True).content
    model, prepared = fb.parse(content), one_layer(op_type)
    float_model = fb.parse(prepared.calibrated.content)
    places = built(op_type, activation, per_channel=True).places
    for _, op in quantized_ops(model, float_model, places):
        four_bits._VERSIONS.setdefault(op_type, 1)
        four_bits._store(model, op)
    editing.tidy(model)
    return fb.serialise(model)


def test_a_depthwise_convolution_of_16_bits_would_be_wrong_without_a_word(reviewed: Reviewed) -> None:
    found = built("DEPTHWISE_CONV_2D", INT16, per_channel=True)
    assert with_types(found.content, schema.TensorType.INT4) == 0
    (reason,) = {why for skipped in found.skipped.values() for why in [skipped.get("int4-litert")] if why}
    reviewed("weights of 4 bits that no kernel reads", reason)
    samples = one_layer("DEPTHWISE_CONV_2D").fed()
    wrong = on_reference_kernels(forced("DEPTHWISE_CONV_2D", INT16), samples)
    right = on_reference_kernels(found.content, samples)
    assert not np.allclose(np.stack(wrong), np.stack(right), atol=0.1)


def test_a_hybrid_depthwise_convolution_would_be_refused() -> None:
    assert with_types(built("DEPTHWISE_CONV_2D", FLOAT, per_channel=True).content, schema.TensorType.INT4) == 0
    with pytest.raises((RuntimeError, ValueError)):
        on_reference_kernels(forced("DEPTHWISE_CONV_2D", FLOAT), one_layer("DEPTHWISE_CONV_2D").fed())


def test_a_transposed_convolution_would_be_refused() -> None:
    found = built("TRANSPOSE_CONV", INT8, per_channel=True)
    assert with_types(found.content, schema.TensorType.INT4) == 0
    with pytest.raises((RuntimeError, ValueError)):
        on_reference_kernels(forced("TRANSPOSE_CONV", INT8), one_layer("TRANSPOSE_CONV").fed())


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_levels_are_packed_and_unpacked(size: int) -> None:
    levels = np.random.default_rng(size).integers(-8, 8, size).astype(np.int8)
    packed = fb.packed_nibbles(levels)
    assert packed.size == (size + 1) // 2
    model = fb.parse(one_layer("CONV_2D").calibrated.content)
    tensor = schema.TensorT()
    tensor.type, tensor.shape = schema.TensorType.INT4, np.array([size], np.int32)
    tensor.buffer = editing.add_buffer(model, packed)
    assert np.array_equal(fb.constant_values(model, tensor), levels)


def test_only_levels_of_4_bits_are_stored_so_and_sizes_are_forecast_exactly() -> None:
    prepared = one_layer("CONV_2D")
    for repairs in (("levels-5", "int4-litert"), ("int4-litert",)):
        assert with_types(prepared.builder.build(Recipe(repairs=repairs)).content, schema.TensorType.INT4) == 0
    recipe = Recipe(repairs=("bias", "levels-4", "int4-litert"))
    plan = prepared.builder.blueprint(recipe).plan([])
    assert plan.size_bytes == len(prepared.builder.build(recipe).content)


def test_biases_are_corrected_in_sequence_beside_weights_of_4_bits() -> None:
    prepared = one_layer("CONV_2D")
    recipe = Recipe(repairs=("bias-sequential", "levels-4", "int4-litert"))
    found = prepared.builder.build(recipe)
    plain = prepared.builder.build(replace(recipe, repairs=("bias-sequential", "levels-4")))
    assert with_types(found.content, schema.TensorType.INT4) == 1
    assert {name: shift.after for name, shift in found.shifts.items() if shift.reason is None} == {
        name: shift.after for name, shift in plain.shifts.items() if shift.reason is None
    }


TFLM = sorted(KERNELS["int4-tflm"], key=lambda k: (k.op_type, k.per_channel))


@pytest.mark.parametrize("kernel", TFLM, ids=lambda k: f"{k.op_type}-{k.per_channel}")
def test_each_kernel_of_tflite_micro_gives_the_bits_of_8_bits(kernel: Kernel) -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    prepared = one_layer(kernel.op_type)
    recipe = Recipe(per_channel=kernel.per_channel, io_type="int8", repairs=("levels-4", "int4-tflm"))
    found = prepared.builder.build(recipe).content
    assert with_types(found, schema.TensorType.INT4) == 1
    ours, theirs = (
        on_tflite_micro(runtime, content, prepared.fed()) for content in (found, wide_kernels.in_8_bits(found))
    )
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert np.unique(np.stack(ours)).size > 10


def on_tflite_micro(runtime: Any, content: bytes, samples: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 20)
    details, found = interpreter.get_input_details(0), []
    scale, zero = details["quantization_parameters"]["scales"][0], details["quantization_parameters"]["zero_points"][0]
    for sample in samples:
        levels = np.clip(np.rint(next(iter(sample.values())) / scale) + zero, -128, 127).astype(np.int8)
        interpreter.set_input(levels, 0)
        interpreter.invoke()
        found.append(interpreter.get_output(0).copy())
    return found


def test_a_scored_file_of_4_bits_is_its_twin_of_8() -> None:
    found = built("CONV_2D", INT8, per_channel=True).content
    quick = wide_kernels.quick(found)
    assert quick == wide_kernels.in_8_bits(found) != found
    assert wide_kernels.in_8_bits(quick) is quick
    ours, theirs = (Runner(content)(one_layer("CONV_2D").fed()[0]) for content in (found, quick))
    assert all(np.allclose(ours[key], theirs[key], atol=0.02) for key in ours)


def test_kernels_are_of_ops_with_weights() -> None:
    for kernels in KERNELS.values():
        assert {kernel.op_type for kernel in kernels} <= set(WEIGHTED)
