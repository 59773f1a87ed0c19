"""Whether a search may go on if the float model scores otherwise than when it began, or each time."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from settling import settled

from autoselect.errors import MetricError, RunFolderError, ScoreError
from autoselect.study.references import other_score, unsteady

SAME, WARNED, REFUSED = "same", "warned", "refused"
CASES = {
    "other last digits, on either side of what is printed": (0.91249999, 0.91250001, None, SAME),
    "the same with no allowed drop": (0.91249999, 0.91250001, 0.0, SAME),
    "less than the usual drop": (0.92, 0.915, None, WARNED),
    "what is printed alike": (0.9201, 0.9204, None, WARNED),
    "what is printed alike, and more than the allowed drop": (0.9201, 0.9204, 0.0001, REFUSED),
    "more than the usual drop": (0.92, 0.90, None, REFUSED),
    "a demanded gain": (0.92, 0.915, -0.01, REFUSED),
    "a score that is not known any more": (0.92, float("nan"), None, REFUSED),
}


@pytest.mark.parametrize(("before", "now", "max_drop", "expected"), CASES.values(), ids=CASES)
def test_a_float_model_that_scores_otherwise_is_told(
    before: float, now: float, max_drop: float | None, expected: str
) -> None:
    settings = settled(max_drop=max_drop)
    if expected == REFUSED:
        with pytest.raises(RunFolderError):
            other_score(before, now, "accuracy", settings)
        return
    found = other_score(before, now, "accuracy", settings)
    assert len(found) == (expected == WARNED)
    for message in found:
        first, second = re.findall(r"\d+\.\d+", message)[:2]
        assert first != second


@pytest.mark.parametrize(
    ("again", "float_score", "allowed", "expected"),
    [
        ((), 0.9, 0.009, SAME),
        ((0.9, 0.9), 0.9, 0.009, SAME),
        ((0.9, 0.905), 0.9, 0.009, WARNED),
        ((0.9, 0.90001), 0.9, 0.0, WARNED),
        ((0.9, 0.92), 0.9, 0.4, WARNED),
        ((0.9, 0.88), 0.9, 0.009, REFUSED),
        ((0.0, 1e-12), 0.0, 0.0, WARNED),
        ((0.0, 1.0), 0.0, 0.0, REFUSED),
        (ScoreError("it cannot be run"), 0.9, 0.009, SAME),
    ],
)
def test_a_metric_that_gives_other_scores_each_time_is_told(
    again: Any, float_score: float, allowed: float, expected: str
) -> None:
    def call(*_: Any, **__: Any) -> Any:
        if isinstance(again, Exception):
            raise again
        return again

    pool, yardstick = SimpleNamespace(call=call), SimpleNamespace(float_score=float_score, allowed_drop=allowed)
    asked: Any = yardstick, "mine", Path(), pool, 60.0
    if expected == REFUSED:
        with pytest.raises(MetricError):
            unsteady(*asked)
    else:
        assert len(unsteady(*asked)) == (expected == WARNED)
