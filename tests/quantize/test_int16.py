"""Nodes with 16-bit activations: every mix runs and is forecast to the byte, all of them are TensorFlow's build."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import forecasts
import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.graph import IN_INTEGERS, OpKind
from autoselect.domain.recipe import Recipe
from autoselect.domain.states import COMPOSED
from autoselect.errors import BuildError
from autoselect.quantize.building import proof
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.building.wholes import int16_model, runnable_int16_model
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import converter
from autoselect.quantize.repairing import ranges
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weighted_ops import WEIGHTED
from autoselect.rewrites import for_16_bits
from autoselect.rewrites.for_16_bits import compose
from autoselect.scoring.fragmentation import fragmentation
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.comparing import difference
from autoselect.tflite.runner import Runner


@functools.cache
def branches() -> zoo.Prepared:
    """Values of several scales joined, ops of several outputs, and ops that have no 16-bit form."""
    first, second = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, first, 1, "SAME") + zoo.weights(8))
        b = tf().nn.conv2d_transpose(a, second, (1, 16, 16, 8), 2)
        c = tf().image.resize(a, (16, 16), method="bilinear")
        left, right = tf().split(tf().concat([b, c], 3), 2, axis=3)
        d = tf().math.squared_difference(left, tf().math.sqrt(tf().nn.relu(right) + 1.0))
        return {"d": d, "place": tf().argmax(tf().reshape(left, (1, -1)), axis=1), "soft": tf().nn.softmax(right - c)}

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def composed() -> zoo.Prepared:
    """One of each op that is made of others where it has 16 bits, and an attention's mask."""
    first, second = zoo.weights(8, 8), zoo.weights(8, 8, seed=1)
    mask = np.where(np.arange(4) < 3, 0.0, -1e9).astype(np.float32)

    def call(x: Any) -> Any:
        a = tf().matmul(tf().reshape(x, (8, 8)), first)
        a = tf().nn.relu(a) + -zoo.weights(8, seed=2) * tf().nn.relu(-a)
        b = tf().matmul(a, second) * 3.0
        b = b * tf().nn.relu6(b + 3.0) * (1.0 / 6.0)
        a, b = tf().reshape(a, (2, 4, 8)), tf().reshape(b, (2, 4, 8))
        soft = tf().nn.softmax(tf().matmul(a, b, transpose_b=True) + mask)
        totals = tf().reduce_sum(b, -1, keepdims=True) - tf().reduce_sum(a, [1, 2], keepdims=True)
        return tf().math.squared_difference(tf().matmul(soft, b), 0.1 * totals)

    return zoo.from_function(call, (2, 4, 8)).prepared


@functools.cache
def padded() -> zoo.Prepared:
    """Pads of PyTorch before a MAX_POOL_2D, and pads of another number than zero."""
    first, second = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1)

    def call(x: Any) -> Any:
        a = tf().pad(tf().nn.conv2d(x, first, 1, "SAME"), [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=-np.inf)
        b = tf().nn.max_pool2d(a, 3, 2, "VALID")
        return tf().nn.conv2d(tf().pad(b, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=0.25), second, 1, "VALID")

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def padded_far() -> zoo.Prepared:
    """A pad of a number that no other value reaches, and a choice of the model's input itself."""
    first, second = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, first, 1, "SAME"))
        b = tf().pad(a, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=5.0)
        return tf().nn.conv2d(b, second, 1, "VALID"), tf().argmax(x, -1)

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def padded_far_for_all() -> zoo.Prepared:
    """A pad far below all values before a MAX_POOL_2D, which is an output of the model as well."""
    first = zoo.weights(3, 3, 3, 8)

    def call(x: Any) -> Any:
        below = tf().pad(tf().nn.conv2d(x, first, 1, "SAME"), [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=-50.0)
        return below, tf().nn.max_pool2d(below, 2, 1, "VALID")

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


@functools.cache
def computed_weights() -> zoo.Prepared:
    """A convolution whose weights another layer computes, as trackers have it."""
    first, second = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 3, 8, seed=1)

    def call(x: Any, template: Any) -> Any:
        kernels = tf().transpose(tf().nn.conv2d(template, second, 1, "VALID"), [1, 2, 3, 0])
        return tf().nn.relu(tf().nn.conv2d(tf().nn.relu(tf().nn.conv2d(x, first, 1, "SAME")), kernels, 1, "VALID"))

    return zoo.from_function(call, (1, 8, 8, 3), (4, 5, 5, 3)).prepared


