"""Searches that are killed, stopped, starved of disk, or whose candidates die; real processes throughout."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pump
import pytest

import autoselect
from autoselect.cases.events import Event, StageStarted, TrialFinished
from autoselect.domain.picks import PICK_NAMES
from autoselect.isolation.worker import TOOK_TOO_LONG, death_notice

SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs begin with it ignored.
import autoselect, pump
from autoselect.cases.events import TrialFinished

def listener(event):
    if isinstance(event, TrialFinished):
        print(event.number, flush=True)
        if "limit" in sys.argv and event.number == 4:
            import os, resource
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "/study.journal") + 700, hard))

try:
    open(sys.argv[1] + "/manifest.json")
except FileNotFoundError:
    run = pump.search(sys.argv[1], trials=300, workers=2, repairs="repairs" in sys.argv, listener=listener)
else:
    run = autoselect.resume(sys.argv[1], listener=listener)
print(run.status, flush=True)
"""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A search, or its continuation, in a process group of its own; it prints each trial's number."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}  # its data file would count too
    environment["PYTHONPATH"] = os.pathsep.join([p for p in sys.path if p])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def after_trials(process: subprocess.Popen[str], count: int) -> None:
    """Wait until so many trials are told."""
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline().strip().isdigit()


def complete(folder: Path) -> dict[int, list[float]]:
    """Values of the complete trials, by number."""
    return {t.number: t.values for t in pump.journal(folder) if t.state.name == "COMPLETE"}


def values(run: autoselect.Run) -> dict[int, list[float]]:
    rows = run.trials[run.trials["state"] == "complete"]
    return {r.number: [r.accuracy, r.size_bytes, r.penalty] for r in rows.itertuples()}


def agree(before: dict[int, list[float]], after: dict[int, list[float]]) -> bool:
    return before == {number: after[number] for number in before if number in after}


def assert_reported(folder: Path, told: dict[int, list[float]]) -> None:
    """The page of a killed run opens, and its tables hold what was complete; the run can still be resumed."""
    assert not (folder / "summary.json").exists()
    page = autoselect.write_report(folder).read_text(encoding="utf-8")
    assert "stopped early" in page
    assert page.rstrip().endswith("</html>")
    stopped = autoselect.load_run(folder)
    assert stopped.status == "interrupted"
    assert values(stopped) == told
    for row in stopped.front.itertuples():
        assert pump.sha256(folder / row.file) == row.sha256
    assert (folder / ".autoselect-work").exists()


