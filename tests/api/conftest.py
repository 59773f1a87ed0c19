from __future__ import annotations

import pump
import pytest

import autoselect


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    """A complete run of 20 trials, to be looked at but not changed."""
    return pump.search(tmp_path_factory.mktemp("finished") / "run", trials=20, seed=1, repairs=True)