@functools.cache
def endless() -> zoo.Prepared:
    """The logarithm of a zero, which is taken out again, between layers."""

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().matmul(x, zoo.weights(16, 16)))
        b = tf().where(a > 0.0, 1.0 - tf().math.log(a), tf().zeros_like(a))
        return tf().matmul(tf().tanh(b), zoo.weights(16, 16, seed=1))

    return zoo.from_function(call, (1, 16)).prepared


@functools.cache
def chosen() -> zoo.Prepared:
    """A choice between values of two scales, and a number subtracted from zero."""

    def call(x: Any) -> Any:
        a = tf().matmul(x, zoo.weights(16, 16))
        b = tf().raw_ops.Select(condition=a > 0.0, x=0.0 - tf().tanh(a), y=3.0 * tf().sigmoid(a))
        return tf().matmul(b, zoo.weights(16, 16, seed=1))

    return zoo.from_function(call, (1, 16)).prepared


@functools.cache
def masked() -> zoo.Prepared:
    """A mask of steps of the input that are padding, as Keras' Masking makes it."""

    def call(x: Any) -> Any:
        kept = tf().reduce_any(tf().not_equal(x, 0.0), -1, keepdims=True)
        return tf().tanh(tf().matmul(x * tf().cast(kept, tf().float32), zoo.weights(16, 16)))

    return zoo.from_function(call, (4, 16)).prepared


MODELS = [
    pytest.param(chosen, {"GREATER", "SELECT"}, id="choice"),
    pytest.param(padded, set(), id="padded"),
    pytest.param(padded_far, {"PADV2", "ARG_MAX"}, id="padded with a far number"),
    pytest.param(padded_far_for_all, {"PADV2"}, id="an output padded with a far number"),
    pytest.param(computed_weights, set(), id="computed weights"),
    pytest.param(endless, {"GREATER", "SELECT_V2"}, id="values without an end"),
    pytest.param(composed, set(), id="composed"),
    pytest.param(lambda: zoo.cnn().prepared, set(), id="CNN"),
    pytest.param(lambda: zoo.two_inputs().prepared, set(), id="several inputs"),
    pytest.param(branches, {"SQRT", "ARG_MAX"}, id="branches"),
    pytest.param(lambda: zoo.lstm().prepared, {"UNIDIRECTIONAL_SEQUENCE_LSTM"}, id="recurrent"),
    pytest.param(lambda: zoo.loop().prepared, set(), id="loop"),
]
BASES = [
    pytest.param(Recipe(), id="per channel"),
    pytest.param(Recipe(per_channel=False, io_type="int8"), id="per tensor, int8"),
    pytest.param(Recipe(io_type="uint8"), id="uint8"),
    pytest.param(Recipe(repairs=("bias", "equalization", "ranges-mse", "weights-mse")), id="repaired"),
]


def run(content: bytes, prepared: zoo.Prepared) -> dict[str, np.ndarray]:
    """Outputs on the first sample, whatever the type of the inputs."""
    runner = Runner(content)
    sample = {s.key: v for s, v in zip(runner.inputs, prepared.samples[0], strict=True)}
    return runner({s.key: sample[s.key].astype(s.dtype) for s in runner.inputs})


