"""Questions about a run that is over: exact costs, honest guesses, and words for what cannot be asked."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest

import autoselect
from autoselect.domain.objectives import Constraints
from autoselect.domain.recipe import Recipe
from autoselect.errors import RecipeError, RunFolderError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import read_limits
from autoselect.study import references
from autoselect.study.what_if import tried
from autoselect.study.what_if.changes import Changes
from autoselect.study.what_if.choices import MOVES, STATES
from autoselect.study.what_if.moves import moves_from
from autoselect.study.what_if.questions import Questions
from autoselect.study.yardstick import Yardstick

TRIALS = 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[autoselect.Run]:
    """A run with 16-bit units and repairs, and workers that all its questions share."""
    folder = tmp_path_factory.mktemp("asked") / "run"
    with autoselect.keep_workers(1):
        yield pump.search(folder, trials=TRIALS, seed=3, int16=True, repairs=["bias", "ranges-mse"])


def nodes_of(run: autoselect.Run) -> list[str]:
    return list(run.what_if("int8").nodes)


def random_changes(nodes: list[str], seed: int, count: int) -> Iterator[dict[str, list[str]]]:
    """Each of some nodes gets one of the states at random."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        chosen = rng.permutation(nodes)[: rng.integers(1, len(nodes))]
        states = rng.choice(["deny", "in_float", "int16", "int8"], len(chosen))
        yield {state: [str(n) for n, s in zip(chosen, states, strict=True) if s == state] for state in set(states)}


def test_forecasts_are_what_is_built(run: autoselect.Run) -> None:
    for place, changes in enumerate(random_changes(nodes_of(run), 0, 12)):
        repairs = ([], None)[place % 2]
        found = run.what_if(("recommended", "int8", "int16")[place % 3], **changes, repairs=repairs)
        content = found.build()
        told = autoselect.inspect(content, target=found.target)
        assert found.size_bytes == len(content)
        assert found.penalty == pytest.approx(told.fragmentation["penalty"], abs=1e-9)
        assert [found.segments, found.float_ops, found.crossing_bytes] == [
            told.fragmentation[key] for key in ("segments", "float_ops", "crossing_bytes")
        ]
        assert sum(found.kinds.values()) == len(found.nodes)


def test_kinds_are_those_that_the_builder_made(run: autoselect.Run) -> None:
    asked = run._asked()
    for changes in random_changes(nodes_of(run), 4, 6):
        found = run.what_if("int8", **changes)
        _, reply = asked.workshop.build(found.recipe, asked.place_of(found))
        assert dict(found.nodes) == reply.kinds
        assert found.fallbacks.keys() == reply.fallbacks.keys()


def test_an_answer_takes_milliseconds(run: autoselect.Run) -> None:
    seconds = []
    for changes in random_changes(nodes_of(run), 1, 20):
        begun = time.process_time()  # Other processes may be at work.
        run.what_if("recommended", **changes)
        seconds.append(time.process_time() - begun)
    assert statistics.median(seconds) < 0.05


def test_asking_changes_nothing_in_the_run(run: autoselect.Run) -> None:
    before = pump.tree(run.directory)
    found = run.what_if("recommended", deny=["SOFTMAX"])
    found.build()
    found.score()
    assert pump.tree(run.directory) == before


def test_changes_say_what_becomes_of_nodes(run: autoselect.Run) -> None:
    first, second, third, *_ = nodes_of(run)
    found = run.what_if("int8", deny=[first], in_float=second, int16=[third])
    assert found.nodes[second] == "float"
    assert found.nodes[third] == "int16"
    assert found.recipe.denylisted_nodes == {first, second}
    assert "denied" in found.name
    back = run.what_if(found, int8=[first, second, third])
    assert back.recipe == run.what_if("int8").recipe
    assert back.size_bytes == run.what_if("int8").size_bytes


def test_fallbacks_say_which_nodes_have_no_hybrid_form(run: autoselect.Run) -> None:
    found = run.what_if("hybrid")
    assert {found.nodes[name] for name in found.fallbacks} == {"float"}
    assert set(found.fallbacks.values()) == {"no hybrid form"}


