"""With everything denylisted, a candidate equals TensorFlow's own dynamic-range model, op by op and bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from hypothesis import given
from hypothesis import strategies as st
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.dynamic_range import quantize_weights
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

ALL_DENIED = frozenset({"*"})


def operands(content: bytes) -> list[dict[str, Any]]:
    """All that makes an op hybrid: its kind, version, option and its constants with their parameters, as plain data."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    return [
        {
            "op_type": read.op_type,
            "kind": read.kind.value,
            "version": model.operatorCodes[op.opcodeIndex].version,
            "asymmetric": getattr(op.builtinOptions, "asymmetricQuantizeInputs", None),
            "constants": {
                position: _constant(model, graph.tensors[index])
                for position, index in enumerate(op.inputs)
                if index >= 0 and fb.is_constant(model, graph.tensors[index])
            },
        }
        for op, read in zip(graph.operators, reader.read_graph(model).ops, strict=True)
    ]


def _constant(model: Any, tensor: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "dtype": fb.TENSOR_DTYPES[tensor.type],
        "shape": fb.shape_of(tensor),
        "bytes": fb.constant_values(model, tensor).tobytes(),
    }
    parameters = tensor.quantization
    if parameters is not None and parameters.scale is not None:
        found["scales"] = np.asarray(parameters.scale, dtype=np.float32).tobytes()
        found["zero_points"] = [int(z) for z in parameters.zeroPoint]
        found["axis"] = parameters.quantizedDimension
    return found


def all_denied(source: zoo.Source, *, per_channel: bool = True) -> bytes:
    recipe = Recipe(denylisted_nodes=ALL_DENIED, per_channel=per_channel)
    return source.prepared.builder.build(recipe).content


def assert_equals_tensorflows(source: zoo.Source, ours: bytes) -> list[dict[str, Any]]:
    expected, found = operands(source.drq()), operands(ours)
    assert [o["op_type"] for o in found] == [o["op_type"] for o in expected]
    differing = [(i, o["op_type"]) for i, (o, e) in enumerate(zip(found, expected, strict=True)) if o != e]
    assert not differing
    return found


def counts(found: list[dict[str, Any]]) -> dict[str, int]:
    hybrid = [o["op_type"] for o in found if o["kind"] == "hybrid"]
    return {name: hybrid.count(name) for name in hybrid}


# Weights of dynamic-range nodes are per channel also where integer weights are per tensor.
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize(
    ("make", "hybrid"),
    [
        pytest.param(
            zoo.deep_conv_lstm,
            # The first convolution has 64 x 5 weights and the dense layer 6 x 128: too few.
            {"CONV_2D": 3, "UNIDIRECTIONAL_SEQUENCE_LSTM": 2},
            id="DeepConvLSTM",
        ),
        # Of the model's layers, 39 convolutions and 8 depthwise ones have kernels of 1,024 elements or more.
        pytest.param(
            zoo.mobilenet_v3_small,
            {"CONV_2D": 39, "DEPTHWISE_CONV_2D": 8},
            id="MobileNetV3-Small",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_whole_models(make: Callable[[], zoo.Source], hybrid: dict[str, int], per_channel: bool) -> None:
    source = make()
    found = assert_equals_tensorflows(source, all_denied(source, per_channel=per_channel))
    assert counts(found) == hybrid


@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "hybrid"),
    [
        pytest.param(
            "mobilenet_v1_025_imagenet/mobilenet_v1_025_224.h5", {"CONV_2D", "DEPTHWISE_CONV_2D"}, id="MobileNetV1"
        ),
        pytest.param("kws_dscnn/saved_model", {"CONV_2D"}, id="DS-CNN"),
    ],
)
def test_real_models(model: str, hybrid: set[str], real_data: Path) -> None:
    path = real_data / model
    if not path.exists():
        pytest.skip(f"no {path}")
    source = _real_source(path)
    found = assert_equals_tensorflows(source, all_denied(source))
    assert counts(found).keys() >= hybrid


def _real_source(path: Path) -> zoo.Source:
    if path.suffix == ".h5":
        import tf_keras

        return zoo.from_keras(tf_keras.models.load_model(path, compile=False))
    return zoo.from_signature(path)


def _silent_channel() -> np.ndarray:
    weights = zoo.weights(3, 3, 8, 32)
    weights[..., 5] = 0.0
    weights[..., 6] *= 1e-8
    weights[..., 7] = np.abs(weights[..., 7])
    return weights


SHARED = zoo.weights(64, 64)


@pytest.mark.parametrize(
    ("call", "shape", "kinds"),
    [
        pytest.param(
            lambda x: tf().matmul(x, zoo.weights(64, 32)) + zoo.weights(32, seed=1), (1, 64), ["hybrid"], id="dense"
        ),
        pytest.param(lambda x: tf().matmul(x, zoo.weights(33, 31)), (1, 33), ["float"], id="dense of 1,023 weights"),
        pytest.param(lambda x: tf().matmul(x, zoo.weights(32, 32)), (1, 32), ["hybrid"], id="dense of 1,024 weights"),
        pytest.param(lambda x: tf().matmul(x, zoo.weights(2, 64, 32)), (2, 4, 64), ["hybrid"], id="batched product"),
        pytest.param(
            lambda x: tf().nn.conv2d(x, zoo.weights(3, 3, 8, 32), 1, "SAME"), (1, 8, 8, 32), ["hybrid"], id="grouped"
        ),
        pytest.param(
            lambda x: tf().nn.conv2d(x, _silent_channel(), 1, "SAME"),
            (1, 8, 8, 8),
            ["hybrid"],
            id="channels of zeros and of almost zeros",
        ),
        pytest.param(
            lambda x: tf().nn.conv2d(x, 0.0 * zoo.weights(3, 3, 8, 32), 1, "SAME"), (1, 8, 8, 8), ["hybrid"], id="zeros"
        ),
        pytest.param(
            lambda x: tf().nn.depthwise_conv2d(x, zoo.weights(3, 3, 128, 1), [1] * 4, "SAME"),
            (1, 4, 4, 128),
            ["hybrid"],
            id="depthwise",
        ),
        pytest.param(
            lambda x: tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 16, 16), (1, 8, 8, 16), 2),
            (1, 4, 4, 16),
            ["hybrid"],
            id="transposed convolution",
        ),
        pytest.param(
            lambda x: tf().tanh(
                tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 16, 16), (1, 8, 8, 16), 2) + zoo.weights(16)
            ),
            (1, 4, 4, 16),
            ["hybrid", "float"],
            id="transposed convolution with a bias inside a model",
        ),
        pytest.param(
            lambda x: tf().matmul(tf().nn.relu(tf().matmul(x, SHARED)), SHARED),
            (1, 64),
            ["hybrid", "hybrid"],
            id="two ops share their weights",
        ),
    ],
)
def test_single_ops(call: Callable[[Any], Any], shape: tuple[int, ...], kinds: list[str]) -> None:
    source = zoo.from_function(call, shape)
    found = assert_equals_tensorflows(source, all_denied(source))
    assert [o["kind"] for o in found] == kinds


