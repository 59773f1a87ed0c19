"""A member of a front that is picked for chips: its compiled files, and what the model card says of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.cli.main import app
from autoselect.compilers.libraries import QNN_VARIABLE
from autoselect.embedded import model_bytes
from autoselect.errors import RunFolderError, UsageError

CHIP, OTHER = "qualcomm-sm8750", "qualcomm-sm8735"
SHA = hashlib.sha256(model_bytes()).hexdigest()
SCORES = {
    "samples": 1000,
    "chip": 0.665,
    "cpu": 0.747,
    "reference": 0.931,
    "low": 0.053,
    "high": 0.113,
    "chip_sqnr_db": 25.0,
    "cpu_sqnr_db": 29.9,
    "agreement": 0.78,
    "differs": True,
}
MADE = {"segments": 2, "host_ops": {"MUL": 3}, "left": {"a": "no kernel", "b": "no kernel", "c": "too wide"}}
COMPILER = {
    "chip": CHIP,
    "members": {SHA[:10]: {**MADE, "ddr_bytes": 75776, "moved": {}, "cost": 101.9}},
    "emulated": {SHA[:10]: SCORES},
    "versions": {"LiteRT": "2.3.0", "onnxruntime-qnn": "2.7.0"},
}


@pytest.fixture
def run_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run of one member, the demo's float model."""

    def write(target: str = CHIP, compiler: dict[str, Any] | None = COMPILER) -> Path:
        folder = tmp_path / "run"
        (folder / "front").mkdir(parents=True)
        (folder / "front" / f"{SHA[:10]}.tflite").write_bytes(model_bytes())
        row = {"id": SHA[:10], "accuracy": 0.93, "drop": 0.001, "size_bytes": 102240, "penalty": 101.0, "sha256": SHA}
        row |= {"segments": 2, "float_ops": 22, "pick": "recommended", "file": f"front/{SHA[:10]}.tflite"}
        pd.DataFrame([row]).to_csv(folder / "front.csv", index=False)
        pd.DataFrame([{**row, "number": 0, "state": "complete", "origin": "baseline:fiq"}]).to_csv(
            folder / "trials.csv", index=False
        )
        pd.DataFrame([{"index": 0, "op_name": "MUL", "tensor_name": "a"}]).to_csv(
            folder / "layer_statistics.csv", index=False
        )
        manifest = {"manifest_version": 1, "settings": {"target": target}, "sources": {"model": "pump.tflite"}}
        summary: dict[str, Any] = {
            "status": "complete",
            "metric": "accuracy",
            "picks": {"recommended": SHA[:10]},
            "verdict": "Good.",
        }
        whole = {"accuracy": 0.931, "size_bytes": 102240, "penalty": 101.3}
        summary |= {"compiler": compiler, "target": target, "references": {"float": whole}}
        (folder / "manifest.json").write_text(json.dumps({**manifest, "versions": {"autoselect": "0.1.0"}}))
        (folder / "summary.json").write_text(json.dumps(summary))
        return folder

    return write


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The vendor's libraries are not there."""
    monkeypatch.setenv(QNN_VARIABLE, str(tmp_path))


