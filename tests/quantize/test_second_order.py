"""Second-order rounding of small layers, against what can be told by hand and by a slow reference."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.quantize.repairing.second_order import DAMPING, MOST_STEPS, Moments, compensated


def moments_of(inputs: np.ndarray) -> np.ndarray:
    return (inputs.T @ inputs / len(inputs))[None]


def output_error(errors: np.ndarray, moments: np.ndarray) -> float:
    return float(np.sum((errors @ moments) * errors))


def layer(
    seed: int, channels: int = 5, inputs: int = 6, rank: int = 2, count: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Weights in steps, and moments of inputs that are sums of a few others, and a little of their own."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(count, rank)) @ rng.normal(size=(rank, inputs)) + 0.1 * rng.normal(size=(count, inputs))
    return rng.uniform(-3.0, 3.0, (1, channels, inputs)), moments_of(own)


BY_HAND = {
    "two inputs that are equal": ([0.4, 0.4], [[1.0, 1.0], [1.0, 1.0]], [[0, 1], [1, 0]]),
    "two inputs that are opposite": ([0.4, -0.4], [[1.0, -1.0], [-1.0, 1.0]], [[0, -1], [1, 0]]),
    "one is twice the other": ([0.3, 0.4], [[4.0, 2.0], [2.0, 1.0]], [[0, 1]]),
    "three that are equal": ([0.3, 0.3, 0.3], np.ones((3, 3)), [[0, 0, 1], [0, 1, 0], [1, 0, 0]]),
    "inputs without anything in common": ([0.4, -1.6, 2.5], np.diag([3.0, 2.0, 1.0]), [[0, -2, 2]]),
    "inputs that are always 0": ([0.4, -1.6], np.zeros((2, 2)), [[0, -2]]),
    "one input is always 0": ([0.4, 0.4], np.diag([1.0, 0.0]), [[0, 0]]),
}


@pytest.mark.parametrize(("steps", "moments", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_errors_make_good_for_each_other(steps: list[float], moments: np.ndarray, expected: list[list[int]]) -> None:
    weights, products = np.array([[steps]]), np.array([moments])
    found = compensated(weights, np.rint(weights), products)
    assert found[0, 0].tolist() in expected
    assert output_error(found - weights, products) <= output_error(np.rint(weights) - weights, products)


def test_it_is_near_the_best_of_all_roundings() -> None:
    """Of down and up for each weight; nearest rounding is far from it where inputs depend on each other."""
    sums = np.zeros(3)
    for seed in range(40):
        steps, products = layer(seed, channels=1)
        choices = np.floor(steps[0, 0]) + np.array(list(itertools.product((0.0, 1.0), repeat=steps.shape[2])))
        best = min(output_error((row - steps[0, 0])[None, None], products) for row in choices)
        found = compensated(steps, np.rint(steps), products)
        sums += [best, output_error(found - steps, products), output_error(np.rint(steps) - steps, products)]
    best, ours, nearest = sums
    assert best < ours < 0.5 * nearest


def slow(steps: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """One weight after the other, each time with the inverse of what is left; for one group."""
    power = np.diagonal(moments)
    order = np.argsort(-power, kind="stable")
    damped = moments + DAMPING * power.mean() * np.eye(len(moments))
    work, found = steps.copy(), np.empty_like(steps)
    for done, at in enumerate(order):
        left = order[done:]
        inverse = np.linalg.inv(damped[np.ix_(left, left)])
        nearest = np.rint(steps[:, at])
        found[:, at] = np.clip(np.rint(work[:, at]), nearest - MOST_STEPS, nearest + MOST_STEPS)
        work[:, left] -= np.outer(work[:, at] - found[:, at], inverse[0] / inverse[0, 0])
    return found


@pytest.mark.parametrize("inputs", [5, 140], ids=["in one block", "in several"])
def test_it_is_the_reference(inputs: int) -> None:
    steps, products = layer(0, channels=8, inputs=inputs, rank=inputs // 2 + 1, count=4 * inputs)
    expected = slow(steps[0], products[0])
    assert not np.array_equal(expected, np.rint(steps[0]))
    assert np.array_equal(compensated(steps, np.rint(steps), products)[0], expected)


def test_groups_do_not_know_each_other() -> None:
    layers = [layer(seed) for seed in range(3)]
    steps, products = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    found = compensated(steps, np.rint(steps), products)
    for group, (alone, own) in zip(found, layers, strict=True):
        assert np.array_equal(group, compensated(alone, np.rint(alone), own)[0])


@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1.0, 50.0, 100.0]),
    powers=st.lists(st.floats(-4.0, 4.0), min_size=6, max_size=6),
)
def test_levels_stay_in_range_and_near_the_nearest(seed: int, scale: float, powers: list[float]) -> None:
    steps, products = layer(seed)
    factors = np.exp(np.array(powers))
    steps, products = np.clip(scale * steps, -127.0, 127.0), products * np.outer(factors, factors)
    found = compensated(steps, np.rint(steps), products)
    assert np.array_equal(found, np.rint(found))
    assert np.abs(found).max() <= 127
    assert np.abs(found - np.rint(steps)).max() <= MOST_STEPS


@pytest.mark.parametrize("inputs", [1, 4, 200], ids=["one", "fewer than positions", "more than positions"])
@pytest.mark.parametrize("groups", [1, 3])
def test_moments_about_a_point_are_those_of_the_differences(groups: int, inputs: int) -> None:
    rng = np.random.default_rng(0)
    parts, centre = rng.normal(2.0, 1.0, (2, groups, 7, inputs)), rng.normal(size=(groups, inputs))
    errors, found = rng.normal(size=(groups, 5, inputs)), Moments()
    for part in parts:
        found.add(part)
    apart = np.concatenate(list(parts), axis=1) - centre[:, None]
    expected = apart.swapaxes(1, 2) @ apart / 14
    assert found.output_error(errors, centre) == pytest.approx(output_error(errors, expected), rel=1e-5)
    np.testing.assert_allclose(found.about(centre), expected, atol=1e-5)
    assert found.output_error(errors, centre) == pytest.approx(output_error(errors, expected), rel=1e-5)
    assert found.mean.shape == (groups, inputs)


def test_moments_of_inputs_that_differ_little_from_their_mean_keep_their_digits() -> None:
    """About their mean they are a billionth of the products."""
    inputs, found = 3e4 + np.random.default_rng(0).normal(size=(1, 400, 6)).astype(np.float32), Moments()
    for part in np.split(inputs, 4, axis=1):
        found.add(part)
    expected = np.cov(inputs[0].T.astype(np.float64), bias=True)
    np.testing.assert_allclose(found.about(found.mean)[0], expected, atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_moments_say_that_an_input_is_no_number(value: float) -> None:
    found = Moments()
    for rows in ([[1.0, 2.0]], [[value, -value], [-value, 1.0]], [[1.0, 2.0]]):
        found.add(np.array([rows], np.float32))
    assert not found.is_finite


def test_few_positions_take_no_room_for_products() -> None:
    found, inputs = Moments(), np.ones((1, 10, 2000), np.float32)
    tracemalloc.start()
    try:
        for _ in range(3):
            found.add(inputs.copy())
        found.output_error(np.ones((1, 4, 2000)), found.mean)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2000**2 // 10
    finally:
        tracemalloc.stop()
