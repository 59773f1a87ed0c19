"""Options have one name on the command line and in Python; the old ones are taken and told of once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from autoselect.cases.declared import declared
from autoselect.cases.option import Option
from autoselect.cli import parsing as module
from autoselect.cli.config_file import read_config
from autoselect.cli.main import app
from autoselect.cli.parsing import renamed
from autoselect.cli.search import search

OWN_SPELLING = {"latency", "shapes", "cache", "insecure"}
"""Repeatable options are in the singular, and a switch may be named after what it turns off."""


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    module._told.cache_clear()


@pytest.mark.parametrize("option", declared().values(), ids=lambda option: option.name)
def test_an_option_is_called_as_in_python(option: Option) -> None:
    if option.name not in OWN_SPELLING and not option.argument:
        assert re.split("[ /]", option.names)[0] == f"--{option.name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--eval", "--evaluation"),
        ("--eval=x.npz", "--evaluation=x.npz"),
        ("--io", "--io-type"),
        ("--no-compile", "--no-compiling"),
        ("--evaluation", "--evaluation"),
        ("eval", "eval"),
    ],
)
def test_old_names(old: str, new: str) -> None:
    assert renamed(old) == new


def test_an_old_name_works_and_is_told_once() -> None:
    """The command gets as far as the file that is not there."""
    done = CliRunner().invoke(app, ["evaluate", "none.tflite", "--eval", "a.npz", "--eval=a.npz"])
    assert done.exit_code == 3, done.output
    assert done.stderr.count("--evaluation now") == 1
    assert "file none.tflite" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["--target", "tflm", "--target=litert-cpu"], "--target"),
        (["--eval", "a.npz", "--evaluation", "b.npz"], "--evaluation"),
        (["-o", "a", "--output", "b"], "--output"),
        (["--target", "tflm", "--target", "tflm"], None),
        (["--keep-float", "a", "--keep-float", "b"], None),
        (["--output", "--target", "--target", "tflm"], None),
    ],
)
def test_an_option_of_one_value_is_given_once(arguments: list[str], refused: str | None) -> None:
    """Before, the last value counted, and a search ran for one of two targets."""
    done = CliRunner().invoke(app, ["search", "none.tflite", *arguments], terminal_width=300)
    assert ("given twice" in done.stderr) == (refused is not None)
    assert refused is None or (done.exit_code, f"'{refused}'" in done.stderr) == (2, True)


def test_a_line_that_a_shell_completes_is_not_refused() -> None:
    command = get_command(app)
    with command.make_context("autoselect", ["search"], resilient_parsing=True) as context:
        arguments = ["none.tflite", "--target", "tflm", "--target", "litert-cpu"]
        search = command.get_command(context, "search")
        search.make_context("search", arguments, parent=context, resilient_parsing=True)
        with pytest.raises(typer.BadParameter):
            search.make_context("search", arguments, parent=context)


def test_after_two_dashes_nothing_is_an_option() -> None:
    done = CliRunner().invoke(app, ["evaluate", "--evaluation", "a.npz", "--", "--eval"])
    assert "is called" not in done.stderr


def test_an_old_key_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text('eval = "a.npz"\nio = "int8"\n', encoding="utf-8")

    class Context:
        resilient_parsing = False
        default_map: dict[str, object]

    context = Context()
    read_config(context, str(tmp_path / "run.toml"), search)  # type: ignore[arg-type]
    assert context.default_map == {"evaluation": "a.npz", "io_type": "int8"}
    assert "--io-type now" in capsys.readouterr().err
