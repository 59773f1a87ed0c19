"""The command line, on an api that answers at once."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect import errors
from autoselect.cases.declared import told_of
from autoselect.cases.events import STAGES, StageStarted, StepFinished, TrialFinished, Warned
from autoselect.cli import options
from autoselect.cli.console import Watcher, warn, watching
from autoselect.cli.main import app
from autoselect.cli.results import finish
from autoselect.embedded import model_path
from autoselect.runs.run import Run
from autoselect.runs.typed_command import TYPED
from autoselect.scoring.metrics import METRIC_NAMES

METRIC = "my_package.scores:a_very_long_metric_name"


def made_run(directory: Path, *, metric: str = "accuracy", status: str = "complete", members: int = 30) -> Run:
    """A run with a front of many members, one of them all picks at once."""
    front = pd.DataFrame(
        {
            "id": [f"{n:010x}" for n in range(members)],
            metric: [0.93 - 0.001 * n for n in range(members)],
            "drop": [0.001 * n for n in range(members)],
            "size_bytes": [49_000_000 - 1000 * n for n in range(members)],
            "penalty": [31.25 - n for n in range(members)],
            f"heldout_{metric}": [0.92] * (members - 1) + [float("nan")],
            "heldout_low": 0.9,
            "heldout_high": 0.94,
            "pick": ["recommended,accurate,compact,integer"] + [""] * (members - 1),
        }
    )
    reference = {metric: 0.93, "size_bytes": 102_604_000, "penalty": 100.0, "heldout": 0.928}
    summary = {
        "status": status,
        "metric": metric,
        "direction": "maximize",
        "evaluated": {"search": 1000, "heldout": 2000},
        "references": {
            "float": {**reference, "heldout_low": 0.91, "heldout_high": 0.94},
            "fiq": {**reference, metric: 0.75, "heldout": 0.7505, "heldout_low": None, "heldout_high": None},
        },
        "picks": dict.fromkeys(("recommended", "accurate", "compact", "integer"), f"{0:010x}"),
        "allowed_drop": 0.0093,
        "counts": {"trials": 100, "scored": 96, "reused": 12, "failed": 4},
        "warnings": ["Be careful."],
        "verdict": "The verdict.",
    }
    (directory / "pareto.png").touch()
    return Run(
        directory=directory,
        manifest={},
        summary=summary,
        trials=pd.DataFrame(),
        front=front,
        layer_statistics=pd.DataFrame(),
    )


FAKED = ("search", "demo", "resume", "build", "evaluate", "pick")


class FakeApi:
    """Stands in for the functions of the package: keeps what it was called with, then answers or raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer: Any = None
        self.noise: Callable[[], None] = lambda: None
        for name in FAKED:
            setattr(self, name, self._answering(name))

    def _answering(self, name: str) -> Callable[..., Any]:
        def answering(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            self.noise()
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return answering


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    fake = FakeApi()
    fake.answer = made_run(tmp_path)
    for name in FAKED:
        monkeypatch.setitem(vars(autoselect), name, getattr(fake, name))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return fake


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, list(args), prog_name="autoselect")


BUILT = {
    "path": "out.tflite",
    "sha256": "ab" * 32,
    "size_bytes": 49320,
    "kinds": {"a": "integer", "b": "integer", "c": "float"},
    "fallbacks": {"c": "no hybrid kernel for MUL"},
    "warnings": [],
}
SCORED = {
    "target": None,
    "metric": "accuracy",
    "score": 0.93,
    "low": 0.91,
    "high": float("nan"),
    "samples": 100,
    "size_bytes": 49320,
    "penalty": 1.5,
    "segments": 2,
    "float_ops": 3,
    "crossing_bytes": 64,
    "warnings": [],
}
PICKED = {
    "id": "0a",
    "path": "out.tflite",
    "card": "out.md",
    "sha256": "ab" * 32,
    "heldout_low": float("nan"),
    "compiled": [],
    "warnings": [],
}
COMMANDS = [
    pytest.param(["search", "m.tflite"], None, id="search"),
    pytest.param(["demo"], None, id="demo"),
    pytest.param(["resume", "run"], None, id="resume"),
    pytest.param(["build", "r.json", "--model", "m", "-o", "out.tflite"], BUILT, id="build"),
    pytest.param(["evaluate", "m.tflite", "--evaluation", "e.npz"], SCORED, id="evaluate"),
    pytest.param(["pick", "run", "-o", "out.tflite"], PICKED, id="pick"),
]


