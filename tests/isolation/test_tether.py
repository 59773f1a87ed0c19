"""Stand-ins for a compiler: they note their process ids, and sleep."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoselect.compilers.vela import VelaCompiler
from autoselect.errors import WorkerDied
from autoselect.isolation.pool import WorkerPool
from autoselect.isolation.tether import run_tethered
from autoselect.scoring.target_file import read_target

SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
with open({0!r} + ".part", "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename({0!r} + ".part", {0!r})
time.sleep(300)
"""
"""It has a process of its own, too."""


def is_gone(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def waited_for(truth: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not truth() and time.monotonic() < deadline:
        time.sleep(0.02)
    return truth()


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Path]:
    """Where a stand-in notes its processes; none of them is left behind by a failed test."""
    path = tmp_path / "pids"
    yield path
    for pid in map(int, path.read_text().split()) if path.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def command(noted: Path) -> tuple[str, ...]:
    return sys.executable, "-c", SLEEPER.format(str(noted))


def started(noted: Path) -> list[int]:
    assert waited_for(noted.exists)
    pids = [int(pid) for pid in noted.read_text().split()]
    assert not any(map(is_gone, pids))
    return pids


def compile_with(noted: Path, timeout_seconds: float = 200.0) -> Any:
    compiler = VelaCompiler(read_target("ethos-u55-128"), program=command(noted))
    return compiler.compile(b"", timeout_seconds=timeout_seconds)


def kill(pool: WorkerPool) -> None:
    for process in pool._context._started:
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [WorkerPool.close, kill], ids=["a stopped search", "a killed worker"])
def test_a_compiler_does_not_outlive_its_worker(end: Callable[[WorkerPool], None], noted: Path, tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "log") as pool:
        future = pool.submit(compile_with, noted)
        pids = started(noted)
        end(pool)
        assert waited_for(lambda: all(map(is_gone, pids)))
        pool.close()  # A job whose worker was killed is begun once more.
        with contextlib.suppress(BaseException):
            future.result()


def test_a_compiler_that_takes_too_long_is_stopped_with_all_that_it_started(noted: Path) -> None:
    with pytest.raises(WorkerDied, match="longer than 4 s"):
        compile_with(noted, timeout_seconds=4.0)
    pids = [int(pid) for pid in noted.read_text().split()]
    assert waited_for(lambda: all(map(is_gone, pids)))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_caller_leaves_nothing(noted: Path) -> None:
    code = f"from autoselect.isolation.tether import run_tethered; run_tethered({command(noted)!r}, timeout_seconds=99)"
    caller = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    pids = started(noted)
    caller.send_signal(signal.SIGINT)
    assert caller.wait(20.0) != 0
    assert waited_for(lambda: all(map(is_gone, pids)))


ENDS = {
    "well": ("print('out'); import sys; print('err', file=sys.stderr)", 0, "out\n", "err\n"),
    "with a code": ("import sys; sys.exit(3)", 3, "", ""),
    "with words": ("import sys; sys.exit('no')", 1, "", "no\n"),
    "with bytes that are no text": ("import os; os.write(1, b'a\\xffb\\n')", 0, "a\ufffdb\n", ""),
    "killed": ("import os; os.kill(os.getpid(), 9)", -9, "", ""),
    "terminated": ("import os; os.kill(os.getpid(), 15)", -15, "", ""),
}


@pytest.mark.parametrize(("program", "code", "out", "err"), ENDS.values(), ids=ENDS)
def test_the_end_of_a_command_is_passed_on(program: str, code: int, out: str, err: str) -> None:
    done = run_tethered((sys.executable, "-c", program), timeout_seconds=60.0)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)
