"""What a person meets in a terminal, letter by letter; run as a script, it writes the texts anew."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect.cli import search as cli_search
from autoselect.cli.main import app
from autoselect.study.outlook import Outlook

HERE = Path(__file__).resolve().parent / "terminal"
KEPT = Path(__file__).resolve().parents[1] / "golden"
"""Run folders of an earlier version, whose picks are others."""
MOST_HELP_LINES = 60
SHOWN = {
    "show": ["show", "{run}"],
    "show_all": ["show", "{run}", "--all"],
    "show_stopped": ["show", "{stopped}"],
    "show_nothing_feasible": ["show", "{infeasible}"],
    "show_earlier_version": ["show", "{embedded}"],
    "show_evaluator": ["show", "{evaluator}"],
}
HELP = {
    "help": ["--help"],
    "help_search": ["search", "--help"],
    "help_search_all": ["search", "--help-all"],
    "help_check": ["check", "--help"],
    "help_what_if": ["what-if", "--help"],
}
WIDTHS = (80, 120)
SHORT = ("help_search", "help_check")
CASES = [
    *((name, width) for name in SHOWN for width in WIDTHS),
    *((name, 100) for name in HELP),
    *((name, 80) for name in SHORT),
]


def printed(name: str, width: int, folder: Path) -> str:
    """What a command prints, in a folder with the runs under short names."""
    runs = {"run": HERE / "run", "embedded": KEPT / "embedded", "evaluator": KEPT / "evaluator"}
    for run, source in (*runs.items(), ("stopped", HERE / "run"), ("infeasible", HERE / "run")):
        shutil.copytree(source, folder / run, dirs_exist_ok=True)
    _change(folder / "stopped", '"complete"', '"interrupted"')
    _change(folder / "infeasible", '"complete"', '"nothing_feasible"')
    args = [arg.format(**{run: run for run in (*runs, "stopped", "infeasible")}) for arg in (SHOWN | HELP)[name]]
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner(env={"COLUMNS": str(width), "TERMINAL_WIDTH": str(width)}).invoke(
            app, args, prog_name="autoselect"
        )
    finally:
        os.chdir(before)
    assert done.exit_code == 0, done.output
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def _change(run: Path, old: str, new: str) -> None:
    text = (run / "summary.json").read_text(encoding="utf-8")
    assert old in text
    (run / "summary.json").write_text(text.replace(old, new), encoding="utf-8")


def kept(name: str, width: int) -> Path:
    return HERE / f"{name}_{width}.txt"


@pytest.mark.parametrize(("name", "width"), CASES)
def test_what_is_printed(name: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    text = printed(name, width, tmp_path)
    assert text == kept(name, width).read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", SHORT)
def test_the_short_help_is_short(name: str, width: int) -> None:
    lines = kept(name, width).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_HELP_LINES
    options = [line.split()[1] for line in lines if line.startswith("│ --")]
    assert options[:2] == ["--calibration", "--evaluation"]
    assert [line.strip("╭─ ╮") for line in lines if line.startswith("╭")] == [
        *("Arguments", "Data", "Goal", "Hardware", "Search", "Output"),
    ]


def test_the_whole_help_has_every_option() -> None:
    from autoselect.cases.declared import declared

    text = kept("help_search_all", 100).read_text(encoding="utf-8")
    missing = [o.names for o in declared().values() if not o.argument and o.only != "python"]
    assert [names for names in missing if names.split()[0].split("/")[0] not in text] == []


@pytest.mark.parametrize("name", SHOWN)
def test_the_counts_add_up(name: str) -> None:
    (line,) = [line for line in kept(name, 80).read_text(encoding="utf-8").splitlines() if " dropped by " in line]
    proposed, *parts = [int(word) for word in re.findall(r"\d+", line)]
    assert proposed == sum(parts)
    assert len(parts) == 4


OUTLOOK = Outlook(
    size_bytes=102_240,
    metric="accuracy",
    float_score=0.93125,
    nodes=26,
    units=22,
    states=2,
    candidates=2**22,
    samples={"calibration": 100, "search": 1000, "heldout": 2000},
    warnings=(),
    notes=(),
    refused="",
    build_seconds=0.05,
    score_seconds=0.4,
    inference_seconds=0.0004,
    phase_seconds={"prepare": 5.0, "repairs": 0.0, "probes": 9.0, "trials": 65.0, "heldout": 16.0},
    search_seconds=95.0,
    trials=100,
    workers=2,
    disk_bytes=12_000_000,
    memory={"here": 400_000_000, "worker": 700_000_000, "all": 1_800_000_000},
)


def checked(monkeypatch: pytest.MonkeyPatch, *args: str, machine_bytes: float = 24e9, **changes: Any) -> Any:
    from dataclasses import replace

    monkeypatch.setitem(vars(autoselect), "check", lambda *_, **__: replace(OUTLOOK, **changes))
    monkeypatch.setattr(cli_search, "memory_bytes", lambda: machine_bytes)
    monkeypatch.setattr(sys, "argv", ["autoselect", "check", "m.tflite", *args])
    return CliRunner().invoke(app, ["check", "m.tflite", *args])


def test_a_check_says_what_the_search_would_be(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    done = checked(monkeypatch, "--trials", "100")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[7].startswith("disk ")
    assert "12.00 MB" in lines[7]
    reviewed("a check", [*lines[:7], *lines[8:]])


def test_a_check_warns_of_too_little_memory(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    done = checked(monkeypatch, machine_bytes=1e9)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("memory"))
    reviewed("a check warns of memory", [line, *done.stderr.splitlines()])


def test_a_check_says_what_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")
    done = checked(monkeypatch, refused="No kernel.", build_seconds=nan, score_seconds=nan, search_seconds=nan)
    assert "one trial     fails" in done.stdout
    assert "fails. No kernel." in done.stderr
    assert "nan" not in done.stdout


def write() -> None:
    """Write the texts anew."""
    import tempfile

    import typer.rich_utils

    for name, width in CASES:
        typer.rich_utils.MAX_WIDTH = width
        with tempfile.TemporaryDirectory() as folder:
            kept(name, width).write_text(printed(name, width, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    write()
