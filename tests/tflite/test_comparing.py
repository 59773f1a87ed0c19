from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed
from zoo import tf

from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference, first_unlike, in_words


def test_other_outputs_are_seen() -> None:
    content = zoo.cnn().float_model
    [sample] = zoo.random_samples(content, 1)
    key = reader.input_specs(fb.parse(content))[0].key
    model = fb.parse(content)
    tensor = next(t for t in model.subgraphs[0].tensors if fb.is_constant(model, t) and fb.shape_of(t) == (16,))
    values = fb.constant_values(model, tensor).copy()
    values[0] += 1e-3
    tensor.buffer = editing.add_buffer(model, values)
    assert difference(content, content, [{key: sample[0]}]) == 0.0
    assert difference(content, fb.serialise(model), [{key: sample[0]}]) > 0.0
    assert 1e-5 < difference(content, fb.serialise(model), [{key: sample[0]}]) < 1.0


@pytest.mark.parametrize(
    ("call", "apart"),
    [
        pytest.param(lambda x: x * 2.0, 1.0, id="twice as much"),
        pytest.param(lambda x: x / 0.0, np.inf, id="not finite"),
        pytest.param(lambda x: tf().reshape(x, (8, 1)), np.inf, id="another shape"),
        pytest.param(lambda x: tf().cast(x, tf().int32), np.inf, id="another type"),
    ],
)
def test_how_far_outputs_are_apart(call: Callable[[Any], Any], apart: float) -> None:
    first, second = (zoo.from_function(one, (1, 8)).float_model for one in (lambda x: x * 1.0, call))
    sample = {"x0": np.linspace(-1.0, 2.0, 8, dtype=np.float32)[None]}
    assert difference(first, second, [sample]) == apart


@pytest.mark.parametrize("place", [0, 1])
def test_outputs_that_share_a_name_are_each_seen(place: int) -> None:
    """The quantizer calls all outputs of one op alike: values and indices of a TOPK_V2."""

    def named(factors: list[float]) -> bytes:
        model = fb.parse(zoo.from_function(lambda x: [x * f for f in factors], (1, 8)).float_model)
        model.signatureDefs = []
        for index in model.subgraphs[0].outputs:
            model.subgraphs[0].tensors[index].name = b"same"
        return fb.serialise(model)

    other = [2.0, 3.0]
    other[place] *= 2.0
    [sample] = zoo.random_samples(named([2.0, 3.0]), 1)
    fed = {"x0": sample[0]}
    assert difference(named([2.0, 3.0]), named([2.0, 3.0]), [fed]) == 0.0
    assert difference(named([2.0, 3.0]), named(other), [fed]) == pytest.approx(1.0)


def test_outputs_of_one_op_that_are_called_alike_are_not_taken_for_each_other() -> None:
    model = fb.parse(zoo.from_function(lambda x: tf().add_n(tf().split(tf().tanh(x), 2, axis=1)), (1, 8)).float_model)
    graph = model.subgraphs[0]
    [split] = [op for op in graph.operators if len(op.outputs) == 2]
    for index in split.outputs:
        graph.tensors[index].name = b"half"
    content = fb.serialise(model)
    sample = {"x0": np.linspace(-1.0, 2.0, 8, dtype=np.float32)[None]}
    assert first_unlike(content, content, sample) == ""


def test_outputs_that_are_not_finite_are_no_number(reviewed: Reviewed) -> None:
    reviewed("how far outputs are apart", map(in_words, (np.inf, 0.00031)))
