"""What every test shares: a quiet TensorFlow, the folder of real models, a browser, and Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import hypothesis
import pytest
from reviewing import AGAIN, PAGE, Reviewed

from autoselect.isolation import pool as pool_module
from autoselect.isolation.pool import Lease, WorkerPool, shared
from autoselect.quantize.preparing import converter
from autoselect.study.setup import repeatability

if TYPE_CHECKING:
    import nursery
    from playwright.sync_api import Browser

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# How long it takes to make an example, or to try it, says how busy the machine is, and nothing of the code.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker has its part of the slow tests first: what is left at the end is short, and no worker waits long.

    xdist gives each worker a run of neighbours, and those that are done take over from the others' ends.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    slow, quick = ([i for i in items if bool(i.get_closest_marker("slow")) is which] for which in (True, False))
    ends = [len(quick) * n // workers for n in range(workers + 1)]
    items[:] = [i for n in range(workers) for i in (*slow[n::workers], *quick[ends[n] : ends[n + 1]])]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(AGAIN, action="store_true", help=f"write the texts of {PAGE} anew; in one process")


@pytest.fixture
def reviewed(request: pytest.FixtureRequest) -> Reviewed:
    """Compares a text with the one of its kind that a person has read."""
    return Reviewed(page=request.path.with_name(PAGE), is_rewritten=request.config.getoption(AGAIN))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real models and data."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("AUTOSELECT_REAL_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real models at {folder}; set AUTOSELECT_REAL_DATA")
    return folder


NEEDED = "AUTOSELECT_NEEDS_BROWSER"
"""Where this is set, as in CI, a missing browser is a failure."""


def _missing(reason: str) -> None:
    text = f"{reason} Install it with `apt-get install chromium` and `pip install playwright`."
    if os.environ.get(NEEDED):
        pytest.fail(f"{NEEDED} is set, but {text}")
    pytest.skip(text)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed.")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        _missing("no Chromium was found.")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this run of the tests."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def cache(common: Path) -> Iterator[Path]:
    """A cache of the tests' own, shared by them and in place of the user's: calibration is done once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = common / "cache"
        patch.setenv("AUTOSELECT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def few_repeats() -> Iterator[None]:
    """Searches run a model twice to see whether its outputs repeat, instead of for a third of a second.

    That was a third of a short search. How many runs a time allows, and that they find what is rare, have tests of
    their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeatability, "SECONDS", 0.0)
        yield


@pytest.fixture(scope="session")
def grown(common: Path) -> Callable[[str], nursery.Sources]:
    """Gives the three sources of a net of the nursery by its name; each net is converted once for all processes."""
    import nursery

    root = common / "nursery"
    root.mkdir(exist_ok=True)
    return lambda name: nursery.grown(name, root)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], ModuleType]:
    """Imports a script by its path, under a name with that of its folder: others have the same name."""

    def load(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


class LazyPool(WorkerPool):
    """One worker that starts when something first needs one."""

    def __init__(self, log: Path) -> None:
        self._kept_log = log
        self._is_open = False

    @contextlib.contextmanager
    def lent(self, log: Path) -> Iterator[Lease]:
        if not self._is_open:
            super().__init__(1, log=self._kept_log, warm_up=converter.import_tensorflow)
            self._is_open = True
        with super().lent(log) as pool:
            yield pool

    def close(self) -> None:
        if self._is_open:
            super().close()


@pytest.fixture(scope="session")
def session_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Importing TensorFlow takes longer than most searches of the tests."""
    with contextlib.closing(LazyPool(tmp_path_factory.mktemp("workers") / "worker.log")) as pool:
        yield pool


@pytest.fixture(scope="module", autouse=True)
def share_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of a module share the session's worker, but for those marked ``own_workers``, which are about processes."""
    if request.node.get_closest_marker("own_workers"):
        yield
        return
    with shared(request.getfixturevalue("session_workers")):
        yield


@pytest.fixture(autouse=True)
def own_workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single test that is about processes has its own."""
    if request.node.get_closest_marker("own_workers"):
        monkeypatch.setattr(pool_module, "_shared", [])


@pytest.fixture(autouse=True)
def still_heap() -> Iterator[None]:
    """What a test leaves is out of the garbage collector's sight.

    TensorFlow's converter collects garbage at each model. In a process that had done a thousand tests, to walk through
    all that these had left took longer than the conversion itself.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts raise, also in a shell's background job, which begins with them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
