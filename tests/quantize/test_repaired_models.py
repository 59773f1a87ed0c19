"""What a repaired model may differ in from its source, for any recipe; and what it is with samples of all kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import tf

from autoselect.domain.recipe import REPAIRS, Recipe
from autoselect.quantize.repairing import bias, input_means
from autoselect.tflite import editing, operands
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


@functools.cache
def chain() -> zoo.Prepared:
    """Pairs to equalize, a layer of each type, large enough to be hybrid; some with a bias, some without."""
    first, depthwise = zoo.weights(3, 3, 4, 32) * np.exp2(np.arange(32) % 9 - 4.0), zoo.weights(3, 3, 32, 1, seed=1)
    point, last = zoo.weights(1, 1, 32, 40, seed=2), zoo.weights(3, 3, 8, 40, seed=3)

    def call(x: Any) -> Any:
        x = tf().nn.relu(tf().nn.conv2d(x, first.astype(np.float32), 2, "SAME") + zoo.weights(32))
        x = tf().nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME")
        x = tf().nn.relu6(tf().nn.conv2d(x, point, 1, "VALID"))
        x = tf().nn.conv2d_transpose(x, last, (1, 8, 8, 8), 2) + zoo.weights(8)
        return tf().nn.tanh(tf().matmul(tf().reshape(x, (1, -1)), zoo.weights(512, 5, seed=4)))

    content = zoo.from_function(call, (1, 8, 8, 4)).float_model
    return zoo.prepare(content, zoo.random_samples(content, 6))


@functools.cache
def shared_weights() -> zoo.Prepared:
    return zoo.shared_weights().prepared


MODELS = {"chain": chain, "shared weights": shared_weights, "CNN": lambda: zoo.cnn().prepared}

RANGED = frozenset({"scales of activations", "biases"})
ALLOWED: dict[str, frozenset[str]] = {
    "bias": frozenset({"biases", "hybrid biases"}),
    "bias-sequential": frozenset({"biases", "hybrid biases"}),
    "weights-mse": frozenset({"weights", "biases"}),
    "rounding-gptq": frozenset({"weights"}),
    "equalization": RANGED | {"weights", "hybrid weights", "hybrid biases", "float constants"},
    **{name: frozenset({"weights", "hybrid weights", "biases"}) for name in REPAIRS if name.startswith("levels-")},
    **{name: RANGED for name in REPAIRS if name.startswith("ranges-")},
}
"""What each repair may change; all that is not named here nor in the parts below is to be equal."""


def parts(content: bytes) -> dict[str, list[Any]]:
    """A model taken to pieces, op by op. Operands are written with their scales, the names of activations in full."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    found: dict[str, list[Any]] = {key: [] for key in {"ops", *set().union(*ALLOWED.values()), "constants"}}
    interface = [tensor for row in (graph.inputs, graph.outputs) for tensor in row]
    found["ops"].append([_written(graph.tensors[i]) for i in interface])
    for op in graph.operators:
        name, kind = fb.op_type(model, op), operands.WEIGHTED.get(fb.op_type(model, op))
        found["ops"].append((name, vars(op.builtinOptions) if op.builtinOptions else None))
        for index in op.outputs:
            found["ops"].append(_written(graph.tensors[index]))
            found["scales of activations"].append(_parameters(graph.tensors[index]))
        for position, index in enumerate(op.inputs):
            if index < 0 or (kind is not None and position == kind.bias):
                continue
            tensor = graph.tensors[index]
            is_constant = fb.is_constant(model, tensor)
            found["ops"].append((tensor.type, fb.shape_of(tensor)) if is_constant else _written(tensor))
            if is_constant:
                found[_slot(model, op, position)].append((_data(model, tensor), _parameters(tensor)))
        if kind is not None and kind.bias < len(op.inputs) and op.inputs[kind.bias] >= 0:
            tensor = graph.tensors[op.inputs[kind.bias]]
            found[_slot(model, op, kind.bias)].append((tensor.type, fb.shape_of(tensor), _data(model, tensor)))
    return found


