"""Run folders that were made before are read and resumed by today's code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_cases as golden
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.cases.events import TrialFinished
from autoselect.cli.main import app
from autoselect.errors import RunFolderError, UsageError
from autoselect.quantize.building.build import BUILDER_VERSION
from autoselect.runs.files import write_json
from autoselect.study.finishing.front_files import DIFFERENT

MORE = 2
MEASURED = ["sha256", "build_seconds", "score_seconds"]
"""A trial that is run anew has other times."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOSELECT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def expected(case: str) -> dict[str, Any]:
    return dict(json.loads((golden.HERE / case / golden.EXPECTED).read_text(encoding="utf-8")))


def of_builder(folder: Path, builder: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    write_json(folder / "manifest.json", {**manifest, "versions": {**manifest["versions"], "builder": builder}})


@pytest.mark.parametrize("builder", [BUILDER_VERSION, "2"])
@pytest.mark.parametrize("case", golden.CASES)
def test_a_kept_folder_is_read(case: str, builder: str, tmp_path: Path) -> None:
    folder = golden.placed(case, tmp_path / "moved")
    of_builder(folder, builder)
    run, known = autoselect.load_run(folder), expected(case)
    assert golden.facts(run) == known
    for pick, member in known["picks"].items():
        assert run.model_path(pick) == folder / "front" / f"{member}.tflite"
        recipe = autoselect.Recipe.from_json((folder / "front" / f"{member}.recipe.json").read_text(encoding="utf-8"))
        fingerprints = run.trials.loc[run.trials["id"] == member, "fingerprint"]
        assert recipe.fingerprint in set(fingerprints)
    page = autoselect.write_report(folder, output=tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(member in page for member in known["picks"].values())
    autoselect.write_report(folder, output=tmp_path / "page.html")
    model = tmp_path / "model.tflite"
    model.write_bytes(b"a model")
    with pytest.raises(UsageError, match="no HTML page"):
        autoselect.write_report(folder, output=model)
    assert model.read_bytes() == b"a model"


def test_a_pick_that_is_no_more_can_still_be_taken_from_the_run_that_made_it(tmp_path: Path) -> None:
    folder = golden.placed("evaluator", tmp_path / "moved")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    member = summary["picks"]["recommended"]
    write_json(folder / "summary.json", {**summary, "picks": {**summary["picks"], "balanced": member}})
    table = (folder / "front.csv").read_text(encoding="utf-8")
    (folder / "front.csv").write_text(table.replace("accurate,", "accurate,balanced,"), encoding="utf-8")
    run = autoselect.load_run(folder)
    assert "balanced" in run.front["pick"].str.cat()
    assert run.model_path("balanced").stem == member
    assert "balanced" in autoselect.write_report(folder, output=tmp_path / "page.html").read_text(encoding="utf-8")
    shown = CliRunner().invoke(app, ["show", str(folder), "--all"])
    assert shown.exit_code == 0
    assert "balanced" in shown.stdout


@pytest.mark.parametrize("case", golden.CASES)
def test_a_kept_folder_is_resumed(case: str, tmp_path: Path) -> None:
    folder, told = golden.placed(case, tmp_path / "moved"), []
    known, before = expected(case)["trials"]["data"], autoselect.load_run(folder).trials[MEASURED]
    count = len(known)
    try:
        run = autoselect.resume(folder, trials=count + MORE, listener=told.append)
    except RunFolderError as refusal:
        pytest.fail(f"{refusal}\nWhere that is meant (another TensorFlow, another builder): {golden.AGAIN}")
    assert [event.number for event in told if isinstance(event, TrialFinished)] == [count, count + 1]
    assert golden.facts(run)["trials"]["data"][:count] == known
    assert run.trials[MEASURED][:count].equals(before)
    assert len(run.trials) == count + MORE
    assert all(run.model_path(pick).exists() for pick in run.picks)
    # Only what repairs round by values may come out different, on another kind of processor.
    different = [message for message in run.summary["warnings"] if DIFFERENT in message]
    assert not [message for message in different if {"fiq", "drq"} & {*message.split()}]
    assert run.what_if("recommended").size_bytes == run.model_path("recommended").stat().st_size


def test_a_folder_of_an_older_builder_is_not_resumed(tmp_path: Path) -> None:
    folder = golden.placed("evaluator", tmp_path / "moved")
    of_builder(folder, "2")
    with pytest.raises(RunFolderError, match=r"older builder.*autoselect report"):
        autoselect.resume(folder, trials=9)
    assert golden.facts(autoselect.load_run(folder)) == expected("evaluator")
