"""The documentation's examples run."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autoselect.cli.config_file import keys_of
from autoselect.cli.main import app
from autoselect.cli.search import search
from autoselect.embedded import calibration, model_bytes, search_samples

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL, OTHER_TOOLS = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "other-tools.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_A_RUN = (TUTORIAL, OTHER_TOOLS)
"""Their blocks go on from a search, and are run after one."""


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a reader would have it: a model and its data under the names that the pages use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(model_bytes())
    np.savez("calibration.npz", x=np.concatenate([sample[0] for sample in calibration()]))
    windows, labels = zip(*list(search_samples())[:200], strict=True)
    np.savez("labelled.npz", x=np.stack(windows), y=np.array(labels))
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WITH_A_RUN], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, workspace: Path) -> None:
    for written in _blocks(page, "python"):
        block = written.replace("trials=20", "trials=8")
        exec(compile(block, f"{page.name} in {workspace}", "exec"), {"__name__": "documentation"})


def test_readme_commands_run(workspace: Path) -> None:
    commands = [
        line.split("#")[0].strip()
        for block in _blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if line.startswith("autoselect ")
    ]
    assert [shlex.split(c)[1] for c in commands] == ["search", "pick", "resume", "build", "evaluate"]
    for written in commands:
        command = written.replace("--trials 100", "--trials 8").replace("--trials 200", "--trials 10")
        if "ID" in command:
            recipe = next((workspace / "autoselect-run" / "front").glob("*.recipe.json"))
            command = command.replace("ID.recipe.json", recipe.name)
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
    assert (workspace / "model_int8.tflite").exists()
    assert (workspace / "same.tflite").exists()


def _run_python(block: str, namespace: dict[str, object]) -> None:
    exec(compile(block, "a page", "exec"), namespace)


def _run_commands(block: str) -> None:
    for written in block.splitlines():
        command = written.split("#")[0].strip().replace("--trials 30", "--trials 8")
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.slow
def test_tutorial_runs_in_its_order_and_other_tools_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "documentation"}
    blocks = re.findall(r"```(\w+)\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert {language for language, _ in blocks} == {"python", "sh"}
    for language, block in blocks:
        _run_python(block, namespace) if language == "python" else _run_commands(block)
    assert (tmp_path / "model_int8.tflite").exists()
    (tmp_path / "tutorial-run").rename(tmp_path / "autoselect-run")
    for language in ("python", "sh"):
        for block in _blocks(OTHER_TOOLS, language):
            _run_python(block, {"__name__": "documentation"}) if language == "python" else _run_commands(block)


def test_the_files_of_the_docs_have_keys_that_exist() -> None:
    blocks = _blocks(ROOT / "docs" / "configuration.md", "toml")
    assert blocks
    assert all(set(tomllib.loads(block)) <= set(keys_of(search)) for block in blocks)


def test_search_space_of_the_docs_is_valid(tmp_path: Path) -> None:
    from autoselect.study.setup.space_file import read_space

    (block,) = _blocks(ROOT / "docs" / "how-to.md", "toml")
    path = tmp_path / "mine.toml"
    path.write_text(block, encoding="utf-8")
    assert [choice.kind for choice in read_space(str(path)).choices] == ["nodes", "trailing"]


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
