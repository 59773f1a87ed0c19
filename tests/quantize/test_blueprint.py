from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.graph import Op, OpKind, Tensor, peak_activation_bytes
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError
from autoselect.quantize.building import parts
from autoselect.quantize.building.blueprint import Blueprint, Choice, Cost, Part
from autoselect.quantize.preparing import normalise
from autoselect.scoring.fragmentation import PenaltyWeights, fragmentation
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

# Incommensurable, so that no difference cancels another.
WEIGHTS = PenaltyWeights(float_macs=1.0, float_ops=0.51, crossings=0.73, crossing_bytes=0.37, segments=0.23)


@functools.cache
def branches() -> zoo.Prepared:
    """Concatenations of tensors of different scales, pooling, padding, and a tensor that is an output and read too."""
    first, second, third = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1), zoo.weights(3, 3, 24, 64, seed=2)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, first, 1, "SAME") + zoo.weights(8))
        b = tf().nn.conv2d(a * 3.0, second, 1, "SAME")
        c = tf().concat([a, b, tf().nn.max_pool2d(a, 3, 1, "SAME")], axis=3)
        d = tf().nn.conv2d(tf().pad(c, [[0, 0], [1, 1], [1, 1], [0, 0]]), third, 1, "VALID")
        e = tf().concat([tf().transpose(d[..., :8], [0, 2, 1, 3]), b], axis=3)
        return {"soft": tf().nn.softmax(tf().reshape(e, (1, -1))), "tanh": tf().tanh(c), "raw": d}

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def shrinking() -> zoo.Prepared:
    """Ops that make a tensor smaller and keep its scale, beside others that read it; indices as an output."""

    def call(x: Any, y: Any) -> Any:
        a = tf().nn.avg_pool2d(tf().pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), 2, 2, "SAME")
        b = tf().nn.avg_pool2d(tf().nn.conv2d(a, zoo.weights(3, 3, 3, 16), 1, "SAME"), 2, 1, "SAME")
        c = tf().nn.relu(b) + tf().nn.avg_pool2d(b, 2, 1, "SAME")
        d = tf().reshape(c[:, :2, :2], (1, -1))
        return {
            "dense": tf().matmul(d, zoo.weights(64, 20)),
            "least": tf().minimum(d, tf().nn.sigmoid(d)),
            "place": tf().argmax(d, axis=1),
            "mean": tf().reduce_mean(c, [1, 2]) * y,
        }

    return zoo.from_function(call, (1, 8, 8, 3), (1, 16)).prepared


@functools.cache
def upsampling() -> zoo.Prepared:
    """A transposed convolution, resizing, an op of several outputs."""

    def call(x: Any) -> Any:
        up = tf().image.resize(x, (16, 16), method="bilinear")
        both = tf().concat([up, tf().image.resize(x, (16, 16), method="nearest")], 3)
        y = tf().nn.leaky_relu(tf().nn.conv2d(both, zoo.weights(3, 3, 6, 32), 2, "SAME"))
        y = tf().nn.conv2d_transpose(y, zoo.weights(3, 3, 16, 32), (1, 16, 16, 16), 2)
        left, right = tf().split(tf().concat([y, up], 3)[..., :18], 2, axis=3)
        return {
            "top": tf().reduce_max(left, 3),
            "soft": tf().nn.softmax(left - right),
            "pair": tf().concat([left, y], 3),
        }

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def shared_weights() -> zoo.Prepared:
    """One matrix for three layers, equal biases, and equal names of different ops."""
    matrix = zoo.weights(32, 40)

    def call(x: Any) -> Any:
        a = tf().matmul(x, matrix) + zoo.weights(40)
        b = tf().matmul(tf().tanh(a)[:, :32], matrix) + zoo.weights(40)
        return tf().matmul(b[:, 8:], matrix) * tf().constant(zoo.weights(40))

    model = fb.parse(zoo.from_function(call, (1, 32)).float_model)
    graph = model.subgraphs[0]
    for op in graph.operators[:2]:
        graph.tensors[op.outputs[0]].name = b"same"
    return zoo.prepare(fb.serialise(model))


