from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
import zoo

from autoselect.diagnosis.weights import weight_statistics
from autoselect.domain.findings import WeightStatistics
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

CONV, DEPTHWISE, UP = zoo.weights(3, 3, 2, 4), zoo.weights(3, 3, 2, 2, seed=1), zoo.weights(3, 3, 5, 2, seed=2)
VOLUME, DENSE, TABLE = zoo.weights(2, 2, 1, 2, 3, seed=3), zoo.weights(32, 40, seed=4), zoo.weights(6, 7, seed=5)
PAIRS = zoo.weights(2, 4, 5, seed=6)


@functools.cache
def every_layer() -> zoo.Prepared:
    """One model with a branch for each kind of layer."""
    import tensorflow as tf

    def call(x: Any) -> dict[str, Any]:
        flat = tf.reshape(x, (1, 32))
        table = tf.gather(tf.constant(TABLE), tf.cast(flat[0, :2], tf.int32) * 0, axis=0)
        return {
            "conv": tf.nn.conv2d(x, CONV, 1, "SAME"),
            "depthwise": tf.nn.depthwise_conv2d(x, DEPTHWISE, [1, 1, 1, 1], "SAME"),
            "up": tf.nn.conv2d_transpose(x, UP, (1, 8, 8, 5), 2),
            "volume": tf.nn.conv3d(tf.reshape(x, (1, 4, 4, 1, 2)), VOLUME, [1, 1, 1, 1, 1], "SAME"),
            "dense": tf.matmul(flat, DENSE),
            "pairs": tf.matmul(tf.reshape(x, (2, 4, 4)), PAIRS),
            "table": table * 1.5,
            "plain": tf.tanh(x),
        }

    return zoo.from_function(call, (1, 4, 4, 2)).prepared


def every_op(prepared: zoo.Prepared) -> list[Node]:
    """The nodes, and the ops that the quantizer leaves float as if they were nodes."""
    model = fb.parse(prepared.calibrated.content)
    known = {n.index: n for n in prepared.nodes}
    op_types = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    others = [Node(index=i, name=str(i), op_type=name) for i, name in enumerate(op_types)]
    return [known.get(n.index, n) for n in others]


def statistics(prepared: zoo.Prepared, recipe: Recipe) -> dict[str, tuple[str, WeightStatistics]]:
    """By op type: the node's name and its weights."""
    built = prepared.builder.build(recipe)
    places = built.places
    nodes = every_op(prepared)
    found = weight_statistics(prepared.calibrated.file, TfliteFile(built.content), places, nodes)
    types = {n.name: n.op_type for n in nodes}
    return {types[name]: (name, figures) for name, figures in found.items()}


def channels_of(op_type: str) -> np.ndarray:
    """The weights as they were written above, shape (channels, weights of each)."""
    return {
        "CONV_2D": CONV.reshape(-1, 4).T,
        "DEPTHWISE_CONV_2D": DEPTHWISE.reshape(9, 4).T,
        "TRANSPOSE_CONV": UP.transpose(2, 0, 1, 3).reshape(5, -1),
        "FULLY_CONNECTED": DENSE.T,
        "CONV_3D": VOLUME.reshape(-1, 3).T,
        "BATCH_MATMUL": PAIRS.transpose(2, 0, 1).reshape(5, -1),
        "GATHER": TABLE,
    }[op_type]


@pytest.mark.parametrize(
    "op_type",
    ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "CONV_3D", "BATCH_MATMUL", "GATHER"],
)
def test_weights_are_described_by_output_channel(op_type: str) -> None:
    _, figures = statistics(every_layer(), Recipe())[op_type]
    rows = channels_of(op_type)
    assert figures.minima == pytest.approx(tuple(rows.min(axis=1)))
    assert figures.maxima == pytest.approx(tuple(rows.max(axis=1)))
    assert figures.kurtosis == pytest.approx(scipy.stats.kurtosis(rows.reshape(-1).astype(np.float64)))
    peaks = np.abs(rows).max(axis=1)
    assert figures.channel_range_ratio == pytest.approx(peaks.max() / peaks.min())