@pytest.mark.slow
def test_a_killed_search_loses_nothing_that_was_complete(tmp_path: Path) -> None:
    """Killed three times, at random moments, each time in another process; once the last line is cut off."""
    folder = tmp_path / "run"
    rng = random.Random(3)
    before: dict[int, list[float]] = {}
    for cut_off in (False, True, False):
        process = start(folder, "repairs")
        after_trials(process, rng.randint(2, 6))
        time.sleep(rng.uniform(0, 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        now = complete(folder)
        assert agree(before, now)
        assert len(now) > len(before)
        before = now
        if cut_off:
            with (folder / "study.journal").open("ab") as file:
                file.write(b'{"op_code": 6, "worker_id": "a')
    assert_reported(folder, before)
    wanted = max(before) + 10
    run = autoselect.resume(folder, trials=wanted)
    assert agree(before, values(run))
    assert run.status == "complete"
    assert len(run.trials) == wanted
    assert set(run.trials["state"]) <= {"complete", "dropped"}
    assert values(run) == complete(folder)
    assert pump.unfinished(folder) == []
    assert run.trials.loc[~run.trials["reused"], "sha256"].is_unique
    assert {pump.sha256(folder / file) for file in run.front["file"]} == set(run.front["sha256"])
    assert run.front["heldout_accuracy"].notna().all()
    assert not (folder / ".autoselect-work").exists()


def test_an_interrupted_search_keeps_its_result_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    after_trials(process, 6)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert (process.returncode, out.splitlines()[-1:]) == (0, ["interrupted"]), err
    assert pump.unfinished(folder) == []
    stopped = autoselect.load_run(folder)
    assert stopped.status == "interrupted"
    assert set(stopped.picks) == set(PICK_NAMES)
    assert (folder / "pareto.png").exists()
    assert "stopped early" in (folder / "report.html").read_text(encoding="utf-8")
    for row in stopped.front.itertuples():
        assert pump.sha256(folder / row.file) == row.sha256
        assert row.accuracy == pytest.approx(pump.litert_accuracy((folder / row.file).read_bytes(), pump.SEARCH))
    assert set(stopped.trials["state"]) == {"complete"}
    told = len(stopped.trials)
    run = autoselect.resume(folder, trials=told + 5)
    assert (run.status, len(run.trials)) == ("complete", told + 5)
    assert agree(values(stopped), values(run))
    assert run.front["heldout_accuracy"].notna().all()


@pytest.mark.slow
def test_a_disk_that_is_full_amid_the_trials_is_resumed_from(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk; the journal is left with half a line."""
    folder = tmp_path / "run"
    process = start(folder, "limit")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 1, out
    message = err.strip().splitlines()[-1]
    assert message.startswith("autoselect.errors.StorageError: ")
    assert "study.journal" in message
    before = complete(folder)
    assert len(before) >= 3  # The baselines are; what follows may have been dropped.
    run = autoselect.resume(folder, trials=max(before) + 5)
    assert (run.status, len(run.trials)) == ("complete", max(before) + 5)
    assert agree(before, values(run))
    assert pump.unfinished(folder) == []


STOPPED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs begin with it ignored.
import autoselect, pump
from autoselect.cases.events import StepFinished

folder, stage, steps, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def listener(event):
    global steps
    if isinstance(event, StepFinished) and event.stage == stage:
        steps -= 1
        if not steps:
            os.kill(os.getpid(), number)

if os.path.exists(folder + "/manifest.json"):
    autoselect.resume(folder, listener=listener)
else:
    pump.search(folder, trials=6, workers=2, repairs=True, listener=listener)
"""


def stopped(folder: Path, stage: str, steps: int, number: int) -> None:
    """A search, or its continuation, that gets a signal after so many steps of a stage."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join([p for p in sys.path if p])
    command = [sys.executable, "-c", STOPPED, str(folder), stage, str(steps), str(number)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    # What is scored before Ctrl-C is a result.
    assert ended.returncode == (0 if number == signal.SIGINT else -number), ended.stderr


def replies(path: Path) -> list[str]:
    return [json.loads(line)["job"] for line in path.read_text(encoding="utf-8").splitlines() if line]


@pytest.mark.slow
def test_what_was_tried_before_the_first_trial_is_never_tried_again(tmp_path: Path) -> None:
    """Stopped while it calibrates, tries repairs and probes units: a run each time, and nothing is done twice."""
    folder = tmp_path / "run"
    tried, probes = folder / ".autoselect-work" / "tried.jsonl", folder / "probes.jsonl"
    stopped(folder, "reference", 1, signal.SIGTERM)
    with pytest.raises(autoselect.errors.RunFolderError, match="float model"):
        autoselect.write_report(folder)
    stopped(folder, "repairs", 2, signal.SIGKILL)
    some = replies(tried)
    assert some
    autoselect.write_report(folder)
    shown = autoselect.load_run(folder)
    assert (shown.status, len(shown.trials), len(shown.layer_statistics)) == ("interrupted", 2, 22)
    assert shown.summary["references"]["float"]["accuracy"] > 0.9
    stopped(folder, "repairs", 4, signal.SIGINT)
    more = replies(tried)
    assert more[: len(some)] == some
    stopped(folder, "probes", 5, signal.SIGKILL)
    settled, few = replies(tried), replies(probes)
    assert settled[: len(more)] == more
    assert len(few) >= 5
    run = autoselect.resume(folder)
    known = replies(probes)
    assert (run.status, len(run.trials)) == ("complete", 6)
    assert known[: len(few)] == few
    assert all(len(set(found)) == len(found) for found in (settled, known))
    assert not tried.exists()
    autoselect.resume(folder, trials=7)
    assert replies(probes) == known


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_a_search_stopped_before_its_first_candidate_finds_what_it_would_have_found(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "probes":
            signal.raise_signal(signal.SIGINT)

    settings: dict[str, Any] = {"trials": 7, "sampler": "random", "early_exit": False}
    whole = pump.search(tmp_path / "whole", **settings)
    stopped = pump.search(tmp_path / "stopped", **settings, listener=stop)
    assert (stopped.status, stopped.trials["origin"].str.startswith("baseline:").all()) == ("interrupted", True)
    run = autoselect.resume(stopped.directory)
    assert list(run.trials["id"]) == list(whole.trials["id"])


@pytest.mark.usefixtures("interruptible")
def test_a_search_stopped_before_it_knows_anything_says_how_it_goes_on(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "calibrate":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="autoselect resume"):
        pump.search(tmp_path / "my run", trials=5, sampler="random", listener=stop)
    assert len(autoselect.resume(tmp_path / "my run").trials) == 5


def evaluator(calls: Path, *, dies_at: int, hangs_at: int) -> Callable[[Any], float]:
    """An evaluator that counts its calls over all processes, and once dies and once hangs."""
    calls.mkdir()

    def call_number() -> int:
        number = 0
        while True:
            try:
                os.mkdir(calls / str(number))
            except FileExistsError:
                number += 1
            else:
                return number

    def evaluate(runner: Any) -> float:
        number = call_number()
        if number == dies_at:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == hangs_at:
            time.sleep(600)
        return float(runner(pump.SEARCH[0][:1])["output_0"].max())

    return evaluate


@pytest.mark.own_workers
def test_a_candidate_that_dies_or_hangs_costs_its_own_trial_only(tmp_path: Path) -> None:
    """Calls 0 to 3 are the float model's; the baselines that follow are distinct candidates."""
    begun = time.monotonic()
    run = autoselect.search(
        pump.MODEL_PATH,
        calibration="pump:calibration",
        evaluator=evaluator(tmp_path / "calls", dies_at=4, hangs_at=6),
        trials=10,
        workers=2,
        trial_timeout=6.0,
        repairs=False,
        output=tmp_path / "run",
    )
    assert time.monotonic() - begun < 400  # It would hang for 600.
    failed = run.trials[run.trials["state"] == "failed"]
    assert len(failed) == 2
    dead, hung = sorted(failed["error"], key=lambda text: "time limit" in text)
    assert dead == death_notice(-signal.SIGSEGV)
    assert hung == TOOK_TOO_LONG
    assert failed["recipe"].notna().all()
    assert (run.status, len(run.trials)) == ("complete", 10)
    assert run.summary["counts"]["failed"] == 2
    assert pump.unfinished(tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.own_workers
def test_a_search_that_ends_early_costs_another_threads_search_nothing(tmp_path: Path) -> None:
    begun = threading.Event()

    def break_off(event: Any) -> None:
        if isinstance(event, TrialFinished) and begun.is_set():
            raise KeyError("enough")

    def other() -> autoselect.Run:
        return pump.search(tmp_path / "other", trials=8, listener=lambda _: begun.set())

    with autoselect.keep_workers(1), ThreadPoolExecutor(1) as thread:
        going = thread.submit(other)
        with pytest.raises(KeyError, match="enough"):
            pump.search(tmp_path / "broken", trials=200, listener=break_off)
        run = going.result(timeout=240)
    assert (run.status, len(run.trials)) == ("complete", 8)
    assert not pump.unfinished(tmp_path / "other")
    assert "cancelled" not in run.trials.to_csv()