def constants_of_one_buffer() -> bytes:
    """Two outputs that are constants, of one buffer; an op reads equal bytes."""
    bias = zoo.weights(40)
    model = fb.parse(zoo.from_function(lambda x: tf().matmul(x, zoo.weights(6, 40)) + bias, (1, 6)).float_model)
    graph = model.subgraphs[0]
    buffer = editing.add_buffer(model, bias)
    for name in (b"first", b"second"):
        tensor = copy(graph.tensors[graph.outputs[0]])
        tensor.name, tensor.buffer = name, buffer
        tensor.shape, tensor.shapeSignature = np.array([40], np.int32), None
        graph.tensors.append(tensor)
        graph.outputs = np.array([*graph.outputs, len(graph.tensors) - 1], np.int32)
    model.signatureDefs = None
    return fb.serialise(model)


@functools.cache
def constants_as_they_are() -> zoo.Prepared:
    return zoo.prepare(constants_of_one_buffer(), normalised_by=normalise.as_it_is)


@functools.cache
def normalised_constants() -> zoo.Prepared:
    return zoo.prepare(constants_of_one_buffer())


@functools.cache
def op_codes_of_one_type() -> zoo.Prepared:
    """Ops outside a loop have op codes of their own, equal to those within; as it is, as normalising makes them one."""
    model = fb.parse(zoo.loop().float_model)
    for op in model.subgraphs[0].operators:
        model.operatorCodes.append(copy(model.operatorCodes[op.opcodeIndex]))
        op.opcodeIndex = len(model.operatorCodes) - 1
    return zoo.prepare(fb.serialise(model), normalised_by=normalise.as_it_is)


@functools.cache
def empty_lists() -> zoo.Prepared:
    """A file whose lists of signatures and of metadata are there, and empty, as old converters wrote them."""
    prepared = zoo.prepare(zoo.cnn().float_model, normalised_by=normalise.as_it_is)
    model = fb.parse(prepared.calibrated.content)
    model.signatureDefs, model.metadata = [], []
    return replace(prepared, calibrated=replace(prepared.calibrated, file=TfliteFile(model=model)))


def drawn_recipes(count: int, trials: int, seed: int) -> list[list[int]]:
    """Sets of nodes of many sizes, the empty and the full one first."""
    rng = np.random.default_rng(seed)
    drawn = [np.flatnonzero(rng.random(count) < rng.random()).tolist() for _ in range(trials - 2)]
    return [[], list(range(count)), *drawn]


def assert_forecasts(prepared: zoo.Prepared, base: Recipe, trials: int) -> None:
    """Plan and build, in turn with each fallback and with some nodes float and others hybrid."""
    nodes = prepared.nodes
    blueprint = prepared.builder.blueprint(base)
    for trial, denied in enumerate(drawn_recipes(len(nodes), trials, seed=len(nodes))):
        fallback = "drq" if trial % 3 else "float"
        in_float = denied[::2] if trial % 3 == 2 else []
        names, floats = (frozenset(nodes[i].name.replace("[", "[[]") for i in some) for some in (denied, in_float))
        built = prepared.builder.build(replace(base, denylisted_nodes=names, fallback=fallback, float_nodes=floats))
        predicted = blueprint.plan(denied, fallback, in_float)
        found = {
            "kinds": predicted.kinds,
            "size": predicted.size_bytes,
            "fragmentation": fragmentation(predicted.graph, WEIGHTS),
        }
        expected = {
            "kinds": tuple(built.kinds[node.name] for node in nodes),
            "size": len(built.content),
            "fragmentation": fragmentation(built.graph, WEIGHTS),
        }
        assert found == expected, (denied, in_float, fallback)
        there = [(i, kind) for i, kind in enumerate(predicted.kinds) if kind != "folded"]
        assert [i for i, kind in there if kind != "integer"] == [i for i, _ in there if i in denied]
        assert peak_activation_bytes(predicted.graph) == peak_activation_bytes(built.graph)