def assert_forecast_and_run(prepared: zoo.Prepared, base: Recipe, count: int) -> None:
    nodes, forecast = prepared.nodes, forecasts.forecaster(prepared, base, int16=True)
    for recipe in forecasts.mixed_recipes(nodes, base, count, seed=len(nodes)):
        candidate = prepared.builder.build(recipe)
        assert forecast(recipe) == forecasts.built(candidate), recipe
        told = left_out(recipe, nodes).kinds(nodes, candidate.fallbacks)
        assert all(kind in ("folded", told[name]) for name, kind in candidate.kinds.items())
        outputs = run(candidate.content, prepared)
        assert all(np.isfinite(value.astype(np.float64)).all() for value in outputs.values())


@pytest.mark.parametrize(("make", "without"), MODELS)
@pytest.mark.parametrize("base", BASES)
def test_every_mix_runs_and_is_what_was_planned(
    make: Callable[[], zoo.Prepared], without: set[str], base: Recipe
) -> None:
    prepared = make()
    assert_forecast_and_run(prepared, base, count=12)
    missing = prepared.builder.blueprint(base, int16=True).no_int16
    assert {prepared.nodes[i].op_type for i in missing} == without


@pytest.mark.parametrize("method", ranges.METHODS)
def test_a_repair_of_ranges_is_for_8_bits_and_clips_no_16_bit_node(method: str) -> None:
    """The samples that a repair measures need not be those that calibration saw."""
    whole = zoo.cnn().prepared
    kit = RepairKit(whole.calibrated, lambda: [{key: 0.1 * x for key, x in one.items()} for one in whole.fed()])
    builder = Builder(whole.calibrated, whole.nodes, kit)
    wide, narrow = (
        [builder.build(Recipe(int16_nodes=nodes, repairs=repairs)).content for repairs in ((), (method,))]
        for nodes in (frozenset({"*"}), frozenset())
    )
    assert wide[0] == wide[1]
    assert narrow[0] != narrow[1]


def rows(x: Any) -> Any:
    """Values near their largest, so that sums of many products are long."""
    return tf().reshape(tf().nn.sigmoid(4.0 * x + 2.0), (6, 400))


PRODUCTS = [
    pytest.param(lambda x: tf().matmul(rows(x)[None], rows(2.0 * x)[None], transpose_b=True), id="of a batch"),
    pytest.param(lambda x: tf().matmul(tf().tanh(x), rows(x)[None], transpose_a=True), id="turned"),
    pytest.param(lambda x: tf().matmul(rows(x), rows(2.0 * x), transpose_b=True), id="fully connected"),
    pytest.param(lambda x: tf().matmul(tf().tanh(x), zoo.weights(1, 400, 5)), id="with a constant"),
]


@pytest.mark.parametrize("call", PRODUCTS)
def test_a_product_of_matrices_is_near_float_with_16_bits(call: Callable[[Any], Any]) -> None:
    prepared = zoo.from_function(call, (1, 6, 400)).prepared
    names = {node.name for node in prepared.nodes}
    products = {n.name for n in prepared.nodes if n.op_type in ("BATCH_MATMUL", "FULLY_CONNECTED")}
    floats = run(prepared.builder.build(Recipe(denylisted_nodes=frozenset(names), fallback="float")).content, prepared)

    def error(wide: frozenset[str]) -> float:
        recipe = Recipe(int16_nodes=wide, denylisted_nodes=frozenset(names - products), fallback="float")
        candidate = prepared.builder.build(recipe)
        assert {candidate.kinds[name] for name in products} == {"int16" if wide else "integer"}
        found = run(candidate.content, prepared)
        return max(float(np.abs(found[key] - value).max() / np.abs(value).max()) for key, value in floats.items())

    assert products
    assert error(frozenset(products)) < min(1e-3, error(frozenset()) / 20)


