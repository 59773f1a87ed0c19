from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture
def loaders(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The experiments' loaders, importable as ``loaders``."""
    monkeypatch.setenv("AUTOSELECT_REAL_DATA", str(real_data))
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "real_models"))
    yield importlib.import_module("loaders")
    sys.modules.pop("loaders", None)
