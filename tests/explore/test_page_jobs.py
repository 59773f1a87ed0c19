"""Jobs of the page: a model is built and scored, a search goes on under pins; killed, failed and stopped ones."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from asked_page import Asked
from reviewing import Reviewed

import autoselect
from autoselect.cases.ingredients import LIVE
from autoselect.explore.jobs import Job, Jobs

CHANGES = {"deny": ["SOFTMAX"], "in_float": ["MEAN"]}


@pytest.fixture(scope="module")
def run(explored: Path, tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    """A run of this module's own, to which jobs add trials."""
    return autoselect.load_run(shutil.copytree(explored, tmp_path_factory.mktemp("worked") / "run"))


@pytest.fixture(scope="module")
def page(run: autoselect.Run) -> Iterator[Asked]:
    with run.explore(browser=False) as served, Asked(served.url) as asked:
        yield asked


@pytest.fixture(scope="module")
def pins(page: Asked) -> Mapping[str, list[str]]:
    nodes = page.get("/api/run")["nodes"]
    units = {node["name"]: node["unit"] for node in nodes}
    hybrid = next(node["name"] for node in nodes if "hybrid" in node["states"])
    wide = next(node["name"] for node in nodes if "int16" in node["states"] and node["unit"] != units[hybrid])
    integer = next(name for name, unit in units.items() if unit not in (units[hybrid], units[wide]))
    return {"keep_float": [hybrid], "keep_int": [integer], "keep_int16": [wide]}


