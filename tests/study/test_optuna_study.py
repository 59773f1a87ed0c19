from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from fakes import sha_of
from synthetic import chain_of

from autoselect.domain.objectives import Objective
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Cut, Toggle
from autoselect.errors import RunFolderError
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.recording.optuna_study import MOST_PARAMETERS, Asked, SearchStudy, read_records
from autoselect.study.recording.samplers import make_sampler, suggested
from autoselect.study.recording.trials import recipe_of
from autoselect.study.setup.baselines import Baseline

OBJECTIVES = (
    Objective(name="accuracy", direction="maximize"),
    Objective(name="size_bytes", direction="minimize"),
    Objective(name="penalty", direction="minimize"),
)
SPACE = BoundSpace(
    dimensions=(
        Toggle(name="node:a", nodes=frozenset("a")),
        Toggle(name="node:b", nodes=frozenset("b")),
        Cut(name="leading", ranking=("a", "b", "c"), at_most=2),
    )
)
MET = {"max_drop": -1.0, "max_size": -1.0, "max_penalty": 0.0}


def open_study(path: Path, objectives: tuple[Objective, ...] = OBJECTIVES, seed: int = 0) -> SearchStudy:
    return SearchStudy(path, objectives, optuna.samplers.RandomSampler(seed=seed))


def scores(value: float) -> Scores:
    return Scores(
        sha256=sha_of(str(value)),
        metric=value,
        drop=1 - value,
        drop_noise=0.01,
        sqnr_db=25.0,
        divergence=0.004,
        drop_bound=0.02,
        size_bytes=1000,
        penalty=3.5,
        segments=2,
        float_ops=1,
        crossing_tensors=2,
        crossing_bytes=8,
        float_macs_share=0.25,
        samples=100,
        build_seconds=0.1,
        score_seconds=0.2,
        inference_seconds=0.05,
        fallbacks={"a": "why"},
    )


def told(study: SearchStudy, value: float, violations: dict[str, float] = MET) -> tuple[Asked, TrialRecord]:
    asked = study.ask(SPACE, Recipe())
    return asked, study.tell(asked, scores=scores(value), violations=violations)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def test_what_is_told_is_read_back_by_another_process(path: Path) -> None:
    study = open_study(path)
    _, first = told(study, 0.9)
    _, second = told(study, 0.8, MET | {"max_size": 0.5})
    asked = study.ask(SPACE, Recipe())
    third = study.tell(asked, error="it broke", error_kind="score", error_nodes=("a", "b"))
    assert [r.feasible for r in (first, second, third)] == [True, False, False]
    assert (third.error, third.scores) == ("it broke", None)
    assert study.records() == open_study(path).records() == [first, second, third]


def test_a_baseline_is_what_it_is_even_where_the_space_cannot_say_it(path: Path) -> None:
    study = open_study(path)
    recipes = [Recipe(denylisted_nodes=frozenset(nodes)) for nodes in ("ab", "c")]
    within = study.open_baseline(SPACE, Baseline(name="leading_2", recipe=recipes[0]))
    outside = study.open_baseline(SPACE, Baseline(name="op_X", recipe=recipes[1]))
    assert [within.recipe, outside.recipe] == recipes
    assert (within.origin, outside.origin) == ("baseline:leading_2", "baseline:op_X")
    kept = [trial.params for trial in study._study.trials]
    assert SPACE.decode(kept[0]) == frozenset("ab")
    assert kept[1] == {}


def test_asked_nodes_are_those_of_the_parameters(path: Path) -> None:
    study = open_study(path)
    for _ in range(20):
        asked = study.ask(SPACE, Recipe())
        assert asked.recipe == Recipe(denylisted_nodes=SPACE.decode(asked.trial.params))
        assert asked.recipe.denylisted_nodes <= set("abc")


def of_toggles(count: int) -> tuple[BoundSpace, optuna.samplers.BaseSampler]:
    """A space of so many nodes, each of three states, and a sampler of it."""
    named = tuple(Toggle(name=f"node:n{i}", nodes=frozenset({f"n{i}"})) for i in range(count))
    space, problem = BoundSpace(dimensions=named, further=("float",)), chain_of([0.01] * count, mixed=True)
    return space, make_sampler("random", seed=0, problem=problem, space=space, template=Recipe(), budget=9)


