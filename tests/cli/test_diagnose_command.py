"""``autoselect diagnose``, on an api that answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect import errors
from autoselect.cases.events import StageStarted, StepFinished, Warned
from autoselect.cli.main import app
from autoselect.diagnosis.result import Diagnosis
from autoselect.domain.findings import Advice
from autoselect.runs.typed_command import TYPED

ADVICE = Advice(
    rule="suspicious_error",
    title="Errors beyond rounding",
    subjects=tuple(f"block_{n}/conv [red]" for n in range(7)),
    evidence="rmse/scale up to 3.1",
    threshold="0.7",
    source="the guide",
    action="Leave them out.",
)


def made_diagnosis(directory: Path | None, **changed: Any) -> Diagnosis:
    """A diagnosis of 15 nodes, the last the worst."""
    table = pd.DataFrame(
        {
            "index": range(15),
            "op_name": "DEPTHWISE_CONV_2D",
            "tensor_name": [f"net/a_rather_long_folder/of_names/block_{n}/depthwise [red]" for n in range(15)],
            "range": 6.0,
            "rmse/scale": [0.3 + 0.2 * n for n in range(14)] + [float("nan")],
            "verified": True,
            "weight_minima": [[-1.0, float("nan")]] * 15,
        }
    )
    told: dict[str, Any] = {
        "layer_statistics": table,
        "advice": (ADVICE,),
        "model_metrics": {"mae": 0.25},
        "facts": {"model": "m.tflite", "nodes": 15, "seconds": {"measure": 1.5}, "warnings": ["Few samples."]},
        "directory": directory,
        "node": "block_3",
    }
    if directory is not None:
        for name in ("layers.png", "layer_statistics.csv"):
            (directory / name).touch()
        told["figures"] = (directory / "layers.png",)
    return Diagnosis(**{**told, **changed})


class FakeApi:
    """Stands in for the functions of the package: keeps what it was called with, then answers or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.noise: Callable[[Any], None] = lambda listener: None

    def diagnose(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        self.noise(kwargs["listener"])
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    fake = FakeApi(made_diagnosis(tmp_path))
    monkeypatch.setitem(vars(autoselect), "diagnose", fake.diagnose)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return fake


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, ["diagnose", *args], prog_name="autoselect")


DEFAULTS = {
    "calibration": None,
    "feedback": None,
    "signature": None,
    "shapes": None,
    "converter_python": None,
    "integer": None,
    "quantizer": "tensorflow",
    "debug_data": None,
    "output": None,
    "recipe": None,
    "per_channel": True,
    "layer_debug_metrics": None,
    "layer_direct_compare_metrics": None,
    "model_debug_metrics": None,
    "whole_model": False,
    "ablate": 0,
    "node": None,
    "target": "integer-only",
    "debug_samples": None,
    "workers": None,
    "trial_timeout": 900.0,
    "cache": True,
    "figures": True,
}


@pytest.mark.parametrize(
    ("args", "changed"),
    [
        pytest.param([], {}, id="defaults"),
        pytest.param(
            ["--calibration", "c.npz", "--debug-data", "a.b:c", "--debug-samples", "7"],
            {"calibration": "c.npz", "debug_data": "a.b:c", "debug_samples": 7},
            id="data",
        ),
        pytest.param(
            ["-o", "there", "--recipe", "r.json", "--per-tensor", "--target", "micro"],
            {"output": "there", "recipe": "r.json", "per_channel": False, "target": "micro"},
            id="what",
        ),
        pytest.param(
            ["--whole-model", "--ablate", "20", "--node", "conv_1", "--workers", "1"],
            {"whole_model": True, "ablate": 20, "node": "conv_1", "workers": 1},
            id="more",
        ),
        pytest.param(
            [
                *("--layer-debug-metric", "a:f", "--layer-debug-metric", "a:g"),
                *("--layer-direct-compare-metric", "a:h", "--model-debug-metric", "a.b:i"),
            ],
            {
                "layer_debug_metrics": ["a:f", "a:g"],
                "layer_direct_compare_metrics": ["a:h"],
                "model_debug_metrics": ["a.b:i"],
            },
            id="metrics",
        ),
        pytest.param(["--no-figures", "--no-cache"], {"figures": False, "cache": False}, id="flags"),
    ],
)
def test_options(api: FakeApi, args: list[str], changed: dict[str, Any]) -> None:
    assert invoke("m.tflite", *args).exit_code == 0
    ((positional, keywords),) = api.calls
    assert positional == ("m.tflite",)
    told = {key: value for key, value in keywords.items() if key != "listener"}
    assert told == {**DEFAULTS, **changed}


