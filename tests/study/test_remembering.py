"""Replies of jobs that a search which goes on need not have again."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from autoselect.cases import build_jobs, divergence, evidence_jobs, score_jobs
from autoselect.cases.build_jobs import BuildReply
from autoselect.errors import ScoreError, WorkerDied
from autoselect.study.setup.remembering import Remembering

CASE = Path("/case")
BUILT = BuildReply(
    sha256="ab",
    size_bytes=1,
    fragmentation={"penalty": 0.5},
    kinds={"a": "float"},
    fallbacks={},
    seconds=1.0,
    places={3: 4},
)
SCORED = score_jobs.ScoreReply(
    value=0.5,
    noise=float("inf"),
    bound=0.1,
    sqnr_db=20.0,
    divergence=0.01,
    low=0.4,
    high=0.6,
    samples=10,
    seconds=1.0,
    inference_seconds=0.5,
)
JOBS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "a probe": (divergence.error_shares, ("{}", "calibration", [1, 2]), [0.1, 0.2]),
    "repairs on few samples": (
        divergence.look_at_each,
        (["{}", "{}"], "search", [3]),
        [divergence.Looked(shares=[0.1], size_bytes=1000), divergence.Looked(shares=[], size_bytes=900)],
    ),
    "builds": (build_jobs.build_each, (["{}", "{}"],), [BUILT, None]),
    "a score": (score_jobs.score, ("ab", "search", False), SCORED),
    "a noise": (evidence_jobs.paired_noise, ("ab", "cd"), 0.25),
}


class Answers:
    """Workers with one answer, which count what they are asked."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def submit(self, _function: Any, *_arguments: Any, timeout_seconds: float) -> Future[Any]:
        self.asked += 1
        future: Future[Any] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def remembering(path: Path, answers: Answers, code: str | None = None) -> Remembering:
    return Remembering(answers, path, code)  # type: ignore[arg-type]


@pytest.mark.parametrize(("job", "arguments", "answer"), JOBS.values(), ids=JOBS)
def test_a_reply_is_read_back_as_it_was(
    tmp_path: Path, job: Callable[..., Any], arguments: tuple[Any, ...], answer: Any
) -> None:
    workers, path = Answers(answer), tmp_path / "new" / "replies.jsonl"
    for _ in range(2):
        found = remembering(path, workers)
        for _ in range(2):
            assert found.submit(job, CASE, *arguments).result() == answer
    assert workers.asked == 1


def test_a_candidate_that_cannot_be_run_is_remembered_and_no_other_error(tmp_path: Path) -> None:
    job, arguments, _ = JOBS["a probe"]
    for error, asked in ((ScoreError("It divides by 0.", op=3), 1), (WorkerDied("It was killed."), 2)):
        workers, path = Answers(error), tmp_path / type(error).__name__
        for _ in range(2):
            with pytest.raises(type(error), match=str(error)) as caught:
                remembering(path, workers).submit(job, CASE, *arguments).result()
            assert getattr(caught.value, "op", None) == getattr(error, "op", None)
        assert workers.asked == asked


def test_other_arguments_and_other_code_are_other_jobs(tmp_path: Path) -> None:
    job, (recipe, part, rows), answer = JOBS["a probe"]
    workers, path = Answers(answer), tmp_path / "replies.jsonl"
    for arguments, code in (((recipe, part, rows), None), ((recipe, part, [7]), None), ((recipe, part, rows), "hash")):
        remembering(path, workers, code).submit(job, CASE, *arguments).result()
    assert workers.asked == 3


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_line_that_was_cut_off_counts_as_none(tmp_path: Path, cut: int) -> None:
    job, arguments, answer = JOBS["a probe"]
    workers, path = Answers(answer), tmp_path / "replies.jsonl"
    remembering(path, workers).submit(job, CASE, *arguments)
    path.write_bytes(path.read_bytes()[:-cut])
    remembering(path, workers).submit(job, CASE, "other", *arguments[1:])
    asked = workers.asked
    for recipe in (arguments[0], "other"):
        remembering(path, workers).submit(job, CASE, recipe, *arguments[1:])
    assert workers.asked == asked + (cut > 1)


@pytest.mark.parametrize("job", [name for name in JOBS if name != "a noise"])
def test_a_reply_of_another_kind_is_damaged_and_asked_for_again(tmp_path: Path, job: str) -> None:
    function, arguments, answer = JOBS[job]
    workers, path = Answers(answer), tmp_path / "replies.jsonl"
    remembering(path, workers).submit(function, CASE, *arguments)
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**told, "reply": "damaged"}), encoding="utf-8")
    assert remembering(path, workers).submit(function, CASE, *arguments).result() == answer
    assert workers.asked == 2


def test_other_jobs_are_handed_on(tmp_path: Path) -> None:
    workers, path = Answers(7), tmp_path / "replies.jsonl"
    for _ in range(2):
        remembering(path, workers).submit(len, CASE, timeout_seconds=1.0)
    assert workers.asked == 2
    assert not path.exists()
