"""Constants that an op reads as a number lose their axes, which TensorFlow's importer refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError
from autoselect.quantize.preparing import calibration, converter
from autoselect.quantize.preparing.normalise import normalise
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference
from autoselect.tflite.tflite_file import TfliteFile

CALLS = {
    "TOPK_V2": lambda x: tf().math.top_k(x + 1.0, 3).values,
    "CUMSUM": lambda x: tf().cumsum(x + 1.0, axis=1),
}


def with_an_axis(content: bytes, op_type: str) -> bytes:
    """The model as other converters write it."""
    model = fb.parse(content)
    tensors = model.subgraphs[0].tensors
    for op in model.subgraphs[0].operators:
        if fb.op_type(model, op) == op_type:
            tensors[op.inputs[1]].shape = np.ones(1, np.int32)
    return fb.serialise(model)


@pytest.mark.parametrize(("op_type", "call"), CALLS.items(), ids=CALLS)
def test_numbers_lose_their_axes_before_the_quantizer(op_type: str, call: Callable[[Any], Any]) -> None:
    plain = zoo.from_function(call, (1, 6, 8)).float_model
    content = with_an_axis(plain, op_type)
    samples = zoo.random_samples(content, 4)
    found = normalise(content)
    named = [dict(zip(["x0"], sample, strict=True)) for sample in samples]
    assert difference(content, found.content, named, delegates=False) == 0.0
    calibrated = calibration.calibrated_model(found.file, samples, found.node_names).file
    assert converter.quantize(calibrated, denylisted=(), recipe=Recipe()).content
    with pytest.raises(BuildError, match="0-D"):
        converter.quantize(TfliteFile(with_an_axis(calibrated.content, op_type)), denylisted=(), recipe=Recipe())
