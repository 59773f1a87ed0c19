from __future__ import annotations

import functools
import hashlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from reviewing import Reviewed
from zoo import tf

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError, ModelError, RecipeError
from autoselect.quantize.building.build import Builder
from autoselect.quantize.diagnosing.statistics import layer_table
from autoselect.quantize.preparing import converter
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


@functools.cache
def split_branches() -> zoo.Source:
    """Ops with several outputs, and model outputs."""
    weights = zoo.weights(8, 8)

    def call(x: Any) -> dict[str, Any]:
        left, right = tf().split(tf().matmul(x, weights), 2, axis=1)
        a, b, c, d = tf().unstack(tf().tanh(left), axis=1)
        return {"sum": tf().stack([a + b, c * d], axis=1), "right": tf().nn.relu(right)}

    return zoo.from_function(call, (1, 8))


@functools.cache
def scores_and_classes() -> zoo.Source:
    """A value that is an output, and that ops read whose integer form needs no scale."""

    def call(x: Any) -> dict[str, Any]:
        scores = tf().matmul(x, zoo.weights(8, 8))
        return {"scores": scores, "best": tf().argmax(scores, -1), "worst": tf().argmin(scores, -1)}

    return zoo.from_function(call, (1, 8))


@functools.cache
def digits() -> zoo.Source:
    """Ops whose own names end in digits, some of them another's name with a digit more."""

    def call(x: Any) -> Any:
        x = tf().matmul(x, zoo.weights(8, 8), name="layer1")
        x = tf().tanh(x, name="layer")
        x = tf().matmul(x, zoo.weights(8, 8, seed=1), name="layer12")
        x = tf().nn.sigmoid(x, name="layer_1")
        return tf().add(x, 1.0, name="out2")

    return zoo.from_function(call, (1, 8))


@functools.cache
def clashing_names() -> zoo.Prepared:
    """The CNN as a careless tool would write it: three ops of one name, and one of none."""
    model = fb.parse(zoo.cnn().float_model)
    graph = model.subgraphs[0]
    for index, name in ((0, b"same"), (1, b"same"), (2, b"same"), (3, b"")):
        graph.tensors[graph.operators[index].outputs[0]].name = name
    return zoo.prepare(fb.serialise(model))


PREPARED = [
    pytest.param(lambda: zoo.cnn().prepared, id="CNN"),
    pytest.param(lambda: split_branches().prepared, id="several outputs"),
    pytest.param(lambda: scores_and_classes().prepared, id="scores and classes"),
    pytest.param(lambda: digits().prepared, id="names with digits"),
    pytest.param(lambda: zoo.lstm().prepared, id="recurrent"),
    pytest.param(lambda: zoo.two_inputs().prepared, id="several inputs"),
    pytest.param(clashing_names, id="clashing names"),
]


@pytest.mark.parametrize("make", PREPARED)
def test_each_node_can_be_left_out_alone(make: Callable[[], zoo.Prepared]) -> None:
    prepared = make()
    whole = prepared.builder.build(Recipe())
    assert set(whole.kinds.values()) == {"integer"}
    for node in prepared.nodes:
        built = prepared.builder.build(Recipe(denylisted_nodes=frozenset({_escaped(node.name)})))
        assert built.kinds[node.name] in ("float", "hybrid")
        assert built.sha256 != whole.sha256
        others = {name: kind for name, kind in built.kinds.items() if name != node.name}
        assert set(others.values()) <= {"integer"}


def _escaped(name: str) -> str:
    return name.replace("[", "[[]")


@pytest.mark.parametrize("make", PREPARED)
def test_all_nodes_leave_integers_together(make: Callable[[], zoo.Prepared]) -> None:
    prepared = make()
    built = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert set(built.kinds.values()) == {"float"}
    assert {op.kind for op in built.graph.ops} <= {OpKind.FLOAT, OpKind.NEUTRAL}


def test_ops_with_several_outputs_are_nodes_that_can_be_left_out() -> None:
    assert {"SPLIT", "UNPACK"} <= {node.op_type for node in split_branches().prepared.nodes}


