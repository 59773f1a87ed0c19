"""What was converted or run to be loaded is kept: the second search of a model does neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoselect.cases.calibrate import load_float
from autoselect.cases.files import CaseFiles
from autoselect.embedded import model_bytes
from autoselect.isolation.pool import WorkerPool
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import reader


class Nobody:
    """Workers that take no job."""

    def submit(self, *_job: Any, **_how: Any) -> Any:
        raise AssertionError("nothing need be done")


def test_a_model_is_converted_or_run_once(tmp_path: Path, session_workers: WorkerPool) -> None:
    spec = reader.read_interface(model_bytes()).inputs[0]
    source = tmp_path / "model.tflite"
    source.write_bytes(model_bytes())

    def load(pool: Any, name: str, **given: Any) -> bytes:
        files = CaseFiles(root=tmp_path / name)
        how = {"wishes": wishes_of(None, {spec.key: spec.shape}), "cache_root": tmp_path / "cache", **given}
        found = load_float(source, files, pool, **how)
        assert files.float_model.read_bytes() == found.content
        return found.content

    with session_workers.lent(tmp_path / "worker.log") as pool:
        first = load(pool, "first")
    assert load(Nobody(), "second") == first
    with pytest.raises(AssertionError):
        load(Nobody(), "uncached", cache_root=None)
    source.write_bytes(model_bytes() + b"0000")
    with pytest.raises(AssertionError):
        load(Nobody(), "other content")
