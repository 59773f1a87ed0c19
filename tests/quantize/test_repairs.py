"""Repairs of really built models: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from zoo import tf

from autoselect.domain.recipe import REPAIRS, Recipe
from autoselect.errors import BuildError
from autoselect.quantize.building.build import Builder, Candidate
from autoselect.quantize.building.wholes import make_wholes
from autoselect.quantize.repairing import bias, weight_scales
from autoselect.quantize.repairing.built import Built, Shift
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import editing, operands
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


@functools.cache
def biased() -> zoo.Prepared:
    """Weighted ops of all types on inputs whose mean is far from 0, with and without a bias."""
    depthwise, last = zoo.weights(3, 3, 32, 1, seed=1), zoo.weights(3, 3, 8, 16, seed=3)

    def call(x: Any) -> Any:
        a = tf().nn.relu(tf().nn.conv2d(x, zoo.weights(3, 3, 3, 32), 2, "SAME") + zoo.weights(32))
        b = tf().nn.relu6(tf().nn.depthwise_conv2d(a, depthwise, [1, 1, 1, 1], "SAME") + 1.0)
        c = tf().nn.conv2d(b, zoo.weights(1, 1, 32, 16, seed=2), 1, "VALID")
        d = tf().nn.conv2d_transpose(c, last, (1, 8, 8, 8), 2)
        return tf().matmul(tf().reshape(d, (1, -1)), zoo.weights(512, 5, seed=4))

    return skewed(zoo.from_function(call, (1, 8, 8, 3)).float_model)


def skewed(content: bytes) -> zoo.Prepared:
    samples = [[array + 2.0 for array in sample] for sample in zoo.random_samples(content, 8)]
    return zoo.prepare(content, samples)


@functools.cache
def shared_weights() -> zoo.Prepared:
    return skewed(zoo.shared_weights().float_model)


MODELS = {"all types": biased, "shared weights": shared_weights, "CNN": lambda: zoo.cnn().prepared}
RECIPES = {
    "all-integer": Recipe(),
    "per tensor": Recipe(per_channel=False),
    "integer interface": Recipe(io_type="int8"),
    "all left out": Recipe(denylisted_nodes=frozenset({"*"})),
    "mixed": Recipe(denylisted_nodes=frozenset({"*1*"})),
}


def structure(candidate: Candidate, *, with_bias: bool) -> list[Any]:
    """Ops in order, and of each tensor name, type, shape, scales and zero points; biases on demand."""
    model = fb.parse(candidate.content)
    graph = model.subgraphs[0]
    rows: list[Any] = []
    for op in graph.operators:
        kind = operands.WEIGHTED.get(fb.op_type(model, op))
        inputs = [i for p, i in enumerate(op.inputs) if with_bias or kind is None or p != kind.bias]
        tensors = [graph.tensors[i] for i in (*inputs, *op.outputs) if i >= 0]
        rows.append((fb.op_type(model, op), [_described(model, t) for t in tensors]))
    return rows


def _described(model: Any, tensor: Any) -> tuple[Any, ...]:
    quantization = tensor.quantization
    points = () if quantization is None or quantization.zeroPoint is None else tuple(quantization.zeroPoint)
    return tensor.name, tensor.type, fb.shape_of(tensor), fb.scales(tensor), points


def data_of(candidate: Candidate, *, of_bias: bool) -> list[bytes]:
    """The data of all biases, or of all other constants."""
    model = fb.parse(candidate.content)
    graph, found = model.subgraphs[0], []
    for op in graph.operators:
        kind = operands.WEIGHTED.get(fb.op_type(model, op))
        for position, index in enumerate(op.inputs):
            if index >= 0 and (kind is not None and position == kind.bias) is of_bias:
                found.append(fb.buffer_bytes(model.buffers[graph.tensors[index].buffer]))
    return found


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("repair", ["bias", "bias-sequential"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_bias_correction_changes_biases_and_nothing_else(
    make: Callable[[], zoo.Prepared], repair: str, recipe: Recipe
) -> None:
    builder = make().builder
    plain, repaired = builder.build(recipe), builder.build(replace(recipe, repairs=(repair,)))
    assert structure(plain, with_bias=False) == structure(repaired, with_bias=False)
    assert data_of(plain, of_bias=False) == data_of(repaired, of_bias=False)
    assert data_of(plain, of_bias=True) != data_of(repaired, of_bias=True)
    assert plain.kinds == repaired.kinds


@pytest.mark.slow
def test_sizes_are_equal_to_within_padding_where_every_node_has_a_bias_of_its_own() -> None:
    builder = zoo.mobilenet_v3_small().prepared.builder
    plain, repaired = builder.build(Recipe()), builder.build(Recipe(repairs=("bias",)))
    assert structure(plain, with_bias=True) == structure(repaired, with_bias=True)
    # Biases of zeros shared a buffer before.
    shared = len(data_of(plain, of_bias=True)) - len(set(data_of(plain, of_bias=True)))
    assert shared > 0 or len(plain.content) == len(repaired.content)
    assert 0 <= len(repaired.content) - len(plain.content) <= sum(map(len, data_of(plain, of_bias=True))) + 64 * shared


SINGLE = {
    "convolution": lambda x: tf().nn.conv2d(x, zoo.weights(3, 3, 16, 16), 2, "SAME"),
    "depthwise": lambda x: tf().nn.depthwise_conv2d(x, zoo.weights(3, 3, 16, 8), [1, 1, 1, 1], "SAME"),
    "transposed": lambda x: tf().nn.conv2d_transpose(x, zoo.weights(3, 3, 8, 16), (1, 16, 16, 8), 2),
    "dense": lambda x: tf().matmul(tf().reshape(x, (64, 16)), zoo.weights(16, 80)),
    "dilated": lambda x: tf().nn.conv2d(x, zoo.weights(3, 3, 16, 16), 1, "SAME", dilations=2),
    "dilated depthwise": lambda x: tf().nn.depthwise_conv2d(
        x, zoo.weights(3, 3, 16, 8), [1, 1, 1, 1], "VALID", dilations=[2, 2]
    ),
    "grouped": lambda x: tf().nn.conv2d(x, zoo.weights(3, 3, 4, 32), 1, "SAME"),
    "dense that keeps dimensions": lambda x: tf().tensordot(x, zoo.weights(16, 80), 1),
}


@functools.cache
def single(name: str) -> zoo.Prepared:
    """One layer without a bias."""
    return skewed(zoo.from_function(SINGLE[name], (1, 8, 8, 16)).float_model)


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["all integer", "half left out"])
@pytest.mark.parametrize("name", ["all types", *SINGLE])
def test_biases_corrected_in_sequence_take_the_bytes_that_are_forecast(name: str, share: float) -> None:
    prepared = biased() if name == "all types" else single(name)
    nodes = [node.name for node in prepared.nodes]
    left_out = frozenset(nodes[: round(share * len(nodes))])
    one_by_one, in_sequence = (Recipe(denylisted_nodes=left_out, repairs=(r,)) for r in ("bias", "bias-sequential"))
    built = prepared.builder.build(in_sequence)
    assert len(built.content) == prepared.builder.blueprint(one_by_one).plan(range(len(left_out))).size_bytes
    names = {bytes(tensor.name) for tensor in fb.parse(built.content).subgraphs[0].tensors}
    parsed = fb.parse(prepared.builder.build(one_by_one).content)
    assert names == {bytes(tensor.name) for tensor in parsed.subgraphs[0].tensors}
    assert not any(name.startswith(b"op_0") for name in names)


CORRECTED = {
    "per channel": Recipe(repairs=("bias",)),
    "per tensor": Recipe(per_channel=False, repairs=("bias",)),
    "in sequence": Recipe(repairs=("bias-sequential",)),
    "hybrid": Recipe(denylisted_nodes=frozenset({"*"}), repairs=("bias",)),
}


@pytest.mark.parametrize("recipe", CORRECTED.values(), ids=CORRECTED)
@pytest.mark.parametrize("name", SINGLE)
def test_the_mean_output_of_a_layer_comes_nearer_to_float(name: str, recipe: Recipe) -> None:
    prepared = single(name)
    plain = prepared.builder.build(replace(recipe, repairs=()))
    repaired = prepared.builder.build(recipe)
    assert set(plain.kinds.values()) & {"hybrid"} == ({"hybrid"} if recipe.denylisted_nodes else set())
    assert mean_error(prepared, repaired.content) < 0.5 * mean_error(prepared, plain.content)


def mean_error(prepared: zoo.Prepared, content: bytes) -> float:
    """Distance of the mean outputs by channel over the calibration samples."""
    ours, theirs = Runner(content), Runner(prepared.calibrated.content)
    differences = [next(iter(ours(s).values())) - next(iter(theirs(s).values())) for s in prepared.fed()]
    channels = differences[0].shape[-1]
    return float(np.linalg.norm(np.mean([d.reshape(-1, channels).mean(axis=0) for d in differences], axis=0)))


def test_what_is_left_of_a_shift_is_less_than_what_was_there() -> None:
    shifts = corrected(biased().builder.build(Recipe(repairs=("bias",))))
    assert len(shifts) == 5
    assert max(shift.before for shift in shifts) > 0.1
    # Half a step of the bias, which is far finer than one of the output.
    assert all(shift.after < 0.05 for shift in shifts)


def corrected(candidate: Candidate) -> list[Shift]:
    return [shift for shift in candidate.shifts.values() if shift.reason is None]


def test_every_op_has_a_bias_afterwards() -> None:
    built = biased().builder.build(Recipe(repairs=("bias",)))
    model = fb.parse(built.content)
    weighted = [op for op in model.subgraphs[0].operators if fb.op_type(model, op) in operands.WEIGHTED]
    positions = [operands.WEIGHTED[fb.op_type(model, op)].bias for op in weighted]
    assert [len(op.inputs) > p and op.inputs[p] >= 0 for op, p in zip(weighted, positions, strict=True)] == [True] * 5


def test_layers_that_share_a_bias_are_corrected_each_for_itself() -> None:
    prepared = shared_weights()
    plain = data_of(prepared.builder.build(Recipe(per_channel=False)), of_bias=True)
    repaired = prepared.builder.build(Recipe(per_channel=False, repairs=("bias",)))
    assert len(set(data_of(repaired, of_bias=True))) == len(plain) == 3
    assert [shift.after < 0.05 for shift in corrected(repaired)] == [True] * 3


ALL_KINDS = [
    pytest.param(("bias",), id="bias"),
    pytest.param(("bias-sequential", "equalization", "ranges-mse", "rounding-gptq", "weights-mse"), id="all"),
    pytest.param(("bias", "ranges-mse", "ranges-observed:*"), id="ranges of nodes"),
]


@pytest.mark.parametrize("repairs", ALL_KINDS)
def test_a_replay_gives_the_same_bytes_whether_its_evidence_was_kept_or_not(repairs: tuple[str, ...]) -> None:
    prepared, kept = biased(), {}

    def keep(name: str, make: Callable[[], bytes]) -> bytes:
        return kept.setdefault(name, kept[name] if name in kept else make())

    recipe = Recipe(repairs=repairs)
    built = [
        Builder(prepared.calibrated, prepared.nodes, kit).build(Recipe.from_json(recipe.to_json())).content
        for kit in (
            RepairKit(prepared.calibrated, prepared.fed, keep),
            RepairKit(prepared.calibrated, prepared.fed, keep),
            prepared.kit,
        )
    ]
    assert built[0] == built[1] == built[2]


def test_repairs_without_samples_are_refused() -> None:
    prepared = biased()
    builder = Builder(prepared.calibrated, prepared.nodes)
    builder.build(Recipe())
    with pytest.raises(BuildError, match="calibration samples"):
        builder.build(Recipe(repairs=("bias",)))


@pytest.mark.parametrize("name", REPAIRS)
def test_every_repair_gives_a_model_that_runs_with_no_float_op(name: str) -> None:
    prepared = biased()
    built = prepared.builder.build(Recipe(repairs=(name,)))
    assert set(built.kinds.values()) == {"integer"}
    [output] = Runner(built.content)(prepared.fed()[0]).values()
    assert np.isfinite(output).all()


# ------------------------------------------------------------------------------------------------- bad input


def assembled(prepared: zoo.Prepared) -> tuple[Built, Any]:
    return make_wholes(prepared.kit, Recipe()).integer, fb.parse(prepared.calibrated.content)


def first_weighted(assembly: Built) -> Any:
    ops = assembly.model.subgraphs[0].operators
    return next(op for op in ops if fb.op_type(assembly.model, op) == "CONV_2D")


def nan_means(_assembly: Built, _float_model: Any, means: dict[int, np.ndarray]) -> None:
    index = min(means)
    means[index] = np.full_like(means[index], np.nan)


def no_means(_assembly: Built, _float_model: Any, means: dict[int, np.ndarray]) -> None:
    del means[min(means)]


def zero_scale(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    op = first_weighted(assembly)
    quantization = assembly.model.subgraphs[0].tensors[op.inputs[1]].quantization
    quantization.scale = np.zeros_like(quantization.scale)


def full_bias(assembly: Built, _float_model: Any, means: dict[int, np.ndarray]) -> None:
    model, op = assembly.model, first_weighted(assembly)
    tensor = model.subgraphs[0].tensors[op.inputs[2]]
    tensor.buffer = editing.add_buffer(model, np.full(32, np.iinfo(np.int32).max, dtype=np.int32))
    means[min(means)] = means[min(means)] * 1e6


def computed_bias(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    first_weighted(assembly).inputs[2] = first_weighted(assembly).outputs[0]


def constant_input(_assembly: Built, float_model: Any, _means: dict[int, np.ndarray]) -> None:
    op = next(op for op in float_model.subgraphs[0].operators if fb.op_type(float_model, op) == "CONV_2D")
    float_model.subgraphs[0].tensors[op.inputs[0]].buffer = editing.add_buffer(
        float_model, np.zeros((1, 8, 8, 3), "f4")
    )


def computed_weights(assembly: Built, float_model: Any, _means: dict[int, np.ndarray]) -> None:
    for model in (assembly.model, float_model):
        op = next(op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "CONV_2D")
        model.subgraphs[0].tensors[op.inputs[1]].buffer = 0


def other_weights(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    tensor = assembly.model.subgraphs[0].tensors[first_weighted(assembly).inputs[1]]
    tensor.shape = np.array([32, 27, 1, 1], dtype=np.int32)


def wide_bias(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    model, op = assembly.model, first_weighted(assembly)
    tensor = model.subgraphs[0].tensors[op.inputs[2]]
    tensor.type, tensor.buffer = schema.TensorType.INT64, editing.add_buffer(model, np.zeros(32, dtype=np.int64))


BAD = {
    "mean is NaN": (nan_means, "not a number"),
    "mean not measured": (no_means, "not measured"),
    "scale is zero": (zero_scale, "zero or no number"),
    "int32 overflows": (full_bias, "does not fit int32"),
    "bias is computed": (computed_bias, "not a constant"),
    "weights are computed": (computed_weights, "not constants"),
    "input is a constant": (constant_input, "its input is a constant"),
    "weights are of another shape": (other_weights, "not constants"),
    "bias is int64": (wide_bias, "of type int64"),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD.values(), ids=BAD)
def test_what_cannot_be_corrected_is_left_as_it_was_with_the_reason(
    spoil: Callable[[Built, Any, dict[int, np.ndarray]], None], reason: str
) -> None:
    prepared = biased()
    assembly, float_model = assembled(prepared)
    means = dict(prepared.kit.means(("bias",)))
    spoil(assembly, float_model, means)
    op = first_weighted(assembly)
    before = list(op.inputs), assembly.model.subgraphs[0].tensors[op.inputs[2]].buffer
    shifts = bias.correct(assembly.model, float_model, assembly.places, means)
    skipped = shifts[min(prepared.kit.means(("bias",)))]
    assert skipped.reason is not None
    assert reason in skipped.reason
    assert (list(op.inputs), assembly.model.subgraphs[0].tensors[op.inputs[2]].buffer) == before
    assert [s.reason for s in shifts.values()].count(None) == 4


def nan_weights(_assembly: Built, float_model: Any, _means: dict[int, np.ndarray]) -> None:
    op = next(op for op in float_model.subgraphs[0].operators if fb.op_type(float_model, op) == "CONV_2D")
    tensor = float_model.subgraphs[0].tensors[op.inputs[1]]
    values = fb.constant_values(float_model, tensor).copy()
    values[0, 0, 0, 0] = np.nan
    tensor.buffer = editing.add_buffer(float_model, values)


def no_input_scale(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    tensors = assembly.model.subgraphs[0].tensors
    tensors[first_weighted(assembly).inputs[0]].quantization.scale = np.array([np.inf], dtype=np.float32)


def full_coarse_bias(assembly: Built, _float_model: Any, _means: dict[int, np.ndarray]) -> None:
    """Twice as much at the scale of the products."""
    full_bias(assembly, _float_model, {0: np.zeros(1)})
    quantization = assembly.model.subgraphs[0].tensors[first_weighted(assembly).inputs[2]].quantization
    quantization.scale = np.array(quantization.scale) * np.float32(2.0)


BAD_TO_REROUND = {
    **{key: row for key, row in BAD.items() if not key.startswith(("mean", "int32", "bias is int64"))},
    "a weight is NaN": (nan_weights, "not a finite number"),
    "scale of the input is infinite": (no_input_scale, "zero or no number"),
    "int32 overflows": (full_coarse_bias, "does not fit int32"),
    "bias is int64": (wide_bias, "does not fit int32"),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD_TO_REROUND.values(), ids=BAD_TO_REROUND)
def test_weights_that_cannot_have_other_scales_keep_theirs_with_the_reason(
    spoil: Callable[[Built, Any, dict[int, np.ndarray]], None], reason: str
) -> None:
    assembly, float_model = assembled(biased())
    spoil(assembly, float_model, {})
    tensors, op = assembly.model.subgraphs[0].tensors, first_weighted(assembly)
    before = [(tensors[i].buffer, _described(assembly.model, tensors[i])) for i in op.inputs]
    skipped = weight_scales.reround(assembly.model, float_model, assembly.places)
    assert [reason in why for why in skipped.values()] == [True]
    assert [(tensors[i].buffer, _described(assembly.model, tensors[i])) for i in op.inputs] == before


def test_constant_inputs_and_unused_channels_are_corrected_exactly() -> None:
    """On an input that is the same everywhere nothing is left but rounding; channels of zeros get nothing."""
    matrix = zoo.weights(32, 8)
    matrix[:, 3] = 0.0

    def call(x: Any) -> Any:
        return tf().matmul(x, matrix) + zoo.weights(8, seed=1)

    content = zoo.from_function(call, (1, 32)).float_model
    prepared = zoo.prepare(content, [[np.full((1, 32), 1.5, dtype=np.float32)]] * 2)
    plain = fb.parse(prepared.builder.build(Recipe()).content)
    built = prepared.builder.build(Recipe(repairs=("bias",)))
    [shift] = corrected(built)
    assert shift.after < 0.05
    levels = [_bias_levels(model) for model in (plain, fb.parse(built.content))]
    assert levels[0][3] == levels[1][3]


def _bias_levels(model: Any) -> np.ndarray:
    op = next(op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "FULLY_CONNECTED")
    return fb.constant_values(model, model.subgraphs[0].tensors[op.inputs[2]])


def test_ops_of_other_subgraphs_are_left_alone() -> None:
    prepared = biased()
    assembly, float_model = assembled(prepared)
    twin = fb.parse(prepared.calibrated.content).subgraphs[0]
    float_model.subgraphs.append(twin)
    shifts = bias.correct(assembly.model, float_model, assembly.places, prepared.kit.means(("bias",)))
    assert len(shifts) == 5


@functools.cache
def some_rows() -> zoo.Prepared:
    """A layer on as many rows of a table as values of the input are above zero."""

    def call(x: Any) -> Any:
        chosen = tf().cast(tf().where(x[0] > 0.0)[:, 0], tf().int32)
        y = tf().nn.relu(tf().matmul(tf().gather(tf().constant(zoo.weights(16, 8)), chosen), zoo.weights(8, 8)))
        return tf().reduce_max(y, axis=0, keepdims=True) + tf().matmul(x, zoo.weights(16, 8, seed=1))

    content = zoo.from_function(call, (1, 16)).float_model
    return zoo.prepare(content, zoo.random_samples(content, 8))


@pytest.mark.parametrize("repair", ["bias", "bias-sequential"])
def test_a_layer_whose_rows_depend_on_the_sample_keeps_its_bias(repair: str) -> None:
    candidate = some_rows().builder.build(Recipe(repairs=(repair,)))
    reasons = {shift.reason for shift in candidate.shifts.values()}
    assert None in reasons
    assert any("not measured" in reason for reason in reasons if reason)