@pytest.mark.parametrize(("make", "without"), MODELS)
def test_what_has_no_16_bit_form_stays_int8_and_says_so(make: Callable[[], zoo.Prepared], without: set[str]) -> None:
    prepared = make()
    built = prepared.builder.build(Recipe(int16_nodes=frozenset({"*"})))
    types = {node.name: node.op_type for node in prepared.nodes}
    assert {types[name] for name in built.fallbacks} == without
    assert all("stays int8" in reason for reason in built.fallbacks.values())
    assert {built.kinds[name] for name in built.fallbacks} <= {"integer"}
    assert not any(op.kind is OpKind.FLOAT for op in built.graph.ops if op.op_type in without)


def test_what_is_composed_is_close_to_float_and_has_the_names_of_its_op() -> None:
    prepared = composed()
    nodes = prepared.nodes
    assert {node.op_type for node in nodes} >= set(COMPOSED)
    everything = frozenset(node.name for node in nodes)
    plain = Recipe(fallback="float")
    for node in nodes:
        alone = frozenset({node.name})
        built = prepared.builder.build(replace(plain, denylisted_nodes=everything - alone, int16_nodes=alone))
        assert built.kinds[node.name] == "int16"
        ops = Counter(op.op_type for op in built.graph.ops if op.kind is OpKind.INT16 and op.op_type != "QUANTIZE")
        assert set(ops) == set(COMPOSED.get(node.op_type, (node.op_type,)))
        helpers = sum(ops.values()) - 1
        assert sum(t.name.startswith(f"{node.name};") for t in built.graph.tensors if not t.is_constant) >= helpers
        assert not any(t.name.startswith("op_") for t in built.graph.tensors)
        in_float = prepared.builder.build(replace(plain, denylisted_nodes=everything))
        [ours], [floats] = (list(run(one.content, prepared).values()) for one in (built, in_float))
        noise = np.sum((ours - floats) ** 2) / np.sum(floats**2)
        # Weights of 8 bits make 40 dB here, activations of 16 bits 80.
        assert 10.0 * np.log10(noise) < (-35.0 if node.op_type in WEIGHTED else -60.0), node.name


@pytest.mark.parametrize("make", [chosen, padded, padded_far, padded_far_for_all, computed_weights, endless])
def test_what_the_quantizer_leaves_undone_is_near_to_float(make: Callable[[], zoo.Prepared]) -> None:
    prepared = make()
    everything = frozenset({"*"})
    wide, plain = (
        next(iter(run(prepared.builder.build(recipe).content, prepared).values()))
        for recipe in (Recipe(int16_nodes=everything), Recipe(denylisted_nodes=everything, fallback="float"))
    )
    assert float(np.sum((wide - plain) ** 2)) < 1e-3 * float(np.sum(plain**2))


def test_16_bits_of_what_is_composed_cost_more_beside_much_float() -> None:
    """Two or three ops in the place of one must not make float ops a smaller share of all."""
    prepared = composed()
    wide = [node.name for node in prepared.nodes if node.op_type in COMPOSED]
    others = frozenset(node.name for node in prepared.nodes) - {*wide}
    assert len(wide) > 3

    def penalty(count: int) -> float:
        recipe = Recipe(denylisted_nodes=others, fallback="float", int16_nodes=frozenset(wide[:count]))
        return on_target(prepared.builder.build(recipe).graph, read_target()).penalty

    found = [penalty(count) for count in range(len(wide) + 1)]
    assert found == sorted(found)
    assert len({*found}) == len(found)


def test_what_lacks_a_range_is_not_composed() -> None:
    model = fb.parse(composed().calibrated.content)
    for tensor in model.subgraphs[0].tensors:
        if not fb.is_constant(model, tensor):
            tensor.quantization = None
    types = [fb.op_type(model, op) for op in model.subgraphs[0].operators]
    compose(model, composed().calibrated.names)
    assert [fb.op_type(model, op) for op in model.subgraphs[0].operators] == types


