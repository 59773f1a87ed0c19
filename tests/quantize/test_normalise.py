from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from reviewing import Reviewed, unnamed
from zoo import tf

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building import proof
from autoselect.quantize.building.wholes import integer_model, make_wholes
from autoselect.quantize.preparing import converter
from autoselect.quantize.preparing.normalise import normalise
from autoselect.rewrites import names
from autoselect.rewrites.respelling import RESPELLED
from autoselect.rewrites.rewriting import rewrite
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.comparing import difference


@functools.cache
def reshaped_dense() -> bytes:
    """A dense layer on a sequence between two RESHAPEs, as older converters write it; today's merges the three."""

    def call(x: Any) -> Any:
        rows = tf().reshape(tf().tanh(x), (1, 8))
        return tf().nn.sigmoid(tf().reshape(tf().matmul(rows, zoo.weights(8, 6)), (1, 1, 6)))

    model = fb.parse(zoo.from_function(call, (1, 1, 8)).float_model)
    graph = model.subgraphs[0]
    tanh, dense, sigmoid = graph.operators
    dense.builtinOptions.keepNumDims = False
    code = schema.OperatorCodeT()
    code.builtinCode, code.version = schema.BuiltinOperator.RESHAPE, 1
    model.operatorCodes.append(code)
    before, flat = reshape(model, int(tanh.outputs[0]), b"flat", [1, 8])
    dense.inputs = np.array([flat, *dense.inputs[1:]], np.int32)
    wide = int(dense.outputs[0])
    graph.tensors.append(tensor(b"dense", [1, 6], schema.TensorType.FLOAT32))
    dense.outputs = np.array([len(graph.tensors) - 1], np.int32)
    after, _ = reshape(model, len(graph.tensors) - 1, b"wide", [1, 1, 6])
    after.outputs = np.array([wide], np.int32)
    graph.operators = [tanh, before, dense, after, sigmoid]
    editing.drop_unused_tensors(model)
    return fb.serialise(model)


def tensor(name: bytes, shape: list[int], dtype: int) -> Any:
    made = schema.TensorT()
    made.name, made.shape, made.type, made.buffer = name, np.array(shape, np.int32), dtype, 0
    return made


def reshape(model: Any, source: int, name: bytes, shape: list[int]) -> tuple[Any, int]:
    """A RESHAPE, of the op type that was added last, and the tensor that it writes."""
    tensors = model.subgraphs[0].tensors
    target = tensor(name + b"_shape", [len(shape)], schema.TensorType.INT32)
    target.buffer = editing.add_buffer(model, np.array(shape, np.int32))
    tensors += [target, tensor(name, shape, schema.TensorType.FLOAT32)]
    op = schema.OperatorT()
    op.opcodeIndex = len(model.operatorCodes) - 1
    op.inputs = np.array([source, len(tensors) - 2], np.int32)
    op.outputs = np.array([len(tensors) - 1], np.int32)
    return op, len(tensors) - 1


def transposed() -> bytes:
    def call(x: Any) -> Any:
        return tf().tanh(tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 16, 16), (1, 8, 8, 16), 2))

    return zoo.from_function(call, (1, 4, 4, 16)).float_model


def transposed_and_biased() -> bytes:
    """As older converters write the bias of a transposed convolution: an ADD, which the quantizer merges."""

    def call(x: Any) -> Any:
        wide = tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 16, 16), (1, 8, 8, 16), 2)
        return tf().tanh(tf().maximum(wide, zoo.weights(16)))

    model = fb.parse(zoo.from_function(call, (1, 4, 4, 16)).float_model)
    [bias] = [op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "MAXIMUM"]
    bias.opcodeIndex = editing.add_code(model, "ADD")
    bias.builtinOptionsType, bias.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    editing.tidy(model)
    return fb.serialise(model)


