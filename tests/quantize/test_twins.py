"""The parts of a node's error against the same by NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zoo

from autoselect.domain.findings import ErrorParts
from autoselect.domain.recipe import Recipe
from autoselect.quantize.diagnosing.twins import error_parts
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


def measured(prepared: zoo.Prepared, recipe: Recipe) -> tuple[dict[str, ErrorParts], bytes, dict[int, int]]:
    built = prepared.builder.build(recipe)
    places = dict(built.places)
    # Without the first sample, which only calibrates.
    found = error_parts(prepared.calibrated.file, TfliteFile(built.content), places, prepared.nodes, prepared.fed()[1:])
    return found, built.content, places


def levels(tensor: fb.Tensor, values: np.ndarray) -> np.ndarray:
    (scale,), (zero_point,) = fb.scales(tensor), fb.zero_points_of(tensor)
    found: np.ndarray = (np.clip(np.rint(values / scale) + zero_point, -128, 127) - zero_point) * scale
    return found


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_parts_of_a_dense_layer(per_channel: bool) -> None:
    prepared = zoo.cnn().prepared
    found, content, places = measured(prepared, Recipe(per_channel=per_channel))
    (node,) = (n for n in prepared.nodes if n.op_type == "FULLY_CONNECTED")
    model, built = fb.parse(prepared.calibrated.content), fb.parse(content)
    op, twin = (
        graph.operators[at]
        for graph, at in ((model.subgraphs[0], node.index), (built.subgraphs[0], places[node.index]))
    )
    tensors, quantized = model.subgraphs[0].tensors, built.subgraphs[0].tensors
    weights = fb.constant_values(model, tensors[op.inputs[1]]).astype(np.float64)
    scales = np.array(fb.scales(quantized[twin.inputs[1]]))[:, None]
    rounded = fb.constant_values(built, quantized[twin.inputs[1]]) * scales

    runner, errors, outputs = Runner(prepared.calibrated.content, preserve_all_tensors=True), [], []
    for sample in prepared.fed()[1:]:
        runner(sample)
        x, y = (runner.tensor(i).astype(np.float64).ravel() for i in (op.inputs[0], op.outputs[0]))
        through = levels(quantized[twin.outputs[0]], weights @ levels(quantized[twin.inputs[0]], x) + y - weights @ x)
        errors.append(((rounded - weights) @ x, through - y))
        outputs.append(y)
    signal = np.square(outputs).sum()
    of_weights, of_activations = (np.array(column) for column in zip(*errors, strict=True))
    parts = found[node.name]
    assert parts.weights == pytest.approx(np.square(of_weights).sum() / signal, rel=1e-3)
    assert parts.shift == pytest.approx(np.square(of_weights.sum(axis=0)).sum() / len(errors) / signal, rel=1e-3)
    # A value at the border of two levels may fall to either.
    assert parts.activations == pytest.approx(np.square(of_activations).sum() / signal, rel=0.05)
    assert parts.narrowed <= parts.activations


def test_a_range_of_far_values_is_told_from_coarse_steps() -> None:
    import tensorflow as tf

    matrix = np.eye(64, dtype=np.float32)
    source = zoo.from_function(lambda x: tf.nn.relu(tf.matmul(x, matrix)), (1, 64))
    rng = np.random.default_rng(0)
    shares = {}
    for name, far in {"far": 20.0, "none": 1.0}.items():
        samples = [[rng.uniform(-1.0, 1.0, (1, 64)).astype(np.float32)] for _ in range(20)]
        samples[0][0][0, 0] = far
        prepared = zoo.prepare(source.float_model, samples)
        found, *_ = measured(prepared, Recipe())
        (parts,) = (p for p in found.values() if not math.isnan(p.weights))
        shares[name] = parts.narrowed / parts.activations
    assert shares["none"] == pytest.approx(1.0)
    assert shares["far"] < 0.75


def test_nodes_of_which_nothing_has_8_bits_have_no_parts() -> None:
    prepared = zoo.cnn().prepared
    wide, _, _ = measured(prepared, Recipe(int16_nodes=frozenset({"*"})))
    assert all(math.isnan(parts.activations) for parts in wide.values())
    floats, _, _ = measured(prepared, Recipe(denylisted_nodes=frozenset({"*"}), fallback="float"))
    assert floats == {}


@pytest.mark.parametrize("op_type", ["ADD", "MUL"])
def test_a_constant_that_the_quantizer_puts_last_may_come_first(op_type: str) -> None:
    import tensorflow as tf

    constant, together = zoo.weights(1, 16), {"ADD": tf.add, "MUL": tf.multiply}[op_type]
    prepared = zoo.from_function(lambda x: together(tf.abs(x), constant), (1, 16)).prepared
    last, content, places = measured(prepared, Recipe())
    model = fb.parse(prepared.calibrated.content)
    [op] = [op for op in model.subgraphs[0].operators if fb.op_type(model, op) == op_type]
    op.inputs = np.array(op.inputs)[::-1].copy()
    first = error_parts(TfliteFile(model=model), TfliteFile(content), places, prepared.nodes, prepared.fed()[1:])
    assert len(first) == len(last) == 2
    for name, parts in first.items():
        assert parts.activations == pytest.approx(last[name].activations)