def test_litert_has_no_16_bit_kernel_of_squared_difference() -> None:
    """Else it need not be composed."""
    whole = converter.quantize_to_int16(branches().calibrated.file, per_channel=True).content
    with pytest.raises(Exception, match="SQUARED_DIFFERENCE"):
        run(whole, branches())


@functools.cache
def shared_bias() -> zoo.Prepared:
    """Two layers that share weights and bias, as the steps of an unrolled recurrent layer do."""
    matrix, bias = zoo.weights(16, 16), zoo.weights(16)

    def call(x: Any) -> Any:
        return tf().matmul(tf().tanh(tf().matmul(x, matrix) + bias), matrix) + bias

    return zoo.from_function(call, (1, 16)).prepared


ALONE: dict[str, Callable[[Any], Any]] = {
    "sums far above their summands": lambda a: tf().reduce_sum(tf().nn.relu(a) + 0.5, -1, keepdims=True),
    "a limit far above the values": lambda a: tf().minimum(tf().math.rsqrt(tf().nn.relu(a) + 0.5), 1e12),
}


@pytest.mark.parametrize("call", ALONE.values(), ids=ALONE)
def test_16_bits_are_nearer_to_float_than_8(call: Callable[[Any], Any]) -> None:
    prepared = zoo.from_function(lambda x: 0.5 * call(tf().matmul(x, zoo.weights(16, 16))), (8, 16)).prepared
    wide, narrow, plain = (
        next(iter(run(prepared.builder.build(recipe).content, prepared).values()))
        for recipe in (
            Recipe(int16_nodes=frozenset({"*"})),
            Recipe(),
            Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"),
        )
    )
    assert float(np.sum((wide - plain) ** 2)) <= min(
        float(np.sum((narrow - plain) ** 2)), 1e-4 * float(np.sum(plain**2))
    )


def test_ops_that_share_a_bias_have_one_each() -> None:
    assert_forecast_and_run(shared_bias(), Recipe(), count=6)
    assert remarks(shared_bias()) == ()


def remarks(prepared: zoo.Prepared, *, per_channel: bool = True) -> tuple[str, ...]:
    return proof.int16_remarks(
        prepared.builder, prepared.nodes, prepared.kit, samples=prepared.fed(), per_channel=per_channel
    )


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(chosen, id="choice"),
        pytest.param(endless, id="endless"),
        pytest.param(masked, id="of the model's input"),
        pytest.param(lambda: zoo.lstm().prepared, id="LSTM"),
    ],
)
def test_what_the_quantizer_refuses_is_float_in_the_build_that_proves_the_rest(
    make: Callable[[], zoo.Prepared],
) -> None:
    assert remarks(make()) == ()
    whole = runnable_int16_model(make().kit, Recipe()).content
    types = [fb.op_type(fb.parse(whole), op) for op in fb.parse(whole).subgraphs[0].operators]
    assert "COS" not in types
    assert set(types) >= {node.op_type for node in make().nodes}


def test_a_build_to_compare_with_that_cannot_run_takes_no_16_bits_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "runnable_int16_model", int16_model)  # as it is before its float ops are put back
    [told] = remarks(masked())
    assert "not compared with TensorFlow's 16-bit build. The LiteRT interpreter refuses" in told


