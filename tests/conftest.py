"""What every test shares: a quiet TensorFlow and the folder of real models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
