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
import pytest
from faults import assert_ended, assert_kept, children, complete, driver, told

RUNS = int(os.environ.get("AUTOSELECT_FAULT_RUNS", "1"))


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


@pytest.mark.slow
@pytest.mark.own_workers
@pytest.mark.usefixtures("finished")  # Its calibration is in the cache.
def test_nothing_is_lost_whatever_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for number in range(RUNS):
        rng, folder = random.Random(number), tmp_path / f"run-{number}"
        known: dict[int, list[float]] = {}
        for fault in rng.sample(FAULTS, len(FAULTS)):
            process = driver(folder, number)
            news = told(process, rng.randint(1, 5))
            time.sleep(rng.uniform(0, 0.3))
            if process.poll() is None and all(news):
                fault(process, rng)
                counts[fault.__name__] += 1
                if fault is kill_worker:
                    counts["went on"] += 1
                    told(process, 1)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            now = complete(folder)
            assert_kept(known, now)
            known = now
        last = driver(folder, number)
        last.communicate(timeout=600)
        counts["finished trials before the last resume"] += len(known)
        counts["finished trials at the end"] += assert_ended(last, folder, known)
    with capsys.disabled():
        sys.stdout.write(f"\n{RUNS} runs: {dict(counts)}\n")
    assert sum(counts[fault.__name__] for fault in FAULTS) >= RUNS