@pytest.mark.parametrize(
    ("make", "recipe"),
    [
        pytest.param(make.values[0], recipe, id=f"{make.id}, {name}")
        for make in PREPARED
        for name, recipe in {
            "all integer": Recipe(),
            "none integer": Recipe(denylisted_nodes=frozenset({"*"})),
            "integer interface": Recipe(io_type="int8"),
        }.items()
    ],
)
def test_the_models_own_names_come_back(make: Callable[[], zoo.Prepared], recipe: Recipe) -> None:
    prepared = make()
    model = fb.parse(prepared.builder.build(recipe).content)
    graph = model.subgraphs[0]
    names = [fb.tensor_name(t) for t in graph.tensors]
    assert not [n for n in names if "op_0" in n]
    key = prepared.calibrated.names
    assert [fb.tensor_name(graph.tensors[i]) for i in graph.inputs] == list(key.inputs)
    assert [fb.tensor_name(graph.tensors[i]) for i in graph.outputs] == list(key.outputs)
    for node in prepared.nodes:
        assert set(key.op_outputs[node.index]) <= set(names), node


def test_names_of_a_half_integer_model_are_unique_and_name_what_their_op_writes() -> None:
    prepared = zoo.cnn().prepared
    halves = frozenset(n.name for n in prepared.nodes[::2])
    graph = prepared.builder.build(Recipe(denylisted_nodes=halves)).graph
    names = [t.name for t in graph.tensors]
    assert len(set(names)) == len(names)
    op_types = {n.name: n.op_type for n in prepared.nodes}
    written = {
        graph.tensors[i].name: op.op_type for op in graph.ops for i in op.outputs if op.kind is not OpKind.BOUNDARY
    }
    last = prepared.nodes[-1].name
    assert {k: v for k, v in op_types.items() if k != last}.items() <= written.items()


def test_duplicate_and_empty_names_get_their_ops_index() -> None:
    names = [n.name for n in clashing_names().nodes]
    assert names[:4] == ["same#0", "same#1", "same#2", "#3"]
    assert not [n for n in names[4:] if "#" in n]


def test_a_transposed_convolution_can_be_left_out() -> None:
    # The quantizer adds the name of the weights to the op's, and then matches no name that was denylisted.
    shared = zoo.weights(3, 3, 16, 16)

    def call(x: Any) -> Any:
        x = tf().nn.conv2d_transpose(x, shared, (1, 8, 8, 16), 2) + zoo.weights(16)
        return tf().tanh(tf().nn.conv2d_transpose(x, shared, (1, 16, 16, 16), 2))

    prepared = zoo.from_function(call, (1, 4, 4, 16)).prepared
    nodes = [n for n in prepared.nodes if n.op_type == "TRANSPOSE_CONV"]
    for node, other in (nodes, nodes[::-1]):
        built = prepared.builder.build(Recipe(denylisted_nodes=frozenset({node.name})))
        assert (built.kinds[node.name], built.kinds[other.name]) == ("hybrid", "integer")


def test_a_convolution_with_computed_weights_is_float_since_litert_has_no_other() -> None:
    def call(x: Any, kernels: Any) -> Any:
        return tf().nn.conv2d(tf().tanh(x), tf().tanh(kernels), 1, "SAME")

    prepared = zoo.from_function(call, (1, 8, 8, 4), (3, 3, 4, 8)).prepared
    assert {node.op_type for node in prepared.nodes} <= {"TANH", "TRANSPOSE"}
    built, floats = (prepared.builder.build(r).content for r in (Recipe(), Recipe(denylisted_nodes=frozenset({"*"}))))
    assert difference(floats, built, prepared.fed()) < 0.1
    table = layer_table(prepared.calibrated, prepared.nodes, prepared.fed(), kit=prepared.kit)
    assert all(row is not None for row in table.statistics)


