from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest

import autoselect
from autoselect.cases.events import EndedEarly, Event, StageStarted, TrialFinished, Warned
from autoselect.domain.picks import PICK_NAMES, named_picks
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import FAR_DB
from autoselect.domain.states import left_out_of
from autoselect.embedded import model_bytes
from autoselect.errors import AutoselectError, MetricError, RunFolderError, UsageError
from autoselect.runs.run import load_run
from autoselect.study import search as study_search
from autoselect.study.finishing import certainty, finish
from autoselect.study.setup import probing, repair_choice
from autoselect.study.setup import problem as outlook
from autoselect.tflite.runner import Runner

OBJECTIVES = ["accuracy", "size_bytes", "penalty"]


def scored(run: autoselect.Run) -> list[Any]:
    return list(run.trials[run.trials["state"] == "complete"].itertuples())


def losses(row: Any) -> tuple[float, float, float]:
    return -row.accuracy, row.size_bytes, row.penalty


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "seconds"}


# ------------------------------------------------------------------------------------- the run folder


def test_a_finished_folder_holds_what_is_promised_and_nothing_else(finished: autoselect.Run) -> None:
    endings = (".tflite", ".recipe.json", ".litert-quantizer.json", ".build.py")
    members = [f"front/{member}{end}" for member in finished.front["id"] for end in endings]
    columns = ["rmse_per_scale", "sqnr_db", "max_abs_error", "range", "left_out_share"]
    columns += [f"{pick}.choices" for pick in finished.picks]
    assert set(pump.tree(finished.directory)) == {
        "manifest.json",
        "trials.csv",
        "front.csv",
        "layer_statistics.csv",
        "pareto.png",
        "report.html",
        "sensitivity.csv",
        "probes.jsonl",
        "cures.csv",
        "islands.csv",
        "limits.csv",
        "heldout_classes.csv",
        "heldout_samples.csv",
        "summary.json",
        "study.journal",
        "worker.log",
        ".autoselect-lock",
        "calibrated.tflite",
        "calibrated-ranges-moving-average.tflite",  # After the repair that this case keeps.
        *members,
        *(f"model_explorer/{column}.json" for column in columns),
        *(f"artifacts/{path.name}" for path in (finished.directory / "artifacts").iterdir()),
        *(name for name in pump.tree(finished.directory) if name.startswith("kept/")),
    }
    folders = sorted(p.name for p in finished.directory.iterdir() if p.is_dir())
    assert folders == ["artifacts", "front", "kept", "model_explorer"]
    assert (finished.directory / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in finished.directory.parent.iterdir()) == ["run"]  # No lock is left beside it.


def test_the_counts_add_up(finished: autoselect.Run) -> None:
    trials, counts = finished.trials, finished.summary["counts"]
    assert finished.status == "complete"
    assert trials["number"].tolist() == list(range(20))
    assert counts == {
        "trials": 20,
        "scored": trials.loc[trials["state"] == "complete", "sha256"].nunique(),
        "reused": int(trials["reused"].sum()),
        "dropped": int((trials["state"] == "dropped").sum()),
        "failed": 0,
        "samples": int(trials.loc[~trials["reused"], "samples"].sum()),
    }
    assert counts["scored"] + counts["reused"] + counts["dropped"] == 20
    assert finished.summary["unlike_forecast"] == 0
    assert trials["forecast_error"].isna().all()
    complete = trials["state"] == "complete"
    assert (trials.loc[complete, "samples"] == 200).all()
    assert (trials.loc[~complete, "samples"] < 200).all()
    assert trials.loc[~complete, "accuracy"].isna().all()
    assert finished.manifest["counts"] == {"calibration": pump.CALIBRATION_COUNT, "search": 200, "heldout": 300}


def test_the_first_trials_are_the_baselines(finished: autoselect.Run) -> None:
    origins = finished.trials["origin"].tolist()
    assert origins[:4] == ["baseline:fiq", "baseline:drq", "baseline:fiq+repairs", "baseline:heuristic"]
    assert origins[4:] == ["surrogate"] * 16


def test_every_front_file_has_the_bytes_of_its_row(finished: autoselect.Run) -> None:
    for row in finished.front.itertuples():
        file = finished.directory / row.file
        assert (pump.sha256(file), file.stat().st_size) == (row.sha256, row.size_bytes)
        assert file.stem == row.id == row.sha256[:10]


def test_the_front_is_what_no_trial_dominates(finished: autoselect.Run) -> None:
    rows = scored(finished)
    best = {r.sha256 for r in rows if not any(pump.dominates(losses(o), losses(r)) for o in rows)}
    marked = set(finished.trials.loc[finished.trials["on_front"], "sha256"])
    assert best <= marked  # and those that are best once scores have learned of closeness
    assert finished.front["sha256"].is_unique
    assert set(finished.front["sha256"]) <= marked
    assert set(finished.picks.values()) <= set(finished.front["id"])
    assert len(best) >= 2


def test_without_spacing_the_whole_front_is_shown(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=8, front_spacing=0.0)
    assert set(run.front["sha256"]) == set(run.trials.loc[run.trials["on_front"], "sha256"])


def test_equal_bytes_are_scored_once_and_equal_scores_are_reused(finished: autoselect.Run) -> None:
    trials = finished.trials
    assert trials.loc[~trials["reused"], "sha256"].is_unique
    for _, twins in trials.groupby("sha256"):
        assert len(twins[[*OBJECTIVES, "drop", "segments", "score_seconds"]].drop_duplicates()) == 1
    assert trials.groupby("fingerprint")["sha256"].nunique().eq(1).all()


