"""Reports on classifiers, and models scored side by side, on the embedded case."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest
import zoo
from ai_edge_litert.interpreter import Interpreter
from typer.testing import CliRunner

import autoselect
from autoselect.api.evaluating import unique_names
from autoselect.cases import score_jobs
from autoselect.cases.files import FLOAT
from autoselect.cli.main import app
from autoselect.embedded import model_bytes
from autoselect.errors import (
    AutoselectError,
    DataError,
    MetricError,
    ModelError,
    PreparationError,
    UsageError,
    WorkerDied,
)
from autoselect.tflite import flatbuffer

X, Y = pump.HELDOUT


def built(folder: Path, name: str, **recipe: Any) -> Path:
    path = folder / f"{name}.tflite"
    autoselect.build(autoselect.Recipe(**recipe), model=pump.MODEL_PATH, calibration=pump.calibration, output=path)
    return path


@pytest.fixture(scope="module")
def integer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The all-integer model, which full-integer quantization harms."""
    return built(tmp_path_factory.mktemp("models"), "integer")


@pytest.fixture(scope="module")
def report(integer: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    found = autoselect.classification_report(
        [integer, model_bytes()], evaluation=pump.HELDOUT, reference=pump.MODEL_PATH, output=folder
    )
    return {**found, "folder": folder}


def litert_answers(content: bytes) -> np.ndarray:
    """Winning class and its probability of each window, by LiteRT's own interpreter."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for window in X:
        interpreter.set_tensor(source["index"], window[np.newaxis])
        interpreter.invoke()
        scores = interpreter.get_tensor(result["index"])[0]
        found.append((scores.argmax(), scores.max()))
    return np.array(found)


def test_the_models_stand_side_by_side_float_first(report: dict[str, Any], integer: Path) -> None:
    assert [row["model"] for row in report["models"]] == ["float", integer.stem, "(live object)"]
    assert [row["error"] for row in report["models"]] == [None] * 3
    assert (report["samples"], report["classes"], report["reference"]) == (300, 8, "float")
    sizes = {row["model"]: row["size_bytes"] for row in report["models"]}
    assert sizes[integer.stem] == integer.stat().st_size


def test_what_was_answered_is_what_litert_answers(report: dict[str, Any], integer: Path) -> None:
    ours, theirs = litert_answers(integer.read_bytes()), litert_answers(model_bytes())
    cells = pd.DataFrame(report["confusion"]).query("model == @integer.stem")
    expected = pd.crosstab(Y, ours[:, 0].astype(int))
    for row in cells.itertuples():
        assert expected.loc[row.label, row.answer] == row.count
    assert cells["count"].sum() == 300
    listed = pd.DataFrame(report["disagreements"]).query("model == @integer.stem")
    assert listed["index"].tolist() == np.flatnonzero(ours[:, 0] != theirs[:, 0]).tolist()
    assert len(listed) > 10
    places = listed["index"].to_numpy()
    assert listed["label"].tolist() == Y[places].tolist()
    np.testing.assert_allclose(listed[["answer", "probability"]], ours[places], atol=1e-6)
    np.testing.assert_allclose(listed[["float_answer", "float_probability"]], theirs[places], atol=1e-6)


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_figures_and_intervals_are_those_of_evaluate(report: dict[str, Any], integer: Path, metric: str) -> None:
    told = autoselect.evaluate(integer, evaluation=pump.HELDOUT, metric=metric)
    (row,) = [r for r in report["measures"] if (r["model"], r["metric"]) == (integer.stem, metric)]
    assert (row["value"], row["low"], row["high"]) == pytest.approx((told["score"], told["low"], told["high"]))


def test_intervals_are_over_groups_where_samples_have_them(integer: Path) -> None:
    x, y = pump.HELDOUT
    by_label = (x, y, y)  # A class is right or wrong as a whole more often than by chance.
    alone, together = (autoselect.evaluate(integer, evaluation=samples) for samples in (pump.HELDOUT, by_label))
    assert together.score == alone.score
    assert together.high - together.low > 1.5 * (alone.high - alone.low)
    told = autoselect.classification_report(integer, evaluation=by_label).measures
    (row,) = [row for row in told if row["metric"] == "accuracy"]
    assert (row["low"], row["high"]) == pytest.approx((together.low, together.high))


def test_the_float_model_agrees_with_itself(report: dict[str, Any]) -> None:
    agreed = {row["model"]: row["value"] for row in report["measures"] if row["metric"] == "agreement"}
    assert agreed["(live object)"] == 1.0
    assert 0 < min(agreed.values()) < 1.0
    assert not [row for row in report["disagreements"] if row["model"] == "(live object)"]
    by_class = [r["agreement"] for r in report["per_class"] if r["model"] == "(live object)"]
    assert by_class == [1.0] * 8
    assert "float" not in agreed


def test_the_files_hold_the_same(report: dict[str, Any]) -> None:
    for name in ("measures", "per_class", "confusion", "disagreements"):
        pd.testing.assert_frame_equal(
            pd.read_csv(report["folder"] / f"{name}.csv"), pd.DataFrame(report[name]), check_dtype=False
        )
    assert json.loads((report["folder"] / "report.json").read_text())["samples"] == 300


def test_one_model_without_reference() -> None:
    found = autoselect.classification_report(pump.MODEL_PATH, evaluation=pump.HELDOUT)
    assert (found["reference"], found["disagreements"]) == (None, [])
    assert {row["metric"] for row in found["measures"]} == {
        *("accuracy", "precision_macro", "recall_macro", "f1_macro", "balanced_accuracy", "cohen_kappa")
    }
    accuracy = next(row["value"] for row in found["measures"] if row["metric"] == "accuracy")
    assert accuracy == pytest.approx(pump.litert_accuracy(model_bytes()))


def test_a_live_model_is_scored_and_compared_with() -> None:
    import keras

    layers = [keras.layers.Input((6,)), keras.layers.Dense(3)]
    model = zoo.randomise(keras.Sequential(layers))
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    data = (x, np.argmax(model(x), axis=1))
    scored = autoselect.evaluate(model, evaluation=data, reference=model)
    assert (scored.score, scored.drop) == (1.0, 0.0)
    assert autoselect.classification_report(model, evaluation=data).samples == 20
    assert autoselect.inspect(model).ops_by_kind == {"float": 1}


def test_integer_inputs_get_the_float_samples(integer: Path, tmp_path: Path) -> None:
    models = [built(tmp_path, "int8_inputs", io_type="int8"), integer]
    found = autoselect.classification_report(models, evaluation=pump.HELDOUT, reference=pump.MODEL_PATH)
    values = {row["model"]: row["value"] for row in found["measures"] if row["metric"] == "accuracy"}
    assert values["int8_inputs"] == pytest.approx(values["integer"], abs=0.02)


def test_floats_for_integer_inputs_need_the_float_model_and_levels_do_not(tmp_path: Path) -> None:
    model = built(tmp_path, "int8_inputs", io_type="int8")
    arguments = ["evaluate", str(model), "--evaluation", "pump:heldout_pairs"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == DataError.exit_code
    assert "--reference" in refused.stderr
    answered = CliRunner().invoke(app, [*arguments, "--reference", str(pump.MODEL_PATH), "--json"])
    interpreter = Interpreter(str(model))
    scale, zero_point = interpreter.get_input_details()[0]["quantization"]
    levels = np.clip(np.rint(X / scale) + zero_point, -128, 127).astype(np.int8)
    assert json.loads(answered.stdout)["score"] == autoselect.evaluate(model, evaluation=(levels, Y)).score


# -------------------------------------------------------------------------------------------- bad input


def dying(root: Path, sha256: str, part: str) -> np.ndarray:
    """In place of ``score_jobs.observe``: the process of every model but the float one is killed."""
    if sha256 == FLOAT:
        return score_jobs.observe(root, sha256, part)
    os.abort()


@pytest.mark.own_workers
def test_a_model_that_dies_costs_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoselect.api.evaluating.score_jobs.observe", dying)
    found = autoselect.classification_report([model_bytes()], evaluation=pump.HELDOUT, reference=pump.MODEL_PATH)
    assert [row["error"] is None for row in found["models"]] == [True, False]
    assert "SIGABRT" in found["models"][1]["error"]
    assert {row["model"] for row in found["measures"]} == {"float"}


@pytest.mark.own_workers
def test_no_model_that_runs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoselect.api.evaluating.score_jobs.observe", dying)
    with pytest.raises(PreparationError, match="SIGABRT"):
        autoselect.classification_report([model_bytes()], evaluation=pump.HELDOUT)


def dying_float(root: Path, sha256: str, part: str) -> np.ndarray:
    raise WorkerDied("gone")


def test_a_float_model_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoselect.api.evaluating.score_jobs.observe", dying_float)
    with pytest.raises(PreparationError, match=r"float model .*\. gone"):
        autoselect.classification_report([model_bytes()], evaluation=pump.HELDOUT, reference=model_bytes())


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model cut short: with a feature map as output, and with another number of classes."""
    folder = tmp_path_factory.mktemp("others")
    write_cut(folder / "map.tflite", lambda shape: len(shape) == 4 and min(shape[1], shape[3]) > 1)
    write_cut(folder / "wide.tflite", lambda shape: len(shape) == 2 and shape[1] != 8)
    return folder


def write_cut(path: Path, is_wanted: Callable[[list[int]], bool]) -> None:
    """Write the embedded model with the first intermediate tensor of a wanted shape as its output."""
    model = flatbuffer.parse(model_bytes())
    graph = model.subgraphs[0]
    produced = [int(op.outputs[0]) for op in graph.operators]
    graph.outputs = [next(i for i in produced if is_wanted(list(graph.tensors[i].shape)))]
    model.signatureDefs = None
    path.write_bytes(flatbuffer.serialise(model))


def no_labels() -> Iterator[list[np.ndarray]]:
    for window in X[:3]:
        yield [window[np.newaxis]]


REFUSED = {
    "no models": ([], {}, UsageError, "at least one model"),
    "one of several missing": ([pump.MODEL_PATH, "none.tflite"], {}, ModelError, r"no model file none\.tflite"),
    "one of several cut off": ([pump.MODEL_PATH, model_bytes()[:3000]], {}, ModelError, r"^\(live object\): "),
    "no classes": (
        [pump.MODEL_PATH, "map.tflite"],
        {},
        MetricError,
        r"map\.tflite: .*one score per class.*evaluate",
    ),
    "other classes": ([pump.MODEL_PATH, "wide.tflite"], {}, MetricError, r"pump_monitor\.tflite 8, wide\.tflite \d\d"),
    "labels out of range": ([pump.MODEL_PATH], {"evaluation": (X, Y + 8)}, DataError, "labels from 0 to 7"),
    "no labels": ([pump.MODEL_PATH], {"evaluation": no_labels}, DataError, "expected targets|no target"),
    "no such output": ([pump.MODEL_PATH], {"output_name": "logits"}, UsageError, "no output 'logits'"),
}


@pytest.mark.parametrize(("models", "changes", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_reports_refuse(
    models: list[Any],
    changes: dict[str, Any],
    error: type[AutoselectError],
    words: str,
    others: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(others)
    with pytest.raises(error, match=words):
        autoselect.classification_report(models, **{"evaluation": pump.HELDOUT, "output": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()


def test_a_quantized_reference_is_refused(integer: Path) -> None:
    with pytest.raises(ModelError, match="quantized already"):
        autoselect.classification_report([integer], evaluation=pump.HELDOUT, reference=integer)


@pytest.mark.parametrize(
    ("paths", "taken", "names"),
    [
        pytest.param(["a/x.tflite", "b/y.tflite"], (), ("x", "y"), id="distinct"),
        pytest.param(["a/x.tflite", "b/x.tflite", "c/x.tflite"], (), ("x", "x-2", "x-3"), id="equal"),
        pytest.param(["float.tflite"], ("float",), ("float-2",), id="taken"),
        pytest.param(["x.tflite", "x-2.tflite", "x.tflite"], (), ("x", "x-2", "x-3"), id="a number is taken"),
    ],
)
def test_names(paths: list[str], taken: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert unique_names(paths, taken=taken) == names


# --------------------------------------------------------------------------------------- the reference


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A classifier with float16 weights, which have to be widened, and the same with float32 weights."""
    import tensorflow as tf

    source = zoo.from_function(lambda x: tf.nn.softmax(tf.matmul(x, zoo.weights(8, 4))), (1, 8))
    work = source.converter()
    work.optimizations, work.target_spec.supported_types = [tf.lite.Optimize.DEFAULT], [tf.float16]
    folder = tmp_path_factory.mktemp("half")
    (folder / "half.tflite").write_bytes(work.convert())
    (folder / "whole.tflite").write_bytes(source.float_model)
    return folder / "half.tflite", folder / "whole.tflite"


WIDENED = "1 float16 weights were widened to float32: the same values, in twice the bytes."
FEW = (np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32), np.arange(12) % 4)


def test_what_was_done_to_the_reference_is_told(half: tuple[Path, Path]) -> None:
    reference, model = half
    scored = autoselect.evaluate(model, evaluation=FEW, metric="sqnr_db", reference=reference)
    assert scored["warnings"] == [WIDENED]
    found = autoselect.classification_report([model], evaluation=FEW, reference=reference)
    assert found["warnings"] == [WIDENED]
    assert autoselect.evaluate(model, evaluation=FEW)["warnings"] == []


def free_of_size(keras: Any) -> Any:
    """A classifier of images of any height and width."""
    layers = [keras.layers.Input((None, None, 3)), keras.layers.Conv2D(4, 3), keras.layers.GlobalMaxPooling2D()]
    return zoo.randomise(keras.Sequential(layers))


def test_free_sizes_are_those_of_the_samples(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    model, file = free_of_size(keras), tmp_path / "free.tflite"
    file.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    x = np.random.default_rng(0).normal(size=(12, 6, 7, 3)).astype(np.float32)
    y = np.argmax(model(x), axis=1)
    for data in ((x, y), {"x": x, "y": y}, lambda: zip(x, y, strict=True)):
        scored = autoselect.evaluate(file, evaluation=data)
        assert (scored.score, scored.size_bytes) == (1.0, file.stat().st_size)
    assert autoselect.evaluate(model, evaluation=(x, y), reference=file).drop == 0.0
    assert autoselect.classification_report(file, evaluation=(x, y)).samples == 12


def test_free_sizes_of_the_reference_are_those_of_the_model(tmp_path: Path) -> None:
    import tensorflow as tf

    def model(length: int | None) -> bytes:
        spec = tf.TensorSpec((1, length, 8), tf.float32, name="x")
        call = tf.function(lambda x: 2.0 * x).get_concrete_function(spec)
        return bytes(tf.lite.TFLiteConverter.from_concrete_functions([call]).convert())

    samples = (np.random.default_rng(0).normal(size=(12, 5, 8)).astype(np.float32), np.arange(12) % 4)
    scored = autoselect.evaluate(model(5), evaluation=samples, metric="sqnr_db", reference=model(None))
    assert scored.score == 200.0


def test_the_command_tells_what_was_done_to_the_reference(half: tuple[Path, Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", x=FEW[0], y=FEW[1])
    shared = ["evaluate", str(half[1]), "--evaluation", str(tmp_path / "few.npz"), "--reference", str(half[0])]
    for more in (["--metric", "agreement"], ["--full"]):
        done = CliRunner().invoke(app, [*shared, *more], prog_name="autoselect")
        assert done.exit_code == 0, done.output
        assert f"Warning: {WIDENED}" in done.stderr


# ---------------------------------------------------------------------------------------------- inspect


def test_inspect_scores_as_evaluate_does(integer: Path, tmp_path: Path) -> None:
    found = autoselect.inspect(
        pump.MODEL_PATH,
        compare=[integer],
        evaluation=pump.HELDOUT,
        metric="agreement",
        reference=pump.MODEL_PATH,
        output=tmp_path,
    )
    told = autoselect.evaluate(integer, evaluation=pump.HELDOUT, metric="agreement", reference=pump.MODEL_PATH)
    assert found["score"]["value"] == 1.0
    assert found["compare"][0]["score"] == {
        "metric": "agreement",
        "value": told["score"],
        "low": told["low"],
        "high": told["high"],
        "samples": 300,
        "warnings": [],
    }
    assert {path.name for path in tmp_path.iterdir()} == {"inspect.json", "islands.png", "islands.svg"}
    assert json.loads((tmp_path / "inspect.json").read_text()) == json.loads(json.dumps(found.as_dict()))


def test_inspect_runs_no_model_unless_asked() -> None:
    assert autoselect.inspect(pump.MODEL_PATH)["score"] is None
    with pytest.raises(UsageError, match="--evaluation"):
        autoselect.inspect(pump.MODEL_PATH, metric="accuracy")


def dying_score(root: Path, sha256: str, part: str, interval: bool) -> None:
    raise WorkerDied("gone")


def test_inspect_names_the_model_that_cannot_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoselect.api.evaluating.score_jobs.score", dying_score)
    with pytest.raises(PreparationError, match=r"pump_monitor\.tflite .*\. gone"):
        autoselect.inspect(pump.MODEL_PATH, evaluation=pump.HELDOUT)


def test_outputs_of_several_shapes_are_refused() -> None:
    """They were put one behind the other as if all had the shape of the first."""
    import tensorflow as tf

    call = tf.function(lambda x, n: tf.tanh(x)[:n] @ zoo.weights(4, 3))
    specs = tf.TensorSpec((8, 4), tf.float32, name="x"), tf.TensorSpec((), tf.int32, name="n")
    function = call.get_concrete_function(*specs)
    model = bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module()).convert())
    x = np.random.default_rng(0).normal(size=(10, 8, 4)).astype(np.float32)
    samples = {"x": x, "n": np.array([2, 2, 2, 5] * 2 + [3, 4], np.int32)}
    told = r"'output_0' has the shape \(2, 3\) for sample 0 and \(5, 3\) for sample 3 .* one length"
    with pytest.raises(DataError, match=told):
        autoselect.evaluate(model, evaluation=samples, metric="sqnr_db", reference=model)
    same = {"x": x, "n": np.full(10, 3, np.int32)}
    assert autoselect.evaluate(model, evaluation=same, metric="sqnr_db", reference=model).score == 200.0
