from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pump
import pytest

import autoselect


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own, shared by them: calibration is done once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("AUTOSELECT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> autoselect.Run:
    """A complete run of 20 trials, to be looked at but not changed."""
    return pump.search(tmp_path_factory.mktemp("finished") / "run", trials=20, seed=1)
