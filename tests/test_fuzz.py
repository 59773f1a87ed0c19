"""Mutants of models do no harm to the process that reads them; ``experiments/fuzz`` has many more."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from autoselect.embedded import model_bytes

FUZZ = Path(__file__).resolve().parents[1] / "experiments" / "fuzz"
TABLE = FUZZ / "results" / "table.md"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch, script: Callable[[Path], ModuleType]) -> ModuleType:
    """experiments/fuzz/run.py, whose name others have as well."""
    monkeypatch.syspath_prepend(str(FUZZ))
    return script(FUZZ / "run.py")


def test_mutants_are_the_same_for_a_seed_and_differ_from_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FUZZ))
    mutants = importlib.import_module("mutants").mutants
    found = list(mutants(model_bytes(), 28, 0))
    assert found == list(mutants(model_bytes(), 28, 0))
    assert len({kind for kind, _ in found}) == 14
    assert all(content != model_bytes() for _, content in found)


@pytest.mark.slow
@pytest.mark.own_workers
@pytest.mark.parametrize("name", ["embedded", "autoencoder with WHILE and IF"])
def test_no_mutant_kills_the_parent_or_leaves_its_folder(fuzz: ModuleType, name: str) -> None:
    found = fuzz.fuzzed(fuzz.MODELS[name](), 30, seed=1)
    counts = fuzz.counted(found)
    assert sum(counts.values()) == 30
    assert [row for row in found["rows"] if "traceback" in {kind for kind, _ in row["found"].values()}] == []
    assert (counts["parent killed"], found["outside"]) == (0, [])
    assert counts["refused"] > 5
    assert found["peak_bytes"] < 4 << 30


@pytest.mark.parametrize("page", [FUZZ / "README.md", FUZZ.parents[1] / "docs" / "security.md"])
def test_the_table_of_mutants_is_what_was_counted(page: Path) -> None:
    table = TABLE.read_text(encoding="utf-8")
    assert table in page.read_text(encoding="utf-8")
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(head)}
    assert len(rows) == 5
    assert sum(map(int, columns["tried"])) >= 1000
    for name in ("traceback", "parent killed", "written outside"):
        assert set(columns[name]) == {"0"}