@pytest.mark.parametrize("make", [zoo.cnn, zoo.two_inputs])
def test_all_of_16_bits_is_tensorflows_own_build_bit_for_bit_but_for_headroom(
    make: Callable[[], zoo.Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(for_16_bits, "_HEADROOM", 1.0)
    source = make()
    prepared = zoo.prepare(source.float_model)
    assert remarks(prepared) == ()
    built = prepared.builder.build(Recipe(int16_nodes=frozenset({"*"})))
    assert set(built.kinds.values()) == {"int16"}
    work = source.converter()
    work.optimizations = [tf().lite.Optimize.DEFAULT]
    keys = [s.key for s in reader.input_specs(fb.parse(source.float_model))]
    work.representative_dataset = lambda: (dict(zip(keys, s, strict=True)) for s in prepared.samples)
    work.target_spec.supported_ops = [tf().lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    assert difference(built.content, bytes(work.convert()), prepared.fed()) == 0.0


def squeezed(x: Any) -> Any:
    return tf().reshape(tf().tanh(x), (1, 2, 2))


def state(x: Any) -> Any:
    return 0.9 * x


def far_state(x: Any) -> Any:
    """Its values are far smaller than what it reads, so it is none."""
    return 0.01 * x


@pytest.mark.parametrize(("call", "factor"), [(squeezed, 2.0), (state, 1.0), (far_state, 2.0)])
def test_inputs_have_headroom_unless_they_may_be_fed_by_an_output(
    call: Callable[..., Any], factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, scales = zoo.from_function(call, (1, 4)), []
    for headroom in (1.0, 2.0):
        monkeypatch.setattr(for_16_bits, "_HEADROOM", headroom)
        built = zoo.prepare(source.float_model).builder.build(Recipe(int16_nodes=frozenset({"*"})))
        graph = fb.parse(built.content).subgraphs[0]
        (quantized,) = (op.outputs[0] for op in graph.operators if list(op.inputs) == list(graph.inputs))
        scales.append(fb.scales(graph.tensors[quantized])[0])
    assert scales[1] == pytest.approx(factor * scales[0], rel=1e-4)


@pytest.mark.parametrize(
    ("make", "per_channel", "told"),
    [
        pytest.param(zoo.loop, True, "runs other parts of the model", id="loop"),
        pytest.param(zoo.cnn, False, "refuses the model", id="depthwise, per tensor"),
    ],
)
def test_where_tensorflow_has_no_such_build_that_is_said(
    make: Callable[[], zoo.Source], per_channel: bool, told: str
) -> None:
    [remark] = remarks(make().prepared, per_channel=per_channel)
    assert told in remark


def test_per_tensor_16_bits_are_nearer_to_float_than_8_bits_where_the_quantizer_refuses() -> None:
    prepared = zoo.cnn().prepared
    with pytest.raises(BuildError, match="refuses"):
        int16_model(prepared.kit, Recipe(per_channel=False))
    wide, narrow = Recipe(per_channel=False, int16_nodes=frozenset({"*"})), Recipe(per_channel=False)
    in_float = prepared.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    expected = run(in_float.content, prepared)
    errors = []
    for recipe in (wide, narrow):
        built = prepared.builder.build(recipe)
        assert all(len(fb.scales(t)) <= 1 for t in fb.parse(built.content).subgraphs[0].tensors)
        errors.append(sum(float(np.sum((v - expected[k]) ** 2)) for k, v in run(built.content, prepared).items()))
    assert errors[0] < errors[1]


def test_recipes_without_16_bits_are_the_same_whether_others_have_them() -> None:
    prepared = branches()
    plain, wide = (prepared.builder.blueprint(Recipe(), int16=int16) for int16 in (False, True))
    assert not plain.int16_nodes
    assert wide.int16_nodes
    for denied in ([], [0, 2], range(len(prepared.nodes))):
        ours, theirs = (blueprint.plan(list(denied)) for blueprint in (plain, wide))
        assert (ours.size_bytes, ours.kinds, len(ours.steps)) == (theirs.size_bytes, theirs.kinds, len(theirs.steps))
        assert forecasts.described(ours.graph) == forecasts.described(theirs.graph)


def test_a_given_integer_model_has_no_16_bit_twin() -> None:
    prepared = zoo.cnn().prepared
    kit = RepairKit(replace(prepared.calibrated, integer=b"given"))
    assert isinstance(kit.calibrated(()), CalibratedModel)
    with pytest.raises(BuildError, match="another quantizer"):
        int16_model(kit, Recipe())


def test_16_bit_ops_are_integers_between_8_bits_and_16_one_quantize_converts() -> None:
    prepared = zoo.cnn().prepared
    chosen = prepared.nodes[2].name
    built = prepared.builder.build(Recipe(int16_nodes=frozenset({chosen})))
    ops = [op for op in built.graph.ops if op.op_type not in fb.CONVERSIONS]
    assert [op.kind is OpKind.INT16 for op in ops].count(True) == 1
    inside = [op for op in built.graph.ops if op.op_type in fb.CONVERSIONS and op.kind is not OpKind.BOUNDARY]
    assert [op.op_type for op in inside] == ["QUANTIZE", "QUANTIZE"]
    shares = read_target("integer-only").shares
    assert shares is not None
    plain = prepared.builder.build(Recipe())
    cut, without = (fragmentation(one.graph, shares) for one in (built, plain))
    assert (cut.segments, cut.float_ops, cut.crossing_tensors) == (1, 0, 0)
    assert 0.0 == without.penalty < cut.penalty < 8.0
    assert all(op.kind in IN_INTEGERS | {OpKind.BOUNDARY} for op in built.graph.ops)


def test_16_bit_biases_are_corrected_in_int64() -> None:
    prepared = zoo.cnn().prepared
    built = prepared.builder.build(Recipe(int16_nodes=frozenset({"*"}), repairs=("bias",)))
    corrected = {name: shift for name, shift in built.shifts.items() if shift.reason is None}
    assert corrected
    assert all(shift.after < 0.01 <= shift.before for shift in corrected.values())
    dtypes = Counter(fb.TENSOR_DTYPES[t.type] for t in fb.parse(built.content).subgraphs[0].tensors)
    assert dtypes["int64"] >= len(corrected)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(int16_nodes=frozenset({"*"}))], ids=["8 bits", "16 bits"])
def test_what_writes_nothing_is_there_once(recipe: Recipe) -> None:
    """It has no name by which whole builds know it, and changes variables: twice is another model."""
    content = zoo.remembering()
    prepared = zoo.prepare(content)

    def silent(model: bytes) -> list[str]:
        return [op.op_type for op in reader.read_graph(fb.parse(model)).ops if not op.outputs]

    assert silent(prepared.builder.build(recipe).content) == silent(content) == ["CALL_ONCE", "ASSIGN_VARIABLE"]
    assert_forecast_and_run(prepared, Recipe(), count=4)


def test_a_model_of_variables_has_a_16_bit_build() -> None:
    """Of its ops one has no operand, and one no output."""
    prepared = zoo.prepare(zoo.remembering())
    assert len(prepared.builder.blueprint(Recipe(), int16=True).int16_nodes) > 0
    [said] = remarks(prepared)
    assert "CALL_ONCE" in said


# ------------------------------------------------------------------------------------------ real models


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("mobilenet_v1_025_imagenet/mobilenet_v1_025_224_float.tflite", id="MobileNetV1"),
        pytest.param("zoo/dtln/dtln_core1_float.tflite", id="denoiser"),
        pytest.param("zoo/face_landmark.tflite", id="face landmarks"),
    ],
)
def test_real_models_in_16_bits(path: str, real_data: Path) -> None:
    prepared = zoo.prepared_file(real_data / path)
    for base in (Recipe(), Recipe(per_channel=False, io_type="int8")):
        assert_forecast_and_run(prepared, base, count=5)
    assert remarks(prepared) == ()


def test_a_sum_to_a_scalar_is_a_scalar_in_16_bits() -> None:
    prepared = zoo.from_function(lambda x: tf().reduce_sum(tf().tanh(x)), (1, 8)).prepared
    wide = frozenset(node.name for node in prepared.nodes)
    candidate = prepared.builder.build(Recipe(int16_nodes=wide))
    assert "int16" in candidate.kinds.values()
    assert [value.shape for value in run(candidate.content, prepared).values()] == [()]
