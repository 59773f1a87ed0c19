"""What every test shares: a quiet TensorFlow, the folder of real models, and Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import nursery

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real models and data."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("AUTOSELECT_REAL_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real models at {folder}; set AUTOSELECT_REAL_DATA")
    return folder


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], nursery.Sources]:
    """Gives the three sources of a net of the nursery by its name; each net is converted once for all processes."""
    import nursery

    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    root = shared / "nursery"
    root.mkdir(exist_ok=True)
    return lambda name: nursery.grown(name, root)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts raise, also in a shell's background job, which begins with them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
