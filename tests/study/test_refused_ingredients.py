"""What a resumed search refuses, by its manifest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoselect.cases.versions import versions
from autoselect.errors import RunFolderError
from autoselect.runs.folder import RunFolder
from autoselect.study.recording.manifest import refuse_other_ingredients


def refused(tmp_path: Path, settings: dict[str, Any], **hashes: str) -> None:
    manifest = {"settings": settings, "hashes": hashes, "versions": versions()}
    refuse_other_ingredients(RunFolder(tmp_path), manifest, SimpleNamespace(hashes=hashes))  # type: ignore[arg-type]


def test_samples_that_were_split_otherwise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="split samples in another way"):
        refused(tmp_path, {"seed": 1}, evaluation="e")


def test_samples_that_are_split_alike_are_not_refused(tmp_path: Path) -> None:
    refused(tmp_path, {"seed": 1, "split_seed": 0}, evaluation="e")
    refused(tmp_path, {"seed": 1}, evaluation="e", heldout="h")
    refused(tmp_path, {"seed": 1})