@functools.cache
def root_mean_square() -> bytes:
    """RMS normalisation between dense layers, and a difference by a NEG; neither SQUARE nor NEG has an integer form."""

    def call(x: Any) -> Any:
        rows = tf().matmul(x, zoo.weights(8, 8))
        rows = rows * tf().math.rsqrt(tf().reduce_mean(tf().square(rows), -1, keepdims=True) + 1e-3)
        return tf().matmul(tf().maximum(-rows, 0.1), zoo.weights(8, 4, seed=1))

    return zoo.from_function(call, (4, 8)).float_model


def parted() -> bytes:
    """Unequal parts of what a dense layer writes; a SPLIT_V has no integer form."""

    def call(x: Any) -> Any:
        first, second = tf().split(tf().matmul(x, zoo.weights(8, 8)), [3, 5], axis=-1)
        return tf().matmul(first, zoo.weights(3, 4)) + tf().matmul(second, zoo.weights(5, 4, seed=1))

    return zoo.from_function(call, (4, 8)).float_model


def activated() -> bytes:
    """ELU and GELU between dense layers, and an ELU at the end."""

    def call(x: Any) -> Any:
        rows = tf().nn.elu(tf().matmul(x, zoo.weights(8, 8)))
        rows = tf().nn.gelu(tf().matmul(rows, zoo.weights(8, 8, seed=1)))
        return tf().nn.elu(tf().matmul(rows, zoo.weights(8, 4, seed=2)))

    return zoo.from_function(call, (4, 8)).float_model


MODELS = [
    pytest.param(root_mean_square, id="RMS normalisation"),
    pytest.param(activated, id="ELU and GELU"),
    pytest.param(lambda: zoo.cnn().float_model, id="CNN"),
    pytest.param(lambda: zoo.lstm().float_model, id="fused LSTM"),
    pytest.param(lambda: zoo.two_inputs().float_model, id="two inputs"),
    pytest.param(reshaped_dense, id="a merged op"),
    pytest.param(transposed, id="weights that the quantizer rounds whatever is denied"),
    pytest.param(transposed_and_biased, id="such weights of an op that another is merged into"),
]


@pytest.mark.parametrize("make", MODELS)
def test_a_normalised_model_is_the_same_model(make: Callable[[], bytes]) -> None:
    content = make()
    found = normalise(content)
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    samples = [dict(zip(keys, sample, strict=True)) for sample in zoo.random_samples(content)]
    assert difference(content, found.content, samples, delegates=False) == 0.0
    before, after = fb.parse(content), fb.parse(found.content)
    assert reader.input_specs(before) == reader.input_specs(after)
    assert reader.output_specs(before) == reader.output_specs(after)
    assert len(found.node_names) == len(after.subgraphs[0].operators) == len(set(found.node_names))
    assert set(found.node_names) <= set(names.canonicalise(before).nodes)


@pytest.mark.parametrize("make", MODELS)
def test_it_stays_as_it_is_when_it_is_normalised_again(make: Callable[[], bytes]) -> None:
    once = normalise(make())
    again = normalise(once.content)
    assert again.folded == ()
    op_types = [[op.op_type for op in reader.read_graph(fb.parse(m.content)).ops] for m in (once, again)]
    assert op_types[0] == op_types[1]


def test_an_op_that_the_quantizer_merges_is_merged_before_so_that_its_twin_can_leave_integers() -> None:
    content = reshaped_dense()
    everything = {op.op_type for op in reader.read_graph(fb.parse(content)).ops}
    assert "RESHAPE" in everything
    found = normalise(content)
    assert "dense" in found.folded
    merged = next(n for n in zoo.prepare(content).nodes if n.op_type == "FULLY_CONNECTED")
    assert merged.name == "Reshape_1"  # what it writes is what the RESHAPE wrote
    prepared = zoo.prepare(content)
    left_out = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert set(left_out.kinds.values()) == {"float"}
    assert "QUANTIZE" not in {op.op_type for op in left_out.graph.ops}


