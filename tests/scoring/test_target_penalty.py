"""What targets make of models that the quantizer built."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.recipe import Recipe
from autoselect.errors import TargetRefusal
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import island_table, on_target, refusal, require_accepted
from autoselect.tflite.tflite_file import TfliteFile


@functools.cache
def prepared() -> zoo.Prepared:
    """Six convolutions of one shape in a row."""
    import tensorflow as tf

    kernels = [zoo.weights(3, 3, 16, 16, seed=i) for i in range(6)]

    def call(x: Any) -> Any:
        for kernel in kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return x

    return zoo.from_function(call, (1, 8, 8, 16)).prepared


def built(*places: int, fallback: Any = "float") -> Graph:
    """The graph with the convolutions at these places left out of integers."""
    nodes = frozenset(prepared().nodes[i].name for i in places)
    recipe = Recipe(denylisted_nodes=nodes, fallback=fallback, io_type="int8")
    graph: Graph = prepared().builder.build(recipe).graph
    return graph


def penalty(graph: Graph, target: str) -> float:
    return on_target(graph, read_target(target)).penalty


def test_tflm_takes_a_model_that_keeps_a_state_as_its_interpreter_does() -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    interpreter = runtime.Interpreter.from_bytes(zoo.remembering(), arena_size=1 << 20)
    seen = []
    for _ in range(2):
        interpreter.set_input(np.ones((1, 8), np.float32), 0)
        interpreter.invoke()
        seen.append(interpreter.get_output(0).copy())
    assert not np.array_equal(*seen)  # The state moved on.
    graph = TfliteFile(zoo.remembering()).graph
    for target in ("tflm", "ethos-u55-128", "ethos-u65-256", "ethos-u85-256"):  # The others hand it to the same.
        assert refusal(graph, read_target(target)) is None


def _gather(data: str, places: str) -> tuple[Any, ...]:
    return lambda x, at: zoo.tf().gather(x, at), ((6, 3), data), ((4,), places)


ONE_OP: dict[str, tuple[Any, ...]] = {
    "CAST to uint8": (lambda x: zoo.tf().cast(x, "uint8"), ((1, 4), "float32")),
    "CAST to int32": (lambda x: zoo.tf().cast(x, "int32"), ((1, 4), "float32")),
    "CAST from int64": (lambda x: zoo.tf().cast(x, "float32"), ((1, 4), "int64")),
    "CAST from bool": (lambda x: zoo.tf().cast(x, "float32"), ((1, 4), "bool")),
    "GATHER at int64": _gather("float32", "int64"),
    "GATHER at int32": _gather("float32", "int32"),
    "GATHER of bool": _gather("bool", "int32"),
    "ARG_MAX of int64": (lambda x: zoo.tf().argmax(x, -1), ((1, 4), "float32")),
    "ARG_MAX of int32": (lambda x: zoo.tf().argmax(x, -1, output_type="int32"), ((1, 4), "float32")),
    "TRANSPOSE of int32": (lambda x: zoo.tf().transpose(x), ((2, 4), "int32")),
    "TRANSPOSE of float": (lambda x: zoo.tf().transpose(x), ((2, 4), "float32")),
    "SLICE of uint8": (lambda x: zoo.tf().slice(x, [0, 1], [1, 2]), ((1, 4), "uint8")),
    "SLICE of int32": (lambda x: zoo.tf().slice(x, [0, 1], [1, 2]), ((1, 4), "int32")),
    "SUM of int32": (lambda x: zoo.tf().reduce_sum(x, -1), ((1, 4), "int32")),
    "SUM of float": (lambda x: zoo.tf().reduce_sum(x, -1), ((1, 4), "float32")),
}


@pytest.mark.parametrize("case", ONE_OP.values(), ids=ONE_OP)
def test_tflm_refuses_the_types_that_its_runtime_refuses(case: tuple[Any, ...]) -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    call, *inputs = case
    specs = [zoo.tf().TensorSpec(shape, dtype) for shape, dtype in inputs]
    function = zoo.tf().function(call, autograph=False).get_concrete_function(*specs)
    content = bytes(zoo.tf().lite.TFLiteConverter.from_concrete_functions([function]).convert())
    is_refused = False
    try:
        interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 16)
        for number, (shape, dtype) in enumerate(inputs):
            interpreter.set_input(np.ones(shape, dtype), number)
        interpreter.invoke()
    except RuntimeError:
        is_refused = True
    assert (refusal(TfliteFile(content).graph, read_target("tflm")) is not None) == is_refused


def test_tflm_refuses_hybrid_ops_and_takes_float_ones() -> None:
    hybrid = built(2, fallback="drq")
    assert any(op.kind is OpKind.HYBRID for op in hybrid.ops)
    with pytest.raises(TargetRefusal, match=r"^tflm .* hybrid CONV_2D "):
        require_accepted(hybrid, read_target("tflm"))
    assert refusal(built(2), read_target("tflm")) is None


def test_an_op_that_a_rule_refuses_costs_what_it_would_on_the_host() -> None:
    """So the float model, in whose penalties prices are, is no cheaper for ops that the target refuses."""
    graph = TfliteFile(zoo.lstm().float_model).graph
    assert refusal(graph, read_target("ethos-u55-128")) is not None
    assert refusal(graph, read_target("tflm")) is None
    assert penalty(graph, "ethos-u55-128") == penalty(graph, "tflm") > 5e4


def test_on_an_edge_tpu_one_early_float_node_costs_more_than_the_same_node_placed_last() -> None:
    assert penalty(built(0), "edgetpu") > penalty(built(5), "edgetpu") > penalty(built(), "edgetpu")
    assert on_target(built(0), read_target("edgetpu")).segments == 0
    assert on_target(built(2), read_target("edgetpu")).segments == 1


def test_on_a_cpu_hybrid_islands_cost_less_than_float_ones() -> None:
    for places in ((0,), (2,), (1, 2, 4), (5,)):
        hybrid, plain = built(*places, fallback="drq"), built(*places)
        assert penalty(built(), "litert-cpu") < penalty(hybrid, "litert-cpu") < penalty(plain, "litert-cpu")


def test_an_npu_is_cut_by_every_island() -> None:
    target = read_target("ethos-u55-128")
    assert [on_target(built(*places), target).segments for places in ((), (2,), (1, 3), (1, 2))] == [1, 2, 3, 2]
    assert penalty(built(1, 3), "ethos-u55-128") > penalty(built(2, 3), "ethos-u55-128")


def test_the_table_names_the_island_that_costs_most() -> None:
    graph = built(1, 3, 4)
    found = island_table(graph, read_target("ethos-u55-128"))
    assert [len(island["ops"]) for island in found["islands"]] == [3, 4]
    assert found["best_island"] == 1
    assert found["penalty"] == pytest.approx(found["accelerator_cost"] + found["host_cost"] + found["crossing_cost"])
    assert island_table(built(), read_target("ethos-u55-128"))["best_island"] is None
