"""Which output is the first is decided by one rule: who runs, checks, guesses and scores must agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zoo

from autoselect.api.source import look
from autoselect.cases.scoring_samples import scored_shape
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import MetricError
from autoselect.scoring.metrics import make_metric
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner


def called(keys: tuple[str, ...]) -> bytes:
    """A model whose outputs have the shapes (1, 1), (1, 2), (1, 3) in the file's order, and these keys."""
    source = zoo.from_function(lambda x: (x[:, :1] * 2.0, x[:, :2] * 3.0, x[:, :3] * 4.0), (1, 4))
    model = fb.parse(source.float_model)
    graph, maps = model.subgraphs[0], model.signatureDefs[0].outputs
    graph.outputs = np.array(sorted(graph.outputs, key=lambda t: fb.shape_of(graph.tensors[t])), dtype=np.int32)
    for tensor, key in zip(graph.outputs, keys, strict=True):
        next(m for m in maps if m.tensorIndex == tensor).name = key.encode()
    return fb.serialise(model)


ORDERS = {
    "in order": (("output_0", "output_1", "output_2"), 0),
    "turned round": (("output_2", "output_1", "output_0"), 2),
    "not from zero on": (("output_3", "output_1", "output_2"), 1),
    "ten after nine": (("output_10", "output_9", "output_11"), 1),
    "names of its own": (("scores", "boxes", "count"), 0),
    "a name before a number": (("scores", "output_0", "output_1"), 0),
    "a name after a number": (("output_1", "scores", "output_0"), 1),
}


@pytest.mark.parametrize(("keys", "first"), ORDERS.values(), ids=ORDERS)
def test_all_agree_on_the_first_output(keys: tuple[str, ...], first: int) -> None:
    content, shape = called(keys), (1, first + 1)
    outputs = Runner(content)(np.ones((1, 4), np.float32))
    assert next(iter(outputs)) == keys[first]
    metric = make_metric("sqnr_db")
    assert metric.scored(outputs).shape == shape
    assert scored_shape(reader.output_specs(fb.parse(content)), metric) == shape


def test_a_metric_is_guessed_from_the_output_that_is_scored() -> None:
    keys, first = ORDERS["turned round"]
    looked = look(called(keys))
    assert [output["name"] for output in looked["outputs"]] == ["output_0", "output_1", "output_2"]
    assert f"{first + 1} values" in looked["why"]


@pytest.mark.parametrize(("is_probability", "metric"), [(True, "accuracy"), (False, "mae")])
def test_one_number_is_a_probability_if_a_logistic_writes_it(metric: str, *, is_probability: bool) -> None:
    import tensorflow as tf

    source = zoo.from_function(lambda x: (tf.sigmoid if is_probability else tf.tanh)(x @ zoo.weights(4, 1)), (1, 4))
    assert look(source.float_model)["metric"] == metric


def test_an_output_of_indices_is_not_the_first() -> None:
    import tensorflow as tf

    source = zoo.from_function(lambda x: {"a_class": tf.argmax(x, -1), "scores": tf.nn.softmax(x)}, (1, 4))
    content = source.float_model
    outputs = Runner(content)(np.ones((1, 4), np.float32))
    assert list(outputs) == ["scores", "a_class"]
    assert scored_shape(reader.output_specs(fb.parse(content)), make_metric("sqnr_db")) == (1, 4)


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "mean_iou", "kl_divergence"])
def test_class_numbers_are_no_scores_of_classes(name: str) -> None:
    """Accuracy wanted labels of 0 and 1."""
    label = TensorSpec(name="label:0", key="label", shape=(1,), dtype=np.dtype(np.int64))
    quantized = replace(label, shape=(1, 10), dtype=np.dtype(np.int8), is_quantized=True)
    with pytest.raises(MetricError, match=r"\(int64\) in 'label'.*ARG_MAX"):
        scored_shape((label,), make_metric(name))
    assert scored_shape((quantized,), make_metric(name)) == (1, 10)
    assert scored_shape((label,), make_metric("mae")) == (1,)
