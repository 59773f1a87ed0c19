from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoselect.cases import race_jobs, score_jobs
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.prepare import Case, write_scoring
from autoselect.embedded import make_windows, model_bytes
from autoselect.errors import AutoselectError, DataError, MetricError, NoScore, UsageError
from autoselect.scoring.metrics import make_metric
from autoselect.tflite import flatbuffer

SEARCH = make_windows(np.random.default_rng(7), 200)
TOTAL = 200


@pytest.fixture(scope="module")
def made(embedded_case: Callable[..., tuple[Case, str]]) -> tuple[CaseFiles, str]:
    """A case of the embedded model with a schedule, and its all-integer candidate; that and the float model scored."""
    case, integer = embedded_case(evaluation=SEARCH, heldout=make_windows(np.random.default_rng(8), 10))
    root = case.files.root
    score_jobs.score(root, FLOAT, "search", False)
    score_jobs.score(root, integer, "search", False)
    race_jobs.keep_schedule(root, integer, 0)
    case.files.candidate("blind").write_bytes(blind_model())
    case.files.candidate("broken").write_bytes(model_bytes()[:500])
    return case.files, integer


def blind_model() -> bytes:
    """The embedded model with every weight zero: it gives the same answer to everything."""
    model = flatbuffer.parse(model_bytes())
    for buffer in model.buffers:
        if buffer.data is not None and len(buffer.data) > 256:
            buffer.data = np.zeros_like(buffer.data)
    return bytes(flatbuffer.serialise(model))


def without_time(reply: score_jobs.ScoreReply) -> str:
    """As text, in which NaN equals NaN."""
    return repr(replace(reply, seconds=0.0, inference_seconds=0.0))


RIVALS = {
    "none": ([], 1.0),
    "without rows": (["never scored"], 1.0),
    "an equal one, and its score as the goal": (["twin"], 0.0),
    "one far worse": (["worst"], -0.5),
}


@pytest.mark.parametrize(("rivals", "above"), RIVALS.values(), ids=RIVALS)
def test_a_candidate_that_is_not_dropped_gets_its_full_score(
    made: tuple[CaseFiles, str], rivals: list[str], above: float
) -> None:
    """``above`` is how far the goal lies above the candidate's score."""
    files, integer = made
    np.save(files.rows("worst"), np.zeros((TOTAL, 1)))
    expected = score_jobs.score(files.root, integer, "search", False)
    kept = np.load(files.rows(integer)), np.load(files.fidelity_rows(integer))
    np.save(files.rows("twin"), kept[0])
    files.rows(integer).unlink()
    files.fidelity_rows(integer).unlink()
    found = race_jobs.race(files.root, integer, rivals, expected.value + above, 0.95)
    assert isinstance(found, score_jobs.ScoreReply)
    assert without_time(found) == without_time(expected)
    assert found.samples == TOTAL
    assert np.array_equal(np.load(files.rows(integer)), kept[0])
    assert np.array_equal(np.load(files.fidelity_rows(integer)), kept[1])
    assert found.seconds >= found.inference_seconds > 0.0


def test_what_was_scored_is_not_scored_again(made: tuple[CaseFiles, str]) -> None:
    files, integer = made
    first = score_jobs.score(files.root, integer, "search", False)
    again = score_jobs.score(files.root, integer, "search", False)
    assert without_time(again) == without_time(first)
    assert again.inference_seconds == 0.0
    files.fidelity_rows(integer).unlink()  # Without these the outputs are needed once more.
    anew = score_jobs.score(files.root, integer, "search", False)
    assert without_time(anew) == without_time(first)
    assert anew.inference_seconds > 0.0