def test_an_op_without_an_integer_form_is_written_as_one_that_has_one() -> None:
    content = root_mean_square()
    types = {op.op_type for op in reader.read_graph(fb.parse(content)).ops}
    assert {"SQUARE", "NEG"} <= types
    assert Counter(normalise(content).respelled) == {("SQUARE", "MUL"): 1, ("NEG", "MUL"): 1}
    prepared = zoo.prepare(content)
    assert {"SQUARE", "NEG"}.isdisjoint(node.op_type for node in prepared.nodes)
    for recipe in (Recipe(), Recipe(int16_nodes=frozenset({"*"}))):
        built = prepared.builder.build(recipe)
        assert not built.fallbacks
        assert not any(op.kind is OpKind.FLOAT for op in built.graph.ops)


def leaky_dense() -> bytes:
    """A PRELU as old converters write it, behind a dense layer: the layer is read by a RELU and by a NEG."""

    def call(x: Any) -> Any:
        rows = tf().matmul(x, zoo.weights(16, 64))
        falling = np.linspace(0.1, 0.3, 64, dtype=np.float32) * -tf().nn.relu(-rows)
        return tf().matmul(tf().nn.relu(rows) + falling, zoo.weights(64, 8, seed=1))

    return zoo.from_function(call, (4, 16)).float_model


def test_a_layer_whose_negative_is_read_too_is_there_once() -> None:
    content = leaky_dense()
    found = normalise(content)
    assert set(found.respelled) == {("NEG", "SUB"), ("NEG", "MUL")}
    assert len(found.content) < 1.05 * len(content)
    samples = [{"x0": sample[0]} for sample in zoo.random_samples(content)]
    assert difference(content, found.content, samples, delegates=False) == 0.0
    prepared = zoo.prepare(content)
    for recipe, most in ((Recipe(), 0.05), (Recipe(int16_nodes=frozenset({"*"})), 0.02)):
        built = prepared.builder.build(recipe)
        assert not any(op.kind is OpKind.FLOAT for op in built.graph.ops)
        assert difference(content, built.content, samples) < most


def test_parts_of_several_lengths_are_cut_out_one_by_one() -> None:
    content = parted()
    found = normalise(content)
    assert found.respelled == (("SPLIT_V", "SLICE"),)
    prepared = zoo.prepare(content)
    built = prepared.builder.build(Recipe())
    assert [op.op_type for op in built.graph.ops if op.kind is OpKind.FLOAT] == []
    assert sum(op.op_type == "SLICE" for op in built.graph.ops) == 2
    alone = next(node.name for node in prepared.nodes if node.op_type == "SLICE")
    assert prepared.builder.build(Recipe(denylisted_nodes=frozenset({alone}), fallback="float")).kinds[alone] == "float"


@pytest.mark.parametrize("op_type", ["SPLIT_V", "ONE_HOT"])
def test_an_axis_or_a_depth_may_be_a_list_of_one_number(op_type: str) -> None:
    """LiteRT takes any shape of one element; TensorFlow's converter writes a scalar."""

    def call(x: Any) -> Any:
        hot = tf().one_hot(tf().argmax(x, axis=-1), 5) * tf().reduce_sum(x)
        return [part * 2.0 for part in tf().split(hot, [2, 3], axis=-1)]

    model = fb.parse(zoo.from_function(call, (2, 4)).float_model)
    [op] = [op for op in model.subgraphs[0].operators if fb.op_type(model, op) == op_type]
    number = copy(model.subgraphs[0].tensors[op.inputs[2 if op_type == "SPLIT_V" else 1]])
    assert fb.shape_of(number) == ()
    number.shape = np.array([1], np.int32)
    model.subgraphs[0].tensors.append(number)
    op.inputs = np.array(op.inputs)
    op.inputs[2 if op_type == "SPLIT_V" else 1] = len(model.subgraphs[0].tensors) - 1
    content = fb.serialise(model)
    found = normalise(content)
    assert {before for before, _ in found.respelled} == {"SPLIT_V", "ONE_HOT"}
    [key] = (spec.key for spec in reader.input_specs(model))
    assert difference(content, found.content, [{key: sample[0]} for sample in zoo.random_samples(content)]) == 0.0


