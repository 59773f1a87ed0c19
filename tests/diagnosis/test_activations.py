from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
import zoo
from hypothesis import given
from hypothesis import strategies as st

from autoselect.diagnosis.activations import activation_statistics, cast_to_integers, input_statistics
from autoselect.diagnosis.moments import Distances, Moments
from autoselect.domain.findings import ActivationStatistics
from autoselect.domain.tensors import TensorSpec
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


@given(
    values=st.lists(st.integers(-1000, 1000), min_size=2, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    offset=st.sampled_from([0.0, 1e4]),
)
def test_moments_do_not_depend_on_how_the_values_are_cut(values: list[int], cuts: list[int], offset: float) -> None:
    whole = np.array(values) / 7.0 + offset
    moments = Moments()
    for piece in np.split(whole, sorted(min(c, len(values)) for c in cuts)):
        moments.add(piece[:, None])
    assert moments.count == len(values)
    assert moments.mean[0] == pytest.approx(whole.mean())
    assert (moments.minimum[0], moments.maximum[0]) == (whole.min(), whole.max())
    assert moments.deviation[0] == pytest.approx(whole.std(), rel=1e-6, abs=1e-9)
    if len(set(values)) > 1:
        assert moments.kurtosis[0] == pytest.approx(scipy.stats.kurtosis(whole), rel=1e-5, abs=1e-5)
    else:
        assert math.isnan(moments.kurtosis[0])


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1000.0], ids=["centred", "far from 0"])
def test_shares_beyond_a_distance_are_nearly_exact(unit: float, offset: float) -> None:
    values = (np.random.default_rng(0).standard_t(3, size=200_000) + offset) * unit
    distances = Distances(float(values[:100].mean()))
    for piece in np.split(values, 10):
        distances.add(piece)
    for reach in (1.0, 3.0, 6.0):
        mean, distance = values.mean(), reach * values.std()
        # The border is met to 1.6 %, so that the share lies between those of the borders 2 % nearer and farther.
        most, least = (float(np.mean(np.abs(values - mean) > distance * f)) for f in (0.98, 1.02))
        assert least <= distances.share_beyond(mean, distance) <= most


def test_no_values_have_no_share_and_equal_values_have_no_outliers() -> None:
    distances = Distances(5.0)
    assert math.isnan(distances.share_beyond(5.0, 1.0))
    distances.add(np.full(10, 5.0))
    assert distances.share_beyond(5.0, 0.0) == 0.0


@pytest.fixture(scope="module")
def doubled() -> zoo.Prepared:
    """Twice the input; a SPLIT into two outputs; calibrated on -1..1."""
    import tensorflow as tf

    def call(x: Any) -> dict[str, Any]:
        left, right = tf.split(x, 2, axis=1)
        return {"twice": x * 2.0, "left": tf.tanh(left), "right": tf.exp(right), "shape": tf.argmax(x, axis=1)}

    content = zoo.from_function(call, (1, 100)).float_model
    return zoo.prepare(content, [[np.linspace(-1, 1, 100, dtype=np.float32)[None]]])


def by_op_type(
    prepared: zoo.Prepared, inputs: Sequence[np.ndarray], limits: dict[str, tuple[float, float]] | None = None
) -> dict[str, ActivationStatistics]:
    names = {n.op_type: n.name for n in prepared.nodes}
    by_name = {names[op_type]: limit for op_type, limit in (limits or {}).items()}
    samples = ({"x0": x[None].astype(np.float32)} for x in inputs)
    found = activation_statistics(prepared.calibrated.file, prepared.nodes, samples, by_name)
    return {op_type: found[name] for op_type, name in names.items() if name in found}


def test_activations_are_those_of_all_samples(doubled: zoo.Prepared) -> None:
    inputs = np.random.default_rng(1).standard_t(4, size=(7, 100)).astype(np.float32) + 3.0
    figures = by_op_type(doubled, inputs)["MUL"]
    twice = 2.0 * inputs.astype(np.float64)
    assert (figures.minimum, figures.maximum) == pytest.approx((twice.min(), twice.max()))
    assert figures.kurtosis == pytest.approx(scipy.stats.kurtosis(twice.reshape(-1)), rel=1e-5)
    assert (figures.calibrated_minimum, figures.calibrated_maximum) == pytest.approx((-2.0, 2.0))
    assert figures.range_growth == pytest.approx((twice.max() - min(twice.min(), -2.0)) / 4.0)


