"""Several runs in one, and two side by side."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.cases.events import Event, StageStarted, TrialFinished
from autoselect.cli.main import app
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.errors import RunFolderError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.study import run as study_run
from autoselect.study import search as study_search
from autoselect.study.setup.baselines import Baseline, baselines
from autoselect.tflite.runner import Runner

SAMPLES, LABELS = pump.SEARCH


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[autoselect.Run, autoselect.Run]:
    """Two short runs: of another seed, fallback and target."""
    root = tmp_path_factory.mktemp("two")
    first = pump.search(root / "first", trials=8, seed=1)
    return first, pump.search(root / "second", trials=8, seed=2, fallback="float", target="ethos-u55-128")


def values(rows: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    """Losses, by id."""
    return {r.id: (-r.accuracy, r.size_bytes, r.penalty) for r in rows.itertuples()}


def members(run: autoselect.Run) -> set[str]:
    """Fingerprints of the recipes of a front, with the inputs and outputs of the first run."""
    files = [run.model_path(str(one)).with_name(f"{one}.recipe.json") for one in run.front["id"]]
    return {replace(Recipe.from_json(file.read_text()), io_type="float32").fingerprint for file in files}


def scored(run: autoselect.Run) -> set[str]:
    """Fingerprints of the recipes that a run scored."""
    told = run.trials[run.trials["state"] == "complete"]
    return {Recipe.from_json(recipe).fingerprint for recipe in told["recipe"]}


def test_a_merged_run_has_the_front_of_both(two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path) -> None:
    merged = autoselect.merge([run.directory for run in two], output=tmp_path / "merged")
    assert merged.status == "complete"
    told = merged.trials[merged.trials["state"] == "complete"]
    assert members(two[0]) | members(two[1]) <= scored(merged)
    assert merged.trials["origin"].str.startswith("baseline:").all()
    found, before = values(merged.front), values(two[0].front)
    losses = values(told[told["feasible"]])
    best = {one for one, row in losses.items() if not any(pump.dominates(other, row) for other in losses.values())}
    assert best <= set(told.loc[told["on_front"], "id"])
    assert set(merged.front["id"]) <= set(told["id"])
    # What the first run scored on its samples and for its target it scores again.
    assert {one: row for one, row in found.items() if one in before}.items() <= before.items()
    assert merged.front["heldout_accuracy"].notna().all()
    for row in merged.front.itertuples():
        assert pump.sha256(merged.directory / row.file) == row.sha256
    kept = merged.manifest
    assert {k: kept[k] for k in ("hashes", "metric")} == {k: two[0].manifest[k] for k in ("hashes", "metric")}


def test_runs_whose_model_has_moved_are_told_where_it_is(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path
) -> None:
    folders = [shutil.copytree(run.directory, tmp_path / str(i)) for i, run in enumerate(two)]
    manifest = RunFolder(folders[0]).read_manifest()
    moved = shutil.copy(manifest["sources"]["model"], tmp_path / "moved.tflite")
    manifest["sources"]["model"] = "/gone/model.tflite"
    RunFolder(folders[0]).write_manifest(manifest)
    arguments = ["merge", *map(str, folders), "-o", str(tmp_path / "merged")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 7, refused.output
    assert "/gone/model.tflite" in "".join(refused.output.split())
    assert "--model" in refused.output
    done = CliRunner().invoke(app, [*arguments, "--model", str(moved)])
    assert done.exit_code == 0, done.output
    merged = RunFolder(tmp_path / "merged")
    assert merged.read_manifest()["sources"]["model"] == str(moved)
    merged.layer_statistics.unlink()
    assert CliRunner().invoke(app, ["show", str(merged.root)]).exit_code == 7
    assert autoselect.resume(merged.root).layer_statistics.equals(two[0].layer_statistics)


@pytest.mark.parametrize(
    "other", [{"evaluation": (SAMPLES, LABELS[::-1])}, {"metric": "f1_macro"}], ids=["labels", "metric"]
)
def test_a_merge_of_other_ingredients_is_refused(
    other: dict[str, Any], two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path
) -> None:
    with pytest.raises(RunFolderError):
        autoselect.merge([run.directory for run in two], output=tmp_path / "merged", **other)
    assert not (tmp_path / "merged" / "manifest.json").exists()


@pytest.mark.slow
def test_members_have_the_inputs_and_outputs_of_the_first_run(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path
) -> None:
    whole = pump.search(tmp_path / "whole", trials=4, seed=1, io_type="int8")
    merged = autoselect.merge([two[0].directory, whole.directory], output=tmp_path / "merged")
    ends = [Runner((merged.directory / file).read_bytes()) for file in merged.front["file"]]
    assert {end.dtype for runner in ends for end in (*runner.inputs, *runner.outputs)} == {np.dtype("float32")}
    assert members(two[0]) | members(whole) <= scored(merged)


def test_every_member_is_scored_however_many_baselines_there_are(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(layers: LayerTable, *arguments: Any, **options: Any) -> list[Baseline]:
        first = [node.name for node in layers.nodes[:9]]
        further = [Baseline(name=f"one_{i}", recipe=Recipe(denylisted_nodes={n})) for i, n in enumerate(first)]  # type: ignore[arg-type]
        return [*baselines(layers, *arguments, **options), *further]

    monkeypatch.setattr(study_search, "baselines", more)
    merged = autoselect.merge([run.directory for run in two], output=tmp_path / "merged")
    assert members(two[0]) | members(two[1]) <= scored(merged)
    assert not [message for message in merged.summary["warnings"] if "has no score" in message]


@pytest.mark.slow
def test_members_are_scored_though_the_first_run_had_little_time(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path
) -> None:
    hurried = pump.search(tmp_path / "hurried", trials=8, seed=1, early_exit=False, timeout=1e-3)
    merged = autoselect.merge([hurried.directory, two[1].directory], output=tmp_path / "merged")
    assert members(hurried) | members(two[1]) <= scored(merged)


def test_a_member_without_a_score_is_told(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = []

    def one_fails(request: Any, *arguments: Any, **named: Any) -> Any:
        lost = Recipe(int16_nodes=frozenset({str(two[0].layer_statistics["tensor_name"][2])}))
        members.extend(request.members)
        said = request.said.model_copy(update={"runtime": "2.1.0"})
        return start(replace(request, members=(*request.members, lost), said=said), *arguments, **named)

    start = study_run.start
    monkeypatch.setattr(study_run, "start", one_fails)
    merged = autoselect.merge([run.directory for run in two], output=tmp_path / "merged")
    (told,) = [message for message in merged.summary["warnings"] if "has no score" in message]
    count = len(members) + 1
    assert told.startswith(f"Member {count} of {count} of the merged runs has no score: ")
    assert "LiteRT 2.1.0 has no QUANTIZE from int8 to int16" in told


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stage", [pytest.param("calibrate", marks=pytest.mark.slow), "trials"])
def test_a_merge_that_was_stopped_goes_on(
    stage: str, two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path
) -> None:
    """At each of these stages members have no score yet; nothing is proposed in their place."""

    def stop(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == stage:
            signal.raise_signal(signal.SIGINT)

    folders, merged = [run.directory for run in two], tmp_path / "merged"
    with contextlib.suppress(KeyboardInterrupt):
        assert autoselect.merge(folders, output=merged, listener=stop).status == "interrupted"
    run = autoselect.resume(merged)
    assert run.status == "complete"
    assert members(two[0]) | members(two[1]) <= scored(run)
    assert all(origin.startswith("baseline:") for origin in run.trials["origin"])
    more = autoselect.resume(merged, trials=len(run.trials) + 1)
    assert not more.trials["origin"].iloc[-1].startswith("baseline:")


@pytest.mark.usefixtures("interruptible")
def test_members_that_failed_take_no_others_place_once_a_merge_goes_on(
    two: tuple[autoselect.Run, autoselect.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failing = study_run.start, [str(two[0].layer_statistics["tensor_name"][i]) for i in (2, 3, 5)]

    def some_fail(request: Any, *arguments: Any, **named: Any) -> Any:
        lost = tuple(Recipe(int16_nodes=frozenset({name})) for name in failing)
        said = request.said.model_copy(update={"runtime": "2.1.0"})
        return start(replace(request, members=(*lost, *request.members), said=said), *arguments, **named)

    def stop(event: Event) -> None:
        if isinstance(event, TrialFinished) and event.number == 6:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(study_run, "start", some_fail)
    merged = autoselect.merge([run.directory for run in two], output=tmp_path / "merged", listener=stop)
    assert merged.status == "interrupted"
    with pytest.raises(UsageError, match="pins"):
        autoselect.resume(merged.directory, trials=30, pins={"keep_float": "SOFTMAX"})
    run = autoselect.resume(merged.directory)
    unscored = [message for message in run.summary["warnings"] if "has no score" in message]
    assert len(unscored) == len(failing)
    assert members(two[0]) | members(two[1]) <= scored(run)
    more = autoselect.resume(merged.directory, trials=len(run.trials) + 2)
    assert len(more.trials) == len(run.trials) + 2
    assert not more.trials["origin"].iloc[-1].startswith("baseline:")


def test_two_runs_are_compared_within_80_columns(two: tuple[autoselect.Run, autoselect.Run]) -> None:
    found = autoselect.compare(two[0].directory, two[1].directory)
    lines = found.lines(80)
    assert max(map(len, lines)) <= 80
    names = [name for name, _ in found.rows]
    assert names[0] == "float"
    for number, run in enumerate(two, start=1):
        told = [pick for name in names[1:] if name.startswith(f"{number} ") for pick in name[2:].split(", ")]
        assert sorted(told) == sorted(run.picks)
    picks = [run.picks["recommended"] for run in two]
    assert found.alike is (picks[0] == picks[1])
    files = [run.model_path(pick).with_suffix(".recipe.json") for run, pick in zip(two, picks, strict=True)]
    left_out = [pump.recipe_nodes(file.read_text()) for file in files]
    assert left_out[0] ^ left_out[1] <= set(found.nodes)
    assert all(first != second for first, second in found.nodes.values())
    assert len(repr(found)) < 200
    assert repr(found).startswith("Comparison(")
    assert "<td>float</td>" in found._repr_html_()
    for shown in ("\n".join(lines), found._repr_html_()):  # Their penalties stand in one column.
        assert all(run.manifest["settings"]["target"] in shown for run in two)
    same = autoselect.compare(two[0].directory, two[0].directory)
    assert same.lines(80)[-1] == "Both recommend the same model."
    assert not same.nodes
    assert not same.note


def test_a_node_without_a_hybrid_kernel_is_compared_as_the_float_one_that_it_is(
    finished: autoselect.Run, tmp_path: Path
) -> None:
    folders, member = [tmp_path / "hybrid", tmp_path / "float"], finished.picks["recommended"]
    denied = frozenset({str(finished.layer_statistics["tensor_name"][0])})
    for folder, fallback in zip(folders, ("drq", "float"), strict=True):
        shutil.copytree(finished.directory, folder)
        recipe = Recipe(denylisted_nodes=denied, fallback=fallback)  # type: ignore[arg-type]
        (folder / "front" / f"{member}.recipe.json").write_text(recipe.to_json())
    found = []
    for reasons in ({}, dict.fromkeys(denied, "no hybrid kernel")):
        trials = pd.read_csv(folders[0] / "trials.csv", dtype={"fallbacks": object})
        trials.loc[trials["id"] == member, "fallbacks"] = json.dumps(reasons)
        trials.to_csv(folders[0] / "trials.csv", index=False)
        found.append([*autoselect.compare(*folders).nodes.values()])
    assert found == [[("hybrid", "float")], []]
    before = shutil.copytree(folders[0], tmp_path / "with a kernel")  # the same recipe
    trials["fallbacks"] = "{}"
    trials.to_csv(before / "trials.csv", index=False)
    assert [*autoselect.compare(before, folders[0]).nodes.values()] == [("hybrid", "float")]
    trials["fallbacks"] = "{"
    trials.to_csv(before / "trials.csv", index=False)
    with pytest.raises(RunFolderError):
        autoselect.compare(before, folders[0])


def test_what_both_runs_counted_is_compared_though_one_searched_for_it(
    finished: autoselect.Run, tmp_path: Path
) -> None:
    other = RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "other")))
    summary = json.loads(other.summary.read_text())
    summary["objectives"] = ["accuracy", "size_bytes", "float_ops"]
    other.summary.write_text(json.dumps(summary))
    found = autoselect.compare(other.root, finished.directory)
    counted = finished.front.set_index("id")["float_ops"]
    second = [row for name, row in found.rows if name.startswith("2 ")]
    assert second
    for row in second:
        assert row.cost("float_ops") == counted[finished.picks[row.picks[0]]]


def test_runs_that_score_otherwise_are_told_apart_by_their_float_model(
    finished: autoselect.Run, tmp_path: Path
) -> None:
    """Another output or label, or a metric whose code has changed: the name of the metric does not tell."""
    other = RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "other")))
    manifest = json.loads(other.manifest.read_text())
    score = manifest["float_model"]["metric"]
    for changed, is_told in ((score, False), (score - 1e-5, False), (score / 2, True)):
        manifest["float_model"]["metric"] = changed
        other.manifest.write_text(json.dumps(manifest))
        assert bool(autoselect.compare(finished.directory, other.root).note) == is_told


@pytest.mark.parametrize(("key", "value"), [("output_name", "scores"), ("ignore_label", 255)])
def test_runs_that_score_another_part_are_told_apart_by_their_settings(
    key: str, value: object, finished: autoselect.Run, tmp_path: Path
) -> None:
    """The float model has as many decibels from itself at every output."""
    other = RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "other")))
    manifest = json.loads(other.manifest.read_text())
    assert autoselect.compare(finished.directory, other.root).note == ""
    manifest["settings"][key] = value
    other.manifest.write_text(json.dumps(manifest))
    assert repr(value) in autoselect.compare(finished.directory, other.root).note


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "model": (lambda m: m["hashes"].update(model="0"), "made with another model"),
    "model with other inputs": (lambda m: m["hashes"].update(calibration="0", model="0"), "made with another model"),
    "data": (lambda m: m["hashes"].update(evaluation="0"), "made with another evaluation"),
    "metric": (lambda m: m["metric"].update(name="top5"), "made with the metric"),
    "runtime": (
        lambda m: m["versions"].update({"ai-edge-litert": "2.1.3"}),
        r"was scored by ai-edge-litert 2\.1\.3 and .* by .* Give runs of one version",
    ),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_runs_that_do_not_compare_are_refused(
    change: Callable[[dict[str, Any]], object], words: str, finished: autoselect.Run, tmp_path: Path
) -> None:
    other = RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "other")))
    manifest = json.loads(other.manifest.read_text())
    change(manifest)
    other.manifest.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match=words):
        autoselect.compare(finished.directory, other.root)
    with pytest.raises(RunFolderError, match=words):
        autoselect.merge([finished.directory, other.root], output=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_runs_of_another_runtime_than_this_one_are_not_merged(finished: autoselect.Run, tmp_path: Path) -> None:
    """Each member is scored again, so the figures of its own run would not be its own any more."""
    folders = [RunFolder(Path(shutil.copytree(finished.directory, tmp_path / name))) for name in ("one", "two")]
    for folder in folders:
        manifest = json.loads(folder.manifest.read_text())
        manifest["versions"]["ai-edge-litert"] = "2.1.3"
        folder.manifest.write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match=r"ai-edge-litert 2\.1\.3, this is .* Install"):
        autoselect.merge([folder.root for folder in folders], output=tmp_path / "merged")
    assert autoselect.compare(*(folder.root for folder in folders)).alike


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_run_without_a_recipe_of_its_front_is_damaged(damage: str, finished: autoselect.Run, tmp_path: Path) -> None:
    other = RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "other")))
    member = finished.picks["recommended"]
    recipe = other.front / f"{member}.recipe.json"
    recipe.write_text(recipe.read_text()[:20])
    if damage == "missing":
        recipe.unlink()
    with pytest.raises(RunFolderError, match=member):
        autoselect.compare(finished.directory, other.root)
    with pytest.raises(RunFolderError, match=member):
        autoselect.merge([finished.directory, other.root], output=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_one_run_is_not_merged_and_a_folder_is_not_written_over(finished: autoselect.Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two run"):
        autoselect.merge([finished.directory], output=tmp_path / "merged")
    with pytest.raises(RunFolderError, match="another run"):
        autoselect.merge([finished.directory] * 2, output=finished.directory)


@pytest.mark.parametrize("directories", ["run-a", Path("run-a"), ["run-a"], []])
def test_fewer_than_two_runs_are_not_merged(directories: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Expected two"):
        autoselect.merge(directories, output=tmp_path / "merged")