def test_a_small_transposed_convolution_stays_float() -> None:
    # The quantizer itself makes it hybrid; TensorFlow's dynamic-range quantization leaves it float.
    source = zoo.from_function(
        lambda x: tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 4, 4), (1, 8, 8, 4), 2), (1, 4, 4, 4)
    )
    [expected], [found] = operands(source.drq()), operands(all_denied(source))
    assert found["kind"] == expected["kind"] == "float"
    assert [c["bytes"] for c in found["constants"].values()] == [c["bytes"] for c in expected["constants"].values()]


@pytest.mark.parametrize(
    ("features", "units"),
    [
        pytest.param(6, 32, id="input weights too few, recurrent weights enough"),
        pytest.param(64, 16, id="input weights enough, recurrent weights too few"),
    ],
)
def test_an_lstm_with_one_small_weight_matrix_stays_float(features: int, units: int) -> None:
    import tf_keras

    layers = [tf_keras.Input((3, features)), tf_keras.layers.LSTM(units)]
    source = zoo.from_keras(zoo.randomise(tf_keras.Sequential(layers)))
    found = assert_equals_tensorflows(source, all_denied(source))
    assert [o["kind"] for o in found if o["op_type"] == "UNIDIRECTIONAL_SEQUENCE_LSTM"] == ["float"]


def test_an_lstm_whose_gates_read_the_state_of_its_cell_stays_float() -> None:
    import tf_keras

    layers = [tf_keras.Input((3, 32)), tf_keras.layers.LSTM(32)]
    model = fb.parse(zoo.from_keras(zoo.randomise(tf_keras.Sequential(layers))).float_model)
    [op] = [op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "UNIDIRECTIONAL_SEQUENCE_LSTM"]
    op.inputs = np.array(op.inputs)
    op.inputs[9:12] = [editing.add_constant(model, f"peephole{i}", zoo.weights(32, seed=i)) for i in range(3)]
    prepared = zoo.prepare(fb.serialise(model))
    built = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"})))
    kinds = {node.op_type: built.kinds[node.name] for node in prepared.nodes}
    assert kinds["UNIDIRECTIONAL_SEQUENCE_LSTM"] == "float"
    assert all(np.isfinite(value).all() for value in Runner(built.content)(prepared.fed()[0]).values())


