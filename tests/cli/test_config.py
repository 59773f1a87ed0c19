"""Files in place of options: what they may say, who wins, what a wrong one is told, and the one of ``init``."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.cli.config_file import keys_of
from autoselect.cli.main import app
from autoselect.cli.search import search
from autoselect.embedded import model_path
from autoselect.errors import UsageError


class Stopped(UsageError):
    """Raised in place of a search."""


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The arguments of the search that the command line asked for."""
    kept: dict[str, Any] = {}

    def search(model: str, **arguments: Any) -> None:
        kept.update(arguments, model=model)
        raise Stopped("went-so-far")

    monkeypatch.setitem(vars(autoselect), "search", search)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return kept


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, list(args), prog_name="autoselect")


def search_with(text: str, *args: str) -> Any:
    Path("run.toml").write_text(text, encoding="utf-8")
    return invoke("search", "--config", "run.toml", *args)


VALUES = [
    pytest.param('model = "m.tflite"', "model", "m.tflite", id="the argument"),
    pytest.param("trials = 7", "trials", 7, id="whole number"),
    pytest.param('objectives = "accuracy,segments"', "objectives", "accuracy,segments", id="objectives"),
    pytest.param("latency = true", "objectives", "accuracy,size,penalty,latency", id="latency"),
    pytest.param("latency-threads = 2", "latency_threads", 2, id="threads of latency"),
    pytest.param("max-drop = 1", "max_drop", 1.0, id="whole number for a number"),
    pytest.param("max_drop = 0.5", "max_drop", 0.5, id="underscore for dash"),
    pytest.param('max-size = "48kB"', "max_size", 48_000.0, id="size in words"),
    pytest.param("max-size = 400", "max_size", 400.0, id="size in bytes"),
    pytest.param("racing = false", "racing", False, id="switch off"),
    pytest.param("per-channel = false", "per_channel", False, id="switch with another name for off"),
    pytest.param("no-cache = true", "cache", False, id="switch on"),
    pytest.param('keep-float = ["SOFTMAX", "a/*"]', "keep_float", ("SOFTMAX", "a/*"), id="list"),
    pytest.param('sampler = "tpe"', "sampler", "tpe", id="choice"),
    pytest.param('eval = "my_data:labelled"', "evaluation", "my_data:labelled", id="option of another name in Python"),
    pytest.param('io = "int8"', "io_type", "int8", id="likewise"),
]


@pytest.mark.parametrize(("text", "name", "value"), VALUES)
def test_a_file_says_what_the_command_line_would(called: dict[str, Any], text: str, name: str, value: object) -> None:
    model = [] if name == "model" else ["other.tflite"]
    assert "went-so-far" in search_with(text, *model).output
    assert called[name] == value
    assert type(called[name]) is type(value)


def test_the_command_line_wins(called: dict[str, Any]) -> None:
    search_with('model = "m.tflite"\ntrials = 7\nseed = 3\nkeep-int = ["a"]', "--trials", "9", "--keep-int", "b")
    assert (called["model"], called["trials"], called["seed"]) == ("m.tflite", 9, 3)
    assert called["keep_int"] == ("b",)


def test_dots_that_part_no_key_are_no_nesting(called: dict[str, Any]) -> None:
    names = ",\n".join('"a.b.c", "d.e.f"' for _ in range(60))
    text = f"# {110 * '.'} = x\nkeep-int = [\n{names}]\nmax-drop = 0.5 # {110 * '.'}"
    assert "went-so-far" in search_with(text, "m.tflite").output