def _written(tensor: Any) -> tuple[Any, ...]:
    return tensor.name, tensor.type, fb.shape_of(tensor)


def _parameters(tensor: Any) -> tuple[Any, ...]:
    quantization = tensor.quantization
    points = () if quantization is None or quantization.zeroPoint is None else tuple(quantization.zeroPoint)
    return fb.scales(tensor), points


def _data(model: Any, tensor: Any) -> bytes:
    return fb.buffer_bytes(model.buffers[tensor.buffer])


def _slot(model: Any, op: Any, position: int) -> str:
    """Which of the parts a constant belongs to."""
    kind, tensors = operands.WEIGHTED.get(fb.op_type(model, op)), model.subgraphs[0].tensors
    if kind is None or position not in (1, kind.bias):
        return "constants"
    if tensors[op.inputs[1]].type != schema.TensorType.INT8:
        return "float constants"
    is_hybrid = tensors[op.inputs[kind.activation]].type == schema.TensorType.FLOAT32
    return ("hybrid " if is_hybrid else "") + ("weights" if position == 1 else "biases")


def one_of(word: str) -> st.SearchStrategy[tuple[str, ...]]:
    """No repair of a kind, or one."""
    return st.sampled_from([(), *((name,) for name in REPAIRS if name.startswith(word))])


REPAIRED = st.tuples(
    *(one_of(word) for word in ("bias", "equalization", "levels", "ranges", "rounding", "weights"))
).map(lambda chosen: tuple(name for names in chosen for name in names))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data(), name=st.sampled_from(sorted(MODELS)), repairs=REPAIRED.filter(bool))
def test_a_repaired_model_differs_from_its_source_only_where_its_repairs_may(
    data: st.DataObject, name: str, repairs: tuple[str, ...]
) -> None:
    prepared = MODELS[name]()
    source = Recipe(
        denylisted_nodes=frozenset(data.draw(st.sets(st.sampled_from([n.name for n in prepared.nodes]), max_size=3))),
        fallback=data.draw(st.sampled_from(["drq", "float"])),
        per_channel=data.draw(st.booleans()),
        io_type=data.draw(st.sampled_from(["float32", "int8"])),
    )
    plain, repaired = prepared.builder.build(source), prepared.builder.build(replace(source, repairs=repairs))
    before, after = parts(plain.content), parts(repaired.content)
    allowed = frozenset[str]().union(*(ALLOWED[name] for name in repairs))
    assert [key for key in before if before[key] != after[key] and key not in allowed] == []
    assert (plain.kinds, plain.fallbacks) == (repaired.kinds, repaired.fallbacks)
    # Biases that were there but once, or not at all, and constants that no longer are equal, with their padding.
    new = sum(len(row[2]) for key in ("biases", "hybrid biases") for row in after[key])
    old = sum(len(row[0]) for key in ("weights", "hybrid weights") for row in before[key]) if "shared" in name else 0
    assert abs(len(repaired.content) - len(plain.content)) <= new + old + 256 * len(repaired.graph.ops)


CHANGED = {
    "bias": {"biases", "hybrid biases"},
    "bias-sequential": {"biases", "hybrid biases"},
    "weights-mse": {"weights"},
    "rounding-gptq": {"weights"},
    "levels-6": {"weights", "hybrid weights", "biases"},
    "equalization": {"scales of activations", "biases", "weights"},
    "ranges-moving-average": {"scales of activations"},
}
"""With the last layer hybrid, which has no bias and no pair. The other choices of ranges are those of calibration here:
the samples are few, and no op works in place."""


@pytest.mark.parametrize(("repair", "changed"), CHANGED.items(), ids=CHANGED)
def test_each_repair_changes_what_it_is_there_for(repair: str, changed: set[str]) -> None:
    """So the law above is not kept by doing nothing."""
    recipe = Recipe(denylisted_ops=frozenset({"FULLY_CONNECTED"}), per_channel=False)
    plain, repaired = (chain().builder.build(replace(recipe, repairs=names)) for names in ((), (repair,)))
    assert sorted(set(plain.kinds.values())) == ["hybrid", "integer"]
    before, after = parts(plain.content), parts(repaired.content)
    assert changed <= {key for key in before if before[key] != after[key]} <= ALLOWED[repair]


