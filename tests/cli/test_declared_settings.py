"""A setting is declared once: every surface has it from there, and nothing else in the package says it again."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import autoselect
from autoselect.cases import settings
from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.cli.config_file import keys_of
from autoselect.cli.init import config_text
from autoselect.cli.main import app
from autoselect.cli.search import search
from autoselect.study.recording.samplers import SAMPLERS

ROOT = Path(autoselect.__file__).resolve().parent
TABLE = ROOT.parent / "docs" / "options_table.py"
SETTLED_BY_THE_SEARCH = {"refining"}
SHELL = [name for name, option in declared().items() if option.only != "python"]
PYTHON = [name for name, option in declared().items() if option.only != "shell"]
FUNCTIONS = [
    autoselect.resume,
    autoselect.build,
    autoselect.diagnose,
    autoselect.evaluate,
    autoselect.inspect,
    autoselect.classification_report,
]
SEEN = {
    "model": "m.tflite",
    "size_bytes": 1,
    "inputs": [],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [1]}],
    "ops": {},
    "recurrent": False,
    "metric": "accuracy",
    "why": "so",
}
"""What ``init`` saw of a model."""


def plain(text: str) -> str:
    return " ".join(text.split())


def command(name: str) -> dict[str, Any]:
    """The parameters of a command as the command line has them."""
    found = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return {parameter.name: parameter for parameter in found.params}


def in_the_shell(name: str) -> Any:
    """The declared default as the command line has it."""
    option = declared()[name]
    if isinstance(option.default, tuple):
        return ",".join(option.default) or None
    return not option.default if option.turns_off else option.default


def key_of(name: str) -> str:
    (found,) = [key for key, one in keys_of(search).items() if one.name == name]
    return found


def test_every_field_is_offered() -> None:
    assert set(SearchSettings.model_fields) - set(declared()) == SETTLED_BY_THE_SEARCH
    assert all(option.help for option in declared().values())


@pytest.mark.parametrize("name", SHELL)
def test_a_setting_is_an_option(name: str) -> None:
    option, parameter = declared()[name], command("search")[name]
    assert parameter.help == told_of(name)
    assert parameter.default == in_the_shell(name)
    spelt = ["model"] if option.argument else re.split("[ /]", option.names)
    assert [*parameter.opts, *parameter.secondary_opts] == spelt


@pytest.mark.parametrize("name", PYTHON)
def test_a_setting_is_an_argument_with_a_sentence(name: str) -> None:
    option, parameter = declared()[name], inspect.signature(autoselect.search).parameters[name]
    assert parameter.annotation == option.type
    assert parameter.default == (inspect.Parameter.empty if option.argument else option.default)
    assert plain(f"{name}: {told_of(name, in_python=True)}") in plain(autoselect.search.__doc__ or "")


def test_there_are_no_other_options_and_arguments() -> None:
    assert list(inspect.signature(autoselect.search).parameters) == PYTHON
    assert set(command("search")) - set(SHELL) == {"config", "quiet", "as_json", "debug"}


@pytest.mark.parametrize("name", SHELL)
def test_a_setting_is_a_key_with_a_comment_and_a_row(name: str) -> None:
    key, default = key_of(name), in_the_shell(name)
    assert keys_of(search)[key].default == default
    assert keys_of(search)[key].help == told_of(name)
    written = config_text(SEEN, keys_of(search), "run.toml")
    assert plain(f"{key}: {told_of(name)}") in plain(written.replace("\n#", "\n"))
    if default is not None:
        assert f"{key} = {json.dumps(default)}\n" in written
    shown = "" if default is None else f"`{json.dumps(default)}`"
    assert re.search(rf"^\| `{key}` \| .* \| {re.escape(f'{shown} | {told_of(name)} |')}$", table(), flags=re.MULTILINE)


def table() -> str:
    spec = importlib.util.spec_from_file_location("options_table", TABLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written: str = module.on_page_markdown((TABLE.parent / "configuration.md").read_text(encoding="utf-8"))
    return written


def test_a_manifest_has_what_is_kept_and_nothing_else() -> None:
    kept = {name for name, option in declared().items() if option.kept}
    live = make_settings(calibration=open, evaluator=5, listener=print, output=Path("run"), model=b"")
    assert set(live.model_dump()) == kept | SETTLED_BY_THE_SEARCH
    json.dumps(live.model_dump())


def test_resume_takes_what_is_declared_for_it() -> None:
    changeable = {name for name, option in declared().items() if option.live or option.resume}
    for parameters in (command("resume"), inspect.signature(autoselect.resume).parameters):
        assert changeable <= set(parameters)
        assert set(parameters) & set(declared()) <= changeable | {"cache", "listener"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_other_functions_mean_the_same_by_a_name(function: Callable[..., Any]) -> None:
    for name, parameter in inspect.signature(function).parameters.items():
        assert re.search(rf"^    {name}: \S", function.__doc__ or "", flags=re.MULTILINE), name
        if name in declared() and parameter.default not in (None, inspect.Parameter.empty):
            assert parameter.default == declared()[name].default, name


def test_the_samplers_are_those_that_exist() -> None:
    assert set(get_args(settings.Sampler)) == set(SAMPLERS)


CALLS = """\
import autoselect
autoselect.search(model="m.tflite", keep_float=["SOFTMAX"], metric=max, max_size=4e5).front
autoselect.search("m.tflite", trials="many")
autoselect.search("m.tflite", trails=3)
autoselect.search("m.tflite", sampler="tpi")
"""


@pytest.mark.slow
def test_type_checkers_know_the_arguments(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    (tmp_path / "calls.py").write_text(CALLS, encoding="utf-8")
    told, _, _ = api.run(
        [
            "--follow-imports=silent",
            "--config-file",
            str(TABLE.parents[1] / "pyproject.toml"),
            str(tmp_path / "calls.py"),
        ]
    )
    assert re.findall(r"calls.py:(\d+): error: ", told) == ["3", "4", "5"], told


OTHER_FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != Path(settings.__file__)]
OF_SEVERAL_COMMANDS = {"--output", "-o"}
"""Each command writes something else."""


def test_nothing_else_spells_or_explains_an_option() -> None:
    spelt = {part for option in declared().values() for part in (option.names, *option.names.split())}
    sentences = [option.help for option in declared().values()]
    for path in OTHER_FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in spelt - OF_SEVERAL_COMMANDS, f"{path.name}:{node.lineno}"
                assert not [told for told in sentences if told in node.value], f"{path.name}:{node.lineno}"
