"""Constant indices of 64 bits become those of 32 bits, with the same bits at the outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.quantize.preparing.normalise import normalise
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference

COLUMNS = np.array([3, 1, 7, 5], np.int64)
ROWS = np.array([[[0, 2], [0, 5]]], np.int64)


def index_types(content: bytes) -> list[str]:
    model = fb.parse(content)
    tensors = model.subgraphs[0].tensors
    gathers = (op for op in model.subgraphs[0].operators if fb.op_type(model, op) in {"GATHER", "GATHER_ND"})
    return [fb.TENSOR_DTYPES[tensors[op.inputs[1]].type] for op in gathers]


@pytest.mark.parametrize(
    ("call", "before", "after"),
    [
        pytest.param(lambda x: tf().gather(x, COLUMNS, axis=-1), ["int64"], ["int32"], id="columns"),
        pytest.param(lambda x: tf().gather_nd(x, ROWS), ["int64"], ["int32"], id="rows"),
        pytest.param(
            lambda x: (tf().gather(x, COLUMNS, axis=-1), tf().gather(x + 1.0, COLUMNS, axis=-1)),
            ["int64", "int64"],
            ["int32", "int32"],
            id="two that share them",
        ),
        pytest.param(
            lambda x: (tf().gather(x, COLUMNS, axis=-1), COLUMNS + 0 * tf().cast(x[0, 0, 0], tf().int64)),
            ["int64"],
            ["int64"],
            id="with another reader",
        ),
    ],
)
def test_constant_indices_take_32_bits(call: Callable[[Any], Any], before: list[str], after: list[str]) -> None:
    content = zoo.from_function(call, (1, 6, 8)).float_model
    assert index_types(content) == before
    found = normalise(content)
    assert index_types(found.content) == after
    samples = [dict(zip(["x0"], sample, strict=True)) for sample in zoo.random_samples(content, 4)]
    assert difference(content, found.content, samples, delegates=False) == 0.0
    assert index_types(normalise(content, exact_rewrites=False).content) == before
