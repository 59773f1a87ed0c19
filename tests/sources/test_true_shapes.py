"""What is told of a finished model whose file leaves sizes free."""

from __future__ import annotations

from pathlib import Path

import nets
import numpy as np
import pytest
import zoo

import autoselect
from autoselect.embedded import model_path
from autoselect.errors import UsageError
from autoselect.sources import loading


@pytest.mark.parametrize("name", ["mixer", "transformer"])
def test_costs_are_by_the_shapes_that_a_model_has_when_it_runs(name: str) -> None:
    original = nets.converted(name)
    settled = loading.float_model(original).content
    found, expected = (autoselect.inspect(content, target="litert-cpu").target for content in (original, settled))
    assert (found["penalty"], found["arena_bytes"]) == (expected["penalty"], expected["arena_bytes"])
    assert found["notes"] == []


@pytest.mark.real
def test_sizes_are_given_or_told_to_be_missing(real_data: Path) -> None:
    path = real_data / "zoo" / "melspectrogram.tflite"
    unknown = autoselect.inspect(path, target="litert-cpu").target
    assert "--shape" in unknown["notes"][0]
    costs = [
        autoselect.inspect(path, target="litert-cpu", shapes={"input": (1, size)}).target["penalty"]
        for size in (1280, 12800)
    ]
    assert unknown["penalty"] < costs[0] < costs[1] / 8


def open_net(*sizes: int | None, name: str = "x") -> bytes:
    """A dense layer over the rows of an input of these sizes."""
    import tensorflow as tf

    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.matmul(tf.reshape(x, (-1, 16)), zoo.weights(16, 16)), (tf.shape(x)[0], -1, 16))

    found = tf.function(call).get_concrete_function(tf.TensorSpec((*sizes, 16), tf.float32, name=name))
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([found]).convert())


@pytest.mark.parametrize("batch", [None, 1])
def test_an_evaluation_takes_the_sizes_of_its_samples(batch: int | None) -> None:
    content, samples = open_net(batch, None), np.random.default_rng(0).normal(size=(4, 64, 16)).astype(np.float32)
    scored = autoselect.evaluate(content, evaluation=samples, metric="sqnr_db", reference=content, target="litert-cpu")
    expected = autoselect.inspect(content, shapes={"x": (1, 64, 16)}, target="litert-cpu").target["penalty"]
    assert (scored.penalty, (scored.target or {})["notes"]) == (expected, [])
    assert expected >= 32 * autoselect.inspect(content, target="litert-cpu").target["penalty"]


def test_of_several_models_each_takes_the_sizes_that_fit_it() -> None:
    models = [open_net(1, None), open_net(1, 64), open_net(1, 64, name="other")]
    found = autoselect.inspect(models[0], compare=models[1:], shapes={"x": (1, 32, 16)}, target="litert-cpu")
    costs = [one.target["penalty"] for one in (found, *found.compare)]
    assert costs[0] < costs[1] == costs[2]


def test_what_no_sample_has_is_told_by_the_file() -> None:
    import tensorflow as tf

    spec = tf.TensorSpec((None,), tf.string, name="words")
    call = tf.function(lambda words: tf.gather(words, [0])).get_concrete_function(spec)
    content = bytes(tf.lite.TFLiteConverter.from_concrete_functions([call]).convert())
    [note] = autoselect.inspect(content).target["notes"]
    assert "placeholders" in note


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="window"):
        autoselect.inspect(model_path(), shapes={"window": (1, 128, 12)})
