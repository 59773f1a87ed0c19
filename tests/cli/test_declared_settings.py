"""A setting is declared once: every surface has it from there, and nothing else in the package says it again."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import autoselect
from autoselect.cases import settings, shared_settings
from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.cases.settled import Facts, kept_of
from autoselect.cases.shared_settings import SharedSettings
from autoselect.cli.config_file import config_text, keys_of
from autoselect.cli.diagnose import diagnose
from autoselect.cli.main import app
from autoselect.cli.search import search
from autoselect.diagnosis import settings as diagnosis_settings
from autoselect.diagnosis.settings import DiagnosisSettings
from autoselect.domain.pinned import Pins
from autoselect.study.recording.samplers import SAMPLERS

ROOT = Path(autoselect.__file__).resolve().parent
TABLE = ROOT.parent / "docs" / "options_table.py"
FOUND_BY_THE_SEARCH = {"added_noise", "repair_sets"}
KINDS: dict[str, type[SharedSettings]] = {"search": SearchSettings, "diagnose": DiagnosisSettings}
"""What is declared of the functions and commands of these names."""
COMMANDS = {"search": search, "diagnose": diagnose}
SHELL = [(of, name) for of, kind in KINDS.items() for name, told in declared(kind).items() if told.only != "python"]
PYTHON = [(of, name) for of, kind in KINDS.items() for name, told in declared(kind).items() if told.only != "shell"]
OWN_WORDS = {("diagnose", "integer")}
"""Arguments that the function's own docstring explains."""
FUNCTIONS = [
    autoselect.resume,
    autoselect.build,
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


def in_the_shell(of: str, name: str) -> Any:
    """The declared default as the command line has it."""
    option = declared(KINDS[of])[name]
    if isinstance(option.default, tuple):
        return ",".join(option.default) or None
    return not option.default if option.turns_off else option.default


def key_of(of: str, name: str) -> str:
    (found,) = [key for key, one in keys_of(COMMANDS[of]).items() if one.name == name]
    return found


def test_every_field_is_offered() -> None:
    assert set(SearchSettings.model_fields) == set(declared())
    assert set(DiagnosisSettings.model_fields) == set(declared(DiagnosisSettings))
    assert all(option.help for kind in KINDS.values() for option in declared(kind).values())


def test_what_both_are_told_is_declared_once() -> None:
    for name in SharedSettings.model_fields:
        assert declared(SearchSettings)[name] == declared(DiagnosisSettings)[name]
        assert not [kind for kind in KINDS.values() if name in inspect.get_annotations(kind)]


@pytest.mark.parametrize(("of", "name"), SHELL)
def test_a_setting_is_an_option(of: str, name: str) -> None:
    option, parameter = declared(KINDS[of])[name], command(of)[name]
    assert parameter.help == told_of(name, KINDS[of])
    assert parameter.default == in_the_shell(of, name)
    spelt = ["model"] if option.argument else re.split("[ /]", option.names)
    assert [*parameter.opts, *parameter.secondary_opts] == spelt


@pytest.mark.parametrize(("of", "name"), PYTHON)
def test_a_setting_is_an_argument_with_a_sentence(of: str, name: str) -> None:
    function = getattr(autoselect, of)
    option, parameter = declared(KINDS[of])[name], inspect.signature(function).parameters[name]
    assert parameter.annotation == option.type
    assert parameter.default == (inspect.Parameter.empty if option.argument else option.default)
    told = f"{name}: " if (of, name) in OWN_WORDS else f"{name}: {told_of(name, KINDS[of], in_python=True)}"
    assert plain(told) in plain(function.__doc__ or "")


@pytest.mark.parametrize(
    ("of", "others"),
    [
        ("search", {"config", "quiet", "verbose", "as_json", "debug", "help_all"}),
        ("diagnose", {"as_json", "debug", "help_all"}),
    ],
)
def test_there_are_no_other_options_and_arguments(of: str, others: set[str]) -> None:
    assert [(of, name) for name in inspect.signature(getattr(autoselect, of)).parameters] == [
        told for told in PYTHON if told[0] == of
    ]
    assert {(of, name) for name in set(command(of)) - others} == {told for told in SHELL if told[0] == of}


@pytest.mark.parametrize("name", [name for of, name in SHELL if of == "search"])
def test_a_setting_of_a_search_is_a_key_with_a_comment(name: str) -> None:
    key, default = key_of("search", name), in_the_shell("search", name)
    assert keys_of(search)[key].default == default
    assert keys_of(search)[key].help == told_of(name)
    written = config_text(SEEN, keys_of(search), "run.toml")
    assert plain(f"{key}: {told_of(name)}") in plain(written.replace("\n#", "\n"))
    if default is not None:
        assert f"{key} = {json.dumps(default)}\n" in written


@pytest.mark.parametrize(("of", "name"), SHELL)
def test_a_setting_has_a_row(of: str, name: str) -> None:
    default = in_the_shell(of, name)
    shown = "" if default is None else f"`{json.dumps(default)}`"
    row = rf"^\| `{key_of(of, name)}` \| .* \| {re.escape(f'{shown} | {told_of(name, KINDS[of])} |')}$"
    assert re.search(row, page({"search": "configuration.md", "diagnose": "diagnosis.md"}[of]), flags=re.MULTILINE)


def page(name: str) -> str:
    spec = importlib.util.spec_from_file_location("options_table", TABLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written: str = module.on_page_markdown((TABLE.parent / name).read_text(encoding="utf-8"))
    return written


def test_a_manifest_has_what_is_kept_and_nothing_else() -> None:
    kept = {name for name, option in declared().items() if option.kept}
    live = make_settings(calibration=open, evaluator=5, listener=print, output=Path("run"), model=b"")
    assert set(kept_of(live, Facts())) == kept | FOUND_BY_THE_SEARCH
    json.dumps(kept_of(live, Facts()))


def test_resume_takes_what_is_declared_for_it() -> None:
    changeable = {name for name, option in declared().items() if option.live or option.resume}
    for parameters in (command("resume"), inspect.signature(autoselect.resume).parameters):
        assert changeable <= set(parameters)
        own = {"cache", "listener", "progress", *(field.name for field in fields(Pins))}  # Pins are of trials to come.
        assert set(parameters) & set(declared()) <= changeable | own


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
autoselect.diagnose("m.tflite", ablate=5, layer_debug_metrics={"mine": max}).layer_statistics
autoselect.diagnose("m.tflite", trials=3)
autoselect.search("m.tflite", calibration=5)
autoselect.search("m.tflite", calibration=lambda: [[1.0]], evaluation=([1.0], [0]), max_size="48kB", progress=False)
autoselect.evaluate("m.tflite", evaluation="e.npz").samples.bit_length()
"""


@pytest.mark.slow
def test_type_checkers_know_the_arguments(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    (tmp_path / "calls.py").write_text(CALLS, encoding="utf-8")
    # With the options of the lint, whose cache is then used.
    told, _, _ = api.run(["--config-file", str(TABLE.parents[1] / "pyproject.toml"), str(tmp_path / "calls.py")])
    assert re.findall(r"calls.py:(\d+): error: ", told) == ["3", "4", "5", "7", "8"], told


DECLARING = {Path(str(module.__file__)) for module in (settings, shared_settings, diagnosis_settings)}
OTHER_FILES = sorted(set(ROOT.rglob("*.py")) - DECLARING)
OF_SEVERAL_COMMANDS = {"--output", "-o"}
"""Each command writes something else."""


def test_nothing_else_spells_or_explains_an_option() -> None:
    options = [option for kind in KINDS.values() for option in declared(kind).values()]
    spelt = {part for option in options for part in (option.names, *option.names.split())}
    sentences = [option.help for option in options]
    for path in OTHER_FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in spelt - OF_SEVERAL_COMMANDS, f"{path.name}:{node.lineno}"
                assert not [told for told in sentences if told in node.value], f"{path.name}:{node.lineno}"
