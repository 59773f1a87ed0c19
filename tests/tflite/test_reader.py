from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import Graph, OpKind
from autoselect.errors import ModelError
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def read(content: bytes) -> Graph:
    return reader.read_graph(fb.parse(content))


def single(call: Callable[..., object], *shapes: tuple[int, ...]) -> bytes:
    return zoo.from_function(call, *shapes).float_model


def tf() -> object:
    import tensorflow

    return tensorflow


def conv(x: object) -> object:
    return tf().nn.conv2d(x, zoo.weights(3, 3, 3, 16), 2, "SAME")  # type: ignore[attr-defined]


def grouped(x: object) -> object:
    return tf().nn.conv2d(x, zoo.weights(3, 3, 8, 32), 1, "SAME")  # type: ignore[attr-defined]


def depthwise(x: object) -> object:
    return tf().nn.depthwise_conv2d(x, zoo.weights(3, 3, 8, 1), [1, 1, 1, 1], "SAME")  # type: ignore[attr-defined]


def transposed(x: object) -> object:
    return tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 8, 16), (1, 8, 8, 8), 2)  # type: ignore[attr-defined]


def volume(x: object) -> object:
    return tf().nn.conv3d(x, zoo.weights(3, 3, 3, 8, 8), [1] * 5, "SAME")  # type: ignore[attr-defined]


def dense(x: object) -> object:
    return tf().matmul(x, zoo.weights(64, 32))  # type: ignore[attr-defined]


def batched(x: object) -> object:
    return tf().matmul(x, zoo.weights(2, 64, 32))  # type: ignore[attr-defined]


def turned(x: object) -> object:
    return tf().matmul(x, zoo.weights(2, 64, 32), transpose_a=True)  # type: ignore[attr-defined]


def addition(x: object) -> object:
    return x + 1.0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "op_type", "macs"),
    [
        pytest.param(lambda: single(conv, (1, 8, 8, 3)), "CONV_2D", 4 * 4 * 16 * 3 * 3 * 3, id="strided convolution"),
        pytest.param(lambda: single(grouped, (1, 8, 8, 32)), "CONV_2D", 8 * 8 * 32 * 3 * 3 * 8, id="four groups"),
        pytest.param(lambda: single(depthwise, (1, 8, 8, 8)), "DEPTHWISE_CONV_2D", 8 * 8 * 8 * 9, id="depthwise"),
        # Each input value meets the whole filter once for each output channel.
        pytest.param(
            lambda: single(transposed, (1, 4, 4, 16)), "TRANSPOSE_CONV", 4 * 4 * 16 * 3 * 3 * 8, id="transposed"
        ),
        pytest.param(lambda: single(volume, (1, 4, 4, 4, 8)), "CONV_3D", 64 * 8 * 27 * 8, id="three dimensions"),
        pytest.param(lambda: single(dense, (1, 64)), "FULLY_CONNECTED", 64 * 32, id="dense"),
        pytest.param(lambda: single(dense, (4, 64)), "FULLY_CONNECTED", 4 * 64 * 32, id="dense of four rows"),
        pytest.param(lambda: single(batched, (2, 4, 64)), "BATCH_MATMUL", 2 * 4 * 64 * 32, id="batched"),
        pytest.param(lambda: single(turned, (2, 64, 4)), "BATCH_MATMUL", 2 * 4 * 64 * 32, id="batched, turned"),
        # Four gates; each step multiplies the input (6) and the state (16) with 16 units' weights.
        pytest.param(
            lambda: zoo.lstm().float_model, "UNIDIRECTIONAL_SEQUENCE_LSTM", 8 * 4 * (6 * 16 + 16 * 16), id="LSTM"
        ),
        pytest.param(lambda: single(addition, (1, 8)), "ADD", 0, id="an op without products"),
    ],
)
def test_multiply_accumulates_by_hand(make: Callable[[], bytes], op_type: str, macs: int) -> None:
    assert [op.macs for op in read(make()).ops if op.op_type == op_type] == [macs]


def kinds(content: bytes) -> list[tuple[str, str]]:
    return [(op.op_type, op.kind.value) for op in read(content).ops]


CNN = ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "MAX_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX")


def test_kinds_of_a_float_model() -> None:
    assert kinds(zoo.cnn().float_model) == [(name, "float") for name in CNN]


def test_kinds_of_a_dynamic_range_model() -> None:
    # Of the weights only the dense layer's 256 x 5 are 1,024 elements or more.
    expected = [(name, "hybrid" if name == "FULLY_CONNECTED" else "float") for name in CNN]
    assert kinds(zoo.cnn().drq()) == expected


def test_kinds_of_a_full_integer_model() -> None:
    content = zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model))
    found = kinds(content)
    assert (found[0], found[-1]) == (("QUANTIZE", "boundary"), ("DEQUANTIZE", "boundary"))
    assert found[1:-1] == [(name, "integer") for name in CNN]