# ------------------------------------------------------------------------------------------------- bad samples


@functools.cache
def two_layers(name: str) -> zoo.Prepared:
    """Two layers that equalization scales, calibrated on samples of a kind."""
    uneven = np.exp2(np.arange(16) - 8.0).astype(np.float32)
    first, second = zoo.weights(3, 3, 3, 16) * uneven, zoo.weights(1, 1, 16, 8, seed=1) / uneven[:, None]

    def call(x: Any) -> Any:
        return tf().nn.conv2d(tf().nn.relu(tf().nn.conv2d(x, first, 1, "SAME")), second, 1, "SAME")

    content = zoo.from_function(call, (1, 6, 6, 3)).float_model
    return zoo.prepare(content, SAMPLES[name](zoo.random_samples(content)))


def with_nan(samples: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    samples[1][0][0, 2, 2, 1] = np.nan
    return samples


def filled(value: float) -> Callable[[list[list[np.ndarray]]], list[list[np.ndarray]]]:
    return lambda samples: [[np.full_like(array, value) for array in sample] for sample in samples]


SAMPLES: dict[str, Callable[[list[list[np.ndarray]]], list[list[np.ndarray]]]] = {
    "zeros": filled(0.0),
    "the same everywhere": filled(2.0),
    "subnormal": filled(1e-40),
    "a NaN": with_nan,
}


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("name", SAMPLES)
def test_no_samples_make_a_broken_model(name: str, repair: str) -> None:
    prepared = two_layers(name)
    plain, repaired = (prepared.builder.build(Recipe(repairs=repairs)) for repairs in ((), (repair,)))
    assert parts(plain.content)["ops"] == parts(repaired.content)["ops"]
    assert set(repaired.kinds.values()) == {"integer"}
    [output] = Runner(repaired.content)(prepared.fed()[0]).values()
    assert np.isfinite(output).all()


NAN_REASONS = {
    "bias": (("bias",), "the mean of its input is not a number"),
    "bias-sequential": (("bias-sequential",), "the mean of its input is not a number"),
    "equalization": (("equalization",), "not a finite number"),
    "ranges": (("ranges-mse",), "not a finite number"),
}


@pytest.mark.parametrize(("repairs", "reason"), NAN_REASONS.values(), ids=NAN_REASONS)
def test_what_a_nan_keeps_from_being_repaired_says_so_and_is_as_it_was(repairs: tuple[str, ...], reason: str) -> None:
    prepared = two_layers("a NaN")
    repaired = prepared.builder.build(Recipe(repairs=repairs))
    first, second = (node.name for node in prepared.nodes)
    reasons = [
        repaired.shifts[n].reason if repaired.shifts else repaired.skipped[n][repairs[0]] for n in (first, second)
    ]
    assert reason in reasons[0]
    assert reason in reasons[1] or "output of the model" in reasons[1]
    plain = prepared.builder.build(Recipe())
    assert parts(plain.content) == parts(repaired.content)


# ------------------------------------------------------------------------------------------------- reasons

REASONS = {
    "bias": (Recipe(repairs=("bias",)), {"TANH": "TANH is no op whose bias is corrected"}),
    "float": (
        Recipe(repairs=("bias",), denylisted_ops=frozenset({"CONV_2D"}), fallback="float"),
        {"CONV_2D": "it is float, so no weights of it are rounded"},
    ),
    "equalization": (
        Recipe(repairs=("equalization",)),
        {"FULLY_CONNECTED": "TANH follows it", "TRANSPOSE_CONV": "RESHAPE follows it"},
    ),
    "weights": (
        Recipe(repairs=("weights-mse",), denylisted_ops=frozenset({"FULLY_CONNECTED"})),
        {"FULLY_CONNECTED": "it is hybrid"},
    ),
    "rounding": (
        Recipe(repairs=("rounding-gptq",), denylisted_ops=frozenset({"FULLY_CONNECTED"})),
        {"FULLY_CONNECTED": "it is hybrid"},
    ),
}


@pytest.mark.parametrize(("recipe", "expected"), REASONS.values(), ids=REASONS)
def test_a_node_that_is_left_alone_has_the_reason(recipe: Recipe, expected: dict[str, str]) -> None:
    built = chain().builder.build(recipe)
    [repair] = recipe.repairs
    for node in chain().nodes:
        shift = built.shifts.get(node.name)
        found = built.skipped[node.name].get(repair) if shift is None else shift.reason
        if node.op_type in expected:
            assert found == expected[node.op_type]


def test_every_node_is_corrected_or_has_a_reason() -> None:
    for recipe in (Recipe(), Recipe(denylisted_nodes=frozenset({"*"}))):
        built = chain().builder.build(replace(recipe, repairs=("bias",)))
        assert set(built.shifts) == {node.name for node in chain().nodes}
        assert chain().builder.build(recipe).shifts == {}


def test_layers_whose_shapes_are_not_the_files_are_not_measured() -> None:
    """A file may leave the shape of what an op writes to the runtime."""
    prepared = two_layers("the same everywhere")
    model = fb.parse(prepared.calibrated.content)
    model.subgraphs[0].tensors[model.subgraphs[0].operators[-1].outputs[0]].shape = np.array([1, 1, 1, 8])
    assert len(input_means.measure_means(prepared.calibrated.file, prepared.fed())) == 2
    assert len(input_means.measure_means(TfliteFile(model=model), prepared.fed())) == 1


BIASES = {"to the limit": (10, None), "beyond it": (11, "does not fit int32")}


@pytest.mark.parametrize(("steps", "reason"), BIASES.values(), ids=BIASES)
def test_a_bias_leaves_room_for_the_products(steps: int, reason: str | None) -> None:
    """An input is at most 255 levels from its zero point."""
    model = fb.parse(shared_weights().builder.build(Recipe()).content)
    op = next(op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "FULLY_CONNECTED")
    tensor, weights = (model.subgraphs[0].tensors[op.inputs[place]] for place in (2, 1))
    products = 255 * np.abs(fb.constant_values(model, weights).astype(np.int64)).sum(axis=1)
    before = (2**31 - 1 - products - 10).astype(np.int32)
    tensor.buffer = editing.add_buffer(model, before)
    found = bias.apply_shift(model, op, steps * np.array(fb.scales(tensor)))
    assert (found.reason is None) if reason is None else (reason in str(found.reason))
    expected = before + (steps if reason is None else 0)
    assert fb.constant_values(model, tensor).tolist() == expected.tolist()


def test_bias_correction_in_sequence_feeds_each_input_by_its_key() -> None:
    """Two inputs of one shape, whose names in the file differ from their keys."""

    def call(x0: Any, x1: Any) -> Any:
        layers = [tf().nn.relu(tf().matmul(x, zoo.weights(8, 8, seed=i))) for i, x in enumerate((x1, x0))]
        return tf().matmul(layers[0], zoo.weights(8, 6, seed=2)) + tf().matmul(layers[1], zoo.weights(8, 6, seed=3))

    content = zoo.from_function(call, (1, 8), (1, 8)).float_model
    samples = [[array + 2.0 * i for i, array in enumerate(sample)] for sample in zoo.random_samples(content, 8)]
    prepared = zoo.prepare(content, samples)
    plain, repaired = (prepared.builder.build(Recipe(repairs=names)).content for names in ((), ("bias-sequential",)))
    assert mean_error(prepared, repaired) < 0.8 * mean_error(prepared, plain)


def mean_error(prepared: zoo.Prepared, content: bytes) -> float:
    """Distance of the mean outputs over the calibration samples."""
    ours, theirs = Runner(content), Runner(prepared.calibrated.content)
    differences = [next(iter(ours(s).values())) - next(iter(theirs(s).values())) for s in prepared.fed()]
    return float(np.linalg.norm(np.mean(differences, axis=0)))
