"""The worst hundredth of samples, which a mean hides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reviewing import Reviewed

from autoselect.cases import channel_jobs
from autoselect.cases.channel_jobs import Tail
from autoselect.cases.files import CaseFiles
from autoselect.domain.findings import GroupCloseness
from autoselect.study.finishing import channels


@pytest.mark.parametrize(
    ("count", "expected"),
    [(200, Tail(count=2, worst_db=-5.0, mean_db=pytest.approx(29.65))), (99, None), (0, None)],
)
def test_the_tail_is_that_of_a_hundred_samples_or_more(count: int, expected: Tail | None, tmp_path: Path) -> None:
    """Two of 200 samples have -5 dB, all others 30."""
    if count:
        path = CaseFiles(root=tmp_path).fidelity_rows("a" * 64)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.r_[-5.0, np.full(count - 2, 30.0), -5.0].reshape(-1, 1))
    assert channel_jobs.tail(tmp_path, "a" * 64) == expected


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
