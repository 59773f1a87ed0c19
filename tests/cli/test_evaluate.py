"""``autoselect evaluate --full`` on the embedded model."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect.cli.main import app
from autoselect.embedded import make_windows, model_path
from autoselect.errors import UsageError

MODEL = str(model_path())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    windows, labels = make_windows(np.random.default_rng(0), 60)
    np.savez("labelled.npz", x=windows, y=labels)
    return tmp_path


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", *args], prog_name="autoselect")


def test_the_report_fits_80_columns_and_names_its_files(reviewed: Reviewed, folder: Path) -> None:
    done = invoke(MODEL, "--evaluation", "labelled.npz", "--full", "--reference", MODEL, "--output", "report")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "60 samples, 8 classes (95 % intervals)"
    assert lines[1].split() == ["float", "pump_monitor"]
    reviewed("agreement of a model with itself", [line for line in lines if "agreement" in line or " 0 of " in line])
    listed = [line.strip() for line in lines[lines.index("Files in report:") + 1 :]]
    assert listed == sorted(path.name for path in (folder / "report").iterdir())
    assert "disagreements.csv" in listed


def test_json_and_the_hint_where_the_rest_is() -> None:
    done = invoke(MODEL, "--evaluation", "labelled.npz", "--full", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["samples"], told["reference"]) == (0, 60, None)
    assert told["per_class"][0]["agreement"] is None


def one_failed(models: list[str], **_: Any) -> dict[str, Any]:
    """A report in which one model died."""
    row = {"model": "good", "number": 0, "support": 1, "answered": 1}
    return {
        "samples": 1,
        "classes": 2,
        "reference": None,
        "models": [
            {"model": "good", "path": "good.tflite", "size_bytes": 10, "error": None},
            {"model": "bad", "path": "bad.tflite", "size_bytes": 10, "error": "It died of SIGSEGV."},
        ],
        "measures": [{"model": "good", "metric": "accuracy", "value": 1.0, "low": float("nan"), "high": 1.0}],
        "per_class": [{**row, "precision": 1.0, "recall": 1.0, "f1": 1.0, "agreement": float("nan")}],
        "confusion": [{"model": "good", "label": 0, "answer": 0, "count": 1}],
        "disagreements": [],
        "warnings": [],
    }


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_a_failed_model_is_told_once_and_sets_the_exit_code(
    reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.setitem(vars(autoselect), "classification_report", one_failed)
    done = invoke("good.tflite", "bad.tflite", "--evaluation", "labelled.npz", "--full", *flags)
    assert done.exit_code == 9
    reviewed("a model that could not be run", done.stderr)
    assert ("good" in done.stdout, "Traceback" in done.output) == (True, False)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param([MODEL, MODEL], "--full", id="several without --full"),
        pytest.param([MODEL, "--output", "report"], "--full", id="a folder without --full"),
        pytest.param([MODEL, "--full", "--metric", "mse"], "--metric", id="a metric with --full"),
        pytest.param([MODEL, "--full", "--direction", "minimize"], "--metric", id="a direction with --full"),
        pytest.param([], "MODEL", id="no model"),
    ],
)
def test_wrong_options_exit_with_2(args: list[str], words: str) -> None:
    done = invoke(*args, "--evaluation", "labelled.npz")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_missing_model_is_named() -> None:
    done = invoke(MODEL, "none.tflite", "--evaluation", "labelled.npz", "--full")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "none.tflite" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        pytest.param(["--reference", MODEL, "--max-drop", "0"], 0, "", id="met"),
        pytest.param(["--reference", MODEL, "--max-drop", "-0.1"], 10, "The drop in accuracy is 0, and", id="drop"),
        pytest.param(["--min-score", "1.5"], 10, "and at least 1.5 is asked for.", id="score"),
        pytest.param(["--max-size", "1kB"], 10, "The file has 102604 bytes, and at most 1000 are", id="size"),
        pytest.param(["--reference", MODEL, "--max-drop", "5"], 2, "5 % is 0.05", id="per cent"),
        pytest.param(["--max-drop", "0.1"], 2, "pass --reference", id="no reference"),
        pytest.param(["--full", "--max-size", "1kB"], 2, "--full has no limits", id="full"),
        pytest.param(
            ["--metric", "agreement", "--reference", MODEL, "--max-drop", "0.1"], 2, "--min-score", id="no drop"
        ),
        pytest.param(["--metric", "agreement", "--reference", MODEL, "--min-score", "1"], 0, "", id="agreement"),
    ],
)
def test_a_missed_limit_is_exit_code_10(folder: Path, options: list[str], code: int, told: str) -> None:
    done = invoke(MODEL, "--evaluation", "labelled.npz", *options)
    assert done.exit_code == code, done.output
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_limits_where_less_is_better(reviewed: Reviewed) -> None:
    found = autoselect.evaluate(MODEL, evaluation="labelled.npz")
    error = dataclasses.replace(found, metric="mse", direction="minimize", score=0.5, drop=0.2)
    assert error.unmet(max_drop=0.2, min_score=0.5, max_size="1MB") == ()
    reviewed("a score that should be less", error.unmet(min_score=0.4))
    with pytest.raises(UsageError, match=r"^max_drop: .*got nan"):
        error.unmet(max_drop=math.nan)
