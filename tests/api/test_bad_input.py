"""What does not fit is refused with a message, and leaves the output folder as it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pump
import pytest
from ai_edge_litert import schema_py_generated as schema

import autoselect
from autoselect.api.reporting import recovered
from autoselect.cases.events import Event, Warned
from autoselect.domain.recipe import Recipe
from autoselect.embedded import model_bytes
from autoselect.errors import (
    AutoselectError,
    DataError,
    MetricError,
    ModelError,
    RecipeError,
    RunFolderError,
    StorageError,
    UsageError,
)
from autoselect.runs import files
from autoselect.runs.cache import fetch, keep
from autoselect.runs.folder import RunFolder
from autoselect.tflite import flatbuffer as fb

X, Y = pump.SEARCH
WINDOW = X[:1]
NODE = "pump_monitor_1/energy_1/Mul"


def with_nan() -> np.ndarray:
    data = X.copy()
    data[17, 3] = np.nan
    return data


def never() -> Iterator[Any]:
    yield from ()


def writes(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    y_pred -= 1.0
    return float(y_pred.mean())


def raises_a_type_error(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    raise TypeError("unhashable")


def not_a_number(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float("nan")


CALLS = []


def counts_its_calls(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    CALLS.append(0)
    return float(len(CALLS))


def evaluator_that_raises(runner: Any) -> float:
    raise LookupError("no such camera")


def evaluator_of_text(runner: Any) -> Any:
    return "good"


def with_infinite_weights() -> bytes:
    parsed = fb.parse(model_bytes())
    for tensor in parsed.subgraphs[0].tensors:
        if fb.is_constant(parsed, tensor) and tensor.type == schema.TensorType.FLOAT32:
            values = np.full(fb.shape_of(tensor), np.inf, np.float32)
            parsed.buffers[tensor.buffer].data = values.reshape(-1).view(np.uint8)
    return fb.serialise(parsed)


OWN = {"direction": "maximize"}

ROWS: dict[str, tuple[dict[str, Any], type[AutoselectError], int, str]] = {
    # the model
    "missing model": ({"model": "nowhere/model.tflite"}, ModelError, 3, r"no model at .*nowhere/model\.tflite"),
    "not a model file": ({"model": b"PK\x03\x04" + bytes(60)}, ModelError, 3, r"identifier 'TFL3'"),
    "empty file": ({"model": b""}, ModelError, 3, r"found '0 bytes'"),
    "cut off by half": ({"model": model_bytes()[:50_000]}, ModelError, 3, r"damaged or cut off \(50000 bytes"),
    "cut off early": ({"model": model_bytes()[:500]}, ModelError, 3, r"damaged or cut off \(500 bytes"),
    "cut in the middle of a buffer": ({"model": model_bytes()[:-3000]}, ModelError, 3, r"damaged or cut off"),
    "infinite weights": ({"model": with_infinite_weights()}, ModelError, 3, r"finite numbers: \S+"),
    "unknown signature": ({"signature": "encode"}, UsageError, 2, r"no signature 'encode'\. Its signatures: serving_"),
    "shape of no input": ({"shapes": {"wave": (1, 64)}}, UsageError, 2, r"no input 'wave'.*: window=\?x64x1x6"),
    "shape of another rank": (
        {"shapes": {"window": (1, 64)}},
        UsageError,
        2,
        r"expected 4 sizes.*window=\?x64x1x6",
    ),
    "shape against the model": ({"shapes": {"window": (1, 99, 1, 6)}}, UsageError, 2, r"axis 1 .*fixed to 64.*got 99"),
    "shape of letters": ({"shapes": {"window": "1x64x1x6"}}, UsageError, 2, r"'window' must be whole numbers"),
    "no kind of model": ({"model": 7}, UsageError, 2, r"a TFLiteConverter, .*, got int"),
    "no kind of target": ({"target": 3}, UsageError, 2, r"^target.*got 3"),
    "no kind of space": ({"search_space": 3}, UsageError, 2, r"^search_space.*got 3"),
    "no kind of objectives": ({"objectives": 3}, UsageError, 2, r"names of objectives .*got 3"),
    # calibration
    "no calibration": ({"calibration": None}, UsageError, 2, r"representative data: pass --calibration"),
    "empty calibration": ({"calibration": never}, DataError, 4, r"representative dataset.*at least one sample"),
    "shape": ({"calibration": [X[0, :5]]}, DataError, 4, r"sample 0 .*shape \(1, 64, 1, 6\), got \(5, 1, 6\)"),
    "dtype": ({"calibration": [WINDOW.astype(np.int16)]}, DataError, 4, r"float32, got int16.*normalise"),
    "two inputs": ({"calibration": [[WINDOW, WINDOW]]}, DataError, 4, r"expected 1 input\(s\), 'window'.*got 2"),
    "NaN": ({"calibration": [[x] for x in with_nan()]}, DataError, 4, r"sample 17 .*finite numbers, got 6 NaN"),
    "input name": ({"calibration": [{"wave": WINDOW}]}, DataError, 4, r"'window' float32.*got the names 'wave'"),
    "missing calibration file": ({"calibration": "none.npz"}, DataError, 4, r"none\.npz"),
    "unknown function": ({"calibration": "pump:calibrate"}, UsageError, 2, r"'calibrate'.*Did you mean 'calibration'"),
    # samples to score on
    "no evaluation": ({"evaluation": None}, UsageError, 2, r"needs samples to score on: pass --evaluation"),
    "empty evaluation": ({"evaluation": never}, DataError, 4, r"scoring data: expected at least one sample"),
    "NaN in evaluation": ({"evaluation": (with_nan(), Y)}, DataError, 4, r"finite numbers, got 6 NaN"),
    "no targets": ({"evaluation": X}, DataError, 4, r"expected targets.*label-free"),
    "fewer targets": ({"evaluation": (X, Y[:50])}, DataError, 4, r"200.*50"),
    "label too large": ({"evaluation": (X, Y + 1)}, DataError, 4, r"^Sample \d+: .*labels from 0 to 7, got 8"),
    "label negative": ({"heldout": (X + 1, Y - 1)}, DataError, 4, r"^Sample \d+: .*labels from 0 to 7, got -1"),
    "one sample to split": ({"evaluation": (X[:1], Y[:1]), "heldout": None}, DataError, 4, r"two different samples"),
    "seen in calibration": ({"calibration": X[:30]}, DataError, 4, r"30 of 200 search samples are also calibration"),
    "seen in search": ({"heldout": (X[:9], Y[:9])}, DataError, 4, r"9 of 9 held-out samples are also search"),
    # metrics
    "unknown metric": ({"metric": "acuracy"}, MetricError, 5, r"got 'acuracy'\. Did you mean 'accuracy'"),
    "no direction": ({"metric": not_a_number}, MetricError, 5, r"'maximize' or 'minimize', got None"),
    "wrong direction": ({"metric": "accuracy", "direction": "minimize"}, MetricError, 5, r"'maximize', got 'minimize'"),
    "metric raises": ({"metric": raises_a_type_error, **OWN}, MetricError, 5, r"raised TypeError: unhashable"),
    "metric writes into its arguments": ({"metric": writes, **OWN}, MetricError, 5, r"wrote into them.*copy"),
    "metric with a state": ({"metric": counts_its_calls, **OWN}, MetricError, 5, r"same outputs.*each time"),
    "metric gives NaN": ({"metric": not_a_number, **OWN}, MetricError, 5, r"one finite number as the score, got .*nan"),
    "evaluator raises": ({"evaluator": evaluator_that_raises}, MetricError, 5, r"LookupError: no such camera"),
    "evaluator of text": ({"evaluator": evaluator_of_text}, MetricError, 5, r"must return a finite number.*'good'"),
    "evaluator is no function": ({"evaluator": 5}, MetricError, 5, r"must be a function, got int"),
    "unknown output": ({"output_name": "logits"}, UsageError, 2, r"no output 'logits'.*output_0"),
    # settings
    "no trials": ({"trials": 0}, UsageError, 2, r"^trials: .*got 0"),
    "a limit of NaN": ({"max_drop": float("nan")}, UsageError, 2, r"^max_drop: .* finite number, got nan"),
    "unknown sampler": ({"sampler": "gp"}, UsageError, 2, r"no sampler 'gp'.*surrogate, random"),
    "unknown space": ({"search_space": "op_type"}, UsageError, 2, r"'op_type'.*Did you mean 'op_types'"),
    "unknown fallback": ({"fallback": "int4"}, UsageError, 2, r"^fallback: .*'drq', 'float' or 'search', got 'int4'"),
    "unknown quantizer": (
        {"quantizer": "onnx"},
        UsageError,
        2,
        r"^quantizer: .*'tensorflow' or 'litert', got 'onnx'\.",
    ),
    "unknown io_type": ({"io_type": "int16"}, UsageError, 2, r"^io_type: .*got 'int16'"),
    "unknown node": ({"keep_float": [NODE + "l"]}, UsageError, 2, rf"--keep-float: .*Did you mean '{NODE}'"),
    "unknown op": ({"keep_int": ["CONV2D"]}, UsageError, 2, r"--keep-int: .*'CONV2D'.*CONV_2D, DEPTHWISE_CONV_2D"),
    "ranges of an unknown node": (
        {"repairs": (f"ranges-mse:{NODE}l",)},
        RecipeError,
        6,
        rf"No node.*Did you mean '{NODE}'",
    ),
    "pinned both ways": ({"keep_int": ["MEAN"], "keep_float": ["*_mean_*"]}, UsageError, 2, r"pinned both ways"),
    "all pinned": ({"keep_int": ["*"]}, UsageError, 2, r"nothing to choose"),
}


@pytest.mark.parametrize(("changes", "error", "exit_code", "words"), ROWS.values(), ids=ROWS)
@pytest.mark.usefixtures("finished")  # Its calibration is in the cache.
def test_is_refused(
    changes: dict[str, Any], error: type[AutoselectError], exit_code: int, words: str, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with pytest.raises(error, match=words) as caught:
        autoselect.search(**{**pump.LIVE, "output": output, "trials": 5, "workers": 1, **changes})
    assert caught.value.exit_code == exit_code
    assert type(caught.value) is error
    left = sorted(p.name for p in output.iterdir()) if output.exists() else []
    assert left in ([], ["worker.log"])
    assert [p.name for p in tmp_path.iterdir()] in ([], ["run"])


def test_the_search_space_file_names_its_wrong_key(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('schema_version = 1\nname = "own"\nwhy = "x"\n[[choices]]\nkind = "leading"\nupto = 3\n')
    with pytest.raises(UsageError, match=r"own\.toml.*choices\.0\.leading\.upto"):
        pump.search(tmp_path / "run", search_space=str(path))
    assert not (tmp_path / "run").exists()


def test_a_quantized_model_is_refused(finished: autoselect.Run, tmp_path: Path) -> None:
    for name in ("integer", finished.front["id"].iloc[0]):
        with pytest.raises(ModelError, match=r"\bquantized\b.*float model"):
            pump.search(tmp_path / "run", model=finished.model_path(name))
    assert not (tmp_path / "run" / "manifest.json").exists()


# -------------------------------------------------------------------------------------------- recipes

RECIPES = {
    "unknown node": (Recipe(denylisted_nodes=frozenset({NODE + "l"})), rf"'{NODE}l'\. Did you mean '{NODE}'"),
    "glob of nothing": (Recipe(denylisted_nodes=frozenset({"nothing/*"})), r"No node is called 'nothing/\*'"),
    "unknown op": (Recipe(denylisted_ops=frozenset({"CONV2D"})), r"op type 'CONV2D'.*CONV_2D, DEPTHWISE_CONV_2D"),
}


@pytest.mark.parametrize(("recipe", "words"), RECIPES.values(), ids=RECIPES)
def test_recipes_of_other_models_are_refused(recipe: Recipe, words: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        autoselect.build(recipe, model=model_bytes(), calibration=pump.calibration, output=tmp_path / "out.tflite")
    assert caught.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []


RECIPE_FILES = {
    "not JSON": ("{", RecipeError, r"not JSON"),
    "unknown key": ('{"deny": []}', RecipeError, r"unknown key 'deny'"),
    "wrong type": ('{"denylisted_nodes": "a"}', RecipeError, r"denylisted_nodes: expected a list"),
    "unknown fallback": ('{"fallback": "int4"}', RecipeError, r"fallback: expected one of drq, float"),
    "missing": (None, UsageError, r"cannot be read: No such file"),
}


@pytest.mark.parametrize(("text", "error", "words"), RECIPE_FILES.values(), ids=RECIPE_FILES)
def test_wrong_recipe_files_are_refused(
    text: str | None, error: type[AutoselectError], words: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "own.json").write_text(text)
    with pytest.raises(error, match=words):
        autoselect.build(
            tmp_path / "own.json", model=model_bytes(), calibration=pump.calibration, output=tmp_path / "out.tflite"
        )
    assert not (tmp_path / "out.tflite").exists()


EVALUATE = {
    "missing model": ({"model": "none.tflite"}, ModelError, r"no model file none\.tflite"),
    "no model": ({"model": 5}, UsageError, r"got int"),
    "no model as reference": ({"reference": 5}, UsageError, r"got int"),
    "cut off": ({"model": model_bytes()[:5000]}, ModelError, r"cut off"),
    "no reference": ({"metric": "agreement"}, UsageError, r"'agreement'.*--reference"),
    "metric raises": ({"metric": raises_a_type_error, **OWN}, MetricError, r"TypeError: unhashable"),
    "metric writes into its arguments": ({"metric": writes, **OWN}, MetricError, r"wrote into them"),
    "labels": ({"evaluation": (X, Y + 8)}, DataError, r"labels from 0 to 7"),
}


@pytest.mark.parametrize(("changes", "error", "words"), EVALUATE.values(), ids=EVALUATE)
def test_evaluate_refuses(changes: dict[str, Any], error: type[AutoselectError], words: str) -> None:
    with pytest.raises(error, match=words):
        autoselect.evaluate(**{"model": model_bytes(), "evaluation": pump.SEARCH, **changes})


# ------------------------------------------------------------------------------------- the run folder


def test_other_content_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "run"
    output.mkdir()
    (output / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match=r"not empty") as caught:
        pump.search(output)
    assert caught.value.exit_code == 7
    assert [p.name for p in output.iterdir()] == ["thesis.tex"]


def test_what_another_search_left_before_it_began_is_not_used(tmp_path: Path) -> None:
    rows = tmp_path / "run" / ".autoselect-work" / "rows" / "float.npy"
    rows.parent.mkdir(parents=True)
    np.save(rows, np.zeros((len(pump.SEARCH[1]), 1)))
    run = pump.search(tmp_path / "run", trials=3)
    assert run.summary["references"]["float"]["accuracy"] == pytest.approx(
        pump.litert_accuracy(model_bytes(), pump.SEARCH)
    )


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(RunFolderError, match="empty folder"):
        pump.search(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "a file"


NO_RUNS = {
    "nothing there": (None, r"holds no run: it has no manifest\.json"),
    "half a manifest": ('{"manifest_version": 1, "so', r"manifest\.json is damaged"),
    "a list": ("[]", r"manifest\.json is damaged"),
    "of the future": ('{"manifest_version": 99}', r"version 99; this autoselect reads version 1"),
}


@pytest.mark.parametrize(("manifest", "words"), NO_RUNS.values(), ids=NO_RUNS)
def test_only_runs_are_resumed(manifest: str | None, words: str, tmp_path: Path) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    before = pump.tree(tmp_path)
    for use in (autoselect.resume, autoselect.load_run):
        with pytest.raises(RunFolderError, match=words):
            use(tmp_path)
    with pytest.raises(RunFolderError, match=words):
        autoselect.pick(tmp_path, name="compact", output=tmp_path / "out.tflite")
    assert pump.tree(tmp_path) == before


def test_a_total_below_the_trials_of_a_run_is_refused(finished: autoselect.Run) -> None:
    before, done = pump.tree(finished.directory), len(finished.trials)
    with pytest.raises(UsageError, match=rf"--trials {done + done - 1};.*--trials {done}\."):
        autoselect.resume(finished.directory, trials=done - 1)
    assert pump.tree(finished.directory) == before


def pick_beside(run: Path) -> object:
    return autoselect.pick(run, output=run.parent / "m.tflite")


CUT_OFF: dict[str, tuple[str, Callable[[Path], object]]] = {
    "summary of a run that is shown": ("summary.json", recovered),
    "journal of a run that is resumed": ("study.journal", lambda run: autoselect.resume(run, trials=30)),
    "recipe of a picked member": (
        "front/*.recipe.json",
        pick_beside,
    ),
    "layers behind a question": ("kept/prepared/layers.json", lambda run: autoselect.load_run(run).what_if()),
}


@pytest.mark.parametrize(("names", "use"), CUT_OFF.values(), ids=CUT_OFF)
def test_a_file_of_a_run_that_is_cut_off_is_told(
    names: str, use: Callable[[Path], object], finished: autoselect.Run, tmp_path: Path
) -> None:
    run = shutil.copytree(finished.directory, tmp_path / "run")
    for path in run.glob(names):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = pump.tree(run)
    with pytest.raises(RunFolderError, match=Path(names).name.lstrip("*")):
        use(run)
    assert pump.tree(run) == before


@pytest.mark.parametrize("spelling", [".", "../run"])
def test_two_processes_do_not_share_a_folder(
    finished: autoselect.Run, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    before = pump.tree(finished.directory)
    monkeypatch.chdir(finished.directory)
    with RunFolder(finished.directory).locked(), pytest.raises(RunFolderError, match="Another process"):
        autoselect.resume(spelling, trials=30)
    assert pump.tree(finished.directory) == before


# --------------------------------------------------------------------------------------- the same samples


def test_overlap_may_be_allowed_and_is_then_told(tmp_path: Path) -> None:
    events: list[Event] = []
    overlapping = {"calibration": X[:30], "heldout": (X[:90], Y[:90])}
    run = pump.search(
        tmp_path / "run", trials=3, evaluation=(X, Y), **overlapping, allow_overlap=True, listener=events.append
    )
    told = run.summary["warnings"]
    assert [text.split(":")[0] for text in told] == [
        "30 of 200 search samples are also calibration samples",
        "30 of 90 held-out samples are also calibration samples",
        "90 of 90 held-out samples are also search samples",
    ]
    assert [e.message for e in events if isinstance(e, Warned)] == told


# ------------------------------------------------------------------------------------------ the disk is full


class FullDisk:
    """``os.replace`` or ``os.fdopen`` that fails with ENOSPC for some files."""

    def __init__(self, real: Callable[..., Any], wanted: Callable[[Any], bool]) -> None:
        self._real, self._wanted = real, wanted
        self.failed = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not self._wanted(args):
            return self._real(*args, **options)
        self.failed += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_at(monkeypatch: pytest.MonkeyPatch, file: str) -> FullDisk:
    disk = FullDisk(os.replace, lambda args: Path(args[-1]).match(file))
    monkeypatch.setattr(files.os, "replace", disk)
    return disk


def test_a_disk_full_before_the_search_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        disk = full_at(patch, "manifest.json")
        with pytest.raises(StorageError, match=r"manifest\.json") as caught:
            pump.search(tmp_path / "run", trials=3)
    assert (disk.failed, caught.value.exit_code, caught.value.errno) == (1, 8, errno.ENOSPC)
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert pump.search(tmp_path / "run", trials=3).status == "complete"


@pytest.mark.parametrize("file", ["layer_statistics.csv", "front.csv"])
def test_a_disk_full_during_the_search_is_resumed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    with monkeypatch.context() as patch:
        full_at(patch, file)
        with pytest.raises(StorageError, match="--output") as caught:
            pump.search(tmp_path / "run", trials=4)
    assert caught.value.errno == errno.ENOSPC
    hidden = {p.name for p in (tmp_path / "run").rglob(".*")}
    assert hidden <= {".autoselect-lock", ".autoselect-work"}  # No half-written file stays.
    with pytest.raises(RunFolderError, match="stopped early"):
        autoselect.load_run(tmp_path / "run")
    run = autoselect.resume(tmp_path / "run")
    assert (run.status, len(run.trials), len(run.layer_statistics)) == ("complete", 4, 22)
    assert run.front["heldout_accuracy"].notna().all()


def test_a_disk_full_leaves_the_old_files(
    finished: autoselect.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "summary.json"
    folder = tmp_path / "run"
    shutil.copytree(finished.directory, folder)
    with monkeypatch.context() as patch:
        full_at(patch, file)
        with pytest.raises(StorageError) as caught:
            autoselect.resume(folder, trials=21)
    assert caught.value.errno == errno.ENOSPC
    assert (folder / file).read_bytes() == (finished.directory / file).read_bytes()
    assert autoselect.load_run(folder).summary == finished.summary


@pytest.mark.parametrize("call", ["replace", "fdopen"])
def test_a_file_is_written_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"old": 1})

    def refuse(*args: Any, **options: Any) -> Any:
        if call == "fdopen":
            os.close(args[0])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, call, refuse)
    with pytest.raises(StorageError, match=r"a\.json") as caught:
        files.write_json(path, {"new": 2})
    assert caught.value.errno == errno.ENOSPC
    assert json.loads(path.read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "cache").write_text("no folder")
    keep(tmp_path / "work", tmp_path / "cache" / "entry")
    assert not fetch(tmp_path / "cache" / "entry", tmp_path / "target")
    assert (tmp_path / "cache").read_text() == "no folder"


# ---------------------------------------------------------------------------------------- a read-only folder


@pytest.mark.parametrize("use", [pump.search, autoselect.resume, autoselect.write_report])
def test_a_read_only_folder_is_told_and_stays(
    use: Callable[[Path], object], finished: autoselect.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    if use is not pump.search:
        shutil.copytree(finished.directory, folder)
    before = pump.tree(tmp_path)

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("mkdir", "replace"):
        monkeypatch.setattr(files.os, name, refuse)
    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(StorageError) as caught:
        use(folder)
    monkeypatch.undo()
    assert caught.value.errno == errno.EROFS
    assert pump.tree(tmp_path) == before
    if use is not pump.search:
        assert len(autoselect.load_run(folder).trials) == len(finished.trials)
