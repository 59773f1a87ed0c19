"""Run folders that a killed search left, as recover() finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoselect.api.reporting import known_so_far, recovered
from autoselect.cli.results import print_run
from autoselect.domain.quantities import DEFAULT_OBJECTIVES, objectives_of
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import FolderInUse, RunFolderError
from autoselect.explore.session import Session
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores
from autoselect.runs.run import load_run
from autoselect.study.finishing.recovery import recover
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.setup.baselines import Baseline

MANIFEST = {
    "settings": {"trials": 5},
    "metric": {"name": "accuracy", "direction": "maximize"},
    "counts": {"calibration": 3, "search": 10, "heldout": 4},
    "hashes": {},
    "warnings": ["mind this"],
    "float_model": {"name": "float", "sha256": "float", "metric": 0.9, "size_bytes": 1000, "penalty": 5.0},
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that was killed before its first trial."""
    made = RunFolder(tmp_path / "run")
    made.create()
    made.write_manifest(MANIFEST)
    return made


def test_a_run_that_was_killed_before_its_first_trial_can_be_read(folder: RunFolder) -> None:
    assert recover(folder)
    run = load_run(folder.root)
    assert (run.status, len(run.trials), len(run.front)) == ("interrupted", 0, 0)
    assert run.summary["references"]["float"]["accuracy"] == 0.9
    assert run.summary["warnings"] == ["mind this"]


def test_the_objectives_are_those_of_the_run(folder: RunFolder) -> None:
    settings = {"trials": 5, "objectives": ["accuracy", "segments", "latency"]}
    folder.write_manifest({**MANIFEST, "settings": settings, "metric": {"name": "psnr", "direction": "maximize"}})
    assert recover(folder)
    run = load_run(folder.root)
    assert run.summary["objectives"] == ["psnr", "segments", "latency_ms"]
    assert {"psnr", "latency_ms", "latency_low", "latency_high"} <= set(run.trials.columns)


def told(folder: RunFolder, name: str, value: float, size_bytes: int, penalty: float) -> None:
    """Tell the run's study of one candidate."""
    study = SearchStudy(folder.study, objectives_of(DEFAULT_OBJECTIVES, "accuracy", "maximize"))
    recipe = Recipe(denylisted_nodes=frozenset({name}))
    asked = study.open_baseline(BoundSpace(dimensions=()), Baseline(name=name, recipe=recipe))
    scores = Scores(
        sha256=name * 64,
        metric=value,
        drop=0.9 - value,
        drop_noise=0.0,
        sqnr_db=20.0,
        size_bytes=size_bytes,
        penalty=penalty,
        segments=1,
        float_ops=0,
        crossing_tensors=0,
        crossing_bytes=0,
        float_macs_share=0.0,
        samples=10,
        build_seconds=0.1,
        score_seconds=0.1,
        inference_seconds=0.1,
    )
    study.tell(asked, scores=scores, violations={"max_drop": 0.0})


@pytest.mark.parametrize(("demanded", "compact"), [(None, "a"), (0.8, "b"), (0.85, "a")])
def test_a_demanded_score_is_a_limit_of_what_is_recovered(
    folder: RunFolder, demanded: float | None, compact: str
) -> None:
    """The smaller candidate scores 0.82 where float has 0.9: too little, unless less is all that is demanded."""
    folder.write_manifest({**MANIFEST, "settings": {"trials": 5, "min_score": demanded}})
    told(folder, "a", 0.9, 900, 1.0)
    told(folder, "b", 0.82, 500, 0.0)
    assert recover(folder)
    assert load_run(folder.root).picks["compact"] == compact * 10


def test_what_is_in_order_is_left_alone(folder: RunFolder) -> None:
    assert recover(folder)
    before = {path: path.read_bytes() for path in (folder.summary, folder.trials, folder.front_table)}
    assert not recover(folder)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["summary.json", "trials.csv", "front.csv", "layer_statistics.csv"])
def test_a_missing_table_is_written_again(folder: RunFolder, name: str) -> None:
    recover(folder)
    (folder.root / name).unlink()
    assert recover(folder)
    assert load_run(folder.root).status == "interrupted"