@pytest.mark.parametrize(
    ("op_type", "shape", "rows"),
    [("SVDF", (1, 8), [(8, 8), (8, 4), (8,)]), ("UNIDIRECTIONAL_SEQUENCE_RNN", (1, 4, 8), [(8, 8), (8, 8), (8,)])],
)
def test_a_recurrent_op_without_an_integer_kernel_is_float(
    op_type: str, shape: tuple[int, ...], rows: list[tuple[int, ...]]
) -> None:
    content = zoo.from_function(lambda x: tf().matmul(tf().tanh(x), zoo.weights(8, 8)), shape).float_model
    model = fb.parse(content)
    graph = model.subgraphs[0]
    tanh, *others = graph.operators
    constants = [editing.add_constant(model, f"row{i}", zoo.weights(*row, seed=i)) for i, row in enumerate(rows)]
    graph.tensors.append(copy(graph.tensors[tanh.inputs[0]]))
    state = graph.tensors[-1]
    size = int(np.prod(rows[1])) if op_type == "SVDF" else 8
    state.name, state.shape, state.isVariable = b"state", np.array([1, size], np.int32), True
    inputs = [int(tanh.inputs[0]), *constants, len(graph.tensors) - 1]
    op = editing.new_op(model, op_type, inputs, int(tanh.outputs[0]))
    kind = {"SVDF": "SVDFOptions"}.get(op_type, "SequenceRNNOptions")
    op.builtinOptionsType, op.builtinOptions = getattr(schema.BuiltinOptions, kind), getattr(schema, f"{kind}T")()
    if op_type == "SVDF":
        op.builtinOptions.rank = 1
    graph.operators = [op, *others]
    prepared = zoo.prepare(fb.serialise(model))
    assert op_type not in {node.op_type for node in prepared.nodes}
    assert Runner(prepared.builder.build(Recipe()).content)(prepared.fed()[0])


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize(
    "source",
    [pytest.param(zoo.cnn, id="CNN"), pytest.param(zoo.lstm, id="LSTM"), pytest.param(split_branches, id="split")],
)
def test_all_integer_equals_tensorflows_own(source: Callable[[], zoo.Source], per_channel: bool) -> None:
    content = source().float_model
    reference = source().fiq(zoo.random_samples(content), per_channel=per_channel)
    found = source().prepared.builder.build(Recipe(per_channel=per_channel)).content
    # A DEQUANTIZE stands before what first reads it, and so at the end for an output.
    assert sorted(_integer_ops(found), key=repr) == sorted(_integer_ops(reference), key=repr)


def _integer_ops(content: bytes) -> list[tuple[Any, ...]]:
    model = fb.parse(content)
    graph = model.subgraphs[0]
    return [
        (
            fb.op_type(model, op),
            model.operatorCodes[op.opcodeIndex].version,
            [_tensor(model, graph.tensors[i]) for i in (*op.inputs, *op.outputs) if i >= 0],
        )
        for op in graph.operators
    ]


def _tensor(model: Any, tensor: Any) -> tuple[Any, ...]:
    parameters = tensor.quantization
    scales = None if parameters is None or parameters.scale is None else np.asarray(parameters.scale).tobytes()
    zeros = None if parameters is None or parameters.zeroPoint is None else [int(z) for z in parameters.zeroPoint]
    values = fb.constant_values(model, tensor).tobytes() if fb.is_constant(model, tensor) else None
    return fb.TENSOR_DTYPES[tensor.type], fb.shape_of(tensor), scales, zeros, values


@functools.cache
def handing_on() -> zoo.Prepared:
    """An input that is an output, too, and an output of constants."""

    def call(x: Any) -> dict[str, Any]:
        return {
            "same": x,
            "scores": tf().nn.relu(tf().matmul(x, zoo.weights(4, 3))),
            "fixed": tf().constant([1.0, 2.0]),
        }

    return zoo.prepare(zoo.from_function(call, (1, 4)).float_model)


@pytest.mark.parametrize("io_type", ["float32", "int8", "uint8"])
@pytest.mark.parametrize("state", ["int8", "int16", "float"])
def test_an_input_that_is_an_output_stays_as_it_came(io_type: Any, state: str) -> None:
    """An op that made floats of it would be left to the host."""
    prepared = handing_on()
    names = [node.name for node in prepared.nodes]
    recipe = Recipe(
        io_type=io_type,
        denylisted_nodes=names if state == "float" else (),
        int16_nodes=names if state == "int16" else (),
    )
    content = prepared.builder.build(recipe).content
    runner = Runner(content)
    ends = {spec.key: spec.dtype.name for spec in runner.outputs}
    assert ends == {"same": io_type, "scores": io_type, "fixed": "float32"}
    assert set(reader.read_graph(fb.parse(content)).outputs) & set(reader.read_graph(fb.parse(content)).inputs)
    [sample] = zoo.random_samples(prepared.calibrated.content, 1)
    assert runner(sample[0])["same"] == pytest.approx(sample[0], abs=0.0 if io_type == "float32" else 0.05)