def test_the_outputs_of_a_node_count_as_one_population(doubled: zoo.Prepared) -> None:
    inputs = np.random.default_rng(2).normal(size=(3, 100)).astype(np.float32)
    figures = by_op_type(doubled, inputs)["SPLIT"]
    assert (figures.minimum, figures.maximum) == pytest.approx((inputs.min(), inputs.max()))
    assert figures.kurtosis == pytest.approx(scipy.stats.kurtosis(inputs.reshape(-1).astype(np.float64)), rel=1e-5)


def test_outliers_are_counted_beyond_six_deviations(doubled: zoo.Prepared) -> None:
    inputs = np.tile([1.0, -1.0], (4, 50))
    inputs[1, 0] = inputs[3, 7] = 30.0
    # 398 values of magnitude 2 and two of 60: the deviation is 4.6, so that 60 lies 13 deviations away.
    assert by_op_type(doubled, inputs)["MUL"].outlier_share == pytest.approx(2 / 400)


def test_equal_values_have_no_kurtosis_and_no_outliers(doubled: zoo.Prepared) -> None:
    figures = by_op_type(doubled, [np.full(100, 0.3)] * 3)["MUL"]
    assert math.isnan(figures.kurtosis)
    assert figures.outlier_share == 0.0


def test_clipped_values_lie_beyond_the_limits_by_more_than_half_a_step(doubled: zoo.Prepared) -> None:
    inputs = np.zeros((2, 100))
    # Twice these are 2.55 (at the limit), 2.554 (rounds to it), 2.56 and 9 (clipped), -0.01 (clipped below).
    inputs[0, :5] = [1.275, 1.277, 1.28, 4.5, -0.005]
    figures = by_op_type(doubled, inputs, {"MUL": (0.0, 2.55)})
    assert figures["MUL"].clipped_share == pytest.approx(3 / 200)
    assert math.isnan(figures["SPLIT"].clipped_share)


def test_nodes_without_a_float_output_and_without_samples_are_left_out(doubled: zoo.Prepared) -> None:
    assert "ARG_MAX" in {n.op_type for n in doubled.nodes}
    assert "ARG_MAX" not in by_op_type(doubled, np.zeros((1, 100)))
    assert by_op_type(doubled, []) == {}


def spec(key: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=f"serving_{key}", key=key, shape=shape, dtype=np.dtype(dtype))


def test_inputs_are_described_by_channel() -> None:
    rng = np.random.default_rng(0)
    images = rng.normal([0.0, 5.0, -5.0], [1.0, 2.0, 3.0], size=(6, 1, 4, 4, 3)).astype(np.float32)
    vectors = rng.normal(size=(6, 1, 9)).astype(np.float32)[:, 0]
    samples = [
        {"image": i, "vector": v[None], "ids": np.zeros((1, 3), np.int32)} for i, v in zip(images, vectors, strict=True)
    ]
    specs = [spec("image", 1, 4, 4, 3), spec("vector", 1, 9), spec("ids", 1, 3, dtype="int32")]
    image, vector = input_statistics(samples, specs)
    assert (image.name, vector.name) == ("image", "vector")
    channels = images.reshape(-1, 3).astype(np.float64)
    assert image.means == pytest.approx(channels.mean(axis=0))
    assert image.deviations == pytest.approx(channels.std(axis=0))
    assert image.minima == pytest.approx(channels.min(axis=0))
    assert image.maxima == pytest.approx(channels.max(axis=0))
    assert vector.means == pytest.approx((vectors.mean(),), abs=1e-6)
    assert len(vector.deviations) == 1


def test_inputs_that_the_model_casts_are_no_quantities() -> None:
    """Indices into an embedding come as floats from Keras; to normalise them would make other words of them."""

    def call(letters: Any, kinds: Any, level: Any) -> Any:
        tf = zoo.tf()
        table = tf.constant(zoo.weights(9, 4))
        words = tf.gather(table, tf.cast(tf.reshape(letters, (-1, 3)), tf.int32))
        kind = tf.gather(table, tf.cast(kinds, tf.int32)) * tf.reshape(kinds, (-1, 3, 1))
        return words + kind + tf.reshape(level, (-1, 3, 1))

    graph = reader.read_graph(fb.parse(zoo.from_function(call, (1, 3, 1), (1, 3), (1, 3)).float_model))
    assert len(graph.inputs) == 3
    [found] = cast_to_integers(graph)
    assert "x0" in found


def test_inputs_are_found_by_tensor_name_too_and_left_out_when_missing() -> None:
    samples = [{"serving_a": np.ones((1, 2), np.float32)}]
    [found] = input_statistics(samples, [spec("a", 1, 2), spec("b", 1, 2)])
    assert (found.name, found.means) == ("a", (1.0,))
