from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reviewing import Reviewed
from settling import settled

from autoselect.cases import build_jobs
from autoselect.cases.divergence import OnKernels
from autoselect.cases.events import Event, StepFinished, Warned, ignore
from autoselect.domain.recipe import Recipe
from autoselect.errors import TrialError, WorkerDied
from autoselect.study.setup import repeatability
from autoselect.study.setup.repeatability import confirmed_on_kernels, references_to_check, warn_of_unrepeated

CASE: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")))


class Pool:
    """Answers by hash what a model does; builds give one hash, or fail."""

    def __init__(self, answers: dict[str, Any], built: str | Exception = "fiq") -> None:
        self.answers, self.built = answers, built
        self.recipes: list[Recipe] = []
        self.seconds: list[float] = []

    def submit(self, _job: Any, _root: Path, sha256: str, *seconds: float) -> Future[Any]:
        self.seconds += seconds
        future: Future[Any] = Future()
        answer = self.answers[sha256]
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def call(self, job: Any, _root: Path, recipe: str, timeout_seconds: float) -> Any:
        assert job is build_jobs.build
        self.recipes.append(Recipe.from_json(recipe))
        if isinstance(self.built, Exception):
            raise self.built
        return SimpleNamespace(sha256=self.built)


def test_each_model_that_does_not_repeat_is_named_once() -> None:
    pool: Any = Pool({"a": True, "b": False, "c": TrialError("died")})
    told: list[Event] = []
    messages = warn_of_unrepeated(CASE, {"a": "First", "b": "Second", "c": "Third"}, pool, told.append)
    assert [message.split()[0] for message in messages] == ["Second"]
    assert [event.message for event in told if isinstance(event, Warned)] == messages
    assert sum(isinstance(event, StepFinished) for event in told) == 3


def test_a_model_that_was_scored_and_cannot_be_run_again_is_told(reviewed: Reviewed) -> None:
    pool: Any = Pool({"a": True, "b": WorkerDied("It took too long.")})
    messages = warn_of_unrepeated(CASE, {"a": "First", "b": "Member b"}, pool, ignore, have_run=True)
    reviewed("outputs that could not be repeated", messages)


@pytest.mark.parametrize(("count", "seconds"), [(2, 0.3), (8, 0.25), (32, 0.0625)])
def test_many_models_share_the_time(count: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeatability, "SECONDS", 0.3)  # Other tests take no time for it.
    pool: Any = Pool({str(i): True for i in range(count)})
    assert warn_of_unrepeated(CASE, {str(i): str(i) for i in range(count)}, pool, ignore) == []
    assert pool.seconds == [pytest.approx(seconds)] * count


def test_the_float_and_the_plain_all_integer_model_are_what_all_is_compared_with(reviewed: Reviewed) -> None:
    pool: Any = Pool({})
    found = references_to_check(CASE, settled(repairs=("bias",)), pool)
    reviewed("names of references", [f"{sha}: {name}" for sha, name in found.items()])
    assert pool.recipes == [Recipe(fallback="drq")]


def test_an_all_integer_model_that_cannot_be_built_is_left_to_the_search() -> None:
    pool: Any = Pool({}, TrialError("refused"))
    assert references_to_check(CASE, settled(), pool).keys() == {"float"}


def test_who_is_far_from_its_own_kernels_is_named(reviewed: Reviewed) -> None:
    answers = {
        "int8": None,
        "near": OnKernels(samples=32, sqnr_db=36.0, to_float_db=32.9, stood_in_to_float_db=34.1),
        "far": OnKernels(samples=4, sqnr_db=33.0, to_float_db=30.0, stood_in_to_float_db=35.0),
        "dead": TrialError("It crashed."),
    }
    pool: Any = Pool(answers)
    told: list[Event] = []
    found, messages = confirmed_on_kernels(
        Path("case"), {sha: f"Member {sha}" for sha in answers}, "", pool, told.append
    )
    assert found == {"near": answers["near"], "far": answers["far"]}
    assert [message.split()[1] for message in messages] == ["far", "dead"]
    reviewed("models that are far from their kernels", messages)
    assert [event.message for event in told if isinstance(event, Warned)] == messages