MODELS = [
    pytest.param(lambda: zoo.cnn().prepared, id="CNN"),
    pytest.param(lambda: zoo.lstm().prepared, id="recurrent"),
    pytest.param(lambda: zoo.two_inputs().prepared, id="several inputs"),
    pytest.param(branches, id="branches"),
    pytest.param(shrinking, id="shrinking"),
    pytest.param(upsampling, id="upsampling"),
    pytest.param(shared_weights, id="shared weights"),
    pytest.param(constants_as_they_are, id="constants of one buffer"),
    pytest.param(normalised_constants, id="constants of one buffer, normalised"),
    pytest.param(op_codes_of_one_type, id="op codes of one type"),
    pytest.param(empty_lists, id="empty lists"),
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "base",
    [
        pytest.param(Recipe(), id="per channel"),
        pytest.param(Recipe(per_channel=False, io_type="int8"), id="per tensor, int8"),
        pytest.param(Recipe(io_type="uint8"), id="uint8"),
        pytest.param(
            Recipe(repairs=("bias", "equalization", "ranges-mse", "rounding-gptq", "weights-mse")), id="repaired"
        ),
    ],
)
def test_a_plan_is_what_a_build_gives(make: Callable[[], zoo.Prepared], base: Recipe) -> None:
    assert_forecasts(make(), base, trials=20)


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("mobilenet_v1_025_imagenet/mobilenet_v1_025_224_float.tflite", id="MobileNetV1"),
        pytest.param("fsrcnn_x2/fsrcnn_x2_float.tflite", id="FSRCNN"),
        pytest.param("kws_dscnn/kws_dscnn_float.tflite", id="DS-CNN"),
    ],
)
@pytest.mark.parametrize("base", [Recipe(), Recipe(per_channel=False, io_type="int8")], ids=["float32", "int8"])
def test_plans_of_real_models(path: str, base: Recipe, real_data: Path) -> None:
    assert_forecasts(zoo.prepared_file(real_data / path), base, trials=20)


def test_deep_conv_lstm_is_planned() -> None:
    assert_forecasts(zoo.deep_conv_lstm().prepared, Recipe(), trials=16)


def test_a_pickled_blueprint_plans_the_same() -> None:
    prepared = zoo.cnn().prepared
    blueprint = prepared.builder.blueprint(Recipe())
    again = pickle.loads(pickle.dumps(blueprint))
    assert isinstance(again, Blueprint)
    for denied in drawn_recipes(len(prepared.nodes), 6, seed=1):
        assert again.plan(denied) == blueprint.plan(denied)


def test_order_and_kind_of_the_collection_do_not_matter() -> None:
    prepared = zoo.cnn().prepared
    blueprint = prepared.builder.blueprint(Recipe())
    assert blueprint.plan(frozenset({5, 1, 3})) == blueprint.plan([3, 1, 5]) != blueprint.plan([3, 1])


def test_the_planned_graph_is_in_order_of_execution() -> None:
    blueprint = branches().builder.blueprint(Recipe())
    for denied in drawn_recipes(len(branches().nodes), 12, seed=2):
        graph = blueprint.plan(denied, "float").graph
        written = set(graph.inputs)
        for op in graph.ops:
            assert set(op.inputs) <= written
            written |= set(op.outputs)
        assert set(graph.outputs) <= written