def test_a_looked_up_table_stays_float() -> None:
    # A known difference: TensorFlow makes an int8 GATHER and a DEQUANTIZE of it, which integer-only hardware
    # gains nothing from and our recipes have no word for.
    source = zoo.from_function(lambda x: tf().gather(zoo.weights(64, 32), tf().cast(x, tf().int32)) * x[:, None], (1,))
    prepared = zoo.prepare(source.float_model, [[np.array([i], np.float32)] for i in (0, 7, 63)])
    ours = operands(prepared.builder.build(Recipe(denylisted_nodes=ALL_DENIED)).content)
    [gather] = [o for o in ours if o["op_type"] == "GATHER"]
    assert gather["constants"][0]["dtype"] == "float32"
    theirs = operands(source.drq())
    assert "DEQUANTIZE" in [o["op_type"] for o in theirs]
    [gather] = [o for o in theirs if o["op_type"] == "GATHER"]
    assert gather["constants"][0]["dtype"] == "int8"


def test_float_fallback_leaves_no_integers() -> None:
    source = zoo.deep_conv_lstm()
    built = source.prepared.builder.build(Recipe(denylisted_nodes=ALL_DENIED, fallback="float"))
    expected, found = operands(source.float_model), operands(built.content)
    assert [(o["op_type"], o["kind"]) for o in found] == [(o["op_type"], o["kind"]) for o in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [c["bytes"] for c in ours["constants"].values()] == [c["bytes"] for c in theirs["constants"].values()]


def test_a_transposed_convolution_falls_back_to_float() -> None:
    source = zoo.from_function(
        lambda x: tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 16, 16), (1, 8, 8, 16), 2), (1, 4, 4, 16)
    )
    built = source.prepared.builder.build(Recipe(denylisted_nodes=ALL_DENIED, fallback="float"))
    [expected], [found] = operands(source.float_model), operands(built.content)
    assert found["kind"] == "float"
    assert [c["bytes"] for c in found["constants"].values()] == [c["bytes"] for c in expected["constants"].values()]


def test_a_mixed_model_has_the_same_hybrid_ops() -> None:
    source = zoo.deep_conv_lstm()
    nodes = [n for n in source.prepared.nodes if n.op_type == "UNIDIRECTIONAL_SEQUENCE_LSTM"]
    built = source.prepared.builder.build(Recipe(denylisted_nodes=frozenset(n.name for n in nodes)))
    expected = [o for o in operands(source.drq()) if o["op_type"] == "UNIDIRECTIONAL_SEQUENCE_LSTM"]
    found = [o for o in operands(built.content) if o["op_type"] == "UNIDIRECTIONAL_SEQUENCE_LSTM"]
    assert len(found) == 2
    assert found == expected


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0, 1, 2]))
def test_weights_are_off_by_half_a_step_at_most(seed: int, axis: int | None) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.normal(size=(3, 4, 5)) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
    levels, scales = quantize_weights(weights, axis)
    shape = [1, 1, 1]
    if axis is not None:
        shape[axis] = weights.shape[axis]
    steps = scales.astype(np.float64).reshape(shape)
    assert np.abs(levels).max() <= 127
    assert (np.abs(levels * steps - weights) <= steps * 0.5001).all()


@pytest.mark.parametrize(
    ("weights", "axis", "levels", "scales"),
    [
        pytest.param([[1.27, -0.635], [0.01, 0.015]], None, [[127, -64], [1, 2]], [0.01], id="halves away from zero"),
        pytest.param([[1.27, 0.01], [0.127, 0.127]], 0, [[127, 1], [127, 127]], [0.01, 0.001], id="a scale per row"),
        pytest.param([[127.0, -254.0]], 1, [[127, -127]], [1.0, 2.0], id="a scale per column"),
    ],
)
def test_weights_by_hand(weights: object, axis: int | None, levels: object, scales: list[float]) -> None:
    found_levels, found_scales = quantize_weights(np.array(weights, dtype=np.float64), axis)
    assert found_levels.tolist() == levels
    assert found_scales.tolist() == pytest.approx(scales)


def test_weights_that_are_no_numbers_stay_float() -> None:
    """A scale of theirs would be none either, and LiteRT refuses a model with one."""
    spoilt = zoo.weights(64, 64)
    spoilt[3, 5] = np.nan
    prepared = zoo.from_function(
        lambda x: tf().matmul(x, zoo.weights(64, 64, seed=1)) + tf().tanh(tf().matmul(x, spoilt)), (1, 64)
    ).prepared
    candidate = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"})))
    assert any("finite" in reason for reason in candidate.fallbacks.values())
    kinds = [op.kind for op in candidate.graph.ops if op.op_type == "FULLY_CONNECTED"]
    assert sorted(kind.value for kind in kinds) == ["float", "hybrid"]
    Runner(candidate.content)(prepared.fed()[0])
