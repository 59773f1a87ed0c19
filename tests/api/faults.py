"""Searches in processes of their own that may be killed, and what must be left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pump

import autoselect
from autoselect.study.recording.optuna_study import read_records

SCRIPT = """
import sys
from pathlib import Path
import autoselect, pump
from autoselect.cases.events import TrialFinished, Warned

def listener(event):
    if isinstance(event, TrialFinished):
        print(event.number, flush=True)
    elif isinstance(event, Warned):
        print(event.message, file=sys.stderr, flush=True)

folder, trials, seed, scheduler = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] or None
if (folder / "manifest.json").exists():
    autoselect.resume(folder, scheduler=scheduler, listener=listener)
else:
    pump.search(folder, trials=trials, workers=2, seed=seed, scheduler=scheduler, listener=listener)
"""


def environment() -> dict[str, str]:
    """For child processes: they find what this process finds, and measure no coverage."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    return {**kept, "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}


def driver(
    folder: Path, seed: int, *, trials: int = 20, scheduler: str = "", changes: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A search in a process group of its own; what it says on standard error is kept beside its folder."""
    with said(folder).open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), str(trials), str(seed), scheduler],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**environment(), **(changes or {})},
            start_new_session=True,
        )


def said(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.err")


def told(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next numbers of trials that it finished; empty texts where it ended."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [p for p in psutil.Process(process.pid).children(recursive=True) if "python" in p.name()]


def complete(folder: Path) -> dict[int, list[float]]:
    """Values of the complete trials, by number, as Optuna itself reads them."""
    if not (folder / "study.journal").exists():
        return {}
    return {t.number: t.values for t in pump.journal(folder) if t.state.name == "COMPLETE"}


def assert_kept(known: Mapping[int, list[float]], now: Mapping[int, list[float]]) -> None:
    """What was finished still is, with the same scores."""
    assert {trial: now[trial] for trial in known} == dict(known)


def assert_ended(last: subprocess.Popen[str], folder: Path, known: Mapping[int, list[float]]) -> int:
    """A resumed search came to its end, and nothing that was finished before is lost; how much is finished now."""
    assert last.returncode == 0, said(folder).read_text()
    after = complete(folder)
    assert_kept(known, after)
    assert_whole(folder)
    return len(after)


def assert_whole(folder: Path) -> None:
    """No trial is unfinished or doubled, and the front is that of all the trials together."""
    assert pump.unfinished(folder) == []
    run, records = autoselect.load_run(folder), read_records(folder / "study.journal")
    assert run.status == "complete"
    assert list(run.trials["number"]) == [r.number for r in records]
    scored = run.trials[run.trials["state"] == "complete"]
    assert scored.loc[~scored["reused"], "sha256"].is_unique
    losses = {r.id: (-r.accuracy, r.size_bytes, r.penalty) for r in scored[scored["feasible"]].itertuples()}
    best = {one for one, row in losses.items() if not any(pump.dominates(other, row) for other in losses.values())}
    on_front = set(scored.loc[scored["on_front"], "id"])
    floats = {one for one, row in losses.items() if row[1] >= run.summary["references"]["float"]["size_bytes"]}
    assert best - floats <= on_front <= set(losses)
    assert set(run.front["id"]) <= on_front
    for row in run.front.itertuples():
        assert pump.sha256(folder / row.file) == row.sha256