@pytest.fixture(scope="module")
def worked(page: Asked, run: autoselect.Run, pins: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """What came of one job of each kind, and what two tabs saw."""
    with Asked(page.url) as tab:
        before = page.get("/api/jobs")["revision"]
        orders = {
            "build": page.order("build", "int8", changes=CHANGES),
            "score": tab.order("score", "int8", changes=CHANGES),
            "again": page.order("score", "int8", changes=CHANGES),
            "search": page.order("search", pins=pins, trials=4),
        }
        seen = [tab.get("/api/jobs"), page.get("/api/jobs")]
        answer_meanwhile = page.ask("int8", **CHANGES)
        jobs = {name: page.done(id_) for name, id_ in orders.items()}
        model = tab.client.get(f"/api/jobs/{orders['build']}/file")
        revisions = [before, *(one.get("/api/jobs")["revision"] for one in (tab, page))]
    return {
        "jobs": jobs,
        "seen": seen,
        "meanwhile": answer_meanwhile,
        "model": model,
        "revisions": revisions,
        "run": autoselect.load_run(run.directory),
    }


def by_hand(worked: Mapping[str, Any]) -> pd.DataFrame:
    trials = worked["run"].trials
    return trials[trials["origin"] == "user"]


def test_what_is_built_is_what_what_if_builds(worked: Mapping[str, Any], run: autoselect.Run) -> None:
    found = run.what_if("int8", **CHANGES)
    assert worked["model"].content == found.build()
    assert worked["model"].headers["content-disposition"].startswith("attachment; ")
    assert worked["jobs"]["build"]["result"]["size_bytes"] == found.size_bytes == worked["meanwhile"]["size_bytes"]


def test_what_is_scored_is_a_trial_of_the_run(worked: Mapping[str, Any], run: autoselect.Run) -> None:
    rows, result = by_hand(worked), worked["jobs"]["score"]["result"]
    assert len(rows) == 1
    row, own = rows.iloc[0], run.what_if("int8", **CHANGES)
    assert [row["number"], row["id"]] == [result["number"], result["id"]]
    assert [row["size_bytes"], row["penalty"]] == pytest.approx([own.size_bytes, own.penalty])
    assert result["drop"] == pytest.approx(row["drop"])
    assert row["drop"] == pytest.approx(own.score().drop)
    assert row["id"] in (run.directory / "report.html").read_text(encoding="utf-8")
    assert worked["run"].status == "complete"


def test_the_same_is_not_scored_twice(worked: Mapping[str, Any]) -> None:
    first, again = worked["jobs"]["score"]["result"], worked["jobs"]["again"]["result"]
    assert again["number"] == first["number"]
    assert "before" in again["says"]
    assert "before" not in first["says"]


def test_the_page_knows_the_new_trial(worked: Mapping[str, Any], page: Asked) -> None:
    told = page.ask("int8", **CHANGES)
    assert told["trial"] == worked["jobs"]["score"]["result"]["number"]
    points = page.get("/api/run")["points"]
    assert [point["origin"] for point in points].count("user") == 1
    assert len(points) == len(worked["run"].trials)


def test_further_trials_keep_the_pins(
    worked: Mapping[str, Any], run: autoselect.Run, pins: Mapping[str, list[str]]
) -> None:
    (kept,) = worked["run"].manifest["pinned"]
    own = by_hand(worked)["number"].iloc[0]
    assert (kept["first_trial"], kept["last_trial"]) == (own + 1, own + 4)
    assert {name: kept[name] for name in pins} == pins
    trials = worked["run"].trials.set_index("number").loc[kept["first_trial"] : kept["last_trial"]]
    assert len(trials) == worked["jobs"]["search"]["result"]["trials"] == 4
    assert len({*trials["fingerprint"]}) == 4
    for number in trials.index:
        nodes = run.what_if(json_recipe(trials.loc[number, "recipe"])).nodes
        assert nodes[pins["keep_float"][0]] in ("hybrid", "float", "folded")
        assert nodes[pins["keep_int"][0]] in ("integer", "folded")
        assert nodes[pins["keep_int16"][0]] in ("int16", "folded")


def json_recipe(text: str) -> autoselect.Recipe:
    return autoselect.Recipe.from_json(text)


def test_what_is_made_by_hand_is_none_of_the_budget(worked: Mapping[str, Any], explored: Path) -> None:
    before, after = autoselect.load_run(explored), worked["run"]
    assert len(after.trials) == len(before.trials) + 1 + 4
    assert after.manifest["settings"]["trials"] == len(before.trials) + 4


def test_two_tabs_see_the_same(worked: Mapping[str, Any]) -> None:
    first, second = worked["seen"]
    assert [job["id"] for job in first["jobs"]] == [job["id"] for job in second["jobs"]]
    assert {job["kind"] for job in first["jobs"]} == {"build", "score", "search"}
    before, *after = worked["revisions"]
    assert after[0] == after[1] > before


def test_one_job_works_at_a_time(worked: Mapping[str, Any]) -> None:
    for seen in worked["seen"]:
        assert [job["state"] for job in seen["jobs"]].count("working") <= 1


def test_the_surrogate_learns_what_was_made_by_hand(worked: Mapping[str, Any], explored: Path) -> None:
    before, after = autoselect.load_run(explored), worked["run"]
    first, second = (one.what_if("int8", deny=["SOFTMAX"], repairs=[]) for one in (before, after))
    assert first.size_bytes == second.size_bytes
    assert (first.drop, first.drop_high) != (second.drop, second.drop_high)


def test_a_change_by_another_process_is_seen(page: Asked, worked: Mapping[str, Any], run: autoselect.Run) -> None:
    before = page.get("/api/jobs")["revision"]
    found = autoselect.load_run(run.directory).what_if("int8", deny=["MEAN"])
    autoselect.resume(run.directory, recipes=[found.recipe], progress=False)
    assert page.get("/api/jobs")["revision"] == before + 1
    assert page.ask("int8", deny=["MEAN"])["trial"] is not None


LOST = {
    "gone since": ("nobody.knows:samples", "nobody"),
    "of the search's process alone": (LIVE, "was started with a live evaluation. Pass it again"),
}


@pytest.mark.parametrize(("source", "words"), LOST.values(), ids=LOST)
def test_a_model_that_cannot_be_scored_is_told(copied: Path, source: str, words: str) -> None:
    """The search samples are not there; the page stays, and so does the run."""
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["sources"]["evaluation"] = source
    (copied / "manifest.json").write_text(json.dumps(manifest))
    before = (copied / "trials.csv").read_bytes()
    with autoselect.load_run(copied).explore(browser=False) as served, Asked(served.url) as page:
        job = page.waited(page.order("score", "int8", changes=CHANGES))
        assert job["state"] == "failed"
        assert words in job["error"]
        assert "Traceback" not in job["error"]
        assert page.ask("int8")["size_bytes"] > 0
        assert page.client.get(f"/api/jobs/{job['id']}/file").status_code == 404
    assert (copied / "trials.csv").read_bytes() == before


def test_a_stopped_job_leaves_the_run_as_it_was(copied: Path) -> None:
    before = (copied / "summary.json").read_bytes()
    with autoselect.load_run(copied).explore(browser=False) as served, Asked(served.url) as page:
        first, second = page.order("score", "int8", changes=CHANGES), page.order("build", "int8")
        page.waited(first, lambda job: job["progress"] not in ("waiting", "starting"))
        for id_ in (first, second):
            assert page.client.delete(f"/api/jobs/{id_}").status_code == 200
        assert page.job(first)["state"] == page.job(second)["state"] == "stopped"
        third = page.done(page.order("build", "int8"))
        assert page.client.delete(f"/api/jobs/{third['id']}").status_code == 200
        assert page.job(third["id"])["state"] == "done"
        assert page.get("/api/run")["status"] == "complete"
    assert (copied / "summary.json").read_bytes() == before


def test_closing_stops_what_is_under_way(copied: Path) -> None:
    with autoselect.load_run(copied).explore(browser=False) as served, Asked(served.url) as page:
        page.waited(page.order("score", "int8", changes=CHANGES), lambda job: job["state"] == "working")
    autoselect.resume(copied, progress=False)  # Nobody else is at work there.
    assert autoselect.load_run(copied).status == "complete"


class Called:
    """Jobs of commands that are quick, and what was told at each end."""

    def __init__(self, folder: Path) -> None:
        self.ended: list[str] = []
        self.jobs = Jobs(folder, lambda job: self.ended.append(job.kind))

    def done(self, *arguments: str, told: Any = lambda events: {"count": len(events)}) -> Job:
        job = Job(kind="build", name="x", arguments=lambda: arguments, told=told)
        self.jobs.add(job)
        deadline = threading.Event()
        while job.state in ("waiting", "working"):
            deadline.wait(0.05)
        return job


@pytest.fixture
def called(tmp_path: Path) -> Iterator[Called]:
    found = Called(tmp_path)
    yield found
    found.jobs.close()


def test_a_command_that_fails_says_why(reviewed: Reviewed, called: Called, tmp_path: Path) -> None:
    job = called.done("show", str(tmp_path / "nothing"))
    assert job.state == "failed"
    assert job.error is not None
    reviewed("a command that fails", job.error.replace(str(tmp_path), "runs"))


def test_a_complaint_in_another_encoding_is_told(
    called: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    job = called.done("show", str(tmp_path / "Läufe"))
    assert "Läufe" in str(job.error) or "L?ufe" in str(job.error) or "L\ufffdufe" in str(job.error)


def test_the_next_job_has_its_turn_after_a_fault(called: Called) -> None:
    job = called.done("--version", told=lambda _events: 1 / 0)
    assert job.state == "failed"
    assert "ZeroDivisionError" in str(job.error)
    job = called.done("--version")
    assert (job.state, job.result) == ("done", {"count": 0})
    assert called.ended == ["build", "build"]