def test_a_sum_of_several_is_added_up_one_by_one() -> None:
    def call(x: Any) -> Any:
        rows = [tf().matmul(x, zoo.weights(8, 4, seed=seed)) for seed in range(3)]
        return tf().matmul(tf().add_n(rows), zoo.weights(4, 4))

    content = zoo.from_function(call, (4, 8)).float_model
    found = normalise(content)
    assert found.respelled == (("ADD_N", "ADD"),)
    [key] = (spec.key for spec in reader.input_specs(fb.parse(content)))
    assert difference(content, found.content, [{key: sample[0]} for sample in zoo.random_samples(content)]) == 0.0
    built = zoo.prepare(content).builder.build(Recipe())
    assert [op.op_type for op in built.graph.ops if op.kind is OpKind.FLOAT] == []


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_rows_are_right_in_integers(axis: int, dtype: str) -> None:
    """The quantizer's own form copies a value for absence that means another one in the steps of the output."""

    def call(x: Any) -> Any:
        places = tf().where(x > 0.0, tf().constant(3, dtype), tf().constant(-1, dtype))
        return tf().one_hot(places, 5, on_value=2.5, off_value=-0.5, axis=axis) * tf().reduce_sum(x)

    content = zoo.from_function(call, (2, 4)).float_model
    found = normalise(content)
    assert found.respelled == (("ONE_HOT", "SELECT_V2"),)
    [key] = (spec.key for spec in reader.input_specs(fb.parse(content)))
    signs = (np.random.default_rng(i).choice([-1.0, 1.0], (2, 4)) for i in range(8))
    samples = [{key: (sign * 0.5).astype(np.float32)} for sign in signs]
    assert difference(content, found.content, samples, delegates=False) == 0.0
    for recipe, most in ((Recipe(), 0.2), (Recipe(int16_nodes=frozenset({"*"})), 0.02)):
        built = zoo.prepare(content).builder.build(recipe)
        assert "SELECT_V2" in {op.op_type for op in built.graph.ops if op.kind is not OpKind.FLOAT}
        assert difference(content, built.content, samples) < most


def test_an_op_that_the_quantizer_does_not_know_uses_the_kernel_that_there_is() -> None:
    content = activated()
    prepared = zoo.prepare(content)
    assert "ELU" in {node.op_type for node in prepared.nodes}
    integer = prepared.builder.build(Recipe())
    assert [op.op_type for op in integer.graph.ops if op.kind is OpKind.FLOAT] == []
    assert {"ELU", "GELU"} <= {op.op_type for op in integer.graph.ops}
    left_out = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    samples = [dict(zip(keys, sample, strict=True)) for sample in zoo.random_samples(content)]
    assert difference(content, left_out.content, samples) == 0.0
    assert difference(content, integer.content, samples) < 0.1
    wide = prepared.builder.build(Recipe(int16_nodes=frozenset({"*"})))
    assert difference(content, wide.content, samples) < 0.1
    assert all("stays int8" in why for why in wide.fallbacks.values())


def test_ranges_that_an_old_converter_wrote_are_none() -> None:
    """With them the quantizer quantizes what moves an input's values, whatever is denied."""

    def call(x: Any) -> Any:
        return tf().matmul(tf().reshape(x[:, 1:5], (8, 2)), zoo.weights(2, 4))

    content = zoo.from_function(call, (4, 8)).float_model
    model = fb.parse(content)
    source = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]]
    source.quantization = schema.QuantizationParametersT()
    source.quantization.min, source.quantization.max = np.array([0.0], np.float32), np.array([255.0], np.float32)
    assert normalise(fb.serialise(model)).content == normalise(content).content


