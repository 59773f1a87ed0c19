from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo
from zoo import tf

from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.quantize.diagnosing.statistics import LayerMetrics, layer_table, measure, table
from autoselect.quantize.diagnosing.verification import plan
from autoselect.quantize.preparing import converter
from autoselect.rewrites.names import op_index_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


def run_debugger_on(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the debugger take its interpreter from one of the two packages, as it makes it by default."""
    from tensorflow.lite.tools.optimize.debugging.python import debugger

    monkeypatch.setattr(debugger._interpreter, "Interpreter", importlib.import_module(package).Interpreter)


LITERT, TENSORFLOW = "ai_edge_litert.interpreter", "tensorflow.lite.python.interpreter"
METRICS = ("num_elements", "stddev", "mean_error", "max_abs_error", "mean_squared_error")


def measured(prepared: zoo.Prepared, *, per_channel: bool = True) -> LayerTable:
    keys = [s.key for s in reader.input_specs(fb.parse(prepared.calibrated.content))]
    samples = [dict(zip(keys, sample, strict=True)) for sample in prepared.samples]
    return layer_table(prepared.calibrated, prepared.nodes, samples, per_channel=per_channel)


def debugger_rows(prepared: zoo.Prepared, *, per_channel: bool = True) -> dict[int, dict[str, float]]:
    """The debugger's figures of single-output nodes by node index, each sample from a fresh state."""
    debug = converter.quantize(
        prepared.calibrated.file, denylisted=(), recipe=Recipe(per_channel=per_channel), verify="layer"
    )
    runs = [_one_run(debug.content, sample) for sample in prepared.samples]
    found = {}
    for index, first in runs[0].items():
        means = {m: float(np.mean([float(run[index][m]) for run in runs])) for m in METRICS}
        fixed = {k: float(first[k]) for k in ("tensor_idx", "scale", "zero_point")}
        found[index] = means | fixed
    return found


def _one_run(debug: bytes, sample: list[np.ndarray]) -> dict[int, dict[str, float]]:
    rows = _debugged(debug, [sample])
    by_index = {op_index_of(name.split("/")[1].split(":")[0]): row for name, row in rows.items()}
    assert None not in by_index
    assert len(by_index) == len(rows)
    return by_index  # type: ignore[return-value]


def _debugged(debug: bytes, samples: list[list[np.ndarray]]) -> dict[str, dict[str, float]]:
    """The Quantization Debugger's rows by the name of the verifying op's output."""
    debugger = tf().lite.experimental.QuantizationDebugger(
        quant_debug_model_content=debug, debug_dataset=lambda: iter(samples)
    )
    debugger.run()
    text = io.StringIO()
    debugger.layer_statistics_dump(text)
    dumped = {int(r["tensor_idx"]): r for r in csv.DictReader(io.StringIO(text.getvalue()))}
    # The dump rounds the metrics, so that only the tensor's own figures are taken from there.
    return {
        name: {
            **{m: float(row[m]) for m in METRICS},
            **{k: float(dumped[at][k]) for k in ("tensor_idx", "scale", "zero_point")},
        }
        for name, row in debugger.layer_statistics.items()
        for at in [_quantized(debugger, name)]
    }


def _quantized(debugger: Any, name: str) -> int:
    return int(debugger._numeric_verify_op_details[name]["inputs"][0])


@pytest.mark.parametrize(
    ("package", "share_of_step"),
    [
        pytest.param(LITERT, 0.0, id="on LiteRT"),
        # The two packages bring float LSTM kernels that add in different orders: one unit in the last place of float32.
        pytest.param(TENSORFLOW, 5e-6, id="on TensorFlow's interpreter"),
    ],
)
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("source", [pytest.param(zoo.cnn, id="CNN"), pytest.param(zoo.lstm, id="fused LSTM")])
def test_figures_equal_the_quantization_debuggers(
    source: Callable[[], zoo.Source],
    per_channel: bool,
    package: str,
    share_of_step: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_debugger_on(package, monkeypatch)
    prepared = source().prepared
    layers, expected = measured(prepared, per_channel=per_channel), debugger_rows(prepared, per_channel=per_channel)
    assert [n.index for n in layers.nodes] == sorted(expected)
    for node, figures in zip(layers.nodes, layers.statistics, strict=True):
        assert figures is not None
        assert figures.verified
        row = expected[node.index]
        expected_figures = [row[m] for m in METRICS]
        close = pytest.approx(expected_figures, rel=1e-6, abs=max(share_of_step * row["scale"], 1e-12))
        assert [getattr(figures, m) for m in METRICS] == close
        assert (figures.tensor_index, figures.zero_point) == (row["tensor_idx"], row["zero_point"])
        assert figures.scale == pytest.approx(row["scale"], rel=1e-6)
    assert any(s is not None and s.mean_squared_error > 0 for s in layers.statistics)


def test_a_node_with_several_outputs_has_the_figures_of_its_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    run_debugger_on(LITERT, monkeypatch)
    weights = zoo.weights(8, 8)

    def call(x: Any) -> Any:
        left, right = tf().split(tf().matmul(x, weights), 2, axis=1)
        return left * 1.5, tf().tanh(right)

    prepared = zoo.from_function(call, (1, 8)).prepared
    layers = measured(prepared)
    [(node, figures)] = [p for p in zip(layers.nodes, layers.statistics, strict=True) if p[0].op_type == "SPLIT"]
    assert figures is not None
    debug = converter.quantize(prepared.calibrated.file, denylisted=(), recipe=Recipe(), verify="layer").content
    rows = [r for name, r in _debugged(debug, prepared.samples).items() if f"op_{node.index:04d}_x" in name]
    assert len(rows) == 2
    worst = max(r["mean_squared_error"] ** 0.5 / r["scale"] for r in rows)
    assert figures.rmse_per_scale == pytest.approx(worst, rel=1e-6)


def test_a_node_without_a_scale_has_no_figures() -> None:
    prepared = zoo.from_function(lambda x: (x * 1.5, x > tf().reverse(x, [1])), (1, 8)).prepared
    layers = measured(prepared)
    figures = {n.op_type: s for n, s in zip(layers.nodes, layers.statistics, strict=True)}
    assert figures["GREATER"] is None
    assert figures["MUL"] is not None


@pytest.mark.filterwarnings("error")
def test_the_samples_are_only_read_once_each() -> None:
    prepared = zoo.cnn().prepared
    drawn = []

    def samples() -> Any:
        for sample in prepared.samples:
            drawn.append(len(drawn))
            yield {"x0": sample[0]}

    layers = layer_table(prepared.calibrated, prepared.nodes, samples())
    assert len(layers) == len(prepared.nodes)
    assert drawn == [0, 1, 2]


def correlation(real: np.ndarray, quantized: np.ndarray, scale: float, zero_point: int) -> float:
    return float(np.corrcoef(real.ravel(), ((quantized.astype(np.float64) - zero_point) * scale).ravel())[0, 1])


@pytest.mark.parametrize("source", [pytest.param(zoo.cnn, id="CNN"), pytest.param(zoo.lstm, id="fused LSTM")])
def test_direct_comparison_equals_the_interpreters_tensors(source: Callable[[], zoo.Source]) -> None:
    prepared = source().prepared
    chosen = plan(prepared.calibrated, prepared.nodes, Recipe())
    metrics = LayerMetrics(direct_compare={"correlation": correlation})
    [key] = [s.key for s in reader.input_specs(fb.parse(prepared.calibrated.content))]
    figures = measure(chosen, ({key: sample[0]} for sample in prepared.samples), metrics)
    found = table(chosen, prepared.nodes, figures, metrics)
    by_hand = _correlations(chosen.debug, [sample[0] for sample in prepared.samples])
    assert len(found) >= 3
    for row in found.statistics:
        assert row is not None
        # XNNPACK rounds some levels to a neighbour of the plain kernels'.
        assert row.metrics["correlation"] == pytest.approx(np.mean(by_hand[row.tensor_index]), abs=1e-4)
    assert min(s.metrics["correlation"] for s in found.statistics if s is not None) < 1.0


def _correlations(debug: bytes, samples: list[np.ndarray]) -> dict[int, list[float]]:
    """By index of the quantized tensor, from every tensor that a plain interpreter kept."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=debug,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    verifiers = [op for op in interpreter._get_ops_details() if op["op_name"] == "NumericVerify"]
    found: dict[int, list[float]] = {}
    for sample in samples:
        interpreter.reset_all_variables()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
        interpreter.invoke()
        for op in verifiers:
            quantized, real = (int(i) for i in op["inputs"])
            steps = interpreter._get_tensor_details(quantized, 0)["quantization_parameters"]
            tensors = interpreter.get_tensor(real), interpreter.get_tensor(quantized)
            value = correlation(*tensors, steps["scales"][0], steps["zero_points"][0])
            found.setdefault(quantized, []).append(value)
    return found


def test_names_that_end_in_digits_are_exact() -> None:
    def call(x: Any) -> Any:
        for number in (1, 12, 123):
            x = tf().nn.relu(tf().matmul(x, zoo.weights(8, 8)), name=f"layer_{number}")
        return x

    source = zoo.from_function(call, (1, 8))
    prepared = source.prepared
    names = [tensor.name for tensor in reader.read_graph(fb.parse(source.float_model)).tensors]
    found = measured(prepared)
    assert sum(n.name[-1].isdigit() for n in found.nodes) >= 2
    assert all(n.name in names for n in found.nodes)
    for node in found.nodes:
        recipe = Recipe(denylisted_nodes=frozenset({node.name}), fallback="float")
        assert prepared.builder.build(recipe).kinds[node.name] == "float"
