"""Composites of litert-torch: models with them are those that have the ops themselves."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError
from autoselect.sources import loading
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference


def plain() -> bytes:
    """Twice a dense layer, and the larger of a constant and the hyperbolic tangent of what it gives."""

    def call(x: Any) -> Any:
        import tensorflow as tf

        for seed in range(2):
            x = tf.maximum(tf.tanh(tf.matmul(x, zoo.weights(8, 8, seed=seed))), -0.5)
        return tf.matmul(x, zoo.weights(8, 4, seed=2))

    return zoo.from_function(call, (4, 8)).float_model


def composed(*, nested: bool = False) -> bytes:
    """The same, where each tangent with its maximum is a composite; with one that stands for another if wished."""
    model = fb.parse(plain())
    graph = model.subgraphs[0]
    pairs = [graph.operators[i : i + 2] for i in (1, 4)]
    model.subgraphs.append(part(model, pairs[0]))
    ops = [composite(model, pair) for pair in pairs]
    graph.operators = [graph.operators[0], ops[0], graph.operators[3], ops[1], graph.operators[6]]
    if nested:
        model.subgraphs.append(part(model, [ops[0]]))
        ops[0].builtinOptions2.decompositionSubgraphIndex = 2
    editing.drop_unused_tensors(model)
    return fb.serialise(model)


def part(model: fb.Model, ops: list[fb.Operator]) -> fb.SubGraph:
    """A subgraph of copies of ops that follow one another."""
    graph = schema.SubGraphT()
    graph.name, graph.tensors = b"bounded", [deepcopy(t) for t in model.subgraphs[0].tensors]
    graph.operators = deepcopy(ops)
    graph.inputs, graph.outputs = np.array(ops[0].inputs[:1], np.int32), np.array(ops[-1].outputs, np.int32)
    return graph


def composite(model: fb.Model, ops: list[fb.Operator]) -> fb.Operator:
    op = editing.new_op(model, "STABLEHLO_COMPOSITE", [int(ops[0].inputs[0])], int(ops[-1].outputs[0]))
    op.builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions
    op.builtinOptions2 = schema.StableHLOCompositeOptionsT()
    op.builtinOptions2.name, op.builtinOptions2.decompositionSubgraphIndex = "bounded", 1
    op.builtinOptions2.compositeAttributes = np.array([0, 0, 1, 0, 0, 36, 1], np.uint8)  # An empty map, as FlexBuffer.
    return op


def types(content: bytes) -> list[str]:
    return [op.op_type for op in reader.read_graph(fb.parse(content)).ops]


def test_a_composite_becomes_its_ops() -> None:
    for content in (composed(), composed(nested=True)):
        assert types(content).count("STABLEHLO_COMPOSITE") == 2
        found = loading.float_model(content)
        assert any("STABLEHLO_COMPOSITE became" in note for note in found.notes)
        assert types(found.content) == types(plain())
        assert len(fb.parse(found.content).subgraphs) == 1
        samples = [{"x0": sample[0]} for sample in zoo.random_samples(found.content)]
        assert difference(plain(), found.content, samples) == 0.0
        assert difference(content, found.content, samples) == 0.0


def test_its_ops_are_searched() -> None:
    prepared = zoo.prepare(loading.float_model(composed()).content)
    assert {"TANH", "MAXIMUM"} <= {node.op_type for node in prepared.nodes}
    assert not any(op.op_type == "STABLEHLO_COMPOSITE" for op in prepared.builder.build(Recipe()).graph.ops)


def without_ops(model: fb.Model) -> None:
    model.subgraphs[1].outputs = model.subgraphs[1].inputs


def without_decomposition(model: fb.Model) -> None:
    for op in model.subgraphs[0].operators:
        if op.builtinOptions2 is not None:
            op.builtinOptions2.decompositionSubgraphIndex = -1


def in_another_subgraph(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    model.subgraphs.append(part(model, [op for op in graph.operators if op.builtinOptions2 is not None][:1]))
    call = editing.new_op(model, "CALL_ONCE", [], -1)
    call.outputs, call.builtinOptionsType = [], schema.BuiltinOptions.CallOnceOptions
    call.builtinOptions = schema.CallOnceOptionsT()
    call.builtinOptions.initSubgraphIndex = len(model.subgraphs) - 1
    graph.outputs = graph.operators[0].outputs
    graph.operators, model.signatureDefs = [graph.operators[0], call], None


@pytest.mark.parametrize("change", [without_ops, without_decomposition, in_another_subgraph])
def test_a_composite_that_cannot_be_replaced_is_refused_by_its_name(change: Callable[[fb.Model], None]) -> None:
    model = fb.parse(composed())
    change(model)
    with pytest.raises(ModelError, match=r"'bounded' \(STABLEHLO_COMPOSITE\)"):
        loading.float_model(fb.serialise(model))