@pytest.mark.parametrize(("args", "answer"), COMMANDS)
def test_every_command_calls_its_function_and_prints(api: FakeApi, args: list[str], answer: Any) -> None:
    api.answer = answer or api.answer
    done = invoke(*args)
    assert done.exit_code == 0, done.output
    assert [name for name, _, _ in api.calls] == [args[0]]
    assert done.stdout


@pytest.mark.parametrize(("args", "answer"), COMMANDS)
def test_json_is_one_object_and_nothing_else(api: FakeApi, args: list[str], answer: Any) -> None:
    api.answer = answer or api.answer
    api.noise = lambda: print("library-noise")  # noqa: T201 - the point of the test
    done = invoke(*args, "--json")
    assert done.exit_code == 0, done.output
    assert isinstance(json.loads(done.stdout), dict)
    assert "NaN" not in done.stdout
    assert "library-noise" in done.stderr


@pytest.mark.parametrize(("args", "answer"), COMMANDS)
def test_debug_shows_the_traceback(reviewed: Reviewed, api: FakeApi, args: list[str], answer: Any) -> None:
    api.answer = ZeroDivisionError("oh")
    plain, debug = invoke(*args), invoke(*args, "--debug")
    assert (plain.exit_code, debug.exit_code) == (1, 1)
    reviewed("an error that is a bug", plain.stderr)
    assert "Traceback" in debug.stderr
    assert plain.stdout == debug.stdout == ""


def test_json_of_a_search(api: FakeApi, tmp_path: Path) -> None:
    told = json.loads(invoke("search", "m.tflite", "--json").stdout)
    assert told["directory"] == str(tmp_path)
    assert told["status"] == "complete"
    assert told["summary"] == api.answer.summary
    assert len(told["front"]) == 30
    assert told["front"][-1]["heldout_accuracy"] is None
    assert told["picks"]["compact"] == "0000000000"


def every_error(kind: type[errors.AutoselectError]) -> list[type[errors.AutoselectError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in every_error(sub))]


def with_any_message(kind: type[errors.AutoselectError]) -> list[type[errors.AutoselectError]]:
    """Those that take a message; one with arguments of its own writes it."""
    return [found for found in every_error(kind) if "__init__" not in vars(found)]


@pytest.mark.parametrize("kind", with_any_message(errors.AutoselectError), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["plain", "json"])
def test_errors_become_one_paragraph_and_an_exit_code(
    api: FakeApi, kind: type[errors.AutoselectError], flags: list[str]
) -> None:
    api.answer = kind("expected this,\n  got [that]; " + "do something else " * 10)
    done = invoke("search", "m.tflite", *flags)
    assert done.exit_code == kind.exit_code
    assert done.stdout == ""
    assert done.stderr.startswith("Error: expected this, got [that]; do something")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_before_there_is_anything_to_keep(api: FakeApi) -> None:
    api.answer = KeyboardInterrupt()
    done = invoke("search", "m.tflite")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "Stopped.\n")
    api.answer = KeyboardInterrupt("Go on.")
    assert invoke("search", "m.tflite").stderr == "Stopped. Go on.\n"


@pytest.mark.parametrize("command", ["search", "resume", "demo"])
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [("complete", 0, "pick"), ("nothing_feasible", 10, "No model met all limits"), ("interrupted", 130, "resume")],
)
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["plain", "json"])
def test_the_status_of_a_run_is_the_exit_code(
    api: FakeApi, tmp_path: Path, command: str, status: str, code: int, words: str, flags: list[str]
) -> None:
    api.answer = made_run(tmp_path, status=status)
    done = invoke(command, *([] if command == "demo" else ["x"]), *flags)
    assert done.exit_code == code
    assert flags or words in done.stdout


