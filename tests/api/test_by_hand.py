"""A run goes on by hand: recipes that a user made become trials, and pins hold for the trials to come."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pump
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.cases.events import Event, Noted, TrialFinished
from autoselect.cli.main import app
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError, RecipeError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.study.loop import SearchLoop
from autoselect.study.recording import kept_case
from autoselect.study.recording.optuna_study import read_records

TRIALS = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to be copied."""
    with autoselect.keep_workers(1):
        return pump.search(tmp_path_factory.mktemp("made") / "run", trials=TRIALS, seed=2, early_exit=False).directory


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def of_nodes(folder: Path, *places: int) -> Recipe:
    run = autoselect.load_run(folder)
    nodes = list(run.what_if("int8").nodes)
    return run.what_if("int8", in_float=[nodes[i] for i in places]).recipe


def test_a_recipe_becomes_a_trial(folder: Path) -> None:
    recipe, before = of_nodes(folder, 0, 7), kept_case.kept_units(RunFolder(folder))
    expected = autoselect.load_run(folder).what_if(recipe).score().drop
    run = autoselect.resume(folder, recipes=[recipe], progress=False)
    last = run.trials.iloc[-1]
    assert (last["origin"], last["number"], last["state"]) == ("user", TRIALS, "complete")
    assert Recipe.from_json(last["recipe"]) == recipe
    assert last["drop"] == pytest.approx(expected)
    assert run.summary["counts"]["trials"] == TRIALS + 1
    assert run.status == "complete"
    assert "pinned" not in run.manifest
    assert kept_case.kept_units(RunFolder(folder)) == before


def test_what_probes_told_stays_known(folder: Path) -> None:
    before = kept_case.kept_units(RunFolder(folder))
    assert before[0]
    autoselect.resume(folder, progress=False)  # There is nothing left to do.
    assert kept_case.kept_units(RunFolder(folder)) == before


def test_a_good_one_joins_the_front(folder: Path) -> None:
    """The float model in all but one node is better than nearly all, and dearer."""
    run = autoselect.load_run(folder)
    nodes = list(run.what_if("int8").nodes)
    found = run.what_if("float", int8=[nodes[-1]])
    run = autoselect.resume(folder, recipes=[found.recipe], progress=False)
    row = run.trials.iloc[-1]
    better = run.trials[(run.trials["drop"] <= row["drop"]) & (run.trials["penalty"] <= row["penalty"])]
    assert (row["id"] in {*run.front["id"]}) == (len({*better["id"]} - {row["id"]}) == 0)


def test_what_was_scored_is_not_scored_again(folder: Path) -> None:
    run = autoselect.load_run(folder)
    known = Recipe.from_json(run.trials[run.trials["state"] == "complete"].iloc[0]["recipe"])
    events = list[Event]()
    after = autoselect.resume(folder, recipes=[known], progress=False, listener=events.append)
    assert len(after.trials) == len(run.trials)
    [told] = [event.message for event in events if isinstance(event, Noted) and "recipe" in event.message]
    row = run.trials[run.trials["state"] == "complete"].iloc[0]
    assert f"trial {row['number']}, {row['id']}" in told


@pytest.mark.slow
def test_what_the_search_dropped_is_scored_in_full(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=24, seed=1, early_exit=False, min_gain=0.5)
    dropped = run.trials[run.trials["state"] == "dropped"]
    assert len(dropped)
    recipe = Recipe.from_json(dropped.iloc[0]["recipe"])
    last = autoselect.resume(run.directory, recipes=[recipe], progress=False).trials.iloc[-1]
    assert (last["origin"], last["state"], last["samples"]) == ("user", "complete", len(pump.SEARCH[1]))


def _failing() -> None:
    raise BuildError("made to fail")