def test_the_journal_tells_of_every_trial(finished: autoselect.Run) -> None:
    told = pump.journal(finished.directory)
    for trial, row in zip(told, finished.trials.itertuples(), strict=True):
        assert trial.number == row.number
        assert trial.state.name == {"complete": "COMPLETE", "dropped": "PRUNED"}[row.state]
        values = [getattr(row, name) for name in OBJECTIVES] if row.state == "complete" else None
        assert trial.values == values


def test_the_layer_table_has_a_row_for_each_op_of_the_float_model(finished: autoselect.Run) -> None:
    table = finished.layer_statistics
    assert table["op_name"].tolist() == pump.litert_ops(model_bytes())
    assert table["index"].tolist() == list(range(len(table)))
    assert table["tensor_name"].is_unique


# ----------------------------------------------------------------------------------- scores and picks


def test_scores_are_those_of_litert_itself(finished: autoselect.Run) -> None:
    for row in finished.front.itertuples():
        content = (finished.directory / row.file).read_bytes()
        assert row.accuracy == pytest.approx(pump.litert_accuracy(content, pump.SEARCH))
        assert row.heldout_accuracy == pytest.approx(pump.litert_accuracy(content, pump.HELDOUT))
        assert row.heldout_low < row.heldout_accuracy < row.heldout_high


def test_the_float_reference_is_the_source_itself(finished: autoselect.Run) -> None:
    found = finished.summary["references"]["float"]
    assert found["size_bytes"] == pytest.approx(len(model_bytes()), rel=0.01)  # Its free batch is pinned to 1.
    assert found["penalty"] == 80
    assert found["accuracy"] == pytest.approx(pump.litert_accuracy(model_bytes(), pump.SEARCH))
    assert found["heldout"] == pytest.approx(pump.litert_accuracy(model_bytes(), pump.HELDOUT))
    drops = found["accuracy"] - finished.trials["accuracy"]
    np.testing.assert_allclose(finished.trials["drop"], drops, atol=1e-12)


def test_picks_are_members_of_the_front(finished: autoselect.Run) -> None:
    picks = finished.picks
    assert set(picks) == set(PICK_NAMES)
    front = finished.front.set_index("id")
    for name, member in picks.items():
        assert name in front.loc[member, "pick"].split(",")
    assert finished.summary["recommended"]["id"] == picks["recommended"]
    allowed = finished.summary["allowed_drop"]
    sure = front[front["expected_drop_bound"] <= allowed]
    assert finished.summary["recommended"]["certified"] == bool(len(sure))
    assert finished.summary["recommended"]["bound"] == pytest.approx(
        front.loc[picks["recommended"], "expected_drop_bound"]
    )
    assert front.loc[picks["recommended"], "penalty"] <= front.loc[picks["accurate"], "penalty"]
    assert front.loc[picks["integer"], "float_ops"] == front["float_ops"].min()


def test_pick_copies_by_name_and_by_id(finished: autoselect.Run, tmp_path: Path) -> None:
    for name in (*finished.picks, finished.front["id"].iloc[-1]):
        row = autoselect.pick(finished.directory, name=name, output=tmp_path / f"{name}.tflite")
        assert pump.sha256(Path(row["path"])) == row["sha256"]
        assert row["id"] == finished.picks.get(name, name)
    with pytest.raises(RunFolderError, match=r"no 'smallest'.*accurate"):
        autoselect.pick(finished.directory, name="smallest", output=tmp_path / "none.tflite")
    assert not (tmp_path / "none.tflite").exists()


