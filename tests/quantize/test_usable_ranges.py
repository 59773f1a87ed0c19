"""Ranges that kill the quantizer, or that LiteRT refuses, are mended: such models are built, and run."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building import proof
from autoselect.quantize.building.wholes import integer_model, whole_builds
from autoselect.quantize.preparing import converter
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import ranges
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

WEIGHTS = zoo.weights(8, 6)


def masked_logarithm(x: Any) -> Any:
    """The logarithm of a zero is taken out again; what is subtracted from it has no end either."""
    import tensorflow as tf

    logarithm = tf.math.log(tf.nn.relu(x))
    kept = tf.where(x > 0.0, 1.0 - logarithm, tf.zeros_like(x))
    return kept @ WEIGHTS


def padded(x: Any) -> Any:
    """Two steps of a recurrent layer that skips padding: the state is zero until a step is not padding."""
    import tensorflow as tf

    state = tf.zeros((1, 6))
    for step in (x[:, 0], x[:, 1]):
        gates = 300.0 * (state @ zoo.weights(6, 6, seed=1)) + step @ WEIGHTS
        state = tf.where(tf.reduce_any(step != 0.0, axis=-1, keepdims=True), tf.nn.tanh(gates), state)
    return state


def unseen(x: Any) -> Any:
    """A mask that hides nothing in the samples, and a sum that is never above zero."""
    import tensorflow as tf

    scores = tf.matmul(x, x, transpose_b=True)
    mask = (1.0 - tf.cast(x[:, None, :, 0] < 100.0, tf.float32)) * -1e9
    hidden = tf.nn.relu(tf.reduce_min(x, -1, keepdims=True) - 9.0)
    return tf.matmul(tf.nn.softmax(scores + mask), x) + hidden


@functools.cache
def made(name: str) -> zoo.Prepared:
    rng = np.random.default_rng(0)
    if name == "logarithm":
        content = zoo.from_function(masked_logarithm, (1, 8)).float_model
        return zoo.prepare(content, zoo.random_samples(content, 4))
    if name == "unseen":
        content = zoo.from_function(unseen, (1, 6, 8)).float_model
        return zoo.prepare(content, zoo.random_samples(content, 4))
    content = zoo.from_function(padded, (1, 2, 8)).float_model
    samples = [[rng.normal(size=(1, 2, 8)).astype(np.float32)] for _ in range(4)]
    for [sample] in samples:
        sample[:, 0] = 0.0
    return zoo.prepare(content, samples)


@pytest.mark.parametrize("name", ["logarithm", "padded", "unseen"])
@pytest.mark.parametrize("repairs", [(), ("ranges-mse",), ("ranges-percentile",)], ids=["plain", "mse", "percentile"])
def test_all_integer_runs(name: str, repairs: tuple[str, ...]) -> None:
    prepared = made(name)
    for per_channel in (True, False):
        for wide in (frozenset[str](), frozenset({"*"})):
            built = prepared.builder.build(Recipe(per_channel=per_channel, repairs=repairs, int16_nodes=wide))
            for sample in prepared.fed():
                [values] = Runner(built.content)(sample).values()
                assert np.isfinite(values).all()


def test_without_an_end_there_is_no_range() -> None:
    graph = fb.parse(made("logarithm").calibrated.content).subgraphs[0]
    given = [ranges.range_of(tensor) for tensor in graph.tensors]
    assert all(np.isfinite(row).all() for row in given if row is not None)


def test_ranges_that_can_be_used_are_left_alone() -> None:
    content = zoo.cnn().float_model
    plain = converter.calibrate(TfliteFile(content), zoo.cnn().prepared.samples).taken()
    ours = fb.parse(zoo.cnn().prepared.calibrated.content)
    given = [sorted(filter(None, map(ranges.range_of, m.subgraphs[0].tensors))) for m in (plain, ours)]
    assert given[0] == given[1]


def test_an_all_integer_model_that_fails_is_told_and_the_others_go_on(reviewed: Reviewed) -> None:
    import tensorflow as tf

    source = zoo.from_function(lambda x: x / (tf.nn.relu(x) + 0.001), (1, 8))
    samples = [[np.full((1, 8), value, np.float32)] for value in (-1.0, 100.0)]
    prepared = zoo.prepare(source.float_model, samples)
    [told] = proof.remarks(
        prepared.builder,
        prepared.nodes,
        whole_builds(prepared.kit, Recipe()),
        float_model=source.float_model,
        integer_model=integer_model(prepared.kit, Recipe()).content,
        samples=prepared.fed(),
        per_channel=True,
    )
    reviewed("an all-integer model that fails", told, measured=True)
