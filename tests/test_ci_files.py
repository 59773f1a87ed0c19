"""The action's script gives ``autoselect evaluate`` what the inputs say; the image copies files that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoselect.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
REQUIRED = {"model": "my model.tflite", "evaluation": "e.npz"}


def arguments(tmp_path: Path, given: dict[str, str]) -> list[str]:
    """What the action's script calls the command with."""
    inputs = {name: given.get(name, one.get("default", "")) for name, one in ACTION["inputs"].items()}
    step = ACTION["runs"]["steps"][-1]
    named = {key: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value) for key, value in step["env"].items()}
    assert {found[1] for found in named.values() if found} == set(inputs)
    fake = tmp_path / "autoselect"
    fake.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    fake.chmod(0o755)
    environment = {key: inputs[found[1]] for key, found in named.items() if found}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"reference": "f $(x).tflite", "max-drop": "0.01"}, ["--reference", "f $(x).tflite", "--max-drop", "0.01"]),
        ({"min-score": "0.9", "max-size": "4kB"}, ["--min-score", "0.9", "--max-size", "4kB"]),
    ],
)
def test_the_action_calls_evaluate(tmp_path: Path, given: dict[str, str], expected: list[str]) -> None:
    told = arguments(tmp_path, {**REQUIRED, **given})
    start = ["evaluate", "--evaluation", "e.npz", "--metric", "accuracy"]
    assert told == [*start, *expected, "--", "my model.tflite"]
    import typer

    command: Any = typer.main.get_command(app).commands["evaluate"]  # type: ignore[attr-defined]
    read = command.make_context("evaluate", told[1:]).params
    assert read["models"] == ["my model.tflite"]
    assert read["max_drop"] == (float(given["max-drop"]) if "max-drop" in given else None)


def test_the_image_copies_what_is_there() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.+)$", text, flags=re.MULTILINE) for name in line.split()[:-1]]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda path: path.stem)
def test_workflows_make_what_there_is_and_may_write_only_where_they_say_so(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    wanted = {
        target
        for step in steps
        for words in re.findall(r"^make (.+)$", step.get("run", ""), re.M)
        for target in words.split()
    }
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert wanted
    assert wanted <= set(targets)
    # What a tag or an event says is never read as a piece of a script.
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
