from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Standing
from autoselect.errors import FolderInUse, RunFolderError, StorageError, UsageError
from autoselect.runs import records
from autoselect.runs.files import write_json, write_table
from autoselect.runs.folder import RunFolder, free_folder
from autoselect.runs.run import load_run

RECIPE = Recipe(denylisted_nodes=frozenset({"a", "b"}))
SCORES = records.Scores(
    sha256="0123456789abcdef" * 4,
    metric=0.9,
    drop=0.02,
    drop_noise=0.01,
    sqnr_db=30.0,
    size_bytes=1234,
    penalty=1.5,
    segments=2,
    float_ops=3,
    crossing_tensors=2,
    crossing_bytes=64,
    float_macs_share=0.25,
    samples=100,
    build_seconds=0.1,
    score_seconds=0.2,
    inference_seconds=0.05,
    fallbacks={"a": "no hybrid kernel"},
)

EXPECTED = Standing(id="0123456789", drop=0.01, bound=0.02, fidelity=30.0, size_bytes=1234, penalty=1.5)


def record(
    number: int = 0, scores: records.Scores | None = SCORES, recipe: Recipe | None = RECIPE
) -> records.TrialRecord:
    return records.TrialRecord(
        number=number,
        origin="tpe",
        recipe=recipe,
        scores=scores,
        reused=False,
        error=None if scores else "the worker died",
    )


@pytest.mark.parametrize(
    ("content", "name"),
    [
        pytest.param(None, "run", id="no folder"),
        pytest.param([], "run", id="an empty folder"),
        pytest.param(["worker.log"], "run", id="the log of a search that was refused"),
        pytest.param(["worker.log", ".autoselect-lock"], "run-2", id="a search that has just begun"),
        pytest.param(["manifest.json"], "run-2", id="a run"),
        pytest.param(["notes.txt"], "run-2", id="other content"),
    ],
)
def test_a_new_run_takes_the_first_name_that_is_free(
    content: list[str] | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("run").mkdir()
        for file in content:
            (Path("run") / file).touch()
    assert free_folder("run") == Path(name)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda _: None, id="no folder"),
        pytest.param(lambda path: path.mkdir(), id="an empty folder"),
        pytest.param(
            lambda path: (path / ".autoselect-work").mkdir(parents=True), id="leftovers of a search that never began"
        ),
        pytest.param(lambda path: (path.mkdir(), (path / "worker.log").touch()), id="a log"),
    ],
)
def test_a_folder_that_is_free(before: Callable[[Path], object], tmp_path: Path) -> None:
    before(tmp_path / "run")
    RunFolder(tmp_path / "run").create()
    assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize(
    ("before", "message"),
    [
        pytest.param(
            lambda path: RunFolder(path).write_manifest({}), "holds another run. Continue it with `autoselect resume"
        , id="another run"),
        pytest.param(lambda path: (path.mkdir(), (path / "notes.txt").touch()), "is not empty", id="other content"),
        pytest.param(lambda path: (path.mkdir(), (path / "front").mkdir()), "is not empty", id="half a run"),
        pytest.param(lambda path: path.touch(), "is a file. Choose a new", id="a file"),
    ],
)  # fmt: skip
def test_a_folder_that_is_taken(before: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    before(tmp_path / "run")
    with pytest.raises(RunFolderError, match=message):
        RunFolder(tmp_path / "run").create()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not"):
        RunFolder(tmp_path / "file" / "run").create()


def test_a_folder_that_this_user_may_not_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageError, match="denied"):
        RunFolder(tmp_path).create()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "autoselect-run").mkdir()
    assert free_folder("autoselect-run") == Path("autoselect-run-2")
    RunFolder(tmp_path).write_manifest({})
    with pytest.raises(RunFolderError, match=r"denied\.$"):
        RunFolder(tmp_path).read_manifest()


def test_the_command_that_goes_on_is_quoted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "my run")
    folder.write_manifest({})
    with pytest.raises(RunFolderError, match=re.escape(f"`autoselect resume '{folder.root}'`")):
        folder.create()