def test_integers_are_not_written_anew() -> None:
    """The quantizer leaves ops on whole numbers as they are."""

    def call(x: Any) -> Any:
        return tf().cast(-tf().square(tf().cast(x, tf().int32)), tf().float32)

    assert normalise(zoo.from_function(call, (4, 8)).float_model).respelled == ()


def test_a_variable_that_two_ops_read_stays_one_while_a_constant_gets_a_copy() -> None:
    model = fb.parse(zoo.cnn().float_model)
    graph = model.subgraphs[0]
    variable = tensor(b"state", [1], schema.TensorType.FLOAT32)
    variable.isVariable = True
    constant = tensor(b"table", [1], schema.TensorType.FLOAT32)
    constant.buffer = editing.add_buffer(model, np.ones(1, np.float32))
    graph.tensors += [variable, constant]
    ends = [len(graph.tensors) - 2, len(graph.tensors) - 1]
    for op in graph.operators[:2]:
        op.inputs = np.array([*op.inputs, *ends], np.int32)
    names.unshare_operands(model)
    first, second = (op.inputs[-2:].tolist() for op in graph.operators[:2])
    assert first == ends
    assert second[0] == ends[0]
    assert second[1] != ends[1]
    assert graph.tensors[second[1]].name == b"table"


# ------------------------------------------------------------------------------------------------ proof


INTERFACES = [
    pytest.param(["int8", "int8"], "int8", id="int8"),
    pytest.param(["int32", "uint8"], "uint8", id="indices into, integers out of"),
    pytest.param(["float32", "int8"], "float32", id="of several types"),
    pytest.param(["int32", "int32"], "float32", id="indices only"),
]


@pytest.mark.parametrize(("dtypes", "expected"), INTERFACES)
def test_the_integer_model_is_compared_with_a_candidate_of_its_own_interface(dtypes: list[str], expected: str) -> None:
    model = fb.parse(zoo.cnn().float_model)
    graph = model.subgraphs[0]
    for end, dtype in zip((graph.inputs[0], graph.outputs[0]), dtypes, strict=True):
        graph.tensors[end].type = getattr(schema.TensorType, dtype.upper())
    assert proof._interface(fb.serialise(model)) == expected


def remarks(prepared: zoo.Prepared, float_model: bytes, integer_model: bytes | None = None) -> tuple[str, ...]:
    wholes = make_wholes(prepared.kit, Recipe())
    plain = converter.quantize(prepared.calibrated.file, denylisted=(), recipe=Recipe()).content
    return proof.remarks(
        prepared.builder,
        prepared.nodes,
        wholes,
        float_model=float_model,
        integer_model=plain if integer_model is None else integer_model,
        samples=prepared.fed()[:2],
        per_channel=True,
    )


def test_nothing_is_said_of_a_model_whose_candidates_are_what_they_are_called() -> None:
    assert remarks(zoo.cnn().prepared, zoo.cnn().float_model) == ()


def test_ops_that_never_become_integers_are_counted_by_type(reviewed: Reviewed) -> None:
    def call(x: Any) -> Any:
        return tf().sin(tf().matmul(x, zoo.weights(8, 8))) + tf().sin(x) + 1.0

    source = zoo.from_function(call, (1, 8))
    [remark] = remarks(source.prepared, source.float_model)
    reviewed("ops that never become integer", remark)


def test_ops_that_stay_float_for_want_of_a_kernel_are_told_with_that_reason(reviewed: Reviewed) -> None:
    def call(x: Any, kernels: Any) -> Any:
        return tf().sin(tf().nn.conv2d(tf().tanh(x), tf().tanh(kernels), 1, "SAME"))

    source = zoo.from_function(call, (1, 8, 8, 4), (3, 3, 4, 8))
    whole = integer_model(source.prepared.kit, Recipe()).content
    reviewed("ops without an integer kernel", remarks(source.prepared, source.float_model, whole))