def test_pick_names_its_file_and_writes_over_nothing(
    finished: autoselect.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert autoselect.pick(finished.directory)["path"] == "pump_monitor_recommended.tflite"
    assert autoselect.pick(finished.directory, name="compact")["path"] == "pump_monitor_compact.tflite"
    Path("pump_monitor_compact.tflite").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        autoselect.pick(finished.directory, name="compact")
    assert Path("pump_monitor_compact.tflite").read_text() == "mine"
    row = autoselect.pick(finished.directory, name="compact", force=True)
    assert pump.sha256(Path(row["path"])) == row["sha256"]


def test_evaluate_gives_a_members_heldout_score(finished: autoselect.Run) -> None:
    row = finished.front.iloc[0]
    found = autoselect.evaluate(finished.model_path(row["id"]), evaluation=pump.HELDOUT)
    for ours, theirs in [("score", "heldout_accuracy"), ("low", "heldout_low"), ("high", "heldout_high")]:
        assert found[ours] == pytest.approx(row[theirs])
    for column in ("size_bytes", "penalty", "segments", "float_ops", "crossing_tensors", "crossing_bytes"):
        assert found[column] == row[column]
    assert (found["metric"], found["samples"]) == ("accuracy", 300)


# -------------------------------------------------------------------------------------- the same again

TWIN = """
import sys
import pump
pump.search(sys.argv[1], trials=14, seed=4, repairs=True)
"""


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[autoselect.Run, autoselect.Run]:
    """The same search in this process and, without a cache, in another."""
    folder = tmp_path_factory.mktemp("twins")
    here = pump.search(folder / "here", trials=14, seed=4, repairs=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([p for p in sys.path if p]),
        "AUTOSELECT_CACHE_DIR": str(folder / "cache"),
    }
    subprocess.run([sys.executable, "-c", TWIN, str(folder / "there")], check=True, env=environment, timeout=120)
    return here, load_run(folder / "there")


def test_one_worker_and_one_seed_give_the_same_trials(twins: tuple[autoselect.Run, autoselect.Run]) -> None:
    here, there = twins
    timing = [name for name in here.trials if name.endswith("_seconds")]
    assert here.trials.drop(columns=timing).equals(there.trials.drop(columns=timing))
    assert here.front.equals(there.front)
    assert here.layer_statistics.equals(there.layer_statistics)
    assert timeless(here.summary) == timeless(there.summary)
    assert here.manifest["hashes"] == there.manifest["hashes"]
    assert pump.tree(here.directory / "front") == pump.tree(there.directory / "front")


CALIBRATIONS = {
    "function of signatures": lambda folder: lambda: ((None, {"window": s[0]}) for s in pump.calibration()),
    "array": lambda folder: np.concatenate([s[0] for s in pump.calibration()]),
    "npz": lambda folder: saved(folder / "c.npz"),
}


def saved(path: Path) -> Path:
    windows = np.concatenate([s[0] for s in pump.calibration()])
    np.savez(path, x=windows)
    return path


def has_repairs(run: autoselect.Run, member: str) -> bool:
    text = (run.directory / "front" / f"{member}.recipe.json").read_text(encoding="utf-8")
    return bool(Recipe.from_json(text).repairs)


@pytest.mark.parametrize("form", CALIBRATIONS.values(), ids=CALIBRATIONS)
def test_build_gives_a_members_bytes_from_any_form_of_the_data(
    finished: autoselect.Run, form: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = list(CALIBRATIONS).index(request.node.callspec.id)
    members = [row for row in finished.front.to_dict("records") if has_repairs(finished, row["id"])]
    member = members[place % len(members)]
    recipe: Any = finished.directory / "front" / f"{member['id']}.recipe.json"
    if place % 2:
        recipe = Recipe.from_json(recipe.read_text())
    source = [pump.MODEL_PATH, str(pump.MODEL_PATH), model_bytes()][place % 3]
    found = autoselect.build(recipe, model=source, calibration=form(tmp_path), output=tmp_path / "built.tflite")
    assert found["sha256"] == member["sha256"] == pump.sha256(tmp_path / "built.tflite")
    assert found["size_bytes"] == member["size_bytes"]
    floats = [name for name, kind in found["kinds"].items() if kind in ("float", "hybrid")]
    assert len(floats) == member["float_ops"]


def test_a_recipe_with_all_repairs_is_built_again_bit_for_bit(tmp_path: Path) -> None:
    """Each time in a process of its own that measures anew all that the repairs need."""
    denied = frozenset({"FULLY_CONNECTED"})
    recipe = Recipe(
        denylisted_ops=denied, repairs=("bias-sequential", "equalization", "ranges-mse", "weights-mse")
    ).to_json()
    (tmp_path / "all.recipe.json").write_text(recipe, encoding="utf-8")
    built = [
        autoselect.build(
            tmp_path / "all.recipe.json",
            model=pump.MODEL_PATH,
            calibration="pump:calibration",
            output=tmp_path / "built.tflite",
            cache=cache,
        )
        for cache in (True, False)
    ]
    assert built[0] == built[1]
    assert {"integer", "hybrid"} <= set(built[0]["kinds"].values())


def test_every_member_is_built_again_bit_for_bit(finished: autoselect.Run, tmp_path: Path) -> None:
    """From the recipes alone, by a resume that finds no candidate kept."""
    folder = tmp_path / "run"
    shutil.copytree(finished.directory, folder)
    for model in (folder / "front").glob("*.tflite"):
        model.unlink()
    again = autoselect.resume(folder)
    assert pump.tree(folder / "front") == pump.tree(finished.directory / "front")
    assert again.front.equals(finished.front)
    assert timeless(again.summary) == timeless(finished.summary)


# ------------------------------------------------------------------------------------- pins and limits


def test_pinned_nodes_stay_as_they_are_told(tmp_path: Path, finished: autoselect.Run) -> None:
    run = pump.search(tmp_path / "run", trials=14, keep_float=["SOFTMAX", "*/stem_1/*"], keep_int=["*energy*"])
    table = finished.layer_statistics
    names = table["tensor_name"]
    softmax, stem = names[table["op_name"] == "SOFTMAX"], names[names.str.contains("/stem_1/")]
    energy = set(names[names.str.contains("energy")])
    assert (len(softmax), len(stem), len(energy)) == (1, 1, 4)
    assert run.trials["fingerprint"].nunique() > 5
    for text in run.trials["recipe"]:
        assert set(softmax) | set(stem) <= pump.recipe_nodes(text)
        assert not energy & pump.recipe_nodes(text)


def test_no_penalty_means_all_integer(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=12, max_penalty=0)
    assert run.status == "complete"
    assert run.front[["penalty", "float_ops", "crossing_tensors"]].eq(0).all(axis=None)
    assert run.front["segments"].eq(1).all()
    assert run.trials.loc[run.trials["feasible"].eq(True), "float_ops"].eq(0).all()
    assert run.trials["feasible"].eq(False).any()


def test_where_nothing_is_feasible_the_closest_are_kept(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=6, max_size=1.0)
    assert run.status == "nothing_feasible"
    assert not run.trials["feasible"].any()
    assert len(run.front) >= 1
    assert run.front["size_bytes"].eq(run.trials["size_bytes"].min()).all()
    assert "closest" in run.summary["verdict"]
    assert set(run.picks) == set(PICK_NAMES)


# ---------------------------------------------------------------------------------------- more trials


def test_a_finished_run_takes_more_trials(finished: autoselect.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.directory, folder)
    events: list[Event] = []
    run = autoselect.resume(folder, trials=30, listener=events.append)
    assert run.status == "complete"
    assert run.manifest["settings"]["trials"] == len(run.trials) == 30
    kept = run.trials.iloc[:20]
    assert kept.drop(columns="on_front").equals(finished.trials.drop(columns="on_front"))
    told = sorted(e.number for e in events if isinstance(e, TrialFinished))
    assert told == list(range(20, 30))
    assert run.trials.loc[~run.trials["reused"], "sha256"].is_unique
    assert not pump.unfinished(folder)
    rows = scored(run)
    best = {r.sha256 for r in rows if not any(pump.dominates(losses(o), losses(r)) for o in rows)}
    assert best <= set(run.trials.loc[run.trials["on_front"], "sha256"])
    assert {pump.sha256(folder / file) for file in run.front["file"]} == set(run.front["sha256"])
    assert run.front["heldout_accuracy"].notna().all()
    assert not (folder / ".autoselect-work").exists()


def other_calibration() -> Any:
    return itertools.islice(pump.calibration(), 20)


CHANGED = {
    "calibration": ({"calibration": other_calibration}, "another calibration"),
    "evaluation": ({"evaluation": (pump.SEARCH[0][1:], pump.SEARCH[1][1:])}, "another evaluation"),
    "targets": ({"evaluation": (pump.SEARCH[0], (pump.SEARCH[1] + 1) % 8)}, "another evaluation"),
    "held-out": ({"heldout": (pump.HELDOUT[0][1:], pump.HELDOUT[1][1:])}, "another heldout"),
    "metric": ({"metric": "f1_macro"}, "'accuracy'.*'f1_macro'"),
}


@pytest.mark.parametrize(("changes", "words"), CHANGED.values(), ids=CHANGED)
def test_other_ingredients_are_refused(
    finished: autoselect.Run, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.directory, folder)
    with pytest.raises(RunFolderError, match=words):
        autoselect.resume(folder, trials=30, **changes)
    before, after = pump.tree(finished.directory), pump.tree(folder)
    assert before | {"worker.log": ""} == after | {"worker.log": ""}


def test_a_second_search_in_the_same_folder_is_refused(finished: autoselect.Run) -> None:
    before = pump.tree(finished.directory)
    with pytest.raises(RunFolderError, match=r"another run.*resume"):
        pump.search(finished.directory)
    assert pump.tree(finished.directory) == before


# --------------------------------------------------------------------------- metrics and data of one's own


def hit_rate(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float((y_pred.argmax(axis=-1) == y_true).mean())


def miss_rate(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return 1.0 - hit_rate(y_true, y_pred)


def hits(runner: Any, samples: tuple[np.ndarray, np.ndarray]) -> float:
    outputs = [next(iter(runner(window[np.newaxis]).values())) for window in samples[0][:60]]
    return float(np.mean([o[0].argmax() == y for o, y in zip(outputs, samples[1], strict=False)]))


def evaluator_of_parts(runner: Any, *, split: str) -> float:
    return hits(runner, {"search": pump.SEARCH, "heldout": pump.HELDOUT}[split])


def evaluator_of_one_part(runner: Any) -> float:
    return hits(runner, pump.SEARCH)


def test_models_that_do_not_repeat_have_plain_kernels_before_they_are_scored_held_out(tmp_path: Path) -> None:
    told: list[Event] = []
    pump.search(tmp_path / "run", trials=8, early_exit=False, listener=told.append)
    stages = [event.stage for event in told if isinstance(event, StageStarted)]
    assert "repeats" in stages
    assert "repeats" not in stages[stages.index("heldout") :]


def test_a_metric_of_ones_own_scores_as_the_catalogues_does(finished: autoselect.Run, tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=6, metric=miss_rate, direction="minimize")
    assert run.manifest["metric"] == {"name": "miss_rate", "direction": "minimize"}
    known = finished.trials.drop_duplicates("sha256").set_index("sha256")
    for row in run.trials[run.trials["sha256"].isin(known.index)].itertuples():
        assert row.miss_rate == pytest.approx(1 - known.loc[row.sha256, "accuracy"])
        assert row.drop == pytest.approx(known.loc[row.sha256, "drop"])
    assert run.front["miss_rate"].iloc[0] == run.trials["miss_rate"].min()
    assert run.front["heldout_low"].lt(run.front["heldout_high"]).all()
    with pytest.raises(RunFolderError, match=r"live metric.*metric="):
        autoselect.resume(run.directory, trials=8)


def test_a_metric_may_be_called_live(tmp_path: Path) -> None:
    """A name that looks like the mark of a live object is still a name."""
    run = pump.search(tmp_path / "run", trials=4, metric="test_search:liveness", direction="maximize")
    assert len(autoselect.resume(run.directory, trials=5).trials) == 5


liveness = hit_rate


EVALUATORS = {
    "with split": (evaluator_of_parts, True, True),
    "without split": (evaluator_of_one_part, False, False),
    "by name": ("test_search:evaluator_of_parts", True, False),
}


@pytest.mark.parametrize(("evaluator", "has_heldout", "repairs"), EVALUATORS.values(), ids=EVALUATORS)
def test_an_evaluator_of_ones_own(tmp_path: Path, evaluator: Any, has_heldout: bool, repairs: bool) -> None:
    no_samples = {"evaluation": None, "heldout": None}
    run = pump.search(tmp_path / "run", **no_samples, evaluator=evaluator, trials=5, repairs=repairs)
    name = run.manifest["metric"]["name"]
    assert name == getattr(evaluator, "__name__", "evaluator_of_parts")
    assert run.trials["sqnr_db"].notna().all()
    assert run.front["sqnr_db"].notna().all()
    first = tuple(values[:60] for values in pump.SEARCH)
    later = tuple(values[:60] for values in pump.HELDOUT)
    for row in run.front.to_dict("records"):
        content = (run.directory / row["file"]).read_bytes()
        assert row[name] == pytest.approx(pump.litert_accuracy(content, first))
        expected = pump.litert_accuracy(content, later) if has_heldout else math.nan
        assert row[f"heldout_{name}"] == pytest.approx(expected, nan_ok=True)
    if not isinstance(evaluator, str):
        with pytest.raises(RunFolderError, match="live evaluator"):
            autoselect.resume(run.directory)


def lenient_hits(runner: Any, *, split: str) -> float:
    """A number in which a miss of a search sample hardly shows."""
    found = evaluator_of_parts(runner, split=split)
    return found if split == "heldout" else 0.99 + 0.01 * found


def test_what_held_out_samples_contradict_is_not_recommended(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", **UNSEEN, evaluator=lenient_hits)
    front = run.front.set_index("id")
    chosen, contradicted = front.loc[run.picks["recommended"]], front.loc[run.summary["contradicted"]]
    assert (contradicted["drop"] <= 0.02).all()  # By the search samples they are better.
    assert (contradicted["heldout_drop"] > 0.04).all()
    assert chosen["heldout_drop"] <= 0.04
    assert run.status == "complete"
    assert run.summary["headline"].startswith("The held-out samples contradict what the search samples recommend:")
    assert contradicted.index[0] in run.summary["headline"]
    assert run.picks["integer"] in contradicted.index


def broken_on_heldout(runner: Any, *, split: str) -> float:
    if split == "heldout":
        raise ValueError("no such folder")
    return lenient_hits(runner, split=split)


def test_a_failed_held_out_check_is_told_in_the_verdict(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", **UNSEEN | {"trials": 2}, evaluator=broken_on_heldout)
    assert run.front["heldout_broken_on_heldout"].isna().all()
    assert finish.UNCHECKED in run.summary["verdict"]
    [told] = [message for message in run.summary["warnings"] if "no such folder" in message]
    assert "held-out samples" in told


UNSEEN = {"evaluation": None, "heldout": None, "trials": 12, "early_exit": False, "max_drop": 0.02}


def strict_hits(runner: Any, *, split: str) -> float:
    """The same; held out, only a model that answers like the float one has hits."""
    if split == "search":
        return lenient_hits(runner, split=split)
    both, windows = (runner, Runner(pump.MODEL_PATH.read_bytes())), pump.HELDOUT[0][:20]
    own, of_float = ([next(iter(run({"window": w[np.newaxis]}).values())) for w in windows] for run in both)
    return float(np.allclose(own, of_float, atol=1e-7))


def test_if_held_out_samples_contradict_all_members_no_model_meets_the_limits(tmp_path: Path) -> None:
    """Float is too large to be one."""
    run = pump.search(tmp_path / "run", **UNSEEN, evaluator=strict_hits, max_size=45_000)
    assert (run.front["heldout_drop"] > 0.04).all()
    assert run.status == "nothing_feasible"
    assert set(run.summary["contradicted"]) == set(run.front["id"])
    assert "They contradict every other model of the front, too." in run.summary["verdict"]


def each_hit(runner: Any, *, split: str) -> list[bool]:
    x, y = {"search": pump.SEARCH, "heldout": pump.HELDOUT}[split]
    return [
        next(iter(runner(window[np.newaxis]).values()))[0].argmax() == label for window, label in zip(x, y, strict=True)
    ]


def test_the_front_has_what_the_verdict_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    confidence_of, named = certainty.confidence_of, []

    def naming(front: Any, scored: Any, yardstick: Any, *further: Any) -> Any:
        members = certainty.standings_of(front, certainty.link_of(scored))
        picks = named_picks(members, yardstick.rule)
        named.append(next(m.id for m in members if m.id not in picks.values()))
        other = certainty.Alternative(id=named[0], expected=0.0, bound=0.0, left_ops=0, penalty=0.0)
        return replace(confidence_of(front, scored, yardstick, *further), cheaper=other)

    monkeypatch.setattr(certainty, "confidence_of", naming)
    run = pump.search(tmp_path / "run", trials=8, sampler="random", racing=False, early_exit=False, front_spacing=100.0)
    assert named[0] in set(run.front["id"])
    assert run.model_path(named[0]).exists()
    other = next(id_ for id_ in run.trials["id"] if id_ not in set(run.front["id"]))
    with pytest.raises(RunFolderError, match=f"what-if .* --from {other} --build"):
        run.model_path(other)


def test_an_evaluator_that_scores_each_sample_is_paired_like_a_metric(tmp_path: Path) -> None:
    common = {"trials": 6, "racing": False, "early_exit": False, "repairs": False, "sampler": "random"}
    ours = pump.search(tmp_path / "ours", evaluation=None, heldout=None, evaluator=each_hit, **common)
    theirs = pump.search(tmp_path / "theirs", metric="accuracy", **common).front.set_index("sha256")
    both = [row for row in ours.front.to_dict("records") if row["sha256"] in theirs.index]
    assert len(both) >= 2
    for row in both:
        assert row["each_hit"] == pytest.approx(theirs.loc[row["sha256"], "accuracy"])
        assert row["drop_bound"] == pytest.approx(theirs.loc[row["sha256"], "drop_bound"])
    assert ours.front["heldout_drop_low"].le(ours.front["heldout_drop"]).all()
    assert "of resamples of the search samples" in ours.summary["verdict"]
    assert "search samples" in ours.summary["verdict"]


def no_loss(runner: Any) -> float:
    """A number in which no error shows, as that of few samples may be."""
    next(iter(runner(pump.SEARCH[0][:1]).values()))
    return 1.0


def test_on_the_word_of_a_number_no_model_far_from_float_is_recommended(tmp_path: Path) -> None:
    settings = {"evaluation": None, "heldout": None, "trials": 12, "early_exit": False, "evaluator": no_loss}
    run = pump.search(tmp_path / "run", **settings, per_channel=False, sampler="random", fallback="float")
    front = run.front.set_index("id")
    chosen, far = front.loc[run.picks["recommended"]], front[front["sqnr_db"] < FAR_DB]
    assert len(far)
    assert (far["penalty"] < chosen["penalty"]).any()
    assert (run.front["drop"] == 0.0).all()
    assert chosen["sqnr_db"] >= FAR_DB
    cheapest = far["penalty"].idxmin()
    assert f"{cheapest} costs an accelerator less and by its score" in run.summary["verdict"]
    limits = pd.read_csv(run.directory / "limits.csv", dtype={"id": str})
    usual = limits[limits["allowed_drop"] <= 0.01]
    assert not set(usual["id"]) & set(far.index)
    asked = [run.what_if(str(id_)) for id_ in front.index]
    assert {found.name for found in asked if found.far} == set(far.index)
    assert {found.chance_within for found in asked if found.far} == {0.0}
    assert not any(found.preferred for found in asked)
    answers = [run.what_if("int8", in_float=node) for node in run.what_if("int8").nodes]
    unscored = [found for found in answers if found.trial is None and found.far]
    assert unscored
    assert {(found.chance_within, found.preferred) for found in unscored} == {(0.0, False)}


class Fewer:
    """Leaves out a sample of every model but the float model, which it is asked about four times."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, runner: Any) -> list[bool]:
        self.calls += 1
        return each_hit(runner, split="search")[self.calls > 4 :]


def test_scores_of_other_samples_than_floats_fail_the_trial(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match=r"199 scores, .*200 .*each sample"):
        pump.search(tmp_path / "run", evaluation=None, heldout=None, evaluator=Fewer(), trials=3)


def heeding_no_order(runner: Any, samples: Any = None) -> list[float]:
    hits = [float(next(iter(runner(window[np.newaxis]).values())).max()) for window in pump.SEARCH[0]]
    return hits if samples is None else [hits[number] for number in sorted(samples)]


def heeding_no_numbers(runner: Any, samples: Any = None) -> list[bool]:
    return each_hit(runner, split="search")


@pytest.mark.parametrize("evaluator", [heeding_no_order, heeding_no_numbers])
def test_an_evaluator_that_scores_other_samples_than_asked_for_begins_no_search(tmp_path: Path, evaluator: Any) -> None:
    """Each candidate that races would fail, or be compared on unlike samples."""
    with pytest.raises(AutoselectError, match="samples"):
        pump.search(tmp_path / "run", evaluation=None, heldout=None, evaluator=evaluator, trials=3)


@pytest.mark.parametrize(("direction", "warned"), [(None, 1), ("maximize", 0)])
def test_an_evaluator_without_a_direction_is_warned_of(tmp_path: Path, direction: Any, warned: int) -> None:
    no_samples = {"evaluation": None, "heldout": None, "repairs": False}
    run = pump.search(tmp_path / "run", **no_samples, evaluator=each_hit, direction=direction, trials=3)
    assert sum("--direction" in warning for warning in run.manifest["warnings"]) == warned


def test_two_workers_give_the_same_trials_again(tmp_path: Path) -> None:
    first, again = (pump.search(tmp_path / name, trials=16, workers=2).trials for name in ("first", "again"))
    timed = [column for column in first.columns if column.endswith("seconds")]
    assert first["state"].value_counts().to_dict().keys() >= {"complete"}
    assert first.drop(columns=timed).equals(again.drop(columns=timed))


def test_agreement_needs_no_targets_and_is_one_for_float(tmp_path: Path) -> None:
    inputs_only = {"evaluation": pump.SEARCH[0], "heldout": None}
    run = pump.search(tmp_path / "run", trials=5, metric="agreement", **inputs_only)
    assert run.summary["references"]["float"]["agreement"] == 1.0
    assert run.summary["references"]["float"]["heldout"] == 1.0
    assert run.summary["evaluated"] == {"search": 100, "heldout": 100}
    assert run.trials.loc[0, "agreement"] < 1.0
    np.testing.assert_allclose(run.trials["drop"], 1 - run.trials["agreement"])


EVALUATIONS = {
    "(x, y)": lambda folder: pump.HELDOUT,
    "npz": lambda folder: saved_pairs(folder / "e.npz", "x"),
    "npz by input name": lambda folder: saved_pairs(folder / "e.npz", "window"),
    "function of pairs": lambda folder: pump.heldout_pairs,
    "function of dicts": lambda folder: lambda: (({"window": x}, y) for x, y in pump.heldout_pairs()),
    "spec": lambda folder: "pump:heldout_pairs",
}


def saved_pairs(path: Path, name: str) -> str:
    np.savez(path, **{name: pump.HELDOUT[0], "y": pump.HELDOUT[1]})
    return str(path)


@pytest.mark.parametrize("form", EVALUATIONS.values(), ids=EVALUATIONS)
def test_every_form_of_scoring_data_gives_the_same_score(form: Any, tmp_path: Path) -> None:
    found = autoselect.evaluate(model_bytes(), evaluation=form(tmp_path))
    assert found["score"] == pytest.approx(pump.litert_accuracy(model_bytes()))
    assert found["samples"] == 300


def test_evaluate_compares_with_a_reference(finished: autoselect.Run) -> None:
    model = finished.model_path("integer")
    same = autoselect.evaluate(model, evaluation=pump.HELDOUT, metric="agreement", reference=model_bytes())
    assert 0 < same["score"] <= 1
    float_itself = autoselect.evaluate(
        pump.MODEL_PATH, evaluation=pump.HELDOUT, metric="agreement", reference=pump.MODEL_PATH
    )
    assert float_itself["score"] == 1.0
    assert (float_itself["penalty"], float_itself["segments"]) == (80, 0)


def test_the_manifest_says_where_everything_came_from(finished: autoselect.Run) -> None:
    manifest = json.loads((finished.directory / "manifest.json").read_text())
    assert manifest["sources"]["model"] == str(pump.MODEL_PATH.absolute())
    assert manifest["sources"]["evaluation"] == "pump:search_pairs"
    assert set(manifest["hashes"]) == {"model", "calibration", "evaluation", "heldout", "target"}
    assert manifest["settings"]["seed"] == 1
    assert {"python", "autoselect", "ai-edge-litert", "numpy", "optuna"} <= set(manifest["versions"])


def test_float_or_hybrid_may_be_chosen_for_each_unit(tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=16, fallback="search", sampler="random", early_exit=False, repairs=True)
    recipes = [json.loads(text) for text in run.trials["recipe"]]
    assert run.status == "complete"
    assert any(recipe.get("float_nodes") for recipe in recipes)
    assert any(set(recipe["denylisted_nodes"]) - set(recipe.get("float_nodes", [])) for recipe in recipes)
    assert all(set(recipe.get("float_nodes", [])) <= set(recipe["denylisted_nodes"]) for recipe in recipes)
    # Plain all-integer is a baseline; correcting biases does harm here, so no candidate has it.
    assert {tuple(recipe.get("repairs", [])) for recipe in recipes} == {(), ("ranges-moving-average",)}
    for row in run.front.to_dict("records")[:3]:
        path = run.directory / "front" / f"{row['id']}.recipe.json"
        again = tmp_path / f"{row['id']}.tflite"
        autoselect.build(path, model=pump.MODEL_PATH, calibration="pump:calibration", output=again)
        assert pump.sha256(again) == row["sha256"]


def test_a_demanded_score_is_a_limit_on_the_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def with_repairs(*arguments: Any, **named: Any) -> Any:
        told.append(named["rule"].allowed_drop)
        return repair_choice.with_repairs(*arguments, **named)

    monkeypatch.setattr(study_search, "with_repairs", with_repairs)
    run = pump.search(tmp_path / "run", trials=10, min_score=0.9, early_exit=False)
    assert told == [pytest.approx(run.summary["references"]["float"]["accuracy"] - 0.9)]  # Repairs are judged by it.
    scored = run.trials[run.trials["state"] == "complete"]
    assert run.manifest["settings"]["min_score"] == 0.9
    assert run.manifest["settings"]["max_drop"] is None
    assert scored["feasible"].tolist() == [bool(score >= 0.9 - 1e-9) for score in scored["accuracy"]]
    assert set(scored["feasible"]) == {True, False}


def test_a_score_that_float_does_not_reach_is_refused_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"0\.9\d* accuracy .*\b0\.99\b.*--min-score"):
        pump.search(tmp_path / "run", trials=10, min_score=0.99)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_limit_in_per_cent_is_refused(tmp_path: Path) -> None:
    for drop, hint in ((5.0, r"; 5 % is 0\.05\."), (1.0, r"0\.01\."), (100.0, r"below 1\.")):
        with pytest.raises(UsageError, match=hint):
            pump.search(tmp_path / "run", trials=4, max_drop=drop)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_run_is_resumed_from_any_folder_whatever_files_it_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = Path(__file__).resolve().parents[2] / "search_spaces"
    start, other = tmp_path / "start", tmp_path / "other"
    start.mkdir(), other.mkdir()
    shutil.copy(bundled / "default.toml", start / "space.toml")
    shutil.copy(bundled / "targets" / "litert-cpu.toml", start / "target.toml")
    monkeypatch.chdir(start)
    pump.search(Path("run"), search_space="space.toml", target="target.toml", sampler="random", trials=5)
    monkeypatch.chdir(other)
    resumed = autoselect.resume(start / "run", trials=6)
    assert len(resumed.trials) == 6
    settings = resumed.manifest["settings"]
    assert (settings["search_space"], settings["target"]) == (str(start / "space.toml"), str(start / "target.toml"))


def test_trials_keep_the_name_of_the_sampler_that_proposed_them(tmp_path: Path) -> None:
    """A space of counts alone is none that the project's own samplers can look at."""
    run = pump.search(tmp_path / "run", search_space="edges", trials=6, early_exit=False)
    resumed = autoselect.resume(run.directory, trials=8)
    own = resumed.trials[~resumed.trials["origin"].str.startswith("baseline:")]
    assert {*own["origin"]} == {"tpe"}
    assert len(own) > 2
    assert any("tpe" in remark for remark in run.summary["warnings"])
    parameters = [trial.params for trial in pump.journal(run.directory) if trial.user_attrs["origin"] == "tpe"]
    assert parameters[-1] not in parameters[:-1]


SPREAD = """
import numpy as np
def spread(runner):
    window = np.full((1, *runner.inputs[0].shape[1:]), 0.5, np.float32)
    return {factor} * float(next(iter(runner(window).values())).max())
"""


def test_changed_code_of_an_evaluator_is_told_by_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "spread_of_answers.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module.write_text(SPREAD.format(factor=1))
    made = {"metric": "accuracy", "evaluation": None, "heldout": None, "evaluator": "spread_of_answers:spread"}
    pump.search(tmp_path / "run", **made, sampler="random", trials=4, early_exit=False)
    told: list[str] = []
    for factor in (1, 1.0):
        module.write_text(SPREAD.format(factor=factor))
        monkeypatch.delitem(sys.modules, "spread_of_answers")
        run = autoselect.resume(tmp_path / "run", trials=5)
        told.append(" ".join(run.summary["warnings"]))
    assert "has changed since this run began" not in told[0]
    assert "The code of spread has changed since this run began" in told[1]


SCALED = """
from pathlib import Path
import numpy as np
def scaled(runner):
    window = np.full((1, *runner.inputs[0].shape[1:]), 0.5, np.float32)
    return float(Path({data!r}).read_text()) * float(next(iter(runner(window).values())).max())
"""


@pytest.mark.parametrize(("factor", "warned"), [("1", 0), ("1.004", 1), ("0.5", None)])
def test_a_resume_sees_that_data_of_an_evaluator_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: str, warned: int | None
) -> None:
    """By the score of the float model: a little is warned of, more than the allowed drop of a hundredth is refused."""
    data = tmp_path / "factor.txt"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "scaled_answers.py").write_text(SCALED.format(data=str(data)))
    data.write_text("1")
    made = {"evaluation": None, "heldout": None, "evaluator": "scaled_answers:scaled", "direction": "maximize"}
    before = pump.search(tmp_path / "run", **made, sampler="random", trials=4, early_exit=False)
    data.write_text(factor)
    if warned is None:
        with pytest.raises(RunFolderError, match="scored"):
            autoselect.resume(before.directory, trials=5)
        assert autoselect.load_run(before.directory).trials.equals(before.trials)
        data.write_text("1")
    run = autoselect.resume(before.directory, trials=5)
    assert sum("run began" in warning for warning in run.summary["warnings"]) == (warned or 0)
    assert len(run.trials) == 5


def error(runner: Any) -> float:
    """An evaluator called like a column of trials.csv: mean absolute difference of the answers from one another."""
    windows = pump.SEARCH[0][:20]
    return float(
        np.mean([np.abs(np.diff(next(iter(runner(window[np.newaxis]).values())))).mean() for window in windows])
    )


def test_an_evaluator_called_like_a_column_leaves_the_tables_whole(tmp_path: Path) -> None:
    made = {"metric": "accuracy", "evaluation": None, "heldout": None, "evaluator": error, "direction": "minimize"}
    run = pump.search(tmp_path / "run", **made, sampler="random", trials=6, early_exit=False)
    assert run.summary["metric"] == "metric_error"
    assert run.trials["error"].isna().all()
    complete = run.trials["state"] == "complete"
    assert run.trials.loc[complete, "metric_error"].notna().all()
    assert len(run.front)
    assert run.front["metric_error"].notna().all()


def test_a_run_is_read_where_nothing_can_be_written(finished: autoselect.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.directory, folder)
    before = {path: (path.stat().st_mtime_ns, pump.sha256(path)) for path in folder.rglob("*") if path.is_file()}
    folder.chmod(0o555)
    try:
        run = autoselect.load_run(folder)
        autoselect.pick(folder, name="compact", output=tmp_path / "model.tflite")
        autoselect.write_report(folder, output=tmp_path / "report.html")
        run.plot_pareto()
        run.plot_islands()
    finally:
        folder.chmod(0o755)
    after = {path: (path.stat().st_mtime_ns, pump.sha256(path)) for path in folder.rglob("*") if path.is_file()}
    assert after == before


def test_builds_that_are_unlike_their_forecasts_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second forecast is 4 bytes too large; figures are those of the files all the same."""
    right = outlook.forecaster

    def wrong(*args: Any) -> Any:
        forecast = right(*args)

        def told(nodes: frozenset[str], *others: Any) -> Any:
            found = forecast(nodes, *others)
            return replace(found, size_bytes=found.size_bytes + 4 * (len(nodes) % 2))

        return told

    monkeypatch.setattr(outlook, "forecaster", wrong)
    events: list[Event] = []
    run = pump.search(tmp_path / "run", trials=9, early_exit=False, listener=events.append)
    recipes = [Recipe.from_json(text) for text in run.trials["recipe"]]
    ours = [r.fallback == "drq" or not r.denylisted_nodes for r in recipes]
    unlike = [len(left_out_of(r)) % 2 == 1 and is_ours for r, is_ours in zip(recipes, ours, strict=True)]
    assert any(unlike)
    assert run.trials["forecast_error"].notna().tolist() == unlike
    for row in run.trials[run.trials["forecast_error"].notna()].itertuples():
        assert row.forecast_error == f"it has {row.size_bytes:.0f} bytes, not {row.size_bytes + 4:.0f}"
    assert run.summary["unlike_forecast"] == sum(unlike)
    (warning,) = [text for text in run.summary["warnings"] if "differ from their forecast" in text]
    assert warning.startswith(f"{sum(unlike)} of {len(recipes)} candidates")
    assert warning in [event.message for event in events if isinstance(event, Warned)]


def test_a_search_that_tries_units_together_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_MOST", 2)
    events: list[Event] = []
    run = pump.search(tmp_path / "run", trials=5, listener=events.append)
    (told,) = [
        event.message for event in events if isinstance(event, Warned) and "not tried one by one" in event.message
    ]
    for again in (run, autoselect.resume(tmp_path / "run", trials=6)):
        assert [text for text in again.summary["warnings"] if text == told] == [told]
        assert [text for text in again.manifest["warnings"] if text == told] == [told]


def test_a_timeout_ends_a_search_with_a_front_and_a_resume_goes_on(tmp_path: Path) -> None:
    """All time is spent on preparing: the baselines alone are scored."""
    events: list[Event] = []
    common = {"trials": 8, "early_exit": False, "sampler": "random", "repairs": True}
    run = pump.search(tmp_path / "run", **common, timeout=1e-3, listener=events.append)
    assert "repairs" not in {e.stage for e in events if isinstance(e, StageStarted)}
    origins = {origin.split(":")[0] for origin in run.trials["origin"]}
    assert (run.status, origins, run.front.empty) == ("complete", {"baseline"}, False)
    reason = "the timeout of 0.001 s has passed; `autoselect resume` goes on"
    assert [e.reason for e in events if isinstance(e, EndedEarly)] == [reason] == [run.summary["ended_early"]]
    assert run.summary["verdict"].endswith(f"Ended early: {reason}.")
    again = autoselect.resume(tmp_path / "run", timeout=3600.0)
    assert (len(again.trials), again.summary["ended_early"]) == (8, None)
    assert again.manifest["settings"]["timeout"] == 3600.0


@pytest.mark.parametrize("io_type", ["float32", "int8"])
def test_inputs_of_8_bits_that_alone_break_the_limit_are_warned_of(tmp_path: Path, io_type: str) -> None:
    """The pump's signals fill a small part of the range that one scale for all axes needs."""
    run = pump.search(tmp_path / "run", trials=2, max_drop=0.01, io_type=io_type)
    assert any("--io-type" in message for message in run.manifest["warnings"]) == (io_type == "int8")
