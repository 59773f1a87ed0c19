"""What is broken in each node, as the run folder has it."""

from __future__ import annotations

import csv
import math
from concurrent.futures import Future
from pathlib import Path

import pytest

from autoselect.cases.cure_jobs import Cured
from autoselect.domain.findings import ErrorParts
from autoselect.errors import TrialError, WorkerDied
from autoselect.quantize.diagnosing.cures import Cure
from autoselect.runs.folder import RunFolder
from autoselect.study.finishing.cured import CURE_COLUMNS, Cures, write_cures


def test_parts_are_told_in_decibels(tmp_path: Path) -> None:
    running: Future[Cures] = Future()
    parts = ErrorParts(weights=math.nan, shift=math.nan, activations=1e-2, narrowed=1e-2)
    running.set_result({"a,b": Cured(parts=parts, cure=Cure(name="16 bit", reason="why", broken="activations"))})
    assert write_cures(running, RunFolder(tmp_path)) == []
    with (tmp_path / "cures.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [list(CURE_COLUMNS), ["a,b", "", "20.0", "activations", "16 bit", "why"]]


@pytest.mark.parametrize("error", [WorkerDied("It was killed."), TrialError("No.")])
def test_what_could_not_be_measured_is_said_and_ends_no_search(tmp_path: Path, error: TrialError) -> None:
    running: Future[Cures] = Future()
    running.set_exception(error)
    (said,) = write_cures(running, RunFolder(tmp_path))
    assert str(error) in said
    assert not (tmp_path / "cures.csv").exists()
