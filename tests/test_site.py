"""The site builds without a warning, and the notebook runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = (tmp_path / "site" / "reference" / "functions" / "index.html").read_text(encoding="utf-8")
    for name in (
        "search",
        "resume",
        "demo",
        "diagnose",
        "evaluate",
        "build",
        "pick",
        "inspect",
        "classification_report",
    ):
        assert f">{name}<" in written
    assert "Largest loss of the metric, in its units." in written  # an argument's docstring


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} | {"notebook.md"}
    named = re.findall(
        r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert sorted(named) == sorted(pages)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert (tmp_path / "notebook-run" / "front.csv").exists()