def test_who_stopped_a_pinned_resume_goes_on_with_its_pins(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answer = made_run(tmp_path, status="interrupted")
    args = ["resume", "my run", "--trials", "60", "--keep-float", "SOFTMAX"]
    monkeypatch.setattr(sys, "argv", ["autoselect", *args])
    assert f"Next: autoselect {shlex.join(args)}" in invoke(*args).stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["search"], "Missing argument", id="no model"),
        pytest.param(["search", "m", "--sampler", "tpi"], "'--sampler': 'tpi' is not one of", id="unknown choice"),
        pytest.param(["search", "m", "--max-size", "12 parsecs"], "got '12 parsecs'", id="no size"),
        pytest.param(["search", "m", "--trials", "many"], "a valid integer", id="no number"),
        pytest.param(["search", "m", "--trials", "0"], "'--trials': Input should be greater", id="out of range"),
        pytest.param(["build", "r.json"], "Missing option '--model'", id="missing option"),
        pytest.param(["serch"], "No such command 'serch'", id="unknown command"),
    ],
)
def test_wrong_options_exit_with_2(api: FakeApi, args: list[str], words: str) -> None:
    done = invoke(*args)
    assert (done.exit_code, done.stdout, api.calls) == (2, "", [])
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", done.stderr).split())
    assert words in told
    assert "Value error" not in told
    assert ("got '0'" in told) == (args[-1] == "0")


SEARCH_DEFAULTS = {
    "calibration": None,
    "signature": None,
    "shapes": None,
    "feedback": None,
    "integer": None,
    "quantizer": "tensorflow",
    "evaluation": None,
    "metric": "accuracy",
    "direction": None,
    "evaluator": None,
    "output_name": None,
    "ignore_label": None,
    "objectives": "accuracy,size,penalty",
    "latency_threads": 1,
    "heldout": None,
    "heldout_fraction": 0.5,
    "split_seed": 0,
    "trials": 100,
    "timeout": None,
    "seed": 0,
    "output": None,
    "scheduler": None,
    "int16": None,
    "insecure": False,
    "trial_timeout": 900.0,
    "debug_samples": 50,
    "sampler": "surrogate",
    "racing": True,
    "confidence": 0.9,
    "min_gain": 0.002,
    "break_price": 2.0,
    "early_exit": True,
    "front_spacing": 1.0,
    "search_space": "default",
    "target": "integer-only",
    "runtime": None,
    "compiling": True,
    "converter_python": None,
    "exact_rewrites": True,
    "emulation": "front",
    "emulation_samples": None,
    "fallback": None,
    "per_channel": True,
    "io_type": None,
    "repairs": True,
    "weights": 8,
    "keep_float": (),
    "keep_int": (),
    "min_score": None,
    "max_drop": None,
    "max_size": None,
    "max_penalty": None,
    "workers": None,
    "allow_overlap": False,
    "cache": True,
}


