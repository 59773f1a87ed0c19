"""``autoselect what-if`` prints what ``run.what_if`` answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect import embedded
from autoselect.api import searching
from autoselect.cli.main import app
from autoselect.report.tables.what_if_rows import answer_rows, answer_sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("asked") / "run"
    with pytest.MonkeyPatch.context() as patch, autoselect.keep_workers(1):
        patch.setattr(searching, "drawn", lambda folder: searching.load_run(folder.root))
        autoselect.search(
            embedded.model_path(),
            calibration="autoselect.embedded:calibration",
            evaluation="autoselect.embedded:search_samples",
            heldout="autoselect.embedded:search_samples",
            allow_overlap=True,
            trials=6,
            repairs=False,
            int16=False,
            early_exit=False,
            output=path,
            workers=1,
        )
        yield path


def asked(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["what-if", *args])


def test_the_table_has_what_it_was_and_what_it_becomes(folder: Path) -> None:
    done = asked(str(folder), "--from", "int8", "--deny", "SOFTMAX")
    assert done.exit_code == 0, done.output
    title, heading, size, *_ = done.stdout.splitlines()
    assert title == "int8; SOFTMAX denied, on integer-only"
    assert heading.split() == ["int8", "changed"]
    assert size.split() == ["size", "42.2", "kB", "42.3", "kB"]
    assert "no hybrid form" in done.stdout


def test_without_a_change_there_is_one_column(folder: Path) -> None:
    done = asked(str(folder))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split() == ["recommended"]


def test_the_model_is_written_and_scored(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "asked.tflite"
    done = asked(str(folder), "--from", "int8", "--in-float", "SOFTMAX", "--build", str(file), "--score", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["path"] == str(file)
    assert file.stat().st_size == found["size_bytes"]
    assert found["score"]["samples"] == 1000
    assert found["recipe"]["float_nodes"]
    again = autoselect.build(
        autoselect.Recipe.from_json(json.dumps(found["recipe"])),
        model=embedded.model_path(),
        calibration="autoselect.embedded:calibration",
        output=tmp_path / "again.tflite",
    )
    assert Path(again.path).read_bytes() == file.read_bytes()


def test_a_file_is_written_over_only_if_forced(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.tflite"
    file.write_text("mine")
    done = asked(str(folder), "--build", str(file))
    assert done.exit_code == 2
    assert "--build" in done.stderr
    assert file.read_text() == "mine"
    assert asked(str(folder), "--build", str(file), "--force").exit_code == 0
    assert file.read_bytes() != b"mine"


def test_a_score_is_told_in_words(folder: Path) -> None:
    done = asked(str(folder), "--from", "int8", "--evaluation", "autoselect.embedded:heldout_samples")
    assert "Scored on 2,000 samples: 75.0 % accuracy; it loses 17.8 points (95 % interval: " in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--deny", "softmix"], 2, "Did you mean 'SOFTMAX'"),
        (["--from", "nobody"], 2, "no candidate 'nobody'"),
        (["--target", "nothing"], 2, "no target 'nothing'"),
        (["--target", ""], 2, "Target ''"),
        (["--repairs", "polish"], 2, "repairs: expected one of"),
        (["--repairs", "none", "--repairs", "bias"], 2, "none takes no repair at all"),
    ],
)
def test_what_cannot_be_asked_has_its_exit_code(folder: Path, args: list[str], code: int, words: str) -> None:
    done = asked(str(folder), *args)
    assert done.exit_code == code
    assert words in done.stderr
    assert done.stdout == ""


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    done = asked(str(tmp_path))
    assert done.exit_code == 7
    assert "no run" in done.stderr


ANSWER: dict[str, Any] = {
    "metric": "accuracy",
    "size_bytes": 45_800,
    "penalty": 9.3976,
    "forecast_penalty": 9.3976,
    "compiled": False,
    "segments": 1,
    "kinds": {"int16": 11, "integer": 10, "float": 1},
    "float_ops": 1,
    "crossing_bytes": 8,
    "arena_bytes": 6900,
    "drop": 0.002,
    "drop_low": -0.002,
    "drop_high": 0.011,
    "allowed_drop": 0.009,
    "far": False,
    "chance_within": 0.94,
    "chance_on_front": 0.39,
    "trial": None,
    "scored_drop": None,
    "refusal": "",
    "unknown": "",
    "approximate": False,
    "fallbacks": {"a": "no hybrid kernel", "b": "no hybrid kernel"},
    "dominated_by": ("bb95b11378",),
    "gap": 0.002,
    "preferred": False,
}
NOBODY_KNOWS = dict.fromkeys(
    ("drop", "drop_low", "drop_high", "far", "chance_within", "chance_on_front", "gap", "preferred")
)


def test_rows_are_told_with_their_units(reviewed: Reviewed) -> None:
    reviewed("rows of an answer", [": ".join(row) for row in answer_rows([ANSWER], ["changed"])])


def test_an_answer_that_a_compiler_gave_stands_beside_one_that_it_did_not() -> None:
    made = {**ANSWER, "compiled": True, "penalty": 40.0}
    rows = {name.strip(): others for name, *others in answer_rows([made, ANSWER], ["int8", "changed"])}
    assert rows["penalty"] == ["40.00 (compiled)", "9.40 (forecast)"]
    for name in ("segments", "crossing"):
        assert [cell.split()[-1] for cell in rows[name]] == ["(compiled)", "(forecast)"]
    assert rows["by forecast"] == ["9.40", "9.40"]  # Who costs no more is told by these.
    assert "by forecast" not in {name.strip() for name, *_ in answer_rows([ANSWER, ANSWER], ["int8", "changed"])}
    (penalty,) = [row[1:] for row in answer_rows([{**ANSWER, "penalty": 1_316_528.4}], ["int8"]) if row[0] == "penalty"]
    assert penalty == ("1,316,528",)


def test_what_nobody_knows_is_a_dash_and_a_sentence(reviewed: Reviewed) -> None:
    unknown = {**ANSWER, **NOBODY_KNOWS, "unknown": "the search did not try int16 nodes", "dominated_by": ()}
    rows = dict(answer_rows([unknown], ["changed"]))
    assert {rows["expected"], rows["nine in ten"], rows["on the front"]} == {"–"}
    reviewed("what nobody knows", answer_sentences(unknown))
    assert not [sentence for sentence in answer_sentences(unknown, "") if "--score" in sentence]


def test_limits_are_shown_by_show(folder: Path) -> None:
    done = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["show", str(folder), "--limits"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("allowed drop ")
    assert "5.0 points" in done.stdout
    several = ["--limits", "--target", "integer-only", "--target", "litert-cpu", "--json"]
    found = json.loads(CliRunner().invoke(app, ["show", str(folder), *several]).stdout)["limits"]
    assert {row["target"] for row in found} == {"integer-only", "litert-cpu", "integer-only,litert-cpu"}
    assert CliRunner().invoke(app, ["show", str(folder), "--target", "tflm"]).exit_code == 2


def test_a_guess_of_the_nearest_candidate_is_told_as_such(reviewed: Reviewed) -> None:
    reviewed("a guess of the nearest candidate", answer_sentences({**ANSWER, "approximate": True})[0])


def test_sentences_say_who_is_ahead(reviewed: Reviewed) -> None:
    reviewed("who is ahead", answer_sentences({**ANSWER, "refusal": "tflm refuses it", "preferred": True}))


def test_a_model_that_is_expected_to_be_far_from_float_is_told_as_such(reviewed: Reviewed) -> None:
    reviewed("an answer far from float", answer_sentences({**ANSWER, "far": True})[-1])


def test_a_gain_that_counts_as_none_is_told(reviewed: Reviewed) -> None:
    gain = {
        **ANSWER,
        "fallbacks": {},
        "dominated_by": (),
        "drop": -0.02,
        "drop_high": 0.006,
        "allowed_drop": 0.01,
        "chance_within": 0.75,
    }
    [sentence] = answer_sentences(gain)
    reviewed("a gain that counts as none", sentence)
    for other in ({"drop": 0.001}, {"drop_high": 0.02}, {"chance_within": 0.99}, {"chance_within": None}):
        assert answer_sentences({**gain, **other}) == []
