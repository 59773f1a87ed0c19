from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import asked_page
import pytest

import autoselect
from autoselect import embedded


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run with 16-bit units, to be looked at but not changed."""
    folder = tmp_path_factory.mktemp("explored") / "run"
    autoselect.search(
        embedded.model_path(),
        calibration="autoselect.embedded:calibration",
        evaluation="autoselect.embedded:search_samples",
        heldout="autoselect.embedded:search_samples",
        allow_overlap=True,
        trials=14,
        repairs=False,
        early_exit=False,
        output=folder,
        workers=1,
    )
    return folder


@pytest.fixture
def copied(explored: Path, tmp_path: Path) -> Path:
    """A copy of it, which may be changed."""
    return Path(shutil.copytree(explored, tmp_path / "run"))


@pytest.fixture(scope="module")
def page(explored: Path) -> Iterator[asked_page.Asked]:
    """Its page, served by this process, to be asked but given no jobs."""
    with autoselect.load_run(explored).explore(browser=False) as served, asked_page.Asked(served.url) as asked:
        yield asked