WRONG = [
    pytest.param("max-dorp = 1", "there is no key 'max-dorp'. Did you mean 'max-drop'?", id="misspelt"),
    pytest.param("[limits]\nmax-drop = 1", "no key 'limits.max-drop'. Did you mean 'max-drop'?", id="in a table"),
    pytest.param("zzz = 1", "there is no key 'zzz'. Known keys: model, calibration,", id="like nothing"),
    pytest.param('config = "other.toml"', "there is no key 'config'", id="a file in a file"),
    pytest.param('trials = "many"', "trials: Input should be a valid integer, got 'many'.", id="text for a number"),
    pytest.param("trials = true", "trials: Input should be a valid integer, got True.", id="truth for a number"),
    pytest.param("trials = 1.5", "trials: Input should be a valid integer, got 1.5.", id="fraction"),
    pytest.param("trials = 0", "trials: Input should be greater than or equal to 1, got 0.", id="out of range"),
    pytest.param('racing = "yes"', "racing: Input should be a valid boolean, got 'yes'.", id="text for a switch"),
    pytest.param("metric = 3", "metric: Input should be a valid string, got 3.", id="number for a text"),
    pytest.param(
        'keep-float = "SOFTMAX"', "keep-float: Input should be a valid list, got 'SOFTMAX'.", id="text for a list"
    ),
    pytest.param('keep-float = ["a", 2]', "keep-float.1: Input should be a valid string, got 2.", id="inside a list"),
    pytest.param('sampler = "tpi"', "sampler: Input should be 'surrogate', 'tpe'", id="no such choice"),
    pytest.param('max-size = "big"', "max-size: expected bytes, or a size such as 48kB", id="no size"),
    pytest.param("trials 3", "run.toml is not TOML", id="no TOML"),
    pytest.param("trials = " + 6000 * "9", "run.toml is not TOML", id="a number of 6,000 digits"),
    pytest.param("a" + 5000 * ".a" + "= 1", "a key has over 100 parts", id="a key of 5,000 parts"),
    pytest.param("[a" + 5000 * ".a" + "]", "a key has over 100 parts", id="a table of 5,000 parts"),
    pytest.param("max-drop = 1\nmax_drop = 2", "max-drop is there twice, once as max_drop", id="two spellings"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_file_is_told_with_the_key(called: dict[str, Any], text: str, message: str) -> None:
    done = search_with(text, "m.tflite")
    assert done.exit_code == 2
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", done.output).split())
    assert message in told
    assert not called


def test_a_missing_file_is_told(called: dict[str, Any]) -> None:
    done = invoke("search", "m.tflite", "--config", "none.toml")
    assert done.exit_code == 2
    assert "none.toml" in done.output


# ------------------------------------------------------------------------------------------------ init


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file that ``init`` writes for the embedded case."""
    path = tmp_path_factory.mktemp("init") / "run.toml"
    done = invoke("init", str(model_path()), "--output", str(path))
    assert done.exit_code == 0, done.output
    return path.read_text(encoding="utf-8")


def test_init_says_what_it_saw(written: str) -> None:
    for line in (
        "# inputs: window float32 [1, 64, 1, 6]",
        "# outputs: output_0 float32 [1, 8]",
        "4 CONV_2D",
        "#   accuracy: the output has 8 values a sample, which may be the scores of classes.",
    ):
        assert line in written


def test_the_file_of_init_is_a_search(written: str, called: dict[str, Any]) -> None:
    assert "went-so-far" in search_with(written).output
    assert (called["model"], called["metric"]) == (str(model_path()), "accuracy")
    kept = dict(called)
    called.clear()
    invoke("search", str(model_path()), "--calibration", "calibration.npz", "--evaluation", "labelled.npz")
    assert {**called, "command": None, "listener": None} == {**kept, "command": None, "listener": None}


def test_every_key_of_the_file_may_be_uncommented(written: str, called: dict[str, Any]) -> None:
    text = re.sub(r"^# ([a-z0-9-]+ = )", r"\1", written, flags=re.MULTILINE)
    assert "went-so-far" in search_with(text).output
    assert called["max_size"] == 400_000.0
    keys = {line.split(" = ")[0] for line in text.splitlines() if " = " in line and not line.startswith("#")}
    assert keys == set(keys_of(search)) - {"json", "debug"}


def test_init_writes_over_nothing_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("mine", encoding="utf-8")
    assert invoke("init", str(model_path()), "-o", str(path)).exit_code == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert invoke("init", str(model_path()), "-o", str(path), "--force").exit_code == 0
    assert path.read_text(encoding="utf-8") != "mine"


def test_the_python_of_the_converter_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my run.toml"
    done = invoke("init", str(model_path()), "-o", str(path), "--converter-python", sys.executable)
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert f'\nconverter-python = "{sys.executable}"\n' in text
    command = shlex.join(["autoselect", "search", "--config", str(path)])
    assert text.startswith(f"# {command}\n")
    assert command in " ".join(done.output.split())


# ------------------------------------------------------------------------------------ shell completion


def completing(shell: str, **variables: str) -> str:
    environment = {**os.environ, "_AUTOSELECT_COMPLETE": shell, **variables}
    done = subprocess.run(
        [sys.executable, "-m", "autoselect"], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("se", ["search"]),
        ("search --max-d", ["--max-drop"]),
        ("search --help", ["--help", "--help-all"]),
        ("show --al", ["--all"]),
        ("search --fallback ", ["drq", "float", "search"]),
    ],
)
def test_a_shell_is_told_how_to_complete(typed: str, expected: list[str]) -> None:
    words = ["autoselect", *typed.split(" ")]
    told = completing("complete_bash", COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1))
    assert sorted(told.split()) == expected


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_a_shell_gets_its_script(shell: str, word: str) -> None:
    script = completing(f"source_{shell}")
    assert word in script
    assert "_AUTOSELECT_COMPLETE" in script


# ------------------------------------------------------------------------------------- signature and shapes


def test_a_signature_and_shapes_reach_the_search(called: dict[str, Any]) -> None:
    search_with('model = "m.tflite"\nsignature = "encode"\nshape = ["audio=1x16000", "mask=1x250"]\n')
    assert (called["signature"], called["shapes"]) == ("encode", {"audio": (1, 16000), "mask": (1, 250)})
    called.clear()
    invoke("search", "m.tflite", "--signature", "decode", "--shape", "audio=1x8000")
    assert (called["signature"], called["shapes"]) == ("decode", {"audio": (1, 8000)})
    called.clear()
    invoke("search", "m.tflite")
    assert (called["signature"], called["shapes"]) == (None, None)


def test_a_shape_that_is_none_is_refused(called: dict[str, Any]) -> None:
    done = invoke("search", "m.tflite", "--shape", "audio")
    assert (done.exit_code, called) == (2, {})
    assert "--shape" in done.output + done.stderr
