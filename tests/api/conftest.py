from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pump
import pytest

import autoselect
from autoselect.api import searching

DRAWN = searching.drawn


@contextlib.contextmanager
def drawing(how: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "drawn", how)
        yield


@pytest.fixture(scope="module", autouse=True)
def few_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Searches of a module draw neither figure nor page, a fifth of a short one, unless it is marked ``drawn``."""
    is_drawn = request.node.get_closest_marker("drawn")
    with drawing(DRAWN if is_drawn else lambda folder: searching.load_run(folder.root)):
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    """A complete run of 20 trials, to be looked at but not changed."""
    with drawing(DRAWN):
        return pump.search(tmp_path_factory.mktemp("finished") / "run", trials=20, seed=1, repairs=True)