@pytest.mark.parametrize(("count", "parameters"), [(MOST_PARAMETERS // 2, True), (MOST_PARAMETERS // 2 + 1, False)])
def test_candidates_of_many_choices_are_kept_as_recipes_alone(path: Path, count: int, parameters: bool) -> None:
    space, sampler = of_toggles(count)
    study = SearchStudy(path, OBJECTIVES, sampler)
    baseline = Baseline(name="one", recipe=Recipe(denylisted_nodes=frozenset({"n1"})))
    asked = [study.open_baseline(space, baseline), *(study.ask(space, Recipe()) for _ in range(3))]
    assert len({one.recipe for one in asked}) == 4
    for one, trial in zip(asked, study._study.trials, strict=True):
        assert recipe_of(trial) == one.recipe
        assert len(trial.params) == parameters * 2 * count
        if parameters:
            assert suggested(trial.params, space, Recipe(), ()) == one.recipe
    assert [trial.params for trial in SearchStudy(path, OBJECTIVES)._study.trials] == [
        trial.params for trial in study._study.trials
    ]


def test_a_baseline_is_not_asked_of_the_sampler(path: Path) -> None:
    space, sampler = of_toggles(4)
    one, other = (
        SearchStudy(path, OBJECTIVES, sampler),
        SearchStudy(path.with_name("other"), OBJECTIVES, of_toggles(4)[1]),
    )
    one.open_baseline(space, Baseline(name="fiq", recipe=Recipe()))
    found = [study.ask(space, Recipe()).recipe for study in (one, other)]
    assert found[0] == found[1]


def test_what_a_killed_process_left_is_closed(path: Path) -> None:
    study = open_study(path)
    _, kept = told(study, 0.9)
    study.ask(SPACE, Recipe())
    half_told = study.ask(SPACE, Recipe())
    half_told.trial.set_user_attr("origin", "random")
    assert study.close_abandoned() == 2
    later = open_study(path)
    assert later.close_abandoned() == 0
    assert later.records() == [kept]


def test_what_the_end_of_a_search_cut_off_leaves_no_record(path: Path) -> None:
    study = open_study(path)
    _, kept = told(study, 0.9)
    study.drop(study.ask(SPACE, Recipe()))
    assert study.records() == [kept]
    assert study.close_abandoned() == 0


def test_an_enqueued_trial_is_closed_too(path: Path) -> None:
    """The window between enqueuing a baseline and asking for it."""
    study = open_study(path)
    study._study.enqueue_trial({"node:a": True})
    assert study.close_abandoned() == 1
    assert open_study(path).close_abandoned() == 0
    asked = study.ask(SPACE, Recipe())
    assert asked.number == 1


def test_a_line_that_was_cut_off_is_removed(path: Path) -> None:
    study = open_study(path)
    _, kept = told(study, 0.9)
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"op_code": 5, "study_')
    again = open_study(path)
    assert again.records() == [kept]
    assert path.read_bytes().startswith(whole)
    _, more = told(again, 0.7)
    assert open_study(path).records() == [kept, more]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_trial_whose_last_line_was_cut_off_is_not_complete(path: Path) -> None:
    study = open_study(path)
    _, kept = told(study, 0.9)
    told(study, 0.8)
    path.write_bytes(path.read_bytes()[:-20])
    again = open_study(path)
    assert again.close_abandoned() == 1
    assert again.records() == [kept]


@pytest.mark.parametrize("leave", [lambda lock, path: lock.symlink_to(path), lambda lock, _: lock.touch()])
def test_a_lock_that_a_killed_process_left_is_removed(path: Path, leave: Callable[[Path, Path], None]) -> None:
    open_study(path)
    lock = path.with_name(path.name + ".lock")
    leave(lock, path)
    study = open_study(path)
    told(study, 0.5)
    assert not os.path.lexists(lock)


WRONG_OBJECTIVES = {
    "another direction": (Objective(name="loss", direction="minimize"), *OBJECTIVES[1:]),
    "fewer": OBJECTIVES[:2],
}


@pytest.mark.parametrize("objectives", WRONG_OBJECTIVES.values(), ids=WRONG_OBJECTIVES)
def test_other_objectives_are_refused(path: Path, objectives: tuple[Objective, ...]) -> None:
    _, kept = told(open_study(path), 0.9)
    with pytest.raises(RunFolderError, match="other objectives"):
        open_study(path, objectives)
    assert open_study(path).records() == [kept]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not a journal\nat all\n", id="text"),
        pytest.param(b'{"half": \n{"op_code": 0}\n', id="half a line in the middle"),
    ],
)
def test_a_damaged_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"study\.journal"):
        open_study(path)


def interrupting(real: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The same function, which is interrupted as it ends its call of that number."""
    calls = itertools.count()

    def called(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        if next(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return result

    return called


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("function", ["open", "fsync", "rename", "unlink"])
def test_an_interrupt_leaves_a_study_that_agrees_with_its_file(
    path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(path)
    told(study, 0.5)
    interrupts = 0
    for at in itertools.count():
        with monkeypatch.context() as patch:
            patch.setattr(os, function, interrupting(getattr(os, function), at))
            try:
                told(study, 0.1)
            except KeyboardInterrupt:
                interrupts += 1
            else:
                break
        study.close_abandoned()
        assert study.records() == open_study(path).records()
    assert interrupts == 4  # A trial is opened, described and told in as many writes.


def test_reading_leaves_the_journal_as_it_is(path: Path) -> None:
    study = open_study(path)
    told(study, 0.9)
    told(study, 0.8)
    path.write_bytes(path.read_bytes() + b'{"half a li')
    before = path.read_bytes()
    assert [record.number for record in read_records(path)] == [0, 1]
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_opening_again_appends_nothing(path: Path) -> None:
    told(open_study(path), 0.9)
    before = path.read_bytes()
    open_study(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_where_there_is_no_study_there_are_no_records(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert read_records(path) == []
    assert path.exists() == (content is not None)


def test_reading_tells_of_a_damaged_journal(path: Path) -> None:
    told(open_study(path), 0.9)
    path.write_bytes(b"no json\n" + path.read_bytes())
    with pytest.raises(RunFolderError, match="is damaged"):
        read_records(path)