def test_a_float_model_that_is_another_is_told_with_how_far_and_where(reviewed: Reviewed) -> None:
    other, source = (zoo.from_function(lambda x, k=k: tf().tanh(x * k) + 1.0, (1, 8)) for k in (2.0, 3.0))
    [told] = [r for r in remarks(source.prepared, other.float_model) if "left out of integers" in r]
    twice, thrice = (np.stack([np.tanh(s["x0"] * k) + 1.0 for s in source.prepared.fed()[:2]]) for k in (2.0, 3.0))
    apart = max(np.abs(a - b).max() / b.max() for a, b in zip(twice, thrice, strict=True))
    assert f" {apart:.1e} " in told
    reviewed("a float model that is another", unnamed(told), measured=True)


def test_an_integer_model_that_is_another_is_told(reviewed: Reviewed) -> None:
    source = zoo.from_function(lambda x: tf().tanh(x * 3.0), (1, 8))
    found = remarks(source.prepared, source.float_model, integer_model=source.float_model)
    reviewed("an integer model that is another", map(unnamed, found), measured=True)


@pytest.mark.real
def test_the_streaming_denoisers_merged_op_can_leave_integers(real_data: Path) -> None:
    content = (real_data / "zoo" / "dtln" / "dtln_core1_float.tflite").read_bytes()
    prepared = zoo.prepare(content)
    assert len(prepared.nodes) == 41  # of 43 ops: two are folded
    left_out = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert {op.kind.value for op in left_out.graph.ops} == {"float"}
    assert difference(left_out.content, content, prepared.fed(), delegates=False) == 0.0


def test_transposes_that_undo_each_other_are_folded() -> None:
    """As converters of ONNX leave them between layouts; TensorFlow's leaves none, so a pair is put in."""
    turned, axes = (1, 5, 3, 4), ((0, 3, 1, 2), (0, 2, 3, 1))
    model = fb.parse(zoo.from_function(lambda x: tf().nn.sigmoid(tf().tanh(x)), (1, 3, 4, 5)).float_model)
    graph = model.subgraphs[0]
    tanh, sigmoid = graph.operators
    graph.tensors += [
        tensor(b"turned", list(turned), schema.TensorType.FLOAT32),
        tensor(b"back", [1, 3, 4, 5], schema.TensorType.FLOAT32),
    ]
    back = len(graph.tensors) - 1
    constants = [editing.add_constant(model, f"axes{i}", np.array(row, np.int32)) for i, row in enumerate(axes)]
    pair = [
        editing.new_op(model, "TRANSPOSE", [int(tanh.outputs[0]), constants[0]], back - 1),
        editing.new_op(model, "TRANSPOSE", [back - 1, constants[1]], back),
    ]
    sigmoid.inputs = np.array([back], np.int32)
    graph.operators = [tanh, *pair, sigmoid]
    content = fb.serialise(model)
    found = normalise(content)
    assert [op.op_type for op in reader.read_graph(fb.parse(found.content)).ops] == ["TANH", "LOGISTIC"]
    assert found.folded == ("turned", "back")
    samples = [{"x": np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)}]
    assert difference(content, found.content, samples) == 0.0


def test_parts_along_an_axis_of_free_size_are_not_cut_out() -> None:
    """Their sizes in the file are not those that they have at run time."""
    source = fb.parse(zoo.from_function(lambda x: tf().split(x, [1, 3, 4], axis=1), (1, 8)).float_model)
    graph = source.subgraphs[0]
    [split] = [op for op in graph.operators if fb.op_type(source, op) == "SPLIT_V"]
    graph.tensors[split.outputs[2]].shape = np.array([1, 1], np.int32)
    graph.tensors[split.outputs[2]].shapeSignature = np.array([1, -1], np.int32)
    rewrite(source, (RESPELLED,))
    assert "SPLIT_V" in {fb.op_type(source, op) for op in graph.operators}