@pytest.mark.parametrize("io_type", ["float32", "int8", "uint8"])
@pytest.mark.parametrize("denied", [frozenset(), frozenset({"Identity"})], ids=["all integer", "float at the end"])
def test_inputs_and_outputs_are_of_the_recipes_type(io_type: str, denied: frozenset[str]) -> None:
    last = zoo.cnn().prepared.nodes[-1].name
    denied = frozenset({last}) if denied else denied
    built = zoo.cnn().prepared.builder.build(Recipe(io_type=io_type, denylisted_nodes=denied))  # type: ignore[arg-type]
    model = fb.parse(built.content)
    specs = (*reader.input_specs(model), *reader.output_specs(model))
    assert [s.dtype for s in specs] == [np.dtype(io_type)] * 2
    [sample] = zoo.random_samples(zoo.cnn().float_model, 1)
    [output] = Runner(built.content)(sample[0]).values()
    [reference] = Runner(zoo.cnn().float_model)(sample[0]).values()
    assert output == pytest.approx(reference, abs=0.05)


MIXED = Recipe(denylisted_ops=frozenset({"DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}))


def test_two_builds_give_equal_bytes() -> None:
    prepared = zoo.cnn().prepared
    fresh = Builder(prepared.calibrated, prepared.nodes)
    contents = {
        prepared.builder.build(MIXED).content,
        prepared.builder.build(MIXED).content,
        fresh.build(MIXED).content,
    }
    assert len(contents) == 1


def test_two_processes_give_equal_bytes(tmp_path: Path) -> None:
    prepared = zoo.cnn().prepared
    recipes = [Recipe(), MIXED, Recipe(denylisted_nodes=frozenset({"*"}))]
    (tmp_path / "job").write_bytes(pickle.dumps((prepared.calibrated, prepared.nodes, recipes)))
    script = (
        "import pickle, sys\n"
        "from autoselect.quantize.building.build import Builder\n"
        "calibrated, nodes, recipes = pickle.load(open(sys.argv[1], 'rb'))\n"
        "builder = Builder(calibrated, nodes)\n"
        "print('HASHES', *(builder.build(r).sha256 for r in recipes))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "job")], capture_output=True, text=True, check=True
    )
    [line] = [line for line in run.stdout.splitlines() if line.startswith("HASHES")]
    built = [prepared.builder.build(r) for r in recipes]
    assert line.split()[1:] == [b.sha256 for b in built]
    assert [b.sha256 for b in built] == [hashlib.sha256(b.content).hexdigest() for b in built]


def test_one_denied_node_next_to_another_is_not_rounded_on_the_way() -> None:
    # The quantizer quantizes and dequantizes the float input of a denylisted LSTM.
    source = zoo.lstm()
    built = source.prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert [op.kind for op in built.graph.ops] == [OpKind.FLOAT] * 3
    for sample in zoo.random_samples(source.float_model):
        [found], [expected] = Runner(built.content)(sample[0]).values(), Runner(source.float_model)(sample[0]).values()
        assert found == pytest.approx(expected, abs=1e-6)


def test_fallbacks_say_why(reviewed: Reviewed) -> None:
    built = zoo.cnn().prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"})))
    reasons = {n.op_type: built.fallbacks.get(n.name) for n in zoo.cnn().prepared.nodes}
    named = ("CONV_2D", "DEPTHWISE_CONV_2D", "SOFTMAX", "ADD", "FULLY_CONNECTED")
    reviewed("ops that are not hybrid", [f"{op_type}: {reasons[op_type]}" for op_type in named])


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(RecipeError, match="'nowhere'"):
        zoo.cnn().prepared.builder.build(Recipe(denylisted_nodes=frozenset({"nowhere"})))


def test_a_model_that_quantization_does_not_touch() -> None:
    content = zoo.from_function(
        lambda x: tf().nn.conv3d(x, zoo.weights(1, 1, 1, 2, 2), [1] * 5, "SAME"), (1, 2, 2, 2, 2)
    )
    with pytest.raises(ModelError, match="nothing to"):
        zoo.prepare(content.float_model)


def test_a_model_that_the_quantizer_refuses() -> None:
    model = fb.parse(zoo.cnn().prepared.calibrated.content)
    model.subgraphs[0].operators[0].inputs = np.zeros(0, np.int32)
    with pytest.raises(BuildError, match="refuses"):
        converter.quantize(TfliteFile(model=model), denylisted=(), recipe=Recipe())


def _last_of(parts: int) -> Callable[[Any], Any]:
    return lambda x: tf().unstack(tf().reshape(x + 1.0, (parts, 4)), axis=0)[-1] * 2.0


def _half(x: Any) -> Any:
    return tf().split(x + 1.0, 2, axis=1)[0] * 2.0


@pytest.mark.parametrize(
    ("call", "op_type"),
    [pytest.param(_last_of(4), "UNPACK", id="unstack"), pytest.param(_half, "SPLIT", id="split")],
)
def test_an_output_that_nobody_reads_makes_no_build_differ(call: Callable[[Any], Any], op_type: str) -> None:
    # Left alone, the quantizer makes such an op integer about every second time.
    source = zoo.from_function(call, (1, 16))
    prepared = [zoo.prepare(source.float_model) for _ in range(4)]
    assert len({p.nodes for p in prepared}) == 1
    assert op_type in {n.op_type for n in prepared[0].nodes}
    for recipe in (Recipe(), Recipe(denylisted_ops=frozenset({op_type})), Recipe(denylisted_nodes=frozenset({"*"}))):
        assert len({p.builder.build(recipe).content for p in prepared for _ in range(4)}) == 1
    model = fb.parse(prepared[0].builder.build(Recipe()).content)
    assert len(model.subgraphs[0].outputs) == 1


@pytest.mark.parametrize("name", [b"", b"alike"])
def test_outputs_that_names_do_not_tell_apart_keep_their_keys(name: bytes) -> None:
    """Tools that make files small take all names away."""
    model = fb.parse(
        zoo.from_function(lambda x: (tf().tanh(x), tf().nn.relu(tf().matmul(x, zoo.weights(8, 4)))), (1, 8)).float_model
    )
    model.signatureDefs = None
    for tensor in model.subgraphs[0].tensors:
        tensor.name = name
    content = fb.serialise(model)
    prepared = zoo.prepare(content)
    [sample] = prepared.samples[:1]
    wanted = Runner(content)(sample[0])
    for recipe in (Recipe(), Recipe(denylisted_nodes=frozenset({"*"})), Recipe(io_type="int8")):
        found = Runner(prepared.builder.build(recipe).content)(sample[0])
        assert {key: value.shape for key, value in found.items()} == {k: v.shape for k, v in wanted.items()}


def copied_beside(x: Any) -> Any:
    return tf().nn.relu(tf().matmul(x, zoo.weights(6, 5))), tf().reshape(x, (1, 6)) + 1.0


def test_an_output_that_copies_an_input_keeps_its_name_without_a_signature() -> None:
    """The quantizer drops the copy, so that one tensor is input and output."""
    model = fb.parse(zoo.from_function(copied_beside, (1, 6)).float_model)
    graph = model.subgraphs[0]
    (add,) = (op for op in graph.operators if fb.op_type(model, op) == "ADD")
    shape = editing.add_constant(model, "shape", np.array([1, 6], np.int32))
    copied = editing.new_op(model, "RESHAPE", [int(graph.inputs[0]), shape], int(add.outputs[0]))
    graph.operators, model.signatureDefs = [*(op for op in graph.operators if op is not add), copied], None
    editing.drop_unused_tensors(model)
    prepared = zoo.prepare(content := fb.serialise(model))
    [sample] = prepared.samples[0]
    for recipe in (Recipe(), Recipe(denylisted_ops=frozenset({"FULLY_CONNECTED"}))):
        found = Runner(prepared.builder.build(recipe).content)(sample)
        assert list(found) == list(Runner(content)(sample))
        assert any(np.allclose(value, sample, atol=0.05) for value in found.values())