def test_a_float_concatenation_reads_what_float_ops_wrote_without_a_detour() -> None:
    prepared = branches()
    names = frozenset({"*"})
    built = prepared.builder.build(Recipe(denylisted_nodes=names, fallback="float"))
    assert not any(op.kind is OpKind.BOUNDARY for op in built.graph.ops)
    [sample] = zoo.random_samples(built.content, 1)
    float_model = Runner(fb.serialise(fb.parse(prepared.calibrated.content)))
    runner = Runner(built.content)
    inputs = {spec.key: value for spec, value in zip(runner.inputs, sample, strict=True)}
    for key, expected in float_model(inputs).items():
        np.testing.assert_allclose(runner(inputs)[key], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("io_type", ["int8", "uint8"])
def test_an_output_that_float_ops_write_and_read_has_the_interfaces_type(io_type: Any) -> None:
    prepared = branches()
    for denied in drawn_recipes(len(prepared.nodes), 6, seed=3):
        names = frozenset(prepared.nodes[i].name for i in denied)
        built = prepared.builder.build(Recipe(denylisted_nodes=names, fallback="float", io_type=io_type))
        assert [built.graph.tensors[i].dtype for i in built.graph.outputs] == [io_type] * 3
    left_out = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float", io_type=io_type))
    runner, float_model = Runner(left_out.content), Runner(fb.serialise(fb.parse(prepared.calibrated.content)))
    inputs = {spec.key: value for spec, value in zip(runner.inputs, prepared.samples[0], strict=True)}
    for key, expected in float_model(inputs).items():
        found = runner(inputs)[key]
        # The output shares its scale with a concatenation, so its range is cut.
        np.testing.assert_allclose(found, np.clip(expected, found.min(), found.max()), atol=0.1)


@pytest.mark.parametrize("make", [constants_as_they_are, normalised_constants])
def test_outputs_of_equal_constants_keep_their_names(make: Callable[[], zoo.Prepared]) -> None:
    built = make().builder.build(Recipe())
    assert [spec.key for spec in reader.read_interface(built.content).outputs][1:] == ["first", "second"]


# --------------------------------------------------------------------------------- what no model above has

READS = {
    "each after what it reads": ([(), (0,), (1,)], [0, 1, 2]),
    "one before what it reads": ([(2,), (), ()], [2, 0, 1]),
    "each before what it reads": ([(1,), (2,), ()], [2, 1, 0]),
    "two before what both read": ([(3,), (3,), (), ()], [3, 0, 1, 2]),
    "in whatever form": ([(~2,), (), ()], [2, 0, 1]),
}


def ordered(reads: list[tuple[int, ...]]) -> list[int]:
    """The order of ops of which each writes the value of its number and, in its second form, reads these values."""
    drafts: Any = [
        (i, {form: SimpleNamespace(part=SimpleNamespace(reads=row)) for form, row in (("a", ()), ("b", values))}, (i,))
        for i, values in enumerate(reads)
    ]
    slots: Any = SimpleNamespace(value_of=range(len(reads)))
    return parts._order(drafts, slots)


@pytest.mark.parametrize(("reads", "order"), READS.values(), ids=READS)
def test_ops_come_after_what_any_form_of_them_reads_and_else_stay_in_place(
    reads: list[tuple[int, ...]], order: list[int]
) -> None:
    assert ordered(reads) == order


@pytest.mark.parametrize("reads", [[(1,), (0,)], [(1,), (2,), (0,)]], ids=["two", "three"])
def test_ops_that_wait_for_each_other_are_refused(reads: list[tuple[int, ...]]) -> None:
    with pytest.raises(BuildError, match="each other"):
        ordered(reads)


def part(op_type: str, kind: OpKind, reads: tuple[int, ...], writes: tuple[int, ...], own: int) -> Part:
    record = Op(op_type=op_type, kind=kind, inputs=reads, constants=(), outputs=writes, macs=0)
    return Part("float" if kind is OpKind.FLOAT else "integer", 0, reads, writes, Cost(own, 0), record)


def test_an_op_on_shapes_reads_what_is_there_and_one_with_an_effect_stays() -> None:
    """Values 0 to 3: the input, what a node makes of it (slots 1 and 2: integers, float), its shape, what nobody reads.

    The last op keeps the shape somewhere and writes nothing.
    """
    integer, in_float = (part("TANH", kind, (0,), (w,), 0) for kind, w in ((OpKind.INTEGER, 1), (OpKind.FLOAT, 2)))
    rest = [
        (part("SHAPE", OpKind.NEUTRAL, (~1,), (3,), 0), (2,)),
        (part("NEG", OpKind.NEUTRAL, (3,), (4,), 4096), (3,)),
        (part("ASSIGN_VARIABLE", OpKind.NEUTRAL, (3,), (), 0), ()),
    ]
    blueprint = Blueprint(
        nodes=(0,),
        choices=(
            Choice(integer, in_float, None, False, (1,)),
            *(Choice(made, None, None, not values, values) for made, values in rest),
        ),
        indices=(0, 1, 2, 3),
        place_of=(0,),
        tensors=tuple(Tensor(name=str(i), dtype="x", shape=(1,), is_constant=False, size_bytes=1) for i in range(5)),
        value_of=(0, 1, 1, 2, 3),
        inputs=(0,),
        given=(0,),
        outputs=(),
        own_costs=(Cost(0, 0),) * 5,
        conversions={},
        frame=Cost(0, 0),
        item_bytes=(),
    )
    for denied, slot in (([], 1), ([0], 2)):
        plan = blueprint.plan(denied, "float")
        assert [(op.op_type, op.inputs) for op in plan.graph.ops] == [
            ("TANH", (0,)),
            ("SHAPE", (slot,)),
            ("ASSIGN_VARIABLE", (3,)),
        ]
        assert plan.places == {0: 0, 1: 1, 3: 2}
        assert plan.kinds == (("integer", "float")[len(denied)],)
        assert plan.size_bytes < 4096
