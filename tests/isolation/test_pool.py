from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoselect.errors import AutoselectError, ModelError, WorkerDied
from autoselect.isolation.pool import WorkerPool, result_of


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool") / "worker.log"


@pytest.fixture(scope="module")
def pool(log: Path) -> Iterator[WorkerPool]:
    # One worker: a job that runs after a death runs in a replaced process.
    with WorkerPool(1, log=log) as made:
        yield made


def kill_with(number: int) -> None:
    os.kill(os.getpid(), number)


def refuse() -> None:
    raise ModelError("the model is no model")


def stumble() -> None:
    raise ValueError("unexpected")


def sleep_long() -> None:
    time.sleep(60)


def leave() -> None:
    os._exit(3)


@pytest.mark.parametrize(
    ("job", "error", "message"),
    [
        pytest.param(lambda: kill_with(signal.SIGSEGV), WorkerDied, "SIGSEGV: a segmentation fault", id="segfault"),
        pytest.param(lambda: kill_with(signal.SIGKILL), WorkerDied, "SIGKILL: it was killed, .*memory", id="killed"),
        pytest.param(lambda: kill_with(signal.SIGABRT), WorkerDied, "SIGABRT: native code gave up", id="abort"),
        pytest.param(leave, WorkerDied, "ended by itself with exit code 3", id="exit"),
        pytest.param(refuse, ModelError, "^the model is no model$", id="an error of ours"),
        pytest.param(stumble, ValueError, "^unexpected$", id="any other error"),
    ],
)
def test_a_bad_job_costs_itself_only(
    pool: WorkerPool, job: Callable[[], None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pool.call(job)
    assert pool.call(pow, 2, 5) == 32


def test_a_job_that_hangs_is_stopped(pool: WorkerPool) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="longer than its time limit"):
        pool.call(sleep_long, timeout_seconds=0.5)
    assert time.monotonic() - began < 30
    assert pool.call(pow, 2, 6) == 64


def test_a_death_costs_no_job_that_waits(pool: WorkerPool) -> None:
    futures = [pool.submit(pow, 2, 1), pool.submit(kill_with, signal.SIGSEGV), pool.submit(pow, 2, 3)]
    assert result_of(futures[0]) == 2
    with pytest.raises(WorkerDied):
        result_of(futures[1])
    assert result_of(futures[2]) == 8


def test_a_cancelled_job(pool: WorkerPool) -> None:
    blocker = pool.submit(time.sleep, 0.3)
    future = pool.submit(pow, 2, 2)
    future.cancel()
    with pytest.raises(WorkerDied, match="cancelled"):
        result_of(future)
    assert result_of(blocker) is None


def test_lambdas_and_closures_are_jobs(pool: WorkerPool) -> None:
    factor = 3

    def scaled(x: int) -> int:
        return factor * x

    assert pool.call(scaled, 5) == 15
    assert pool.call(lambda values: sum(values) * factor, [1, 2, 3]) == 18


def test_jobs_run_in_one_other_process(pool: WorkerPool) -> None:
    workers = {pool.call(os.getpid) for _ in range(3)}
    assert len(workers) == 1
    assert os.getpid() not in workers


def test_a_worker_ignores_ctrl_c(pool: WorkerPool) -> None:
    def interrupted() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return "alive"

    assert pool.call(interrupted) == "alive"


def test_what_native_code_prints_goes_to_the_log(
    pool: WorkerPool, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def shout() -> None:
        os.write(1, b"out loud\n")
        os.write(2, b"in error\n")

    pool.call(shout)
    assert {"out loud", "in error"} <= set(log.read_text().splitlines())
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_the_callers_folder_and_warms_up_once(tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "log", warm_up=_warm_up) as warm:
        assert warm.call(lambda: os.environ.get("WARMED_UP")) == "1"
        assert warm.call(os.getcwd) == os.getcwd()
        assert warm.call(lambda: os.environ["CUDA_VISIBLE_DEVICES"]) == "-1"


def _warm_up() -> None:
    os.environ["WARMED_UP"] = str(int(os.environ.get("WARMED_UP", "0")) + 1)


def test_closing_kills_running_jobs(tmp_path: Path) -> None:
    began = time.monotonic()
    with WorkerPool(1, log=tmp_path / "log") as closing:
        worker = closing.call(os.getpid)
        future = closing.submit(sleep_long)
    with pytest.raises((WorkerDied, AutoselectError)):
        result_of(future)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