def test_the_defaults_and_names_are_those_of_the_function() -> None:
    import inspect

    from autoselect.api.diagnosing import diagnose

    parameters = inspect.signature(diagnose).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    "args",
    [
        pytest.param([], id="no model"),
        pytest.param(["m", "--ablate", "-1"], id="negative"),
        pytest.param(["m", "--debug-samples", "0"], id="no samples"),
        pytest.param(["m", "--workers", "0"], id="no workers"),
    ],
)
def test_wrong_options_exit_with_2(api: FakeApi, args: list[str]) -> None:
    done = invoke(*args)
    assert (done.exit_code, done.stdout, api.calls) == (2, "", [])


def test_it_prints_facts_suspects_advice_and_files(api: FakeApi, tmp_path: Path) -> None:
    done = invoke("m.tflite")
    assert done.exit_code == 0, done.output
    facts, _, *lines = done.stdout.splitlines()
    assert facts == "m.tflite: 15 nodes, per-channel weights, 1.5 s."
    before_files = lines[: lines.index(f"Files in {tmp_path}:")]
    assert max(map(len, before_files)) <= 80
    assert lines[0] == "Largest errors"
    assert [line.split()[0] for line in lines[2:12]] == [str(n) for n in range(13, 3, -1)]
    for text in ("1. Errors beyond rounding", "   Do: Leave them out.", "conv [red]", "and 3 more", "mae  0.2500"):
        assert text in done.stdout
    assert done.stdout.endswith(f"Files in {tmp_path}:\n  layer_statistics.csv\n  layers.png\n")


def test_where_there_is_nothing_to_tell_it_says_so(api: FakeApi) -> None:
    api.answer = made_diagnosis(None, advice=(), model_metrics={}, layer_statistics=pd.DataFrame())
    printed = invoke("m").stdout
    for text in ("No node has a measured error.", "Nothing stands out.", "No files were kept"):
        assert text in printed
    assert "Whole model" not in printed


def test_ablation_is_summed_up(api: FakeApi) -> None:
    table = api.answer.layer_statistics.assign(leave_one_in=[0.1 * n for n in range(15)], leave_one_out=0.5)
    api.answer = made_diagnosis(None, layer_statistics=table)
    printed = " ".join(invoke("m").stdout.split())
    assert "net/a_rather_long_folder/of_names/block_14/depthwise [red]: 1.4 of" in printed


def test_json_is_one_object_and_nothing_else(api: FakeApi, tmp_path: Path) -> None:
    api.noise = lambda _: print("library-noise")  # noqa: T201 - the point of the test
    done = invoke("m.tflite", "--json")
    told = json.loads(done.stdout)
    assert "library-noise" in done.stderr
    assert set(told) == {
        "facts",
        "model_metrics",
        "advice",
        "layer_statistics",
        "node",
        "directory",
        "figures",
    }
    assert told["facts"] == api.answer.facts
    assert told["model_metrics"] == {"mae": 0.25}
    assert told["advice"][0]["subjects"] == list(ADVICE.subjects)
    assert (told["advice"][0]["rule"], told["node"]) == ("suspicious_error", "block_3")
    assert len(told["layer_statistics"]) == 15
    assert told["layer_statistics"][14]["rmse/scale"] is None
    assert told["layer_statistics"][0]["weight_minima"] == [-1.0, None]
    assert told["directory"] == str(tmp_path)
    assert told["figures"] == [str(tmp_path / "layers.png")]


def test_json_without_files(api: FakeApi) -> None:
    api.answer = made_diagnosis(None)
    told = json.loads(invoke("m", "--json").stdout)
    assert (told["directory"], told["figures"]) == (None, [])


def test_a_warning_is_printed_once_and_on_stderr(api: FakeApi) -> None:
    quiet = invoke("m")
    api.noise = lambda listener: listener(Warned(message="Few samples."))
    for done in (quiet, invoke("m")):
        assert done.stderr == "Warning: Few samples.\n"
        assert "Warning" not in done.stdout


def test_errors_have_their_exit_code(api: FakeApi) -> None:
    api.answer = errors.DataError("expected this, got [that]")
    done = invoke("m")
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr == "Error: expected this, got [that]\n"
    api.answer = ZeroDivisionError("oh")
    assert "Traceback" in invoke("m", "--debug").stderr


def test_it_records_its_command(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/autoselect", "diagnose", "my model.tflite"])
    seen: list[str | None] = []
    api.noise = lambda _: seen.append(TYPED.get())
    invoke("my model.tflite")
    assert seen == ["autoselect diagnose 'my model.tflite'"]


def test_the_stages_have_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from autoselect.cli.console import watching

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with watching(stream) as watcher:
        watcher(StageStarted(stage="measure"))
        watcher(StageStarted(stage="ablation", total=2))
        watcher(StepFinished(stage="ablation"))
        watcher(StepFinished(stage="ablation"))
        watcher(StageStarted(stage="figures"))
    for words in ("measuring the layers", "leaving single nodes in and out", "2/2", "drawing"):
        assert words in stream.getvalue()