def on_chip(card: str, chip: str = CHIP) -> str:
    """The section of a chip, on one line."""
    found = re.search(rf"^## On {chip}$(.*?)^## ", card, re.MULTILINE | re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


def test_the_runs_own_chip_is_compiled_for(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_qnn")
    picked = autoselect.pick(run_folder(), output=tmp_path / "out" / "model_int8.tflite")
    (made,) = picked.compiled
    assert Path(made.path) == tmp_path / "out" / f"model_int8.{CHIP}.tflite"
    assert hashlib.sha256(Path(made.path).read_bytes()).hexdigest() == made.sha256
    assert Path(picked.path).read_bytes() == model_bytes()
    assert picked.warnings == []
    assert f"`model_int8.{CHIP}.tflite`, SHA-256 `{made.sha256}`" in on_chip(Path(picked.card).read_text())


def test_other_chips_are_named(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_qnn")
    arguments = ["pick", str(run_folder()), "-o", str(tmp_path / "m.tflite"), "--for", OTHER, "--for", CHIP]
    done = CliRunner().invoke(app, arguments, prog_name="autoselect")
    assert done.exit_code == 0
    assert re.findall(r"^for (\S+) .*\((\d) partition", done.stdout, re.MULTILINE) == [(OTHER, "0"), (CHIP, "1")]
    assert f"{OTHER} takes none" in done.stderr  # It has no float16.
    card = (tmp_path / "m.md").read_text()
    assert " emulation " in on_chip(card, OTHER)
    assert "the CPU: " in on_chip(card, OTHER)


def test_files_of_one_name_are_refused_before_any_is_written(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    for maker in ("a", "b"):
        (tmp_path / f"{maker}.toml").write_text(f'extends = "ethos-u55-128"\nname = "{maker}/npu"\n')
    with pytest.raises(UsageError):
        autoselect.pick(
            run_folder(), output=tmp_path / "m.tflite", targets=[str(tmp_path / "a.toml"), str(tmp_path / "b.toml")]
        )
    assert not [*tmp_path.glob("m.*")]


def test_the_card_says_what_the_chip_does(run_folder: Callable[..., Path], tmp_path: Path, missing: None) -> None:
    picked = autoselect.pick(run_folder(), output=tmp_path / "m.tflite")
    card = Path(picked.card).read_text()
    told = on_chip(card)
    assert told.startswith("Its compiler makes of it: 2 partitions, 3 ops left on the CPU; 75.8 kB to and from memory")
    assert "- 2 left on the CPU: no kernel - 1 left on the CPU: too wide" in told
    assert "| Emulated chip | 66.5 % accuracy | | LiteRT's CPU kernels | 74.7 % accuracy |" in told
    assert "5.3 points to 11.3 points lost" in told
    assert "No device was there" in told
    assert "LiteRT 2.3.0; onnxruntime-qnn 2.7.0" in told
    assert "22 ops in float (hybrid ones too), 2 partitions." in card


def test_missing_libraries_leave_the_plain_model_and_a_command(
    run_folder: Callable[..., Path], tmp_path: Path, missing: None
) -> None:
    output = tmp_path / "my model.tflite"
    done = CliRunner().invoke(app, ["pick", str(run_folder()), "-o", str(output)], prog_name="autoselect")
    assert done.exit_code == 0
    assert output.read_bytes() == model_bytes()
    assert not (tmp_path / f"my model.{CHIP}.tflite").exists()
    (command,) = re.findall(r"Then: (autoselect compile .*)$", done.stderr, re.MULTILINE)
    assert command == f"autoselect compile '{output}' --target {CHIP}"


NOTHING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "asked for nothing": ({}, {"targets": ()}),
    "no compiler": ({"target": "integer-only", "compiler": None}, {}),
    "only Vela": ({"target": "ethos-u55-128", "compiler": {"compiled": 3, "refused": 0, "segments_agree": 3}}, {}),
    "a target that is gone": ({"target": "of-an-earlier-version", "compiler": None}, {}),
}


@pytest.mark.parametrize(("run", "wish"), NOTHING.values(), ids=NOTHING)
def test_nothing_is_compiled(
    run_folder: Callable[..., Path], tmp_path: Path, run: dict[str, Any], wish: dict[str, Any]
) -> None:
    picked = autoselect.pick(run_folder(**run), output=tmp_path / "m.tflite", **wish)
    assert (picked.compiled, picked.warnings) == ([], [])
    assert ("## On " in Path(picked.card).read_text()) == (run == {})


def test_a_chip_of_a_run_that_is_gone_is_told(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    (warning,) = autoselect.pick(run_folder("a-lost-profile"), output=tmp_path / "m.tflite").warnings
    assert "a-lost-profile" in warning
    assert (tmp_path / "m.tflite").exists()


def test_what_cannot_be_wished_is_told_before_anything(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, output = run_folder(), tmp_path / "m.tflite"
    for targets in (["integer-only"], ["no-such-chip"]):
        with pytest.raises(UsageError):
            autoselect.pick(folder, output=output, targets=targets)
    (tmp_path / f"m.{CHIP}.tflite").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        autoselect.pick(folder, output=output)
    done = CliRunner().invoke(app, ["pick", str(folder), "--for", CHIP, "--no-compiled"], prog_name="autoselect")
    assert done.exit_code == 2
    assert not output.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "out"])
def test_a_folder_is_no_file_to_write(
    run_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = run_folder()
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    for force in (False, True):
        with pytest.raises(UsageError, match="folder"):
            autoselect.pick(folder, output=name, targets=[], force=force)


def test_the_card_is_not_written_over_the_model(run_folder: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"model\.md .* model card"):
        autoselect.pick(run_folder(), output=tmp_path / "model.md", targets=[])
    assert not (tmp_path / "model.md").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (model_bytes()[:5000], "not what the run wrote: its SHA-256")],
    ids=["missing", "cut off"],
)
def test_a_member_that_is_not_whole_is_not_shipped(
    run_folder: Callable[..., Path], tmp_path: Path, content: bytes | None, words: str
) -> None:
    member = run_folder() / "front" / f"{SHA[:10]}.tflite"
    member.unlink()
    if content is not None:
        member.write_bytes(content)
    with pytest.raises(RunFolderError, match=words):
        autoselect.pick(member.parents[1], output=tmp_path / "model.tflite", targets=[])
    assert not (tmp_path / "model.tflite").exists()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("complete", None),
        ("nothing_feasible", "No model of the run meets all of its limits"),
        ("interrupted", "The search was stopped early"),
    ],
)
def test_a_member_of_a_run_that_did_not_end_well_says_so(
    run_folder: Callable[..., Path], tmp_path: Path, status: str, words: str | None
) -> None:
    summary = run_folder(target="tflm", compiler=None) / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "status": status}))
    picked = autoselect.pick(summary.parent, output=tmp_path / "model.tflite")
    limits = Path(picked.card).read_text().partition("## Limits of use")[2]
    assert len(picked.warnings) == (words is not None)
    assert all(f"\n- {warning}\n- The scores" in limits for warning in picked.warnings)
    assert words is None or words in picked.warnings[0]