def test_a_change_of_scale_is_integer_and_work_on_shapes_is_neutral() -> None:
    model = fb.parse(zoo.cnn().fiq(zoo.random_samples(zoo.cnn().float_model)))
    graph = model.subgraphs[0]
    quantize, first = graph.operators[0], graph.operators[1]
    graph.tensors[quantize.inputs[0]].type = graph.tensors[quantize.outputs[0]].type
    for index in (first.outputs[0], *first.inputs):
        graph.tensors[index].type = 2  # int32
    found = reader.read_graph(model)
    assert found.ops[0].kind is OpKind.INTEGER
    assert found.ops[1].kind is OpKind.NEUTRAL


def test_activations_and_constants_are_told_apart() -> None:
    graph = read(zoo.cnn().float_model)
    first = graph.ops[0]
    assert [graph.tensors[i].shape for i in first.inputs] == [(1, 8, 8, 3)]
    assert [graph.tensors[i].shape for i in first.constants] == [(16, 3, 3, 3), (16,)]
    assert graph.inputs == first.inputs
    assert graph.outputs == graph.ops[-1].outputs
    # 4 x 4 x 16 float values.
    assert graph.tensors[first.outputs[0]].size_bytes == 1024


@pytest.mark.parametrize(
    ("side", "remedy"), [("inputs", "from where it has numbers on"), ("outputs", "without this output")]
)
def test_a_side_of_strings_is_refused_with_a_way_out(side: str, remedy: str) -> None:
    model = fb.parse(single(dense, (1, 64)))
    graph = model.subgraphs[0]
    graph.tensors[getattr(graph, side)[0]].type = schema.TensorType.STRING
    with pytest.raises(ModelError, match=f"model's {side[:-1]} .*\\bstring: .*{remedy}"):
        reader.read_interface(fb.serialise(model))


def test_outputs_of_one_name_have_keys_of_their_own() -> None:
    """A file may call several tensors the same, as one op's outputs under canonical names."""
    model = fb.parse(zoo.two_inputs().float_model)
    model.signatureDefs = []
    for place in model.subgraphs[0].outputs:
        model.subgraphs[0].tensors[place].name = b"twin"
    content = fb.serialise(model)
    assert [spec.key for spec in reader.output_specs(model)] == ["twin", "twin_2"]
    assert len(Runner(content)(dict(zip(("x0", "x1", "x2"), zoo.random_samples(content)[0], strict=True)))) == 2


@pytest.mark.parametrize(("name", "keys"), [(None, ["output_0", "output_1"]), (b"a\nb", ["a b", "a b_2"])])
def test_a_key_is_there_and_on_one_line_whatever_the_name(name: bytes | None, keys: list[str]) -> None:
    """Writers may strip names, or put several lines into one; files of scoring list a key a line."""
    model = fb.parse(zoo.two_inputs().float_model)
    model.signatureDefs = []
    for place in model.subgraphs[0].outputs:
        model.subgraphs[0].tensors[place].name = name
    assert [spec.key for spec in reader.output_specs(model)] == keys


def test_a_value_under_several_names_of_the_signature_keeps_them_all() -> None:
    source = zoo.from_function(lambda x: dict.fromkeys(("first", "second", "third"), x), (1, 6))
    model = fb.parse(source.float_model)
    assert len({int(i) for i in model.subgraphs[0].outputs}) == 1
    assert {spec.key for spec in reader.output_specs(model)} == {"first", "second", "third"}
    assert set(Runner(source.float_model)({"x0": np.zeros((1, 6), np.float32)})) == {"first", "second", "third"}


def test_the_signature_names_inputs_and_outputs() -> None:
    model = fb.parse(zoo.two_inputs().float_model)
    inputs = {s.key: (s.shape, s.dtype) for s in reader.input_specs(model)}
    float32 = np.dtype("float32")
    assert inputs == {"x0": ((1, 6), float32), "x1": ((1, 4), float32), "x2": ((1, 1), float32)}
    assert {s.key for s in reader.output_specs(model)} == {"total", "product"}
    model.signatureDefs = None
    assert [s.key for s in reader.input_specs(model)] == [s.name for s in reader.input_specs(model)]


@pytest.mark.parametrize(("op_type", "dtype"), [("DEQUANTIZE", "INT8"), ("DEQUANTIZE", "FLOAT16"), ("DENSIFY", "INT8")])
def test_what_only_unpacks_a_constant_is_neutral(op_type: str, dtype: str) -> None:
    model = fb.parse(zoo.from_function(lambda x: x + 1.0, (1, 4)).float_model)
    [op] = model.subgraphs[0].operators
    constant = next(i for i in fb.indices(op.inputs) if fb.is_constant(model, model.subgraphs[0].tensors[i]))
    packed = editing.add_constant(model, "packed", np.zeros(4, dtype.lower()))
    model.subgraphs[0].tensors[constant].buffer = 0
    model.subgraphs[0].operators = [editing.new_op(model, op_type, [packed], constant), op]
    kinds = [op.kind for op in reader.read_graph(model).ops]
    assert kinds == [OpKind.NEUTRAL, OpKind.FLOAT]