def test_the_manifest_reads_back_with_its_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_manifest({"seed": 7, "settings": {"trials": 10}})
    assert folder.read_manifest() == {"seed": 7, "settings": {"trials": 10}, "manifest_version": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "holds no run: it has no manifest.json", id="missing"),
        pytest.param('{"seed": 7', "damaged", id="cut off"),
        pytest.param("[]", "holds no JSON object", id="a list"),
        pytest.param("\udce4", "damaged", id="not UTF-8"),
        pytest.param("{}", "is of version None; this autoselect reads version 1", id="no version"),
        pytest.param('{"manifest_version": 2}', "is of version 2", id="a later version"),
    ],
)
def test_manifests_that_cannot_be_used(text: str | None, message: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    if text is not None:
        folder.manifest.write_bytes(text.encode("utf-8", "surrogateescape"))
    for read in (folder.read_manifest, lambda: load_run(tmp_path)):
        with pytest.raises(RunFolderError, match=message):
            read()


def write_run(root: Path, *, front: bool = True) -> RunFolder:
    folder = RunFolder(root)
    folder.create()
    folder.write_manifest({"seed": 7})
    trials = [record(0), record(1, scores=None, recipe=None)]
    ids = [trials[0].id] if front else []
    write_table(
        folder.trials,
        records.trial_columns("accuracy"),
        [records.trial_row(t, "accuracy", ids) for t in trials],
    )
    rows = (
        [
            records.front_row(
                trials[0],
                "accuracy",
                records.Heldout(score=0.88, low=0.85, high=0.91),
                ["accurate", "compact"],
                EXPECTED,
            )
        ]
        if front
        else []
    )
    write_table(folder.front_table, records.front_columns("accuracy"), rows)
    write_table(folder.layer_statistics, ("index", "tensor_name"), [{"index": 0, "tensor_name": "a,b"}])
    picks = {"accurate": trials[0].id, "compact": trials[0].id} if front else {}
    write_json(folder.summary, {"status": "complete" if front else "nothing_feasible", "picks": picks})
    return folder


def test_a_run_reads_back(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    run = load_run(str(tmp_path / "run"))
    assert (run.status, run.manifest["seed"]) == ("complete", 7)
    assert run.picks == {"accurate": "0123456789", "compact": "0123456789"}
    # An id of digits only stays text.
    assert run.front["id"].tolist() == ["0123456789"]
    assert run.front["pick"].tolist() == ["accurate,compact"]
    assert run.trials["state"].tolist() == ["complete", "failed"]
    assert run.trials["accuracy"][0] == 0.9
    assert Recipe.from_json(run.trials["recipe"][0]) == RECIPE
    assert run.trials["fingerprint"][0] == RECIPE.fingerprint
    assert run.layer_statistics["tensor_name"].tolist() == ["a,b"]


@pytest.mark.parametrize("name", ["accurate", "0123456789"])
def test_the_file_of_a_member(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    assert load_run(tmp_path / "run").model_path(name) == tmp_path / "run" / "front" / "0123456789.tflite"


def test_a_member_that_is_not_there(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"no 'smallest'\. Picks: accurate, compact; ids: 0123456789"):
        load_run(tmp_path / "run").model_path("smallest")


def test_a_run_without_a_front(tmp_path: Path) -> None:
    write_run(tmp_path / "run", front=False)
    run = load_run(tmp_path / "run")
    assert run.front.empty
    with pytest.raises(RunFolderError, match="Picks: none; ids: none"):
        run.model_path("accurate")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda f: f.summary.unlink(), "stopped early. Run `autoselect resume", id="no summary"),
        pytest.param(lambda f: f.summary.write_text("{"), "summary.json is damaged", id="half a summary"),
        pytest.param(lambda f: f.trials.unlink(), "is damaged: .*trials.csv", id="no trials"),
        pytest.param(lambda f: f.front_table.write_text(""), "is damaged", id="an empty front table"),
        pytest.param(lambda f: f.layer_statistics.write_text('a\n"b,c\n1,2,3\n'), "is damaged", id="half a table"),
        pytest.param(lambda f: f.trials.write_bytes(b"\xff\xfe\x00"), "is damaged", id="no text"),
        pytest.param(lambda f: f.front_table.write_text("a,b\n1,2\n"), "is damaged", id="another table"),
    ],
)
def test_damaged_runs(damage: Callable[[RunFolder], object], message: str, tmp_path: Path) -> None:
    damage(write_run(tmp_path / "run"))
    with pytest.raises(RunFolderError, match=message):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("has_summary", [True, False])