@pytest.mark.parametrize("name", ["summary.json", "trials.csv", "front.csv", "layer_statistics.csv"])
def test_a_finished_run_that_lost_a_table_is_not_written_again_without_its_held_out_scores(
    folder: RunFolder, name: str
) -> None:
    recover(folder)
    folder.summary.write_text(json.dumps(json.loads(folder.summary.read_text()) | {"status": "complete"}))
    folder.front_table.write_text("id,pick,file,heldout_accuracy\na,,front/a.tflite,0.9\n")
    (folder.root / name).unlink()
    before = {path: path.read_bytes() for path in folder.root.iterdir() if path.is_file()}
    with pytest.raises(RunFolderError, match=f"lost {name}.*resume"):
        recovered(folder.root)
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_that_was_killed_amid_its_end_is_brought_in_order(folder: RunFolder) -> None:
    recover(folder)
    folder.front_table.write_text("id,pick,file,heldout_accuracy\na,,front/a.tflite,0.9\n")
    folder.summary.unlink()
    folder.work.mkdir()
    assert recovered(folder.root).status == "interrupted"


def test_a_front_with_a_figure_that_is_none_is_damaged(folder: RunFolder) -> None:
    recover(folder)
    folder.trials.write_text("id,size_bytes\na,9\nb,9\n")
    table = "id,pick,file,size_bytes,mine\na,,front/a.tflite,9,good\nb,,front/b.tflite,8,bad\n"
    folder.front_table.write_text(table)
    assert len(load_run(folder.root).front) == 2
    folder.front_table.write_text(table.replace(",8,", ",abc,"))
    with pytest.raises(RunFolderError, match="'size_bytes', got 'abc'"):
        load_run(folder.root)


def test_half_a_summary_is_written_again(folder: RunFolder) -> None:
    recover(folder)
    folder.summary.write_text(folder.summary.read_text()[:40])
    assert recover(folder)
    assert json.loads(folder.summary.read_text())["status"] == "interrupted"


def test_a_finished_run_without_its_journal_needs_nothing(folder: RunFolder) -> None:
    recover(folder)
    folder.study.unlink()
    assert not recover(folder)


def test_a_manifest_without_the_float_model_asks_for_a_resume(folder: RunFolder) -> None:
    folder.write_manifest({key: value for key, value in MANIFEST.items() if key != "float_model"})
    with pytest.raises(RunFolderError, match="autoselect resume"):
        recover(folder)


def test_a_run_in_which_a_search_is_at_work_is_read_and_left_alone(folder: RunFolder) -> None:
    told(folder, "a", 0.9, 900, 4.0)
    before = {path: path.read_bytes() for path in folder.root.iterdir()}
    with folder.locked():
        with pytest.raises(FolderInUse):
            recovered(folder.root)
        run = known_so_far(folder.root)
        assert (run.directory, run.status, len(run.trials)) == (folder.root, "running", 1)
        assert run.picks["recommended"] == "a" * 10
        assert {path: path.read_bytes() for path in folder.root.iterdir() if path != folder.lock} == before
        print_run(run)
        folder.write_manifest({key: value for key, value in MANIFEST.items() if key != "float_model"})
        with pytest.raises(FolderInUse):
            known_so_far(folder.root)
    folder.write_manifest(MANIFEST)
    assert known_so_far(folder.root).status == "interrupted"
    with folder.locked():  # a resume that has told no trial yet
        assert known_so_far(folder.root).status == "running"


def test_a_search_that_ends_while_its_tables_are_copied_is_read_as_it_ended(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(folder, "a", 0.9, 900, 4.0)
    answers = iter([True, False])
    monkeypatch.setattr(RunFolder, "is_in_use", lambda _: next(answers))
    assert known_so_far(folder.root).status == "interrupted"
    assert folder.summary.exists()


def test_no_run_at_all(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run"):
        recover(RunFolder(tmp_path))


def test_a_run_in_order_is_read_where_nothing_can_be_written(folder: RunFolder) -> None:
    told(folder, "a", 0.9, 900, 4.0)
    assert recover(folder)
    folder.lock.unlink()
    folder.study.write_bytes(folder.study.read_bytes() + b'{"half a li')
    before = {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
    folder.root.chmod(0o555)
    try:
        assert not recover(folder)
        assert len(load_run(folder.root).trials) == 1
    finally:
        folder.root.chmod(0o755)
    assert {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()} == before


def test_tables_of_more_trials_than_the_journal_has_are_not_written_over(folder: RunFolder) -> None:
    """As where a copy of a run was cut off: a look at it must not lose what it still tells."""
    recover(folder)
    summary = json.loads(folder.summary.read_text())
    assert summary["counts"]["trials"] == 0
    whole = json.dumps({**summary, "status": "complete", "counts": {**summary["counts"], "trials": 3}})
    folder.summary.write_text(whole)
    assert recovered(folder.root).status == "complete"
    assert folder.summary.read_text() == whole
    with pytest.raises(RunFolderError, match="cut off"):
        Session(folder.root)
