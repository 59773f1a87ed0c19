"""Searches that are killed again and again at random moments: driver, worker, or all of it; real processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pump
import pytest

import autoselect
from autoselect.study.recording.optuna_study import read_records

RUNS = int(os.environ.get("AUTOSELECT_FAULT_RUNS", "2"))
KILLS = 3
TRIALS = 20

SCRIPT = """
import sys
from pathlib import Path
import autoselect, pump
from autoselect.cases.events import TrialFinished

def listener(event):
    if isinstance(event, TrialFinished):
        print(event.number, flush=True)

folder, trials, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if (folder / "manifest.json").exists():
    autoselect.resume(folder, listener=listener)
else:
    pump.search(folder, trials=trials, workers=2, seed=seed, listener=listener)
"""


def driver(folder: Path, seed: int) -> subprocess.Popen[str]:
    """A search in a process group of its own; what it says on standard error is kept beside its folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join([p for p in sys.path if p])
    with said(folder).open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), str(TRIALS), str(seed)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
        )


def said(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.err")


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [p for p in psutil.Process(process.pid).children(recursive=True) if "python" in p.name()]


def kill_worker(process: subprocess.Popen[str], rng: random.Random) -> None:
    rng.choice(children(process)).kill()


def kill_driver(process: subprocess.Popen[str], _: random.Random) -> None:
    orphans = children(process)
    process.kill()
    process.wait()
    psutil.wait_procs(orphans, timeout=60)


def kill_all(process: subprocess.Popen[str], _: random.Random) -> None:
    os.killpg(process.pid, signal.SIGKILL)


FAULTS: tuple[Callable[[subprocess.Popen[str], random.Random], None], ...] = (kill_worker, kill_driver, kill_all)


def complete(folder: Path) -> dict[int, list[float]]:
    """Values of the complete trials, by number, as Optuna itself reads them."""
    if not (folder / "study.journal").exists():
        return {}
    return {t.number: t.values for t in pump.journal(folder) if t.state.name == "COMPLETE"}


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


@pytest.mark.slow
@pytest.mark.own_workers
@pytest.mark.usefixtures("finished")  # Its calibration is in the cache.
def test_nothing_is_lost_whatever_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for number in range(RUNS):
        rng, folder = random.Random(number), tmp_path / f"run-{number}"
        known: dict[int, list[float]] = {}
        for _ in range(KILLS):
            process, fault = driver(folder, number), rng.choice(FAULTS)
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(rng.randint(1, 5))]
            time.sleep(rng.uniform(0, 0.3))
            if process.poll() is None and all(told):
                fault(process, rng)
                counts[fault.__name__] += 1
                if fault is kill_worker:
                    counts["went on"] += 1
                    process.stdout.readline()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            now = complete(folder)
            assert {trial: now[trial] for trial in known} == known
            known = now
        last = driver(folder, number)
        last.communicate(timeout=600)
        assert last.returncode == 0, said(folder).read_text()
        after = complete(folder)
        assert {trial: after[trial] for trial in known} == known
        assert_whole(folder)
        counts["finished trials before the last resume"] += len(known)
        counts["finished trials at the end"] += len(after)
    with capsys.disabled():
        sys.stdout.write(f"\n{RUNS} runs: {dict(counts)}\n")
    assert sum(counts[fault.__name__] for fault in FAULTS) >= RUNS
