from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoselect.cases import prepare_jobs
from autoselect.cases.events import Event, StageStarted, StepFinished
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.references import References
from autoselect.cases.scoring_samples import PARTS
from autoselect.errors import PreparationError, ScoreError, WorkerDied
from autoselect.quantize.preparing.converter import CHECK_VALUES
from autoselect.scoring.metrics import make_metric
from autoselect.study.finishing import rescoring


class Pool:
    """Notes which parts the float model runs over, and ends each run the same way."""

    def __init__(self, error: Exception | None = None) -> None:
        self.parts: list[str] = []
        self._error = error

    def submit(self, job: Any, _root: Path, part: str, *, timeout_seconds: float) -> Future[None]:
        assert (job, timeout_seconds) == (prepare_jobs.run_reference, 5.0)
        self.parts.append(part)
        future: Future[None] = Future()
        future.set_exception(self._error) if self._error else future.set_result(None)
        return future


def references(root: Path, metric: str | None) -> References:
    files = CaseFiles(root=root)
    files.split("search").parent.mkdir(parents=True)
    for part in PARTS:
        files.split(part).write_text(json.dumps({"samples": "evaluation", "indices": None}), encoding="utf-8")
    return References(files, None if metric is None else make_metric(metric), {"model": "m"}, 5.0, None)


@pytest.mark.parametrize(
    ("metric", "search", "heldout"),
    [("agreement", ["search"], ["search", "heldout"]), ("accuracy", ["search"], ["search"]), (None, [], [])],
)
def test_a_part_runs_once_and_only_where_it_is_wanted(
    metric: str | None, search: list[str], heldout: list[str], tmp_path: Path
) -> None:
    wanted, pool, heard = references(tmp_path, metric), Pool(), list[Event]()
    wanted.start("search", pool)  # type: ignore[arg-type] # a pool of which only this is used
    assert pool.parts == search
    for part in (*PARTS, *PARTS):
        wanted.wait(part, pool, heard.append)  # type: ignore[arg-type] # as above
    assert pool.parts == heldout
    assert {type(event) for event in heard} == ({StageStarted, StepFinished} if heldout else set())


def test_the_target_changes_no_float_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = list[str]()

    def cached(_path: Path, what: dict[str, Any], *_others: Any) -> Any:
        keys.append(json.dumps(what))
        return lambda: None

    monkeypatch.setattr("autoselect.cases.references.cached_folder", cached)
    for model, target in (("m", "a"), ("m", "b"), ("other", "a")):
        made = references(tmp_path / f"{model}-{target}", "agreement")
        again = References(made._files, make_metric("agreement"), {"model": model, "target": target}, 5.0, None)
        again.start("search", Pool())  # type: ignore[arg-type] # as above
    assert keys[0] == keys[1] != keys[2]


def test_a_float_model_that_dies_is_told(tmp_path: Path) -> None:
    pool: Any = Pool(WorkerDied("It crashed."))
    with pytest.raises(PreparationError, match=r"float model .*\. It crashed\."):
        references(tmp_path, "agreement").wait("search", pool, lambda _: None)


def test_a_sample_that_the_float_model_does_not_take_is_to_be_checked(tmp_path: Path) -> None:
    pool: Any = Pool(ScoreError("The LiteRT interpreter fails on a sample: gather index out of bounds."))
    with pytest.raises(PreparationError, match=r"of bounds\. Check"):
        references(tmp_path, "agreement").wait("search", pool, lambda _: None)


def test_a_float_model_that_dies_on_held_out_samples_costs_the_held_out_scores_only(tmp_path: Path) -> None:
    case: Any = SimpleNamespace(references=references(tmp_path, "agreement"), has_heldout=True)
    pool: Any = Pool(WorkerDied("It crashed."))
    found, (why,) = rescoring.score_heldout(["float", "abc"], "abc", case, "maximize", pool, 5.0, lambda _: None)
    assert found == {}
    assert "held-out samples" in why
    assert "It crashed." in why


def test_a_held_out_sample_that_the_float_model_does_not_take_is_told_once(tmp_path: Path) -> None:
    class Failing:
        def submit(self, *_args: Any, **_options: Any) -> Future[None]:
            future: Future[None] = Future()
            future.set_exception(ScoreError("The LiteRT interpreter fails on a sample: gather index out of bounds."))
            return future

    case: Any = SimpleNamespace(
        references=references(tmp_path, "accuracy"), has_heldout=True, files=CaseFiles(root=tmp_path)
    )
    pool: Any = Failing()
    found, (why,) = rescoring.score_heldout([FLOAT, "abc"], "abc", case, "maximize", pool, 5.0, lambda _: None)
    assert found == {}
    assert CHECK_VALUES in why
