"""A search that may give weights fewer levels: what it finds, writes and takes up again."""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import autoselect
from autoselect.cases import level_jobs
from autoselect.domain.recipe import Recipe, kind_of_repair
from autoselect.domain.rule import Standing
from autoselect.embedded import calibration, heldout_samples, model_path, search_samples
from autoselect.errors import UsageError
from autoselect.report.page.recommended import level_rows
from autoselect.study.setup import weight_ladder
from autoselect.study.what_if import questions

DATA = {
    "calibration": lambda: itertools.islice(calibration(), 40),
    "evaluation": lambda: itertools.islice(search_samples(), 300),
    "heldout": lambda: itertools.islice(heldout_samples(), 300),
}


@functools.cache
def run() -> autoselect.Run:
    return autoselect.search(
        model_path(),
        **DATA,
        weights=4,
        objectives="accuracy,penalty,download",
        trials=30,
        workers=2,
        output=Path(tempfile.mkdtemp()) / "run",
        progress=False,
    )


def recipes() -> dict[str, Recipe]:
    paths = (run().directory / "front").glob("*.recipe.json")
    return {path.name.partition(".")[0]: Recipe.from_json(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.slow
def test_the_front_has_members_that_pack_into_less_than_the_all_integer_model() -> None:
    trials, front = run().trials, run().front
    whole = float(trials.loc[trials["origin"] == "baseline:fiq", "download_bytes"].iloc[0])
    smaller = front[front["download_bytes"] < 0.8 * whole]
    assert len(smaller)
    for name in smaller["id"]:
        assert any(kind_of_repair(repair) == "levels" for repair in recipes()[name].repairs), name


def test_sizes_are_those_of_the_files_and_files_stay_as_large() -> None:
    front = run().front
    for row in front.itertuples():
        content = (run().directory / str(row.file)).read_bytes()
        assert (row.size_bytes, row.download_bytes) == (len(content), len(zlib.compress(content, 9)))


def test_a_recipe_gives_the_same_bytes_again(tmp_path: Path) -> None:
    name, recipe = next((n, r) for n, r in sorted(recipes().items()) if any("levels" in repair for repair in r.repairs))
    path = tmp_path / "recipe.json"
    path.write_text(recipe.to_json(), encoding="utf-8")
    built = autoselect.build(
        path, model=model_path(), calibration=DATA["calibration"], output=tmp_path / "again.tflite", cache=False
    )
    assert built.sha256[:10] == name


def test_the_table_says_what_levels_save_and_add() -> None:
    table = pd.read_csv(run().directory / "weight_levels.csv")
    assert list(table.columns) == list(weight_ladder.COLUMNS)
    by_node = table.groupby("node")
    assert len(by_node) == 10
    for _, rows in by_node:
        assert rows["bits"].tolist() == [4, 5, 6, 7, 8]
        assert rows["packed_bytes"].is_monotonic_increasing
        assert rows["noise"].iloc[-1] == 0.0
    settings = json.loads((run().directory / "manifest.json").read_text(encoding="utf-8"))["settings"]
    rungs = [settings["added_noise"][f"weights {i + 1}"] for i in range(len(settings["added_noise"]))]
    assert rungs == sorted(rungs)
    assert set(settings["added_noise"]) < set(settings["repair_sets"])
    # What rounding shifts grows with a level's step, so biases make up for it whatever helps in 8 bits.
    for name in settings["added_noise"]:
        assert "bias" in {kind_of_repair(repair) for repair in settings["repair_sets"][name]}


def test_the_report_ranks_layers_by_what_fewer_bits_save_for_the_error_they_add() -> None:
    table = pd.read_csv(run().directory / "weight_levels.csv")
    rows = level_rows(run(), {name: f"short {name}" for name in table["node"]})
    coarse = table[table["bits"] == 4].set_index("node")
    saved = table[table["bits"] == 8].set_index("node")["packed_bytes"] - coarse["packed_bytes"]
    worth = (saved / coarse["noise"]).sort_values(ascending=False)
    assert [row["name"] for row in rows] == worth.index.tolist()
    assert sum(row["saved"] for row in rows) == pytest.approx(
        saved.sum() / table.loc[table["bits"] == 8, "packed_bytes"].sum()
    )
    chosen, recommended = {row["name"]: row["chosen"] for row in rows}, recipes()[run().picks["recommended"]]
    own = {r.partition(":")[2]: int(r[7]) for r in recommended.repairs if r.startswith("levels-")}
    assert chosen == {name: own.get(name, 8) for name in chosen}
    page = Path(autoselect.write_report(run().directory)).read_text(encoding="utf-8")
    assert page.count('<table class="plain" id="levels">') == 1


@pytest.mark.slow
def test_a_search_that_goes_on_weighs_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("weighed again")

    monkeypatch.setattr(level_jobs, "weigh", refuse)
    before = json.loads((run().directory / "manifest.json").read_text(encoding="utf-8"))["settings"]["repair_sets"]
    again = autoselect.resume(run().directory, trials=33, progress=False, **DATA)
    assert len(again.trials) == 33
    assert (
        json.loads((again.directory / "manifest.json").read_text(encoding="utf-8"))["settings"]["repair_sets"] == before
    )


def test_fewer_bits_without_an_objective_that_counts_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="accuracy,download,penalty"):
        autoselect.search(model_path(), **DATA, weights=6, output=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_question_counts_what_is_stored_as_the_recommendation_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a model of fewer levels is as large as any; beside the recommended one its packed size counts."""
    sizes, own = list[float](), questions.Questions._expected_standing

    def noted(*args: Any) -> Standing:
        standing = own(*args)
        sizes.append(standing.size_bytes)
        return standing

    monkeypatch.setattr(questions.Questions, "_expected_standing", noted)
    unscored = autoselect.load_run(run().directory).what_if("int8", deny=["CONV_2D"])
    assert unscored.preferred is not None
    packed = run().front["download_bytes"]
    assert 0.3 * packed.min() < sizes[-1] < unscored.size_bytes