@pytest.mark.parametrize(
    ("args", "changed"),
    [
        pytest.param([], {}, id="defaults"),
        pytest.param(
            ["--calibration", "c.npz", "--evaluation", "a.b:c", "--heldout", "h.npz", "--heldout-fraction", "0.2"],
            {"calibration": "c.npz", "evaluation": "a.b:c", "heldout": "h.npz", "heldout_fraction": 0.2},
            id="data",
        ),
        pytest.param(
            ["--metric", "a:f", "--direction", "minimize", "--output-name", "y", "--evaluator", "a:g"],
            {"metric": "a:f", "direction": "minimize", "output_name": "y", "evaluator": "a:g"},
            id="metric",
        ),
        pytest.param(["--objectives", "accuracy,segments"], {"objectives": "accuracy,segments"}, id="objectives"),
        pytest.param(
            ["--latency", "--latency-threads", "4"],
            {"objectives": "accuracy,size,penalty,latency", "latency_threads": 4},
            id="latency on top of the default",
        ),
        pytest.param(
            ["--objectives", "latency, psnr", "--latency"], {"objectives": "latency,psnr"}, id="latency once only"
        ),
        pytest.param(
            ["--trials", "7", "--seed", "3", "-o", "there", "--sampler", "nsga2", "--search-space", "s.toml"],
            {"trials": 7, "seed": 3, "output": "there", "sampler": "nsga2", "search_space": "s.toml"},
            id="search",
        ),
        pytest.param(
            ["--no-racing", "--confidence", "0.95", "--min-gain", "0", "--no-early-exit"],
            {"racing": False, "confidence": 0.95, "min_gain": 0.0, "early_exit": False},
            id="racing",
        ),
        pytest.param(
            ["--fallback", "float", "--per-tensor", "--io-type", "int8", "--workers", "1"],
            {"fallback": "float", "per_channel": False, "io_type": "int8", "workers": 1},
            id="candidates",
        ),
        pytest.param(
            ["--keep-float", "SOFTMAX", "--keep-float", "head/*", "--keep-int", "CONV_2D"],
            {"keep_float": ("SOFTMAX", "head/*"), "keep_int": ("CONV_2D",)},
            id="kept nodes",
        ),
        pytest.param(
            ["--min-score", "0.7", "--max-drop", "0.01", "--max-size", "48.5kB", "--max-penalty", "3"],
            {"min_score": 0.7, "max_drop": 0.01, "max_size": 48500.0, "max_penalty": 3.0},
            id="limits",
        ),
        pytest.param(
            ["--target", "qualcomm-sm8750", "--no-exact-rewrites", "--objectives", "accuracy,left_ops,ddr_bytes"],
            {
                "target": "qualcomm-sm8750",
                "exact_rewrites": False,
                "objectives": "accuracy,left_ops,ddr_bytes",
            },
            id="a chip",
        ),
        pytest.param(
            ["--weights", "5", "--objectives", "accuracy,download"],
            {"weights": 5, "objectives": "accuracy,download"},
            id="fewer bits",
        ),
        pytest.param(["--timeout", "90"], {"timeout": 90.0}, id="time"),
        pytest.param(["--allow-overlap", "--no-cache"], {"allow_overlap": True, "cache": False}, id="flags"),
    ],
)
def test_options_of_search(api: FakeApi, args: list[str], changed: dict[str, Any]) -> None:
    assert invoke("search", "m.tflite", *args).exit_code == 0
    ((_, positional, keywords),) = api.calls
    assert positional == ("m.tflite",)
    told = {key: value for key, value in keywords.items() if key != "listener"}
    assert told == {**SEARCH_DEFAULTS, **changed}
    assert all(type(value) in (str, int, float, bool, tuple, type(None)) for value in told.values())


def test_options_of_the_other_commands(api: FakeApi) -> None:
    invoke("resume", "run", "--trials", "200", "--timeout", "60", "--workers", "1", "--evaluation", "e.npz")
    api.answer = BUILT
    invoke("build", "r.json", "--model", "m", "--calibration", "c.npz", "--output", "o", "--no-cache")
    api.answer = SCORED
    told = ["--evaluation", "e", "--metric", "agreement", "--reference", "f.tflite", "--ignore-label", "-1"]
    invoke("evaluate", "m", *told)
    api.answer = PICKED
    invoke("pick", "run", "--name", "compact", "-o", "o.tflite")
    resume, build, evaluate, pick = (keywords for _, _, keywords in api.calls)
    given = [resume[name] for name in ("trials", "timeout", "workers", "evaluation", "model")]
    assert given == [200, 60.0, 1, "e.npz", None]
    chosen = {key: value for key, value in build.items() if value is not None}
    assert chosen == {
        "model": "m",
        "calibration": "c.npz",
        "quantizer": "tensorflow",
        "target": "integer-only",
        "exact_rewrites": True,
        "output": "o",
        "cache": False,
    }
    assert (evaluate["metric"], evaluate["reference"], evaluate["direction"]) == ("agreement", "f.tflite", None)
    assert evaluate["ignore_label"] == -1
    assert pick == {"name": "compact", "output": "o.tflite", "force": False, "targets": None}


