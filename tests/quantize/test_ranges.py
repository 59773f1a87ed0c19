"""Ranges of activations against NumPy on the raw values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.errors import RecipeError
from autoselect.quantize.repairing import ranges, repairs
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.ranges import range_of


def filled(*samples: np.ndarray) -> ranges.Histogram:
    histogram = ranges.Histogram()
    for sample in samples:
        histogram.add(sample.astype(np.float32))
    return histogram


def drawn(scale: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.5, scale, 20_000).astype(np.float32)


def test_a_histogram_that_grew_has_the_counts_of_one_that_did_not() -> None:
    small, large = drawn(0.1), drawn(40.0, seed=1)
    assert (filled(small, large).counts == filled(large, small).counts).all()
    assert filled(small, large).counts.sum() == 40_000


def test_observed_is_the_smallest_and_largest_value() -> None:
    values = drawn(3.0)
    assert ranges.observed(filled(values[:100], values[100:])) == (values.min(), values.max())


def test_the_percentile_is_numpys_to_within_a_bin() -> None:
    values = drawn(3.0)
    histogram = filled(values)
    expected = np.percentile(values, [0.005, 99.995])
    np.testing.assert_allclose(ranges.percentile(histogram), expected, atol=3 * 2 * histogram.reach / ranges.BINS + 0.5)
    low, high = ranges.percentile(filled(np.append(drawn(1.0), [1000.0])))
    assert high < 10.0
    assert low < 0.0


def test_the_moving_average_by_hand() -> None:
    histogram = filled(np.array([-1.0, 2.0]), np.array([-3.0, 12.0]))
    np.testing.assert_allclose(ranges.moving_average(histogram), (-1.2, 3.0))


def test_what_has_one_value_a_sample_keeps_all_of_its_range() -> None:
    """The average of such a range is a point, and integers would give one answer to all samples."""
    histogram = filled(*(np.array([value]) for value in (-17.0, 4.0, -2.0, 0.5)))
    assert ranges.moving_average(histogram) == (-17.0, 4.0)


def quantization_error(values: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    rounded = np.rint((np.clip(values, low, high) - low) / step) * step + low
    return float(np.mean((rounded - values) ** 2))


TAILS = {"normal": (20_000, [], 1.02), "one value far out of many": (2_000_000, [30.0], 0.5)}


@pytest.mark.parametrize(("count", "outliers", "share"), TAILS.values(), ids=TAILS)
def test_least_squares_beats_the_observed_range_by_the_error_itself(
    count: int, outliers: list[float], share: float
) -> None:
    values = np.append(np.random.default_rng(0).normal(size=count), outliers).astype(np.float32)
    histogram = filled(values)
    observed = quantization_error(values, *ranges.observed(histogram))
    assert quantization_error(values, *ranges.least_squares(histogram)) <= share * observed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_tensor_with_a_value_that_is_no_number_has_no_range_of_its_own(value: float) -> None:
    assert not filled(drawn(1.0), np.array([value])).is_finite


def test_zeros_have_a_range() -> None:
    histogram = filled(np.zeros(5))
    assert all(method(histogram) == (0.0, 0.0) for method in ranges.METHODS.values())


def test_observed_ranges_are_right_where_the_next_op_works_in_place() -> None:
    """TensorFlow's calibrator sees what the MUL left in the RELU's memory."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        return tf.nn.conv2d(tf.nn.relu(tf.nn.sigmoid(x) - 0.3) * 50.0, zoo.weights(1, 1, 3, 4), 1, "SAME")

    prepared = zoo.from_function(call, (1, 6, 6, 3)).prepared
    model = prepared.kit.float_model(("ranges-observed",))
    kinds = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    at = next(i for i, op in enumerate(model.subgraphs[0].operators) if kinds[i] in ("RELU", "SUB", "ADD"))
    tensor = model.subgraphs[0].tensors[model.subgraphs[0].operators[at].outputs[0]]
    assert tensor.quantization.max[0] <= 0.7
    assert prepared.builder.build(Recipe(repairs=("ranges-observed",))).kinds == prepared.builder.build(Recipe()).kinds