@pytest.mark.parametrize("op_type", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
def test_scales_are_those_of_the_diagnosed_model(op_type: str, per_channel: bool) -> None:
    _, figures = statistics(every_layer(), Recipe(per_channel=per_channel))[op_type]
    peaks = np.abs(channels_of(op_type)).max(axis=1)
    expected = peaks / 127 if per_channel else [peaks.max() / 127]
    assert figures.scales == pytest.approx(tuple(expected), rel=1e-5)
    assert figures.zero_points == (0,) * len(expected)


@pytest.mark.parametrize(
    ("fallback", "scales"), [pytest.param("drq", 40, id="hybrid: by row"), pytest.param("float", 0, id="float: none")]
)
def test_a_node_left_out_has_the_scales_of_what_it_became(fallback: Any, scales: int) -> None:
    name, whole = statistics(every_layer(), Recipe())["FULLY_CONNECTED"]
    recipe = Recipe(denylisted_nodes=frozenset({name}), fallback=fallback)
    _, figures = statistics(every_layer(), recipe)["FULLY_CONNECTED"]
    assert len(figures.scales) == len(figures.zero_points) == scales
    assert figures.minima == whole.minima


def test_an_op_that_the_diagnosed_model_does_not_have_has_no_scales() -> None:
    prepared = every_layer()
    content = prepared.calibrated.content
    found = weight_statistics(TfliteFile(content), TfliteFile(content), {}, prepared.nodes)
    assert found
    assert all(figures.scales == figures.zero_points == () for figures in found.values())


def test_nodes_without_weights_are_left_out() -> None:
    prepared = every_layer()
    assert "TANH" in {n.op_type for n in prepared.nodes}
    assert "TANH" not in statistics(prepared, Recipe())


def test_the_matrices_of_an_lstm_are_one_population() -> None:
    source = zoo.lstm()
    _, figures = statistics(source.prepared, Recipe())["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    kernel, recurrent = (np.asarray(v) for v in source.variables[:2])
    everything = np.concatenate([kernel.reshape(-1), recurrent.reshape(-1)]).astype(np.float64)
    assert figures.kurtosis == pytest.approx(scipy.stats.kurtosis(everything))
    # Four gates: their input matrices one after the other, then their recurrent ones, one scale each.
    assert figures.minima == pytest.approx((*kernel.min(axis=0), *recurrent.min(axis=0)))
    expected = [np.abs(m[:, 16 * g : 16 * (g + 1)]).max() / 127 for m in (kernel, recurrent) for g in range(4)]
    assert figures.scales == pytest.approx(tuple(expected), rel=1e-5)


@pytest.fixture(scope="module")
def odd_weights() -> dict[int, WeightStatistics]:
    """A dense layer of equal weights (4 outputs) and one with a single outlier (5 outputs), by count of outputs."""
    import tensorflow as tf

    outlier = np.tile(np.float32([[1.0], [-1.0]]), (20, 5))
    outlier[0, 0] = 100.0
    equal = np.full((40, 4), 0.3, dtype=np.float32)
    prepared = zoo.from_function(lambda x: (tf.matmul(x, equal), tf.matmul(x, outlier)), (1, 40)).prepared
    file = prepared.calibrated.file
    return {len(w.minima): w for w in weight_statistics(file, file, {}, prepared.nodes).values()}


def test_equal_weights_have_no_kurtosis_and_no_outliers(odd_weights: dict[int, WeightStatistics]) -> None:
    assert np.isnan(odd_weights[4].kurtosis)
    assert odd_weights[4].outlier_share == 0.0
    assert odd_weights[4].channel_range_ratio == 1.0


def test_outliers_are_counted_beyond_six_deviations(odd_weights: dict[int, WeightStatistics]) -> None:
    # 199 weights of magnitude 1 and one of 100: the deviation is about 7, so that 100 lies 14 deviations away.
    assert odd_weights[5].outlier_share == pytest.approx(1 / 200)
    assert odd_weights[5].channel_range_ratio == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("peaks", "ratio"),
    [
        pytest.param((1.0, 4.0, 2.0), 4.0, id="plain"),
        pytest.param((0.0, 4.0, 2.0), 2.0, id="a zero channel is dead"),
        pytest.param((1e-9, 4.0, 2.0), 2.0, id="a channel near zero is dead"),
        pytest.param((0.0, 0.0), math.nan, id="all zero"),
        pytest.param((), math.nan, id="none"),
    ],
)
def test_the_ratio_of_channel_magnitudes_leaves_dead_channels_out(peaks: Sequence[float], ratio: float) -> None:
    figures = WeightStatistics(
        minima=tuple(-p for p in peaks),
        maxima=tuple(p / 2 for p in peaks),
        kurtosis=0.0,
        outlier_share=0.0,
        scales=(),
        zero_points=(),
    )
    assert figures.channel_range_ratio == pytest.approx(ratio, nan_ok=True)
