"""Convolutions around which values move to the batch and back are dilated convolutions, with the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.quantize.preparing.normalise import normalise
from autoselect.rewrites import names
from autoselect.rewrites.respelling import dilate
from autoselect.sources.shapes import settled_shapes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.comparing import difference


def moved(
    kernel: tuple[int, ...],
    block: tuple[int, ...],
    pads: tuple[tuple[int, int], ...] | None = None,
    crops: tuple[tuple[int, int], ...] | None = None,
    *,
    back: tuple[int, ...] | None = None,
    depthwise: bool = False,
) -> Callable[[Any], Any]:
    """A convolution between a SPACE_TO_BATCH_ND and a BATCH_TO_SPACE_ND, without pads and crops if none are given."""
    nothing = ((0, 0),) * len(block)

    def call(x: Any) -> Any:
        x = tf().space_to_batch(x, block, pads or nothing)
        if len(block) == 1:
            x = tf().expand_dims(x, 1)
        if depthwise:
            x = tf().nn.depthwise_conv2d(x, zoo.weights(*kernel, x.shape[-1], 1), [1, 1, 1, 1], "VALID")
        else:
            x = tf().nn.conv2d(x, zoo.weights(*kernel, x.shape[-1], 16), 1, "VALID")
        x = tf().nn.relu(x + zoo.weights(x.shape[-1]))
        if len(block) == 1:
            x = tf().squeeze(x, 1)
        return tf().batch_to_space(x, back or block, crops or nothing)

    return call


def free(call: Callable[[Any], Any], *shape: int) -> bytes:
    """A model with a free batch: of a fixed one the converter writes a dilated convolution itself."""
    return zoo.from_function(call, (None, *shape)).float_model


def types(model: fb.Model) -> Counter[str]:
    return Counter(fb.op_type(model, op) for op in model.subgraphs[0].operators)


IMAGE, SEQUENCE = {"CONV_2D": 1}, {"CONV_2D": 1, "RESHAPE": 2}
WRITTEN = [
    pytest.param(moved((3, 3), (2, 2)), (12, 12, 8), IMAGE, id="an image, no pads"),
    pytest.param(moved((3, 3), (2, 2), ((2, 2), (2, 2))), (12, 12, 8), IMAGE, id="an image of the same size after"),
    pytest.param(moved((3, 3), (2, 2), ((0, 1), (0, 1)), ((0, 1), (0, 1))), (13, 13, 8), IMAGE, id="an odd image"),
    pytest.param(moved((3, 3), (2, 2), ((2, 3), (2, 3)), ((0, 1), (0, 1))), (13, 13, 8), IMAGE, id="an odd one, same"),
    pytest.param(moved((3, 2), (2, 4), ((2, 2), (2, 2))), (12, 12, 8), IMAGE, id="factors of height and width"),
    pytest.param(
        moved((3, 3), (2, 2), ((1, 1), (0, 0)), ((1, 1), (0, 0))), (12, 12, 8), IMAGE, id="pads cropped again"
    ),
    pytest.param(moved((1, 3), (4,)), (32, 8), SEQUENCE, id="a sequence, no pads"),
    pytest.param(moved((1, 3), (4,), ((4, 4),)), (32, 8), SEQUENCE, id="a sequence of the same length after"),
    pytest.param(moved((1, 3), (4,), ((0, 3),), ((0, 3),)), (33, 8), SEQUENCE, id="an odd sequence"),
]


@pytest.mark.parametrize(("call", "shape", "expected"), WRITTEN)
def test_such_a_convolution_is_a_dilated_one(
    call: Callable[[Any], Any], shape: tuple[int, ...], expected: dict[str, int]
) -> None:
    content = settled_shapes(fb.parse(free(call, *shape)))
    source = fb.parse(content)
    assert {"SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"} <= set(types(source))
    model = fb.parse(content)
    gone = dilate(model)
    assert types(model) == expected
    samples = [dict(zip(["x0"], sample, strict=True)) for sample in zoo.random_samples(content)]
    assert difference(content, fb.serialise(model), samples, delegates=False) == 0.0
    before, after = (set(names.canonicalise(one).nodes) for one in (source, model))
    assert before - after == set(gone)
    found = normalise(content)
    assert types(fb.parse(found.content)) == expected
    assert difference(content, found.content, samples, delegates=False) == 0.0
    assert normalise(found.content).folded == ()
    assert reader.output_specs(fb.parse(found.content)) == reader.output_specs(fb.parse(content))


def read_twice(x: Any) -> Any:
    x = tf().space_to_batch(x, (2, 2), ((0, 0), (0, 0)))
    y = tf().nn.conv2d(x, zoo.weights(1, 1, 8, 8), 1, "VALID")
    return tf().batch_to_space(y + x, (2, 2), ((0, 0), (0, 0))), tf().tanh(y)


KEPT = [
    pytest.param(moved((1, 3), (4,), ((8, 0),)), (32, 8), id="zeros before a sequence only"),
    pytest.param(moved((3, 3), (2, 2), ((0, 0), (0, 0)), ((1, 0), (0, 0))), (12, 12, 8), id="cropped without pads"),
    pytest.param(moved((3, 3), (2, 1), back=(1, 2)), (12, 12, 8), id="not the way back"),
    pytest.param(moved((3, 3), (2, 2), depthwise=True), (12, 12, 8), id="depthwise, which sums in another order"),
    pytest.param(read_twice, (12, 12, 8), id="read on the way"),
]


@pytest.mark.parametrize(("call", "shape"), KEPT)
def test_what_is_not_one_stays(call: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    content = settled_shapes(fb.parse(free(call, *shape)))
    model = fb.parse(content)
    assert dilate(model) == []
    assert types(model) == types(fb.parse(content))
    assert normalise(content).folded == normalise(content, exact_rewrites=False).folded


def test_sizes_that_are_free_stay() -> None:
    model = fb.parse(free(moved((1, 3), (4,)), 32, 8))
    before = types(model)
    assert dilate(model) == []
    assert types(model) == before


def test_candidates_of_such_layers_have_them_in_every_form() -> None:
    def call(x: Any) -> Any:
        for place, step in enumerate((2, 4)):
            x = moved((1, 3), (step,), ((step, step),))(x) + np.float32(place)
        return x

    content = settled_shapes(fb.parse(free(call, 32, 8)))
    prepared = zoo.prepare(content)
    assert Counter(node.op_type for node in prepared.nodes)["CONV_2D"] == 2
    assert {"SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"}.isdisjoint(node.op_type for node in prepared.nodes)
    in_float = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert set(in_float.kinds.values()) == {"float"}
    assert difference(content, in_float.content, prepared.fed(), delegates=False) == 0.0
    for recipe, most in ((Recipe(), 0.1), (Recipe(int16_nodes=frozenset({"*"})), 0.05)):
        built = prepared.builder.build(recipe)
        assert not any(op.kind is OpKind.FLOAT for op in built.graph.ops)
        assert difference(content, built.content, prepared.fed()) < most
    versions = {fb.OP_TYPES[code.builtinCode]: code.version for code in fb.parse(built.content).operatorCodes}
    assert versions["CONV_2D"] >= 2