def test_what_the_run_scored_has_its_score(run: autoselect.Run) -> None:
    row = run.trials[run.trials["id"] == run.picks["recommended"]].iloc[0]
    found = run.what_if()
    assert found.trial == row["number"]
    assert found.scored_drop == pytest.approx(row["drop"])
    assert [found.size_bytes, found.penalty] == pytest.approx([row["size_bytes"], row["penalty"]])
    assert found.on_front
    assert found.dominated_by == ()
    assert run.what_if(int(row["number"])).recipe == run.what_if(str(row["id"])).recipe == found.recipe


def test_a_candidate_of_the_same_bytes_has_that_score_too(run: autoselect.Run) -> None:
    named = run.what_if("int8", repairs=["ranges-mse"], int16=nodes_of(run))
    plain = run.what_if("int8", repairs=[], int16=nodes_of(run))
    assert named.size_bytes == plain.size_bytes
    assert named.trial == plain.trial


def test_what_is_unknown_has_a_guess_with_an_interval(run: autoselect.Run) -> None:
    for changes in random_changes(nodes_of(run), 2, 10):
        found = run.what_if("recommended", **changes, repairs=run.what_if().recipe.repairs)
        assert not found.unknown
        assert found.drop_low <= found.drop <= found.drop_high
        assert 0.0 <= found.chance_within <= 1.0
        assert found.on_front == (found.dominated_by == ())
        assert found.gap == 0.0 or not found.on_front