def test_a_run_that_is_at_work_was_not_stopped(has_summary: bool, tmp_path: Path) -> None:
    """A resume is at work beside the tables of before, which can be read."""
    folder = write_run(tmp_path / "run")
    if not has_summary:
        folder.summary.unlink()
    with folder.locked(), contextlib.nullcontext() if has_summary else pytest.raises(FolderInUse):
        load_run(folder.root)


def test_a_failed_trial_has_no_id_and_is_on_no_front() -> None:
    failed = record(scores=None)
    assert failed.id == ""
    with pytest.raises(ValueError, match="no front"):
        records.front_row(failed, "accuracy", None, [], EXPECTED)


def test_rows_have_the_columns_of_their_table() -> None:
    assert tuple(records.trial_row(record(), "accuracy", [])) == records.trial_columns("accuracy")
    assert tuple(records.front_row(record(), "accuracy", None, [], EXPECTED)) == records.front_columns("accuracy")
    shown = records.front_row(record(), "accuracy", None, [], EXPECTED)
    assert (shown["expected_drop"], shown["expected_drop_bound"]) == (0.01, 0.02)
    unscored = records.front_row(record(), "accuracy", None, [], EXPECTED)
    assert [unscored[f"heldout_{k}"] for k in ("accuracy", "low", "high") if f"heldout_{k}" in unscored] == ["", "", ""]


def test_calibrated_models_of_other_repairs_have_other_names(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.calibrated(()).name == "calibrated.tflite"
    assert folder.calibrated(("equalization", "ranges-mse")).name == "calibrated-equalization-ranges-mse.tflite"
    of_nodes = [folder.calibrated(("ranges-mse", f"ranges-observed:a/{node};b")).name for node in "xy"]
    assert len(set(of_nodes)) == 2
    assert all(name.startswith("calibrated-ranges-mse-nodes-") and len(name) < 50 for name in of_nodes)


@pytest.mark.parametrize("name", ["NA", "nan", "null", "None", "N/A", "-NaN", "#N/A", "1e5", "007", "True", "inf"])
def test_a_name_that_looks_like_a_missing_value_or_a_number_is_a_name(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    rows = [{"index": 0, "tensor_name": name, "op_name": "ADD", "stddev": math.nan}]
    write_table(folder.layer_statistics, ("index", "tensor_name", "op_name", "stddev"), rows)
    failed = replace(record(0, scores=None, recipe=None), error=name, origin=name)
    unlike = replace(SCORES, sqnr_db=math.nan)
    write_table(
        folder.trials,
        records.trial_columns("accuracy"),
        [records.trial_row(t, "accuracy", []) for t in (failed, record(1, scores=unlike))],
    )
    run = load_run(tmp_path / "run")
    assert run.layer_statistics["tensor_name"].tolist() == [name]
    assert run.layer_statistics["stddev"].isna().all()
    assert (run.trials["error"][0], run.trials["origin"][0]) == (name, name)
    assert run.trials["error"].isna().tolist() == [False, True]
    assert run.trials["sqnr_db"].isna().all()
    assert run.trials["accuracy"].isna().tolist() == [True, False]
    assert run.trials["accuracy"][1] == 0.9


@pytest.mark.parametrize("file", ["../../x", "/etc/hostname", "front/../../x.tflite", "out/x.tflite", ""])
def test_a_front_whose_files_lie_elsewhere_is_refused(file: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    if file.startswith("out"):
        (folder.root / "out").symlink_to(tmp_path / "elsewhere")
    text = folder.front_table.read_text()
    assert "front/0123456789.tflite" in text
    folder.front_table.write_text(text.replace("front/0123456789.tflite", file))
    with pytest.raises(RunFolderError, match=r"front\.csv.*0123456789|out is .*link"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "study.journal"])
def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder.root / name).unlink(missing_ok=True)
    os.mkfifo(folder.root / name)
    with pytest.raises(RunFolderError, match=re.escape(name)):
        load_run(folder.root)


def test_a_null_character_is_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match="null character"):
        RunFolder(Path("a\0b")).refuse_taken()


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("a page")
    with pytest.raises(RunFolderError, match=r"report\.html .* no manifest\.json"):
        load_run(tmp_path / "report.html")
