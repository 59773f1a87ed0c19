"""Custom ops that are builtin ops by another name become these, without a change of outputs."""

from __future__ import annotations

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.sources import tflite_files
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

NOTE = "1 Convolution2DTransposeBias became TRANSPOSE_CONV: the same op by another name."
PADDINGS = {"SAME": 1, "VALID": 2}
"""The numbers of ``TfLitePadding``, which MediaPipe's converter writes."""


def upsampling(padding: str, size: int) -> bytes:
    import tensorflow as tf

    def call(x: object) -> object:
        up = tf.nn.conv2d_transpose(x, zoo.weights(3, 2, 4, 3), (1, size, 8, 4), (3, 2), padding)
        return tf.nn.bias_add(up, zoo.weights(4, seed=1))

    return zoo.from_function(call, (1, 4, 4, 3)).float_model


def by_mediapipe(content: bytes, options: list[int]) -> bytes:
    """The model with MediaPipe's op in the place of its TRANSPOSE_CONV."""
    model = fb.parse(content)
    [op] = model.subgraphs[0].operators
    code = model.operatorCodes[op.opcodeIndex]
    code.builtinCode, code.version = schema.BuiltinOperator.CUSTOM, 1
    code.deprecatedBuiltinCode, code.customCode = schema.BuiltinOperator.CUSTOM, b"Convolution2DTransposeBias"
    op.builtinOptions, op.builtinOptionsType = None, schema.BuiltinOptions.NONE
    op.customOptions = np.array(options, "<i4").view(np.uint8)
    _, weights, source, bias = fb.indices(op.inputs)
    op.inputs = np.array([source, weights, bias], np.int32)
    editing.drop_unused_tensors(model)
    return fb.serialise(model)


@pytest.mark.parametrize(("padding", "size"), [("SAME", 12), ("SAME", 11), ("VALID", 12)])
def test_the_outputs_are_the_same_and_it_can_be_quantized(padding: str, size: int) -> None:
    content = upsampling(padding, size)
    found = tflite_files.from_bytes(by_mediapipe(content, [PADDINGS[padding], 3, 2]))
    assert found.notes == (NOTE,)
    [sample] = zoo.random_samples(content, 1)
    ours, theirs = (next(iter(Runner(one)(sample[0]).values())) for one in (found.content, content))
    assert ours.tobytes() == theirs.tobytes()
    kinds = zoo.prepare(found.content).builder.build(Recipe()).kinds
    assert set(kinds.values()) == {"integer"}


@pytest.mark.parametrize("options", [[], [1, 3], [0, 3, 2], [7, 3, 2]])
def test_options_that_say_nothing_leave_it_a_custom_op(options: list[int]) -> None:
    content = by_mediapipe(upsampling("SAME", 12), options)
    found = tflite_files.from_bytes(content)
    assert found.content is content
    assert not found.notes