LIMITS = {"all values": (repairs.MEASURED_VALUES, 12), "few values": (1, 6), "fewer values": (1, 3)}


@pytest.mark.parametrize(("values", "expected"), LIMITS.values(), ids=LIMITS)
def test_ranges_are_of_all_samples_or_of_some_from_everywhere(
    monkeypatch: pytest.MonkeyPatch, values: int, expected: int
) -> None:
    monkeypatch.setattr(repairs, "MEASURED_SAMPLES", expected)
    monkeypatch.setattr(repairs, "MEASURED_VALUES", values)
    prepared = zoo.cnn().prepared
    one = prepared.fed()[0]

    def samples() -> Iterator[dict[str, np.ndarray]]:
        return ({key: factor * value for key, value in one.items()} for factor in range(12))

    kit = RepairKit(prepared.calibrated, samples)
    model, graph = kit.float_model(("ranges-observed",)), fb.parse(prepared.calibrated.content).subgraphs[0]
    ends = [value * (12 - 12 // expected) for value in one.values()]
    held = [range_of(model.subgraphs[0].tensors[i]) for i in graph.inputs]
    for value, (low, high) in zip(ends, (h for h in held if h), strict=True):
        np.testing.assert_allclose((low, high), (value.min(), value.max()), rtol=1e-6)


def ranges_of(model: Any) -> dict[int, tuple[float, float]]:
    """The ranges that a calibrated model holds, by tensor."""
    rows = {i: tensor.quantization for i, tensor in enumerate(model.subgraphs[0].tensors)}
    return {i: (float(q.min[0]), float(q.max[0])) for i, q in rows.items() if q is not None and q.min is not None}


def chosen(prepared: zoo.Prepared, *repairs: str) -> dict[int, tuple[float, float]]:
    return ranges_of(prepared.kit.float_model(repairs))


def of_one(prepared: zoo.Prepared, name: str) -> tuple[int, int]:
    """A node by its name, and the tensor that it writes."""
    index = next(n.index for n in prepared.nodes if n.name == name)
    return index, int(fb.parse(prepared.calibrated.content).subgraphs[0].operators[index].outputs[0])


def test_ranges_of_one_node_change_that_node_alone() -> None:
    prepared = zoo.cnn().prepared
    method = "ranges-moving-average"
    whole, plain = chosen(prepared, method), chosen(prepared)
    names = [node.name for node in prepared.nodes]
    changed = [n for n in names if whole[of_one(prepared, n)[1]] != plain[of_one(prepared, n)[1]]]
    assert len(changed) >= 2
    _, tensor = of_one(prepared, changed[0])
    assert chosen(prepared, f"{method}:{changed[0]}") == {**plain, tensor: whole[tensor]}
    beside = chosen(prepared, method, f"ranges-observed:{changed[0]}")
    assert beside == {**whole, tensor: chosen(prepared, "ranges-observed")[tensor]}
    every = chosen(prepared, *(f"{method}:{name}" for name in (*names, *prepared.calibrated.names.inputs)))
    assert every == whole


def test_globs_cover_nodes_and_no_node_is_covered_twice() -> None:
    prepared = zoo.cnn().prepared
    every = chosen(prepared, "ranges-moving-average:*")
    assert every == chosen(prepared, "ranges-moving-average")
    with pytest.raises(RecipeError, match=r"'ranges-mse' .*'ranges-observed'"):
        chosen(prepared, "ranges-mse:*", f"ranges-observed:{prepared.nodes[0].name}")


def test_ranges_for_a_node_that_is_not_there() -> None:
    prepared = zoo.cnn().prepared
    with pytest.raises(RecipeError, match="'conv_99'"):
        prepared.builder.build(Recipe(repairs=("ranges-mse:conv_99",)))
