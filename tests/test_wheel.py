"""What an installed wheel carries besides the code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The files inside a wheel of this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--wheel-dir", str(folder)]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("autoselect-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def test_search_spaces_travel_inside_the_package(names: frozenset[str]) -> None:
    source = {path.relative_to(ROOT / "search_spaces") for path in ROOT.glob("search_spaces/**/*.toml")}
    assert source, "search_spaces/ holds no .toml file"
    assert {f"autoselect/_search_spaces/{path.as_posix()}" for path in source} <= names


def test_demo_models_travel(names: frozenset[str]) -> None:
    source = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("autoselect/embedded/*.tflite")}
    assert source, "autoselect/embedded/ holds no .tflite file"
    assert source <= names


def test_the_pages_parts_travel_with_their_licence(names: frozenset[str]) -> None:
    folders = ("templates", "vendor")
    source = {path.relative_to(ROOT).as_posix() for name in folders for path in ROOT.glob(f"autoselect/*/{name}/*")}
    parts = {"report.html.j2", "report.css", "report.js", "explore.html.j2", "explore.css", "explore.js"}
    assert {Path(name).name for name in source} >= {*parts, "graph_view.js", "plotly-basic.min.js"}
    assert source <= names
    assert any(name.endswith("licenses/autoselect/report/vendor/plotly-LICENSE.txt") for name in names)


def test_type_marker_travels(names: frozenset[str]) -> None:
    assert "autoselect/py.typed" in names


def test_every_module_travels(names: frozenset[str]) -> None:
    source = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("autoselect/**/*.py")}
    assert source <= names


def test_nothing_else_travels(names: frozenset[str]) -> None:
    strangers = {name for name in names if name.split("/")[0].split("-")[0] != "autoselect"}
    assert not strangers