def test_search_records_its_command(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/autoselect", "search", "my model.tflite", "--keep-int", "a/*"])
    seen: list[str | None] = []
    api.noise = lambda: seen.append(TYPED.get())
    invoke("search", "my model.tflite", "--keep-int", "a/*")
    assert seen == ["autoselect search 'my model.tflite' --keep-int 'a/*'"]
    assert TYPED.get() is None


@pytest.mark.parametrize("metric", ["accuracy", METRIC])
def test_the_result_fits_80_columns(api: FakeApi, tmp_path: Path, metric: str) -> None:
    api.answer = made_run(tmp_path, metric=metric)
    lines = invoke("search", "m.tflite").stdout.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[1:4]] == ["float", "all-integer", "recommended, accurate"]
    assert lines[4].startswith("Next: autoselect pick ")
    assert max(map(len, lines[:4])) <= 80


def test_it_says_where_the_rest_is_and_what_comes_next(api: FakeApi, tmp_path: Path) -> None:
    printed = invoke("search", "m.tflite").stdout
    assert re.search(rf"^autoselect show {re.escape(str(tmp_path))} --all  .*\(30\)$", printed, re.MULTILINE)
    assert "report.html" not in printed  # it is not there
    assert f"\nNext: autoselect pick {tmp_path}\n" in printed


def test_a_warning_is_printed_once_and_on_stderr(api: FakeApi) -> None:
    def warn() -> None:
        api.calls[-1][2]["listener"](Warned(message="Be careful."))

    quiet = invoke("search", "m")
    api.noise = warn
    live = invoke("search", "m")
    for done in (quiet, live):
        assert done.stderr == "Warning: Be careful.\n"
        assert "Warning" not in done.stdout


def test_names_in_warnings_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    warn("Foo\x1b[31m\nbar")
    assert capsys.readouterr().err == "Warning: Foo?[31m bar\n"


def test_an_empty_front_is_printed_too(api: FakeApi, tmp_path: Path) -> None:
    api.answer = made_run(tmp_path)
    api.answer.summary["picks"] = {}
    object.__setattr__(api.answer, "front", api.answer.front.iloc[:0])
    done = invoke("search", "m")
    assert done.exit_code == 0, done.output
    assert "Next:" not in done.stdout


def test_fields_of_a_build_and_a_score(reviewed: Reviewed, api: FakeApi) -> None:
    api.answer = BUILT
    built = invoke("build", "r.json", "--model", "m", "-o", "o").stdout
    assert "1 float, 2 integer" in built
    reviewed("a build", built)
    api.answer = SCORED
    assert "0.9300 (95 % interval 0.9100 to" in invoke("evaluate", "m", "--evaluation", "e").stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("49320", 49320),
        ("48kB", 48_000),
        ("48 KB", 48_000),
        ("1.5MB", 1_500_000),
        ("64KiB", 65_536),
        ("1MiB", 1_048_576),
        ("9b", 9),
    ],
)
def test_sizes(text: str, expected: float) -> None:
    assert options.read_size(text) == expected


@pytest.mark.parametrize("text", ["", "kB", "-3", "3 parsecs", "1e3", "1,5MB"])
def test_no_sizes(text: str) -> None:
    from typer import BadParameter

    with pytest.raises(BadParameter, match="48kB"):
        options.read_size(text)


def test_the_help_names_every_metric() -> None:
    assert set(METRIC_NAMES) <= set(re.findall(r"\w+", told_of("metric")))


EVENTS = [
    StageStarted(stage="model"),
    StageStarted(stage="trials", total=3),
    TrialFinished(number=0, origin="tpe", score=0.9, size_bytes=9, penalty=0.0, reused=False, error=None, drop=0.1),
    TrialFinished(number=1, origin="tpe", score=0.9, size_bytes=9, penalty=0.0, reused=True, error=None),
    TrialFinished(number=2, origin="tpe", score=None, size_bytes=None, penalty=None, reused=False, error="it [broke]"),
    Warned(message="be careful"),
    StageStarted(stage="heldout", total=1),
    StepFinished(stage="heldout"),
    StageStarted(stage="write"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, quiet: bool = False) -> str:
    from autoselect.cli.console import watching

    monkeypatch.setenv("TERM", "xterm")
    with watching(stream, quiet=quiet) as watcher:
        assert isinstance(watcher, Watcher)
        for event in EVENTS:
            watcher(event)
    return stream.getvalue()


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", watched(monkeypatch, Terminal()))
    for text in ("trials", "3/3", "best 0.9, 1 evaluation saved, 1 failed", "Trial 2 failed: it [broke]", "1/1"):
        assert text in shown
    assert "Warning: be careful" in shown


@pytest.mark.parametrize(("stream", "no_color"), [(io.StringIO, None), (Terminal, "1")], ids=["file", "NO_COLOR"])
@pytest.mark.parametrize("quiet", [False, True], ids=["plain", "quiet"])
def test_lines_elsewhere(
    reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], no_color: str | None, quiet: bool
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", watched(monkeypatch, stream(), quiet=quiet)).splitlines()
    if quiet:
        assert lines == ["Warning: be careful"]
    else:
        reviewed("progress outside a terminal", lines)


def test_bars_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", watched(monkeypatch, Terminal()))
    lines = re.split(r"[\r\n]+", shown)
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"trials\s.*3/3.*best 0\.9, 1 evaluation saved, 1 failed", line) for line in lines)


def test_json_lines_tell_each_event(capfd: pytest.CaptureFixture[str]) -> None:
    from autoselect.cli.console import watching

    with watching(as_json=True) as watcher:
        print("library-noise")  # noqa: T201 - the point of the test
        for event in EVENTS:
            watcher(event)
    out, err = capfd.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in told] == [
        *("stage", "stage", "trial", "trial", "trial", "warning", "stage", "step", "stage"),
    ]
    assert told[1] == {"event": "stage", "stage": "trials", "total": 3, "done": 0}
    assert told[3]["reused"] is True
    assert told[5] == {"event": "warning", "message": "be careful"}
    assert "library-noise" in err
    assert "Warning: be careful" in err


def test_a_plain_log_tells_the_time_left() -> None:
    from autoselect.cli.progress import PlainLog

    now, lines = [0.0], []
    log = PlainLog(lines.append, clock=lambda: now[0])
    log(StageStarted(stage="trials", total=40))
    for number in range(10):
        now[0] += 3.0
        dropped = number == 9
        log(trial(number, score=None if dropped else 0.5 + number, drop=None if dropped else -float(number)))
    assert lines == [
        "trials (40)",
        "trials 4/40, best 3.5, about 1:48 left",
        "trials 8/40, best 7.5, about 1:36 left",
    ]


def trial(number: int, *, score: float | None, drop: float | None) -> TrialFinished:
    return TrialFinished(
        number=number,
        origin="tpe",
        score=score,
        size_bytes=9,
        penalty=0.0,
        reused=False,
        error=None,
        dropped=score is None,
        drop=drop,
    )


def test_a_resumed_search_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoselect.cli.console import watching

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with watching(stream) as watcher:
        watcher(StageStarted(stage="trials", total=60, done=40))
        watcher(TrialFinished(number=45, origin="tpe", score=1.0, size_bytes=1, penalty=0.0, reused=False, error=None))
    assert "41/60" in stream.getvalue().replace("\x1b[32m", "").replace("\x1b[0m", "")


HEAVY = ("tensorflow", "pandas", "optuna", "matplotlib", "scipy", "sklearn", "ai_edge_litert")


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["search", "--help"]], ids=" ".join)
def test_version_and_help_load_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys\nfrom autoselect.cli.main import main\n"
        f"sys.argv = ['autoselect', *{args!r}]\n"
        "try:\n    main()\nfinally:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert done.stdout


def test_python_m_autoselect() -> None:
    from autoselect._version import __version__

    done = subprocess.run(
        [sys.executable, "-m", "autoselect", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"autoselect {__version__}\n")


def test_python_without_docstrings_searches_too() -> None:
    code = "import autoselect\nprint(autoselect.search.__name__, autoselect.search.__doc__)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "search None\n"), done.stderr


def test_native_output_stays_off_stdout() -> None:
    code = (
        "import os, sys\nfrom autoselect.cli.console import results_only_on_stdout\n"
        "with results_only_on_stdout():\n    os.write(1, b'native')\n    print('python')\n"
        "print('result')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "result\n"
    assert "native" in done.stderr
    assert "python" in done.stderr


def test_report_writes_the_page_and_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def write_report(directory: str, *, output: str | None) -> Path:
        calls.append((directory, output))
        path = tmp_path / "report.html"
        path.write_text("<!doctype html>")
        return path

    monkeypatch.setitem(vars(autoselect), "write_report", write_report)
    assert invoke("report", "run").stdout == f"written  {tmp_path / 'report.html'}\n"
    told = json.loads(invoke("report", "run", "-o", "x.html", "--json").stdout)
    assert told == {"path": str(tmp_path / "report.html"), "size_bytes": 15}
    assert calls == [("run", None), ("run", "x.html")]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_gone_is_no_bug(form: list[str]) -> None:
    """As in ``autoselect inspect MODEL | head -1``."""
    command = [sys.executable, "-m", "autoselect", "inspect", str(model_path()), *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE


class Unread(io.StringIO):
    """A stream whose reader leaves after so many writes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError
        return super().write(text)


def test_a_search_goes_on_once_nobody_reads_how_far_it_is() -> None:
    stream = Unread(1)
    with watching(stream) as watcher:
        for stage in ("calibrate", "trials", "write"):
            watcher(StageStarted(stage=stage))
        watcher(Warned(message="heard by nobody"))
    assert stream.getvalue().strip() == STAGES["calibrate"]
    assert stream.left == -2  # One try for warnings, and one for stages.


def test_a_stream_that_nobody_reads_silences_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(Unread(0), as_json=True) as watcher:
        watcher(Warned(message="heard by nobody"))
        watcher(StageStarted(stage="trials"))
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["warning", "stage"]


def test_a_log_that_nobody_reads_is_no_bug() -> None:
    with watching(Unread(0), verbose=True) as watcher:
        logging.getLogger("autoselect").info("heard by nobody")
        watcher(StageStarted(stage="trials"))


@pytest.mark.parametrize("status", ["complete", "interrupted"])
def test_who_reads_no_more_learns_the_status_all_the_same(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silenced = []
    monkeypatch.setattr(sys, "stdout", Unread(0))
    monkeypatch.setattr("autoselect.cli.results.write_to_nobody", lambda: silenced.append(True))
    with pytest.raises(typer.Exit if status == "interrupted" else BrokenPipeError) as caught:
        finish(made_run(tmp_path, status=status), as_json=True, warned=())
    if status == "interrupted":
        assert (caught.value.exit_code, silenced) == (errors.EXIT_INTERRUPTED, [True])


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_bug(closed: int) -> None:
    """Its number would be the next file's, and the workers' processes would have none."""
    data = ["--calibration", "autoselect.embedded:calibration", "--evaluation", "autoselect.embedded:search_samples"]
    command = [sys.executable, "-m", "autoselect", "check", str(model_path()), *data]
    shell = f"exec {shlex.join(command)} {closed}{'<' if closed == 0 else '>'}&-"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("float score" in done.stdout) == (closed != 1)


@pytest.mark.usefixtures("interruptible")
def test_a_sigterm_ends_a_search_in_order(tmp_path: Path) -> None:
    """As ``timeout``, a job queue or a container stops it."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "autoselect", "demo", "--output", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "trial" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        told, complaints = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "leaked" not in complaints
    assert told
    assert autoselect.load_run(folder).status == "interrupted"
    assert (folder / "report.html").exists()


def test_a_terminal_that_lacks_a_character_shows_another() -> None:
    """As where the locale is ISO-8859-1: the result of a search is shown all the same."""
    command = [sys.executable, "-m", "autoselect", "show", str(Path(__file__).with_name("terminal") / "run"), "--all"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"93.2 (90.6?95.1)" in done.stdout


def test_a_full_disk_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the folder of temporary files is full."""

    def write_report(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/autoselect-x")

    monkeypatch.setitem(vars(autoselect), "write_report", write_report)
    done = invoke("report", "run")
    assert done.exit_code == autoselect.errors.StorageError.exit_code
    assert re.fullmatch(r"Error: /tmp/autoselect-x .*No space .*\n", done.stderr)
