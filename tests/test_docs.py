"""The documentation's examples run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from autoselect import errors
from autoselect.cli.config_file import keys_of
from autoselect.cli.main import app
from autoselect.cli.search import search
from autoselect.embedded import calibration, model_bytes, search_samples
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import MEASURED_COLUMNS, front_columns, trial_columns
from autoselect.scoring.target_file import read_target
from autoselect.study.finishing.cured import CURE_COLUMNS
from autoselect.study.finishing.explain import ISLAND_COLUMNS, SENSITIVITY_COLUMNS
from autoselect.study.finishing.limits_file import COLUMNS as LIMIT_COLUMNS
from autoselect.study.finishing.on_chip import OnChip, write_chip_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL, OTHER_TOOLS = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "other-tools.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in WITH_A_RUN], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_blocks_run(page: Path, workspace: Path) -> None:
    for written in _blocks(page, "python"):
        block = written.replace("trials=20", "trials=8")
        exec(compile(block, f"{page.name} in {workspace}", "exec"), {"__name__": "documentation"})


def _commands(*pages: Path) -> list[str]:
    """The lines of a page that a reader types."""
    lines = [line for page in pages for block in _blocks(page, "sh") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("autoselect ")]


def test_the_files_of_the_readme_can_be_made(workspace: Path) -> None:
    arrays = dict(np.load("labelled.npz"))
    np.save("unlabelled_x.npy", arrays["x"][:100])
    np.save("x.npy", arrays["x"])
    np.save("y.npy", arrays["y"])
    (script,) = re.findall(r"<<'END'\n(.*?)END\n", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(script, {})
    assert set(np.load("labelled.npz").files) == {"x", "y"}
    assert len(np.load("calibration.npz")["x"]) == 100


def test_commands_of_the_readme_and_of_guides_run(workspace: Path) -> None:
    guides = [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("check", "resume", "report", "inspect")]
    commands = [c for c in _commands(ROOT / "README.md", *guides) if c != "autoselect demo" and "--json" not in c]
    told = [
        "search",
        "pick",
        "search",
        "pick",
        "check",
        "resume",
        "build",
        "show",
        "report",
        "inspect",
        "inspect",
        "inspect",
        "inspect",
        "evaluate",
    ]
    assert [shlex.split(c)[1] for c in commands] == told
    has_compiler = importlib.util.find_spec("onnxruntime_qnn") is not None
    for written in commands:
        if "phone-run" in written and not has_compiler:
            continue
        command = written.replace("--trials 100", "--trials 8").replace("--trials 200", "--trials 10")
        command = command.replace("-o phone-run", "-o phone-run --trials 8 --emulation-samples 8")
        if "ID" in command:
            recipe = next((workspace / "autoselect-run" / "front").glob("*.recipe.json"))
            command = command.replace("ID.recipe.json", recipe.name)
        command = command.replace(
            "autoselect-run/front/*.tflite", " ".join(map(str, Path("autoselect-run").glob("front/*.tflite")))
        )
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

    (block,) = _blocks(ROOT / "docs" / "how-to" / "search-space.md", "toml")
    path = tmp_path / "mine.toml"
    path.write_text(block, encoding="utf-8")
    assert [choice.kind for choice in read_space(str(path)).choices] == ["nodes", "trailing"]


@pytest.mark.parametrize("number", range(2))
def test_profiles_of_the_docs_are_read(number: int, tmp_path: Path) -> None:
    block = _blocks(ROOT / "docs" / "how-to" / "target.md", "toml")[number]
    path = tmp_path / "mine.toml"
    path.write_text(block, encoding="utf-8")
    assert f'name = "{read_target(str(path)).name}"' in block


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_options_of_the_pages_exist(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for written in _commands(page):
        words = shlex.split(written.split("|")[0])
        if words[1].startswith("-"):
            continue  # an option of autoselect itself
        known = {name for p in group.commands[words[1]].params for name in (*p.opts, *p.secondary_opts)}
        assert {word.split("=")[0] for word in words[2:] if word.startswith("-")} <= known, written


def test_each_command_has_its_job_on_the_page_of_commands() -> None:
    group: Any = typer.main.get_command(app)
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\| `autoselect ([\w-]+)", page)) == set(group.commands)


def test_the_errors_of_the_faq_are_said_somewhere() -> None:
    """Each quoted piece stands in the package, whichever strings it is put together of."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "autoselect").rglob("*.py")]
    said = re.sub(r'"\s*f?"', "", "\n".join(texts))
    faq = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    quoted = [
        piece for head in re.findall(r"^### (.*)$", faq, flags=re.MULTILINE) for piece in re.findall(r'"(.*?)"', head)
    ]
    pieces = [part.strip(" ,") for piece in quoted for part in piece.split("...") if part.strip(" ,")]
    assert len(pieces) > 10
    assert [part for part in pieces if part not in said] == []


def test_every_column_of_the_tables_is_explained() -> None:
    written = (ROOT / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+)`", written))
    measured = tuple(MEASURED_COLUMNS)
    columns = {
        *trial_columns("METRIC", measured),
        *front_columns("METRIC", measured),
        *SENSITIVITY_COLUMNS,
        *ISLAND_COLUMNS,
        *CURE_COLUMNS,
        *LIMIT_COLUMNS,
    }
    assert columns - explained == {"METRIC"}


def test_every_column_of_the_table_of_chips_is_explained(tmp_path: Path) -> None:
    made = {"segments": 1, "host_ops": {}, "ddr_bytes": 0, "cost": 1.0}
    table = tmp_path / "chip.csv"
    write_chip_table(table, [OnChip(chip="a", compiled={"b": made})])
    written = (ROOT / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
    section = written.partition("## Columns of `chip.csv`")[2].partition("\n## ")[0]
    assert set(table.read_text(encoding="utf-8").splitlines()[0].split(",")) == set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `")))
    )


def test_every_file_of_a_run_folder_is_explained(tmp_path: Path) -> None:
    written = (ROOT / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
    paths = [path.relative_to(tmp_path) for path in vars(RunFolder(tmp_path)).values() if path != tmp_path]
    seen = {path.name for path in paths if not path.parts[0].startswith(".")}
    assert {name for name in seen if f"`{name}" not in written} == set()


def test_every_exit_code_is_explained() -> None:
    written = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", written, flags=re.MULTILINE)} == {0, *codes, 10, 130, 141}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target and target != "notebook.md":  # made of the notebook as the site is built
                assert (page.parent / target).exists(), f"{page.name}: {target}"