@pytest.mark.parametrize("limits", [Constraints(max_drop=-0.5), Constraints(max_size_bytes=10), Constraints()])
def test_what_breaks_a_limit_is_not_on_the_front(
    run: autoselect.Run, limits: Constraints, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = references.yardstick_of

    def limited(*args: Any, **kwargs: Any) -> Yardstick:
        return replace(known(*args, **kwargs), constraints=limits)

    monkeypatch.setattr(references, "yardstick_of", limited)
    again = autoselect.load_run(run.directory)
    asked = [again.what_if("recommended", **changes) for changes in random_changes(nodes_of(run), 2, 5)]
    if limits.any:
        assert {found.on_front for found in asked} == {False}
        assert [found.chance_on_front for found in asked] == pytest.approx([0.0] * 5, abs=0.05)
    assert again.what_if("recommended").on_front  # If nothing keeps the limits, the front has what is nearest.


def test_a_cheaper_member_that_is_expected_to_lose_as_much_is_ahead(run: autoselect.Run) -> None:
    """All in float loses nothing. So does a member of 16 bits, as far as is known, and costs a tenth."""
    found = run.what_if("float")
    assert found.drop == 0.0
    assert not found.on_front
    assert found.gap == 0.0
    ahead = run.trials[run.trials["id"].isin(found.dominated_by)]
    assert (ahead["penalty"] <= found.penalty).all()


def test_no_member_of_the_front_is_preferred_to_the_recommended_one(run: autoselect.Run) -> None:
    rule, members = run._asked().tried.rule, run._asked().tried.members
    for member in members:
        found = run.what_if(member.record.id)
        assert found.preferred is False
        assert found.far is False  # Its own samples bound what it loses.
        assert found.chance_within == pytest.approx(1.0 - rule.chance_to_break(member.standing), abs=1e-6)


def test_what_is_preferred_if_it_scores_as_expected_is_as_unsure_as_what_was_scored(run: autoselect.Run) -> None:
    """A score on the search samples proves less of others, however sure one is of that score."""
    questions = Questions(RunFolder(run.directory))
    scored = [s for s in questions.tried.standings.values() if s.is_bounded and math.isfinite(s.bound)]
    recipe = run.what_if("int16", deny=nodes_of(run)[2]).recipe
    found, likely = questions.forecast(recipe, questions.workshop.place()), questions.tried.likely(recipe)
    assert likely is not None
    surely = replace(likely, low=likely.drop - 1e-6, high=likely.drop + 1e-6)
    standing = questions._expected_standing(recipe, found, surely, None)
    assert standing.bound - standing.drop >= min(one.bound - one.drop for one in scored) > 1e-3


@pytest.mark.parametrize("target", ["litert-cpu", "tflm"])
def test_on_another_target_a_member_is_none_of_its_own_rivals(run: autoselect.Run, target: str) -> None:
    for key in run.front["id"]:
        found = run.what_if(str(key), target=target)
        assert key not in found.dominated_by
        assert found.on_front == (found.dominated_by == () and not found.refusal)


def test_the_float_model_loses_nothing(run: autoselect.Run) -> None:
    found = run.what_if("float")
    assert [found.drop, found.drop_low, found.drop_high, found.chance_within] == [0.0, 0.0, 0.0, 1.0]
    assert found.kinds == {"float": len(found.nodes)}


def test_what_types_of_8_bits_alone_cost_nobody_knows_before_they_are_scored(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=8, seed=3, io_type="int8", fallback="float")
    found, near = run.what_if("float"), run.what_if("int8", deny=nodes_of(run)[:-1])
    assert "int8" in found.unknown
    assert [found.drop, found.chance_within, found.chance_on_front] == [None, None, None]
    assert near.unknown == ""
    assert near.drop is not None
    assert set(near.kinds) == {"float", "integer"}  # As all that this search left out of integers.


def test_a_score_is_that_of_the_built_file(run: autoselect.Run) -> None:
    found = run.what_if("int8", int16=nodes_of(run)[:3])
    own = autoselect.evaluate(found.build(), evaluation=pump.HELDOUT, metric="accuracy", reference=pump.MODEL_PATH)
    scored = found.score(pump.HELDOUT)
    assert [scored.score, scored.drop, scored.samples] == pytest.approx([own.score, own.drop, own.samples])
    assert scored.drop_low <= scored.drop <= scored.drop_high


def test_a_score_on_the_search_samples_is_that_of_the_trial(run: autoselect.Run) -> None:
    found = run.what_if("int8")
    assert found.trial is not None
    assert found.score().drop == pytest.approx(found.scored_drop)


def test_several_make_a_table(run: autoselect.Run) -> None:
    found = run.what_if(["recommended", "int8", Recipe(), 0])
    assert isinstance(found, pd.DataFrame)
    assert len(found) == 4
    assert {"size_bytes", "penalty", "segments", "drop", "drop_low", "drop_high", "gap", "int16_nodes"} <= set(found)
    named = run.what_if({"a": "recommended", "b": "float"}, target="ethos-u55-128")
    assert named["name"].tolist() == ["a", "b"]
    assert set(named["target"]) == {"ethos-u55-128"}


def test_another_target_has_its_own_penalty_and_refusal(run: autoselect.Run) -> None:
    assert run.what_if("float", target="tflm").refusal == ""
    found = run.what_if("hybrid", target="tflm")
    assert "hybrid" in found.refusal
    for target in ("ethos-u55-128", "litert-cpu"):
        found = run.what_if("int8", in_float=["SOFTMAX"], target=target)
        told = autoselect.inspect(found.build(), target=target)
        assert found.penalty == pytest.approx((told.target["forecast"] or told.target)["penalty"])
        assert found.segments == told.fragmentation["segments"]


def test_what_the_search_was_refused_is_told_and_not_preferred(
    run: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler may refuse what no rule of the target does."""
    records = tried.read_records(run.directory / "study.journal")
    members = {*run.front["id"]}
    chosen = next(r for r in records if r.recipe and r.scores and r.id not in members)
    failed = replace(chosen, scores=None, error="No kernel.", error_kind="compiler")
    monkeypatch.setattr(tried, "read_records", lambda _: [failed if r.id == chosen.id else r for r in records])
    assert chosen.recipe is not None
    found = autoselect.load_run(run.directory).what_if(chosen.recipe)
    assert (found.refusal, found.preferred, found.trial) == ("No kernel", None, None)
    assert autoselect.load_run(run.directory).what_if(chosen.recipe, target="tflm").refusal == ""


def test_float_that_a_cheaper_member_equals_has_no_chance_of_the_front(
    run: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(RunFolder(run.directory))
    before = questions.ask("float")
    assert (before.on_front, before.chance_on_front) == (not before.dominated_by, float(not before.dominated_by))
    equal = [replace(m, standing=replace(m.standing, drop=0.0)) for m in questions.tried.members]
    monkeypatch.setattr(questions.tried, "members", equal)
    questions._fronts.clear()
    found = questions.ask("float")
    assert (found.on_front, found.chance_on_front, found.gap) == (False, 0.0, 0.0)


def test_a_single_step_is_told_as_its_answer_would_be(run: autoselect.Run) -> None:
    """Of a start that was scored and of steps to others, scored or not."""
    questions = Questions(RunFolder(run.directory))
    answer = questions.ask("recommended")
    assert answer.drop is not None
    moves = moves_from(questions, answer)
    assert {move.state for move in moves} >= {"int16", "float"}
    known = [move for move in moves if move.drop is not None]
    for move in known[:12]:
        after = questions.ask(answer, Changes.of(**{MOVES[move.state]: move.nodes}))
        assert after.drop is not None
        assert (move.drop, move.more_drop) == pytest.approx((after.drop, after.drop - answer.drop))
        assert STATES[move.state] in {after.nodes[node] for node in move.nodes}, move
    assert len(known) > 5


def test_no_single_step_leads_to_what_the_search_was_refused(
    run: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(RunFolder(run.directory))
    answer = questions.ask("int8")
    assert moves_from(questions, answer)
    monkeypatch.setattr(questions.tried, "refused", lambda _recipe, _plan: "No kernel")
    assert moves_from(questions, answer) == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"deny": ["softmix"]}, "deny: No node is called 'softmix'.*Did you mean 'SOFTMAX'"),
        ({"deny": ["pump_monitor_1/soft/Softmax"]}, r"deny: No node is called .*Did you mean 'pump_monitor_1/"),
        ({"recipe": "recomended"}, r"no candidate 'recomended'.*recommended"),
        ({"recipe": 999}, rf"trials from 0 to {TRIALS - 1}"),
        ({"deny": ["SOFTMAX"], "int16": ["SOFTMAX"]}, "covered by deny and int16"),
        ({"repairs": ["bia"]}, "repairs: expected one of"),
        ({"target": "ethos"}, "no target 'ethos'"),
        ({"int8": [92]}, r"names.*got 92\."),
    ],
)
def test_what_cannot_be_asked_is_told(run: autoselect.Run, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run.what_if(**asked)


def test_trials_that_were_cut_off_leave_gaps_in_their_numbers(
    run: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = run._asked().tried
    monkeypatch.setattr(tried, "records", [record for record in tried.records if record.number != 3])
    with pytest.raises(UsageError, match=rf"trials from 0 to {TRIALS - 1}\."):
        run.what_if(999)


def test_a_wrong_recipe_is_told_as_such(run: autoselect.Run) -> None:
    with pytest.raises(RecipeError, match="'nothing'"):
        run.what_if(Recipe(denylisted_nodes={"nothing"}))


def copied(run: autoselect.Run, folder: Path) -> Path:
    return Path(shutil.copytree(run.directory, folder / "run"))


def test_a_run_that_keeps_no_model_is_told(run: autoselect.Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    shutil.rmtree(folder / "kept")
    with pytest.raises(UsageError, match=r"calibrated model.*autoselect resume"):
        autoselect.load_run(folder).what_if()


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_resumed_run_answers_as_before(tmp_path: Path, is_removed: bool) -> None:
    """It has nothing left to score, so its own trials need few repairs and no probes."""
    before = pump.search(tmp_path / "run", trials=4, repairs=True)
    evidence = before.directory / "kept" / "evidence"
    files = {path.name for path in evidence.iterdir()}
    expected = [before.what_if(start, deny=["SOFTMAX"]) for start in ("recommended", "int8", "float")]
    if is_removed:
        shutil.rmtree(evidence.parent)
    resumed = autoselect.resume(before.directory)
    assert is_removed or {path.name for path in evidence.iterdir()} == files
    for start, known in zip(("recommended", "int8", "float"), expected, strict=True):
        found = resumed.what_if(start, deny=["SOFTMAX"])
        assert (found.recipe, found.size_bytes, found.drop) == (known.recipe, known.size_bytes, known.drop)


@pytest.mark.parametrize("change", ["builder", "prepared"])
def test_a_run_of_another_version_is_told(run: autoselect.Run, tmp_path: Path, change: str) -> None:
    folder = copied(run, tmp_path)
    path = folder / ("manifest.json" if change == "builder" else "kept/units.json")
    known = json.loads(path.read_text(encoding="utf-8"))
    if change == "builder":
        known["versions"]["builder"] = "3"
    else:
        known["prepared"] = 1
    path.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(UsageError, match="version"):
        autoselect.load_run(folder).what_if()


def test_a_damaged_run_is_told(run: autoselect.Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    (folder / "kept" / "units.json").write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises((UsageError, RunFolderError)):
        autoselect.load_run(folder).what_if()


def test_a_journal_without_its_trials_is_told(run: autoselect.Run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path)
    (folder / "study.journal").write_text("", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"study\.journal"):
        autoselect.load_run(folder).what_if("recommended")


def test_a_run_of_live_objects_builds_and_asks_for_what_it_lacks(tmp_path: Path) -> None:
    live = autoselect.search(**pump.LIVE, trials=3, repairs=["ranges-mse"], int16=False, output=tmp_path / "run")
    found = live.what_if("int8", repairs=["ranges-mse"])
    assert len(found.build()) == found.size_bytes
    with pytest.raises(UsageError, match=r"live evaluation.*score\(..., evaluation=...\)"):
        found.score()
    assert found.score(evaluation=pump.SEARCH, heldout=pump.HELDOUT).samples == len(pump.SEARCH[1])


def hits(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float((y_pred.argmax(axis=-1) == y_true).mean())


def misses(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return -1.0 + hits(y_true, y_pred)


def test_a_score_is_by_the_objects_that_are_given_with_it(tmp_path: Path) -> None:
    live = {**pump.LIVE, "metric": hits, "direction": "maximize"}
    run = autoselect.search(**live, trials=1, repairs=False, int16=False, output=tmp_path / "run")
    found, data = run.what_if("int8"), {"evaluation": pump.SEARCH, "heldout": pump.HELDOUT}
    wrong, right = found.score(metric=misses, **data), found.score(metric=hits, **data)
    assert wrong.score == pytest.approx(right.score - 1.0)
    assert right.drop == pytest.approx(found.scored_drop)


def test_samples_that_have_changed_are_refused_as_by_resume(tmp_path: Path) -> None:
    (x, y), files = pump.SEARCH, {name: str(tmp_path / f"{name}.npz") for name in ("evaluation", "heldout")}
    np.savez(files["evaluation"], x=x, y=y)
    np.savez(files["heldout"], x=pump.HELDOUT[0], y=pump.HELDOUT[1])
    run = pump.search(tmp_path / "run", trials=1, **files)
    np.savez(files["evaluation"], x=x[:100], y=y[:100])
    found = autoselect.load_run(run.directory).what_if("int8")
    for _ in range(2):
        with pytest.raises(RunFolderError, match="another evaluation"):
            found.score()
    assert found.score((x, y)).drop == pytest.approx(found.scored_drop)
    np.savez(files["evaluation"], x=x, y=y)
    assert found.score().drop == pytest.approx(found.scored_drop)


def test_a_profile_that_has_changed_is_refused_as_by_resume(tmp_path: Path) -> None:
    profile, said = tmp_path / "mine.toml", 'extends = "litert-cpu"\nname = "mine"\n'
    profile.write_text(said)
    run = pump.search(tmp_path / "run", trials=1, target=str(profile))
    profile.write_text(said + "[crossing]\nfixed = 7.0\n")
    with pytest.raises(RunFolderError):
        run.what_if("int8")
    with pytest.raises(RunFolderError):
        run.limits(targets=str(profile))
    assert run.what_if("int8", target="tflm").target == "tflm"
    profile.unlink()
    assert run.what_if("int8", target="tflm").target == "tflm"
    profile.write_text(said)
    assert run.what_if("int8").trial == 0


def test_limits_are_those_that_the_run_wrote(run: autoselect.Run) -> None:
    written = run.limits()
    own = run.limits(targets=run.summary["target"])
    columns = ["allowed_drop", "id", "penalty", "size_bytes", "expected_drop", "resampled", "penalty_low"]
    pd.testing.assert_frame_equal(written[columns], own[columns], check_dtype=False)
    assert written["allowed_drop"].iloc[0] == 0.0
    assert written["allowed_drop"].iloc[-1] == pytest.approx(0.05)
    at_own = written[written["allowed_drop"] == run.summary["allowed_drop"]].iloc[0]
    assert at_own["id"] == run.picks["recommended"]
    assert at_own["resampled"] == pytest.approx(run.summary["recommended"]["resampled"])


def test_one_allowed_drop_needs_no_list(run: autoselect.Run) -> None:
    pd.testing.assert_frame_equal(run.limits(allowed=0.01), run.limits(allowed=[0.01]))


@pytest.mark.parametrize("drop", [float("nan"), float("inf"), -0.01])
def test_what_is_no_drop_is_told(run: autoselect.Run, drop: float) -> None:
    with pytest.raises(UsageError, match=rf"allowed: .*{drop}"):
        run.limits(allowed=[0.01, drop])


def test_of_a_run_with_a_limit_no_larger_drop_is_asked(run: autoselect.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    known = references.yardstick_of

    def limited(*args: Any, **kwargs: Any) -> Yardstick:
        return replace(known(*args, **kwargs), constraints=Constraints(max_drop=0.02), allowed_drop=0.02)

    monkeypatch.setattr(references, "yardstick_of", limited)
    again = autoselect.load_run(run.directory)
    assert again.limits("integer-only")["allowed_drop"].max() == 0.02
    with pytest.raises(UsageError, match=r"at most 0\.02"):
        again.limits(allowed=[0.01, 0.03])


def test_the_more_is_allowed_the_less_it_costs(run: autoselect.Run) -> None:
    found = run.limits(allowed=[0.0, 0.02, 0.5])
    assert found["penalty"].is_monotonic_decreasing
    assert found["allowed_drop"].tolist() == [0.0, 0.02, 0.5]
    assert (found["penalty_low"] <= found["penalty_high"]).all()


def test_one_model_for_three_targets(run: autoselect.Run) -> None:
    targets = ["integer-only", "ethos-u55-128", "litert-cpu"]
    found = run.limits(targets, allowed=[0.01])
    assert found["target"].tolist() == [*targets, ",".join(targets)]
    one = found.iloc[-1]
    assert one["worst_ratio"] >= 1.0
    assert one["id"] in set(run.trials["id"])
    assert found["worst_ratio"].iloc[:-1].isna().all()


@pytest.fixture
def namesake(tmp_path: Path, run: autoselect.Run) -> Path:
    """A profile that extends the one of the run, whose name it therefore has, and takes 8-bit inputs and outputs."""
    path = tmp_path / "mine.toml"
    path.write_text('extends = "integer-only"\nper_channel = true\n[crossing]\nfixed = 77000.0\nper_byte = 0.0\n')
    assert run.summary["target"] == "integer-only"
    return path


def test_an_answer_is_of_the_target_that_was_asked_for(run: autoselect.Run, namesake: Path) -> None:
    own, other = run.what_if("float"), run.what_if("float", target=str(namesake))
    assert own.target == other.target
    questions = other._maker
    assert Path(questions.place_of(other).spec) == namesake
    assert questions.place_of(own).spec == "integer-only"


def test_a_target_is_the_same_by_any_path(run: autoselect.Run, namesake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(namesake.parent)
    found = run.limits([namesake.name, str(namesake)], allowed=[0.01])
    assert len(found) == 1


def test_two_targets_of_one_name_are_not_mixed_up(run: autoselect.Run, namesake: Path) -> None:
    with pytest.raises(UsageError, match="called 'integer-only'"):
        run.limits(["integer-only", str(namesake)])


def test_a_target_that_takes_no_member_says_why(run: autoselect.Run, tmp_path: Path) -> None:
    path = tmp_path / "picky.toml"
    rule = 'ops = "all"\nprecisions = ["int8", "int16", "float", "hybrid"]\nby = "compiler"\nwhy = "It is picky"\n'
    path.write_text(f'extends = "litert-cpu"\nname = "picky"\n[[reject]]\n{rule}')
    with pytest.raises(UsageError, match=r"'picky' .*is picky\.$"):
        run.limits(["litert-cpu", str(path)])
    found = run.what_if("hybrid", target=str(path))
    assert found.refusal
    assert found.dominated_by == ()
    assert found.chance_on_front == 0.0


def test_what_parts_units_is_called_approximate(run: autoselect.Run) -> None:
    units = pd.read_csv(run.directory / "sensitivity.csv").groupby("unit")["tensor_name"].apply(list)
    several = [nodes for nodes in units if len(nodes) > 1]
    if several:
        assert run.what_if("int8", in_float=several[0][:1], repairs=run.what_if().recipe.repairs).approximate
    whole = run.what_if("int8", in_float=units.iloc[0], repairs=run.what_if().recipe.repairs)
    assert not whole.approximate


def test_limits_are_drawn_with_their_resamples(run: autoselect.Run) -> None:
    (panel,) = run.plot_limits().axes
    assert {artist.get_gid() for artist in panel.get_children()} >= {"recommended", "resamples", "limit"}
    with pytest.raises(RunFolderError, match=r"limits\.csv"):
        read_limits(run.directory / "front")
    assert panel.get_xlim()[1] > 4.9
    assert len(run.plot_limits(run.limits(["integer-only", "litert-cpu"])).axes) == 2
