"""The worst hundredth of samples, which a mean hides."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reviewing import Reviewed

from autoselect.cases import channel_jobs
from autoselect.cases.channel_jobs import Tail
from autoselect.cases.files import CaseFiles
from autoselect.domain.findings import GroupCloseness
from autoselect.scoring.evaluate import ReferenceOutputs
from autoselect.scoring.value_metrics import SignalToQuantizationNoise
from autoselect.study.finishing import channels


class Kept:
    """A case that knows the float model's outputs, if any."""

    def __init__(self, root: Path, outputs: np.ndarray | None) -> None:
        self.files = CaseFiles(root=root)
        self.scoring = SimpleNamespace(fidelity=SignalToQuantizationNoise(), evaluator=None)
        self._reference: ReferenceOutputs | None = None
        if outputs is not None:
            ReferenceOutputs.write(root / "outputs", ({"y": value} for value in outputs))
            self._reference = ReferenceOutputs(root / "outputs")

    def reference(self, _part: str) -> ReferenceOutputs | None:
        return self._reference


def tail_of(
    decibels: np.ndarray, outputs: np.ndarray | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Tail | None:
    monkeypatch.setattr(channel_jobs, "open_case", lambda _: Kept(root, outputs))
    path = CaseFiles(root=root).fidelity_rows("a" * 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, decibels.reshape(-1, 1))
    return channel_jobs.tail(root, "a" * 64)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(200, Tail(count=2, worst_db=-5.0, mean_db=pytest.approx(29.65))), (99, None), (0, None)],
)
def test_the_tail_is_that_of_a_hundred_samples_or_more(
    count: int, expected: Tail | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 200 samples have -5 dB, all others 30."""
    decibels = np.r_[-5.0, np.full(count - 2, 30.0), -5.0] if count else np.empty(0)
    assert tail_of(decibels, None, tmp_path, monkeypatch) == expected
    if count:
        assert tail_of(decibels, np.ones((count, 1, 4), np.float32), tmp_path, monkeypatch) == expected


@pytest.mark.parametrize("loud", [1.0, 3000.0], ids=["alike", "one is loud"])
def test_an_output_near_nothing_is_no_bad_sample(loud: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All errors but two are alike; beside an output that is a thousandth of the others each one looks large."""
    outputs, errors = np.ones(200, np.float32), np.full(200, 1e-3)
    outputs[[3, 50, 90]], outputs[120], outputs[150] = 0.001, 0.0, loud
    decibels = 10.0 * np.log10(np.maximum(outputs**2, 1e-20) / errors)
    quiet = tail_of(decibels, outputs.reshape(-1, 1, 1), tmp_path / "quiet", monkeypatch)
    assert quiet is not None
    assert quiet.worst_db == pytest.approx(30.0)
    decibels[[7, 9]] = -5.0
    ruined = tail_of(decibels, outputs.reshape(-1, 1, 1), tmp_path / "ruined", monkeypatch)
    assert ruined is not None
    assert ruined.worst_db == pytest.approx(-5.0)


@pytest.mark.parametrize(("worst", "told"), [(-5.0, True), (19.0, True), (21.0, False)])
def test_a_tail_is_told_if_it_breaks_the_limit(worst: float, told: bool) -> None:
    assert bool(channels._tail(Tail(count=2, worst_db=worst, mean_db=32.0), 20.0)) == told


def test_a_tail_near_the_mean_is_not_told() -> None:
    assert channels._tail(Tail(count=2, worst_db=10.0, mean_db=18.0), 20.0) == []
    assert channels._tail(None, 20.0) == []


@pytest.mark.parametrize(("near", "whole", "told"), [(5.0, 30.0, True), (5.0, 15.0, True), (25.0, 30.0, False)])
def test_a_group_below_the_limit_is_told_however_close_the_whole_output_is(
    near: float, whole: float, told: bool
) -> None:
    group = GroupCloseness(output="a", channels="channel 4", sqnr_db=near, whole_db=whole)
    assert bool(channels.groups_below([group], 20.0)) == told


def test_outputs_that_are_not_scored_are_told_if_they_are_far(reviewed: Reviewed) -> None:
    assert channels._unscored({"a": 21.0}, 20.0) == []
    far = [channels._unscored(others, 20.0) for others in ({"a": 21.0, "b": 5.0}, {"a": 1.0, "b": 5.0})]
    reviewed("unscored outputs that are far", [message for [message] in far])


def test_outputs_that_are_no_numbers_are_far() -> None:
    assert channel_jobs._decibels([(1.0, float("nan")), (1.0, float("inf"))]) == pytest.approx(-200.0)
    assert np.isnan(channel_jobs._decibels([(0.0, 1.0)]))
