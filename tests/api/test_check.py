"""A check says what a search would be like, and refuses what the search would refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pump
import pytest

import autoselect
from autoselect.cases.events import Event, StageStarted, TrialFinished, Warned
from autoselect.errors import AutoselectError, DataError, RunFolderError, UsageError


def test_a_check_tells_size_cost_and_time_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events: list[Event] = []
    found = autoselect.check(**pump.LIVE, trials=40, workers=1, listener=events.append)
    assert (found.nodes, found.units, found.states) == (22, 22, 4)
    assert found.candidates >= 2**22
    assert found.samples == {"calibration": 30, "search": 200, "heldout": 300}
    assert (found.trials, found.workers, found.refused) == (40, 1, "")
    assert 0 < found.inference_seconds < found.score_seconds < found.search_seconds
    assert found.search_seconds >= found.phase_seconds["prepare"] + 40 * found.build_seconds
    assert found.disk_bytes > 40 * 40_000
    assert 100e6 < found.memory["worker"] < found.memory["all"] < 10e9
    assert not [event for event in events if isinstance(event, TrialFinished)]
    assert list(tmp_path.iterdir()) == []


def test_a_check_knows_the_timeout(tmp_path: Path) -> None:
    """Ten members of the front are scored on 300 held-out samples, where one is scored on 200 else, and run again."""
    found = autoselect.check(**pump.LIVE, trials=10_000, timeout=2.0, workers=1)
    assert found.search_seconds == pytest.approx(2.0 + found.phase_seconds["heldout"])
    assert found.phase_seconds["heldout"] >= 10 * 300 / 200 * found.score_seconds


def test_a_check_names_the_phases(tmp_path: Path) -> None:
    """What is switched off takes no time; the trials are what they were."""
    found = autoselect.check(**{**pump.LIVE, "repairs": True}, trials=40, workers=1)
    assert list(found.phase_seconds) == ["prepare", "repairs", "probes", "trials", "heldout"]
    assert found.search_seconds == pytest.approx(sum(found.phase_seconds.values()))
    # Of 200 samples a candidate that is dropped at once has run 30.
    least = 40 * found.build_seconds + (4 + 36 * (1 + 30 / 200) / 2) * found.score_seconds
    assert found.phase_seconds["trials"] >= least
    whole = autoselect.check(**{**pump.LIVE, "racing": False}, trials=40, workers=1)
    assert whole.phase_seconds["trials"] >= 40 * (whole.build_seconds + whole.score_seconds)
    # Twelve choices of repairs for 8 bits and eight for 16 are built and run.
    assert found.phase_seconds["repairs"] > 20 * found.build_seconds
    assert autoselect.check(**{**pump.LIVE, "repairs": False}, workers=1).phase_seconds["repairs"] == 0.0


def all_alike(runner: Any) -> list[float]:
    return [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, set[str]()),
        ({"evaluation": pump.SEARCH, "metric": "f1_macro"}, {"evaluation", "metric"}),
        (
            {"evaluation": pump.SEARCH, "heldout": pump.HELDOUT, "output_name": "x"},
            {"evaluation", "heldout", "output_name"},
        ),
    ],
)
def test_what_an_evaluator_leaves_without_a_use_is_told(options: dict[str, Any], told: set[str]) -> None:
    given = {"model": pump.MODEL_PATH, "calibration": pump.calibration, "evaluator": all_alike, "direction": "maximize"}
    found = autoselect.check(**given, **options, workers=1)
    words = {word.strip(",:") for warning in found.warnings for word in warning.split()}
    assert words & {"evaluation", "heldout", "metric", "output_name"} >= told
    assert ("evaluation" in words) == bool(told)


def test_a_check_tells_that_calibration_was_prepared_otherwise() -> None:
    assert not [told for told in autoselect.check(**pump.LIVE, workers=1).warnings if "ranges that" in told]
    inputs, labels = pump.SEARCH
    events: list[Event] = []
    options = {**pump.LIVE, "evaluation": (8.0 * inputs, labels)}
    found = autoselect.check(**options, workers=1, listener=events.append)
    [told] = [told for told in found.warnings if "ranges that" in told]
    assert "input" in told
    assert told in [event.message for event in events if isinstance(event, Warned)]


@pytest.mark.parametrize("function", [autoselect.check, autoselect.search], ids=["check", "search"])
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        pytest.param({"calibration": None}, UsageError, "pass --calibration", id="no calibration"),
        pytest.param({"evaluation": None}, UsageError, "pass --evaluation", id="no evaluation"),
        pytest.param({"calibration": "none.npz"}, DataError, "none here", id="no calibration file"),
        pytest.param({"evaluation": Path("none.npz")}, DataError, "none here", id="no evaluation file"),
        pytest.param({"heldout": "none.npy"}, DataError, "none here", id="no held-out file"),
        pytest.param({"max_drop": 1.0}, UsageError, "max_drop", id="every drop is allowed"),
        pytest.param({"metric": "acuracy"}, AutoselectError, "Did you mean 'accuracy'", id="unknown metric"),
    ],
)
def test_what_is_missing_is_noticed_before_anything_is_read(
    function: Callable[..., Any],
    changes: dict[str, Any],
    error: type[AutoselectError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    events: list[Event] = []
    with pytest.raises(error, match=words):
        function(**{**pump.LIVE, **changes}, listener=events.append)
    assert not [event for event in events if isinstance(event, StageStarted)]
    assert list(tmp_path.iterdir()) == []


def test_a_score_that_float_falls_short_of_is_refused_as_by_the_search(tmp_path: Path) -> None:
    """Float answers about nine in ten right. A check goes on if that is enough."""
    with pytest.raises(UsageError, match=r"demanded 0\.999") as refusal:
        autoselect.check(**pump.LIVE, min_score=0.999, workers=1)
    with pytest.raises(UsageError, match=r"demanded 0\.999") as again:
        autoselect.search(**pump.LIVE, min_score=0.999, workers=1, trials=4, output=tmp_path / "run", progress=False)
    assert str(refusal.value) == str(again.value)
    assert autoselect.check(**pump.LIVE, min_score=0.8, trials=40, workers=1).trials == 40


def test_a_metric_that_works_on_no_model_is_refused_as_by_the_search(tmp_path: Path) -> None:
    def broken(y_true: Any, y_pred: Any) -> float:
        raise ZeroDivisionError("nought")

    given = {**pump.LIVE, "metric": broken, "direction": "maximize", "workers": 1}
    with pytest.raises(AutoselectError, match="ZeroDivisionError: nought") as refusal:
        autoselect.check(**given)
    with pytest.raises(type(refusal.value), match="ZeroDivisionError: nought"):
        autoselect.search(**given, trials=4, output=tmp_path / "run", progress=False)


def test_a_taken_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="not empty"):
        autoselect.check(**pump.LIVE, output=tmp_path)


def test_a_gain_that_no_score_can_be_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^max_drop \(--max-drop\): "):
        autoselect.check(**pump.LIVE, max_drop=-0.2, workers=1)
