"""Recipes for litert-quantizer on models of several kinds, run by it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from litert_quantizer import quantizer
from reviewing import Reviewed

from autoselect.domain.recipe import Recipe
from autoselect.exports.litert_quantizer import litert_recipe
from autoselect.exports.member_ops import MemberOp, member_ops
from autoselect.exports.plain_tensorflow import build_script
from autoselect.quantize.building.left_out import left_out
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors:UserWarning")

MODELS = [
    pytest.param(zoo.cnn, set(), id="CNN"),
    pytest.param(zoo.two_inputs, set(), id="several inputs"),
    pytest.param(zoo.lstm, {"UNIDIRECTIONAL_SEQUENCE_LSTM"}, id="recurrent, which it has no static kernel for"),
]


def ops_without_conversions(content: bytes) -> list[tuple[str, str]]:
    graph = reader.read_graph(fb.parse(content))
    return [(op.op_type, op.kind.value) for op in graph.ops if op.op_type not in ("QUANTIZE", "DEQUANTIZE")]


@pytest.mark.parametrize(("make", "unsupported"), MODELS)
def test_the_same_ops_are_integer_but_for_those_that_it_cannot_do(
    make: Callable[[], zoo.Source], unsupported: set[str]
) -> None:
    source = make()
    prepared, specs = source.prepared, reader.input_specs(fb.parse(source.float_model))
    rng = np.random.default_rng(1)
    graph = reader.read_graph(fb.parse(source.float_model))
    names = [tuple(graph.tensors[i].name for i in op.outputs) for op in graph.ops]
    for share in (0.0, 0.4, 1.0):
        denied = frozenset(node.name for node in prepared.nodes if rng.random() < share)
        recipe = Recipe(denylisted_nodes=denied)
        built = prepared.builder.build(recipe)
        kinds = left_out(recipe, prepared.nodes).kinds(prepared.nodes, built.fallbacks)
        tool = quantizer.Quantizer(
            bytes(source.float_model), litert_recipe(member_ops(graph, names, prepared.nodes, kinds, denied), recipe)
        )
        samples = [{s.key: rng.normal(size=s.shape).astype(np.float32) for s in specs} for _ in range(4)]
        made = tool.quantize(tool.calibrate({"serving_default": samples}) if tool.need_calibration else None)
        content = bytes(made.quantized_model or source.float_model)
        for found, wanted in zip(ops_without_conversions(content), ops_without_conversions(built.content), strict=True):
            assert found == wanted or (found[0] in unsupported and found == (wanted[0], "float"))


def test_16_bit_nodes_are_16_bit_there_too() -> None:
    source = zoo.cnn()
    prepared, specs = source.prepared, reader.input_specs(fb.parse(source.float_model))
    graph = reader.read_graph(fb.parse(source.float_model))
    names = [tuple(graph.tensors[i].name for i in op.outputs) for op in graph.ops]
    recipe = Recipe(int16_nodes=frozenset(node.name for node in prepared.nodes[2:5]))
    built = prepared.builder.build(recipe)
    ops = member_ops(graph, names, prepared.nodes, built.kinds, frozenset())
    tool = quantizer.Quantizer(bytes(source.float_model), litert_recipe(ops, recipe))
    samples = [{s.key: np.ones(s.shape, np.float32) for s in specs}]
    content = bytes(tool.quantize(tool.calibrate({"serving_default": samples})).quantized_model)
    assert ops_without_conversions(content) == ops_without_conversions(built.content)


def test_plain_tensorflow_cannot_express_them(reviewed: Reviewed) -> None:
    words = build_script("m", [op("int16", "a"), op("integer", "b")], Recipe(), {0: "a"}, "c.tflite")
    reviewed("a script of plain TensorFlow for 16-bit nodes", str(ast.get_docstring(ast.parse(words))))


def op(kind: str, *outputs: str, op_type: str = "CONV_2D") -> MemberOp:
    return MemberOp(index=0, op_type=op_type, outputs=outputs, kind=kind, denylisted=kind in ("hybrid", "float"))


RULES = [
    pytest.param([op("integer", "a")], [(".*", "*", "INTEGER")], id="integers are the rule"),
    pytest.param(
        [op("integer", "a"), op("float", "b.1", "c")],
        [(".*", "*", "INTEGER"), (r"^b\.1;c;$", "*", None)],
        id="an exception by the names of all outputs",
    ),
    pytest.param(
        [op("hybrid", "a", op_type="TRANSPOSE_CONV")],
        [("^a;$", "*", None), ("^a;$", "CONV_2D_TRANSPOSE", "INTEGER")],
        id="nothing in integers, and another name of the op",
    ),
    pytest.param(
        [op("hybrid", "a", op_type="UNIDIRECTIONAL_SEQUENCE_LSTM")], [("^a;$", "*", None)], id="no hybrid kernel there"
    ),
]


@pytest.mark.parametrize(("ops", "wanted"), RULES)
def test_rules_by_hand(ops: list[MemberOp], wanted: list[tuple[str, str, str | None]]) -> None:
    rules = litert_recipe(ops, Recipe(io_type="int8"))
    assert [(r["regex"], r["operation"], r["op_config"].get("compute_precision")) for r in rules] == wanted


def test_what_it_cannot_make_16_bit_stays_float_there() -> None:
    import tensorflow as tf

    def call(x: Any) -> Any:
        y = tf.matmul(x, zoo.weights(8, 8))
        return tf.matmul(tf.nn.relu(y) + -zoo.weights(8, seed=2) * tf.nn.relu(-y), zoo.weights(8, 4, seed=1))

    source = zoo.from_function(call, (4, 8))
    prepared, graph = source.prepared, reader.read_graph(fb.parse(source.float_model))
    names = [tuple(graph.tensors[i].name for i in op.outputs) for op in graph.ops]
    recipe = Recipe(int16_nodes=frozenset({"*"}))
    built = prepared.builder.build(recipe)
    assert set(built.kinds.values()) == {"int16"}
    rules = litert_recipe(member_ops(graph, names, prepared.nodes, built.kinds, frozenset()), recipe)
    tool = quantizer.Quantizer(bytes(source.float_model), rules)
    content = bytes(tool.quantize(tool.calibrate({"serving_default": [{"x0": zoo.weights(4, 8)}]})).quantized_model)
    kinds = dict(ops_without_conversions(content))
    assert kinds == {"FULLY_CONNECTED": "int16", "PRELU": "float"}
