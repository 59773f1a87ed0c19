"""16-bit models that another quantizer made, as a source of candidates."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder
from autoselect.quantize.preparing import converter, litert
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors")  # litert-quantizer's own


@pytest.fixture
def within_a_minute() -> Iterator[None]:
    """What goes on for ever fails."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def with_needless_conversion(content: bytes, place: int) -> bytes:
    """The model with a QUANTIZE of what an op reads to the scale that it has already, as it stands before a PACK."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    op, conversion = graph.operators[place], schema.OperatorT()
    graph.tensors.append(copy(graph.tensors[op.inputs[0]]))
    graph.tensors[-1].name = b"again"
    conversion.opcodeIndex = editing.add_code(model, "QUANTIZE")
    conversion.inputs = np.array(op.inputs[:1], np.int32)
    conversion.outputs = np.array([len(graph.tensors) - 1], np.int32)
    op.inputs = np.array([len(graph.tensors) - 1, *op.inputs[1:]], np.int32)
    graph.operators.insert(place, conversion)
    return fb.serialise(model)


@pytest.mark.usefixtures("within_a_minute")
def test_a_value_may_be_converted_to_the_scale_that_it_has() -> None:
    """Else the search for what it is converted from goes round in a circle."""
    source = zoo.cnn()
    prepared = source.prepared
    samples = [{"x0": sample[0]} for sample in prepared.samples]
    made = litert.integer_models(source.float_model, samples, per_channel=True)
    assert made.int16 is not None
    calibrated = replace(prepared.calibrated, integer=made.int8, int16=with_needless_conversion(made.int16, place=2))
    builder = Builder(calibrated, prepared.nodes, RepairKit(calibrated))
    nodes = [node.name for node in prepared.nodes]
    blueprint = builder.blueprint(Recipe(), int16=True)
    assert blueprint.int16_nodes
    for chosen in (nodes, nodes[::2]):
        wide = frozenset(
            n.name for i, n in enumerate(prepared.nodes) if i in blueprint.int16_nodes and n.name in chosen
        )
        assert builder.build(Recipe(int16_nodes=wide)).content


def test_both_quantizers_see_the_same_ranges() -> None:
    """All that samples reached: an average over samples would cut what few of them reach."""
    source = zoo.cnn()
    samples = list(source.prepared.samples)
    made = litert.integer_models(source.float_model, ({"x0": sample[0]} for sample in samples), per_channel=True)
    calibrated = converter.calibrate(TfliteFile(source.float_model), samples)
    theirs, ours = scales(converter.quantize(calibrated, denylisted=[], recipe=Recipe()).content), scales(made.int8)
    del theirs[b"Conv2D_11"]  # The ADD works in place, so that TensorFlow's calibrator reads the sum there.
    common = theirs.keys() & ours.keys()
    assert common == {b"Relu;add;Conv2D;add/y1", b"depthwise1", b"add_1", b"MaxPool2d", b"Reshape", b"MatMul2"}
    assert {name: ours[name] for name in common} == pytest.approx({name: theirs[name] for name in common}, rel=1e-6)


def scales(content: bytes) -> dict[bytes, float]:
    """Of the int8 values with one scale, by name."""
    found = ((tensor.name, tensor.quantization) for tensor in fb.parse(content).subgraphs[0].tensors)
    return {name: float(q.scale[0]) for name, q in found if q is not None and q.scale is not None and len(q.scale) == 1}
