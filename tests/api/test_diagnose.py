from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest
import zoo

import autoselect
from autoselect.cases.events import Event, StageStarted, StepFinished, Warned
from autoselect.errors import DataError, MetricError, ModelError, RecipeError, RunFolderError, UsageError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

DEBUG = pump.SEARCH[0][:40]


def diagnose(**changes: Any) -> autoselect.Diagnosis:
    options = {"model": pump.MODEL_PATH, "calibration": "pump:calibration", "debug_data": DEBUG}
    return autoselect.diagnose(**{**options, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Diagnosis:
    """Everything at once, written to a folder."""
    return diagnose(
        output=tmp_path_factory.mktemp("whole") / "diagnosis",
        whole_model=True,
        ablate=4,
        layer_debug_metrics={"peak": lambda errors: np.abs(errors).max()},
        layer_direct_compare_metrics={"correlation": correlation},
        model_debug_metrics={"distance": distance},
    )


def correlation(real: np.ndarray, quantized: np.ndarray, scale: float, zero_point: int) -> float:
    levels = (quantized.astype(np.float64) - zero_point) * scale
    if real.std() == 0 or levels.std() == 0:
        return math.nan
    return float(np.corrcoef(real.ravel(), levels.ravel())[0, 1])


def distance(real: list[np.ndarray], quantized: list[np.ndarray]) -> float:
    return float(np.abs(real[0] - quantized[0]).sum())


def test_one_row_a_node_with_what_the_search_measures(whole: autoselect.Diagnosis, tmp_path: Path) -> None:
    # The search measures on calibration samples, so this is compared with a diagnosis on these.
    run = pump.search(tmp_path / "run", trials=1, debug_samples=pump.CALIBRATION_COUNT, int16=True)
    ours = diagnose(debug_data=None).layer_statistics
    shared = [column for column in run.layer_statistics.columns if not column.endswith("reason")]
    assert {"stddev", "mean_error", "mean_squared_error", "scale", "sqnr_db"} < set(shared)
    pd.testing.assert_frame_equal(ours[shared], run.layer_statistics[shared], check_dtype=False, rtol=1e-6)
    assert len(whole.layer_statistics) == len(run.layer_statistics)
    cured = ours[ours["cure"] != ""].rename(columns={"cure_reason": "reason"}).reset_index(drop=True)
    table = pd.read_csv(run.directory / "cures.csv", keep_default_na=False, na_values={"weights_sqnr_db": [""]})
    same = ["tensor_name", "weights_sqnr_db", "activations_sqnr_db", "cure", "reason"]
    pd.testing.assert_frame_equal(cured[same], table[same], check_dtype=False, rtol=1e-6)
    assert {"none", "16 bit"} <= set(table["cure"])
    assert ((table["broken"] == "") == (table["cure"] == "none")).all()


def test_files_read_back_equal(whole: autoselect.Diagnosis) -> None:
    assert whole.directory is not None
    back = autoselect.read_layer_statistics(whole.directory)
    pd.testing.assert_frame_equal(back, whole.layer_statistics, check_exact=True)
    assert any(len(scales) > 1 for scales in back["weight_scales"])
    assert all(len(s) == len(z) for s, z in zip(back["weight_scales"], back["weight_zero_points"], strict=True))
    summary = json.loads((whole.directory / "diagnosis.json").read_text(encoding="utf-8"))
    assert [advice["rule"] for advice in summary["advice"]] == [advice.rule for advice in whole.advice]
    assert {path.name for path in whole.figures} >= {"layers.png", "layers.svg", "suspects.png", "error_travel.svg"}
    assert all(path.stat().st_size > 1000 for path in whole.figures)


def test_metrics_of_ones_own(whole: autoselect.Diagnosis) -> None:
    table = whole.layer_statistics
    verified = table[table["verified"] == True]  # noqa: E712 - a column
    assert verified["peak"].tolist() == pytest.approx(verified["max_abs_error"].tolist(), rel=1e-6)
    known = table["correlation"].dropna()
    assert len(known) > len(table) / 2
    assert known.between(-1.0, 1.0).all()


def built(folder: Path, recipe: autoselect.Recipe) -> bytes:
    path = folder / f"{recipe.fingerprint}.tflite"
    autoselect.build(recipe, model=pump.MODEL_PATH, calibration="pump:calibration", output=path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def integer(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The all-integer model."""
    return built(tmp_path_factory.mktemp("integer"), autoselect.Recipe())


def test_the_models_own_metric_equals_one_by_hand(whole: autoselect.Diagnosis, integer: bytes) -> None:
    ours, theirs = Runner(pump.MODEL_PATH.read_bytes()), Runner(integer)
    by_hand = [distance(list(ours(x[None]).values()), list(theirs(x[None]).values())) for x in DEBUG]
    assert whole.model_metrics["distance"] == pytest.approx(np.mean(by_hand), rel=1e-6)


def divergence(recipe: autoselect.Recipe, folder: Path, count: int) -> float:
    """Noise power over signal power of the outputs, by hand."""
    real, candidate = Runner(pump.MODEL_PATH.read_bytes()), Runner(built(folder, recipe))
    ratios = []
    for x in DEBUG[:count]:
        [expected], [found] = real(x[None]).values(), candidate(x[None]).values()
        ratios.append(((found - expected) ** 2).sum() / (expected**2).sum())
    return float(np.mean(ratios))


def test_leaving_in_and_out_equals_building_by_hand(whole: autoselect.Diagnosis, tmp_path: Path) -> None:
    table = whole.layer_statistics
    row = table.iloc[int(np.argmax(table["leave_one_in"]))]
    name, others = row["tensor_name"], frozenset(table["tensor_name"]) - {row["tensor_name"]}
    left_in = autoselect.Recipe(denylisted_nodes=others, fallback="float")
    left_out = autoselect.Recipe(denylisted_nodes=frozenset({name}), fallback="float")
    assert row["leave_one_in"] == pytest.approx(divergence(left_in, tmp_path, 4), rel=1e-6)
    assert row["leave_one_out"] == pytest.approx(divergence(left_out, tmp_path, 4), rel=1e-6)


def test_the_error_travels_from_node_to_node(whole: autoselect.Diagnosis) -> None:
    table = whole.layer_statistics
    assert table["travel_nsr"].notna().sum() > len(table) / 2
    assert (table["travel_nsr"].dropna() >= 0).all()
    assert table["error_growth"].notna().any()


def test_the_shift_of_a_bias_is_what_bias_correction_adds_to_it(
    whole: autoselect.Diagnosis, integer: bytes, tmp_path: Path
) -> None:
    """In steps of the node's output, but for the rounding that the column beside it tells."""
    before, after = biases(integer), biases(built(tmp_path, autoselect.Recipe(repairs=("bias",))))
    table = whole.layer_statistics.set_index("tensor_name")
    layers = table[table["op_name"].isin(["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])]
    assert layers["bias_reason"].tolist() == [""] * len(before) == [""] * len(after)
    added = [np.abs(after[name] - before[name]).max() for name in layers.index]
    np.testing.assert_array_less(np.abs(added - layers["bias_shift"]), layers["bias_shift_corrected"] + 1e-6)
    assert layers["bias_shift_corrected"].max() < 0.05 < layers["bias_shift"].max()
    others = table.drop(layers.index)
    assert others["bias_shift"].isna().all()
    assert all(f"{row['op_name']} is no" in row["bias_reason"] for _, row in others.iterrows())


def biases(content: bytes) -> dict[str, np.ndarray]:
    """By name of a layer's output its bias, in steps of that output."""
    model = fb.parse(content)
    tensors, found = model.subgraphs[0].tensors, {}
    for op in model.subgraphs[0].operators:
        if fb.op_type(model, op) in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            bias, output = tensors[op.inputs[2]], tensors[op.outputs[0]]
            steps = np.array(fb.scales(bias)) / fb.scales(output)[0]
            found[fb.tensor_name(output)] = fb.constant_values(model, bias) * steps
    return found


def test_hybrid_nodes_of_a_recipe_are_compared_with_float(tmp_path: Path) -> None:
    recipe = autoselect.Recipe(denylisted_ops=frozenset({"FULLY_CONNECTED", "CONV_2D"}))
    path = tmp_path / "some.recipe.json"
    path.write_text(recipe.to_json(), encoding="utf-8")
    table = diagnose(recipe=path).layer_statistics
    left_out = table[table["op_name"].isin(["FULLY_CONNECTED", "CONV_2D"])]
    assert set(left_out["kind"]) <= {"hybrid", "float"}
    assert "hybrid" in set(left_out["kind"])
    assert not left_out["verified"].any()
    assert left_out["scale"].isna().all()
    stays_float = left_out[left_out["kind"] == "float"]
    assert set(stays_float["bias_reason"]) <= {"it is float, so no weights of it are rounded"}
    assert (left_out[left_out["kind"] == "hybrid"]["bias_reason"] == "").all()
    last = left_out.iloc[-1]
    candidate = tmp_path / "mixed.tflite"
    autoselect.build(recipe, model=pump.MODEL_PATH, calibration="pump:calibration", output=candidate)
    assert last["mean_squared_error"] == pytest.approx(_error_of(last["tensor_name"], candidate), rel=1e-4)


def _error_of(name: str, built: Path) -> float:
    """Mean squared error of a tensor by its name in both files, on LiteRT's plain kernels."""
    runners = [Runner(p.read_bytes(), preserve_all_tensors=True) for p in (pump.MODEL_PATH, built)]
    errors = []
    for x in DEBUG:
        values = []
        for runner in runners:
            runner(x[None])
            [index] = [t["index"] for t in runner._interpreter.get_tensor_details() if t["name"] == name]
            values.append(runner.tensor(index))
        errors.append(np.mean((values[1] - values[0]) ** 2))
    return float(np.mean(errors))


def test_everything_denylisted_is_said_and_measured() -> None:
    events: list[Event] = []
    found = diagnose(recipe=autoselect.Recipe(denylisted_nodes=frozenset({"*"})), listener=events.append)
    [warning] = [e.message for e in events if isinstance(e, Warned)]
    assert "denylists all" in warning
    assert "debug mode" not in warning
    assert found.facts["warnings"] == [warning]
    assert "integer" not in set(found.layer_statistics["kind"])


def test_events_count_the_nodes() -> None:
    events: list[Event] = []
    found = diagnose(ablate=1, listener=events.append)
    [stage] = [e for e in events if isinstance(e, StageStarted) and e.stage == "ablation"]
    assert stage.total == len(found.layer_statistics)
    assert sum(isinstance(e, StepFinished) for e in events) == stage.total


def broken(_: np.ndarray) -> float:
    raise ZeroDivisionError("no variance")


def wide(_: np.ndarray) -> np.ndarray:
    return np.zeros(3)


def misshapen() -> Iterator[list[np.ndarray]]:
    yield [np.zeros((1, 3, 3), np.float32)]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        pytest.param({"debug_data": "test_diagnose:misshapen"}, DataError, ["debugging", "shape"], id="other shapes"),
        pytest.param(
            {"layer_debug_metrics": {"mine": broken}}, MetricError, ["'mine'", "ZeroDivisionError", "node"], id="raises"
        ),
        pytest.param(
            {"layer_debug_metrics": {"mine": wide}}, MetricError, ["'mine'", "(3,)", "node"], id="returns an array"
        ),
        pytest.param(
            {"model_debug_metrics": {"mine": lambda *_: "x"}}, MetricError, ["'mine'", "outputs"], id="no number"
        ),
        pytest.param({"layer_debug_metrics": ["pump:nothing"]}, UsageError, ["nothing"], id="unknown metric"),
        pytest.param({"node": "no such node"}, UsageError, ["fits none"], id="node of no such name"),
        pytest.param({"node": "*"}, UsageError, ["fits", "Give one whole name"], id="node of several names"),
        pytest.param({"target": "integer-onyl"}, UsageError, ["Did you mean"], id="unknown target"),
        pytest.param({"recipe": autoselect.Recipe(denylisted_nodes=["nn"])}, RecipeError, ["nn"], id="unknown nodes"),
        pytest.param({"layer_debug_metrics": {"scale": wide}}, UsageError, ["another name"], id="name of a column"),
        pytest.param({"ablate": -1}, UsageError, ["ablate"], id="negative count"),
        pytest.param({"model": b"no model"}, ModelError, ["TFLite"], id="no model"),
    ],
)
def test_bad_input_is_told(changes: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        diagnose(**changes)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunFolderError, match="other files"):
        diagnose(output=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="tensor_name"):
        autoselect.read_layer_statistics(tmp_path / "other.csv")
    with pytest.raises(DataError, match="read"):
        autoselect.read_layer_statistics(tmp_path / "none.csv")


@pytest.mark.parametrize("whole_model", [False, True], ids=["layers", "and the whole model"])
def test_a_node_that_divides_by_zero_in_integers_is_named_and_the_others_are_measured(whole_model: bool) -> None:
    import tensorflow as tf

    def divided(x: Any) -> Any:
        ratios = [tf.tanh(x) / (tf.nn.relu(x) + least) for least in (0.001, 0.002)]
        return tf.concat(ratios, -1) @ zoo.weights(16, 6)

    samples = [np.full((1, 8), value, np.float32) for value in (-1.0, 100.0)]
    events: list[Event] = []
    found = autoselect.diagnose(
        zoo.from_function(divided, (1, 8)).float_model,
        calibration=samples,
        whole_model=whole_model,
        ablate=2,
        listener=events.append,
        cache=False,
    )
    table = found.layer_statistics.set_index("tensor_name")
    divisions, sums = (list(table.index[table["op_name"] == op_type]) for op_type in ("DIV", "ADD"))
    told = [e.message for e in events if isinstance(e, Warned) and "cannot be integer" in e.message]
    assert len(divisions) == len(told) == 2
    for division, divisor, message in zip(divisions, sums, told, strict=True):
        assert message.startswith(f"Node {division!r} cannot be integer. ")
        assert "(DIV) divides by integers, and one that it divides by was rounded to 0." in message
        assert message.endswith(f"--keep-float {division!r} --keep-float {divisor!r}.")
    assert set(table.loc[[*divisions, *sums], "kind"]) == {"float"}
    assert np.isfinite(table["mean_squared_error"]).all()
    assert not any("Take off the denylist" in advice.action for advice in found.advice)