def test_a_clearly_worse_candidate_is_dropped_early(made: tuple[CaseFiles, str]) -> None:
    files, integer = made
    np.save(files.rows("worst"), np.zeros((TOTAL, 1)))
    goal = score_jobs.score(files.root, integer, "search", False).value
    found = race_jobs.race(files.root, "blind", ["never scored", "worst", integer], goal, 0.95)
    assert isinstance(found, race_jobs.Dropped)
    assert found.total == TOTAL
    assert 30 <= found.samples <= TOTAL / 2
    assert not files.rows("blind").exists()
    full = score_jobs.score(files.root, "blind", "search", False)
    files.rows("blind").unlink()
    assert found.estimate == pytest.approx(full.value, abs=0.2)
    assert found.sqnr_db == pytest.approx(full.sqnr_db, abs=3.0)
    assert found.inference_seconds > 0.0


def test_the_goal_decides(made: tuple[CaseFiles, str]) -> None:
    files, integer = made
    full = score_jobs.score(files.root, "blind", "search", False).value
    files.rows("blind").unlink()
    assert isinstance(race_jobs.race(files.root, "blind", [integer, FLOAT], full, 0.95), score_jobs.ScoreReply)
    files.rows("blind").unlink()
    assert isinstance(race_jobs.race(files.root, "blind", [integer, FLOAT], full + 0.3, 0.95), race_jobs.Dropped)


def test_samples_far_from_float_come_first(made: tuple[CaseFiles, str]) -> None:
    files, integer = made
    closeness = np.load(files.fidelity_rows(integer))[:, 0]
    schedule = race_jobs.keep_schedule(files.root, integer, 0)
    assert closeness[schedule.strata == 0].max() <= closeness[schedule.strata == 3].min()
    assert closeness[schedule.seen(0)].mean() < closeness.mean()
    assert closeness.mean() == pytest.approx(score_jobs.score(files.root, integer, "search", False).sqnr_db)


FAILURES = {
    "metric on a candidate": ("integer", MetricError("no value"), NoScore, "has no value for this candidate"),
    "metric on the float model": (FLOAT, MetricError("no value"), MetricError, "^no value"),
    "data": ("integer", DataError("no label"), DataError, "^no label"),
}


@pytest.mark.parametrize(("model", "raised", "error", "words"), FAILURES.values(), ids=FAILURES)
def test_errors_are_those_of_a_score(
    made: tuple[CaseFiles, str],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    raised: Exception,
    error: type[AutoselectError],
    words: str,
) -> None:
    def fail(*args: object) -> list[np.ndarray]:
        raise raised

    files, integer = made
    monkeypatch.setattr("autoselect.scoring.evaluate.observe", fail)
    sha256 = FLOAT if model == FLOAT else integer
    with pytest.raises(error, match=words):
        race_jobs.race(files.root, sha256, [FLOAT], 0.5, 0.95)
    with pytest.raises(error, match=words):
        score_jobs.score(files.root, sha256, "heldout", False)  # Of the search part the rows are known.


def test_a_file_that_does_not_load(made: tuple[CaseFiles, str]) -> None:
    messages = []
    for call in (
        lambda root: race_jobs.race(root, "broken", [FLOAT], 0.5, 0.95),
        lambda root: score_jobs.score(root, "broken", "search", False),
    ):
        with pytest.raises(AutoselectError) as caught:
            call(made[0].root)
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]


def test_a_race_needs_a_schedule(made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files, integer = made
    monkeypatch.setattr(CaseFiles, "schedule", tmp_path / "none.npz")
    with pytest.raises(UsageError, match="keep_schedule"):
        race_jobs.race(files.root, integer, [FLOAT], 0.5, 0.95)


def test_a_schedule_needs_a_scored_candidate(made: tuple[CaseFiles, str]) -> None:
    with pytest.raises(UsageError, match="'never scored'"):
        race_jobs.keep_schedule(made[0].root, "never scored", 0)


@pytest.mark.parametrize("metric", ["f1_macro", None], ids=["no mean", "an evaluator"])
def test_only_means_race(tmp_path: Path, metric: str | None) -> None:
    evaluator = None if metric else (lambda runner: math.pi)
    write_scoring(CaseFiles(root=tmp_path), make_metric(metric) if metric else None, evaluator)
    with pytest.raises(UsageError, match="mean over"):
        race_jobs.race(tmp_path, "any", [], 0.5, 0.95)