def test_one_that_fails_is_a_failed_trial(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = of_nodes(folder, 3)
    monkeypatch.setattr(SearchLoop, "_submit_build", lambda self, _recipe: self._pool.submit(_failing))
    run = autoselect.resume(folder, recipes=[recipe], progress=False)
    last = run.trials.iloc[-1]
    assert (last["origin"], last["state"]) == ("user", "failed")
    assert "made to fail" in last["error"]
    assert run.status == "complete"


def test_trials_by_hand_use_up_none_of_the_budget(tmp_path: Path) -> None:
    told = list[TrialFinished]()

    def stop(event: object) -> None:
        if isinstance(event, TrialFinished):
            told.append(event)
            if len(told) == 6:
                raise KeyboardInterrupt

    run = pump.search(tmp_path / "run", trials=10, seed=2, early_exit=False, listener=stop)
    assert run.status == "interrupted"
    run = autoselect.resume(run.directory, recipes=[of_nodes(run.directory, 0, 7)], progress=False)
    assert (len(run.trials), run.status) == (7, "complete")
    run = autoselect.resume(run.directory, progress=False)
    assert len(run.trials) == 11


def test_the_command_line_takes_recipe_files(folder: Path, tmp_path: Path) -> None:
    recipe = of_nodes(folder, 1)
    path = tmp_path / "mine.recipe.json"
    path.write_text(recipe.to_json())
    done = CliRunner().invoke(app, ["resume", str(folder), "--recipe", str(path), "--json"])
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (trial,) = [event for event in events if event["event"] == "trial"]
    assert trial["origin"] == "user"
    (stage,) = [event for event in events if event.get("stage") == "trials"]
    assert (stage["total"], stage["done"]) == (1, 0)
    asked = CliRunner().invoke(app, ["what-if", str(folder), "--from", str(path), "--json"])
    assert json.loads(asked.stdout)["trial"] == trial["number"]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "recipes and pins": ({"recipes": [Recipe()], "pins": {"keep_int": "SOFTMAX"}}, UsageError, "leave out trials"),
    "recipes and trials": ({"recipes": [Recipe()], "trials": 40}, UsageError, "leave out trials and pins"),
    "a recipe of another model": (
        {"recipes": [Recipe(denylisted_nodes=frozenset({"nobody"}))]},
        RecipeError,
        "No node is called 'nobody'",
    ),
    "a pin of nothing": ({"trials": 40, "pins": {"keep_int": ["nobody"]}}, UsageError, "keep_int: No node is called"),
    "a pin of no kind": ({"trials": 40, "pins": {"keep": ["a"]}}, UsageError, "pins: expected some of keep_float"),
    "pins of no trials": ({"pins": {"keep_int": ["SOFTMAX"]}}, UsageError, "ask for more in all: --trials 32"),
    "pins of no more trials": ({"trials": 12, "pins": {"keep_int": ["SOFTMAX"]}}, UsageError, "--trials 32"),
    "a pin of a lacking form": (
        {"trials": 40, "pins": {"keep_int16": ["SOFTMAX"]}},
        UsageError,
        "the search of this run has no 16-bit nodes",
    ),
}


@pytest.mark.parametrize(("asked", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_told_and_the_run_stays(
    folder: Path, asked: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = {name: sha for name, sha in pump.tree(folder).items() if name != "worker.log"}
    with pytest.raises(error, match=f"(?i){words}"):
        autoselect.resume(folder, progress=False, **asked)
    after = {name: sha for name, sha in pump.tree(folder).items() if name not in ("worker.log", ".autoselect-lock")}
    assert {**after, ".autoselect-lock": ""} == {**before, ".autoselect-lock": ""}


def test_a_sampler_that_keeps_no_pins_is_told(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=5, early_exit=False, sampler="nsga2")
    with pytest.raises(UsageError, match="The sampler 'nsga2' keeps no pins"):
        autoselect.resume(run.directory, trials=9, pins={"keep_int": "SOFTMAX"}, progress=False)


@pytest.mark.slow
def test_pins_end_with_the_trials_that_they_were_for(folder: Path) -> None:
    run = autoselect.load_run(folder)
    first, second, *_ = run.what_if("int8").nodes
    pins = {"keep_float": [first], "keep_int": [second]}
    autoselect.resume(folder, trials=TRIALS + 3, pins=pins, progress=False)
    run = autoselect.resume(folder, trials=TRIALS + 5, progress=False)
    (kept,) = run.manifest["pinned"]
    assert (kept["first_trial"], kept["last_trial"]) == (TRIALS, TRIALS + 2)
    assert any(
        "under pins of the user: 1 node out of integers and 1 node in integers" in n for n in run.manifest["notes"]
    )
    left = [pump.recipe_nodes(text) for text in run.trials["recipe"]]
    assert all(first in nodes and second not in nodes for nodes in left[TRIALS : TRIALS + 3])
    assert len(run.trials) == TRIALS + 5


def test_runs_without_pins_are_as_they_were(folder: Path, made: Path, tmp_path: Path) -> None:
    """What goes on from the same trials with the same seed proposes the same."""
    other = Path(shutil.copytree(made, tmp_path / "other"))
    first, second = (autoselect.resume(one, trials=TRIALS + 3, progress=False) for one in (folder, other))
    assert first.trials["fingerprint"].tolist() == second.trials["fingerprint"].tolist()
    assert len(read_records(folder / "study.journal")) == TRIALS + 3
