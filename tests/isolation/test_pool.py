from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import loky
import psutil
import pytest

from autoselect.cases.open_case import open_case
from autoselect.errors import AutoselectError, JobFailed, ModelError, StorageError, UsageError, WorkerDied
from autoselect.isolation.door import InTime
from autoselect.isolation.pool import WorkerPool, _printed, is_shared, open_pool, result_of, shared
from autoselect.isolation.worker import TOOK_TOO_LONG, safe_path

pytestmark = pytest.mark.own_workers


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


def interrupt() -> None:
    raise KeyboardInterrupt


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
        pytest.param(stumble, JobFailed, "^ValueError: unexpected$", id="any other error"),
        pytest.param(interrupt, JobFailed, "^KeyboardInterrupt: ", id="an interrupt of its own"),
    ],
)
def test_a_bad_job_costs_itself_only(
    pool: WorkerPool, job: Callable[[], None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pool.call(job)
    assert pool.call(pow, 2, 5) == 32


def open_in_a_daemon() -> str:
    """What opening a pool says in a process that says it is a daemon; the flag is put back."""
    process = multiprocessing.current_process()
    before = process.daemon
    process._config["daemon"] = True  # type: ignore[attr-defined]
    try:
        WorkerPool(1, log=Path("none"))
    except UsageError as exc:
        return str(exc)
    finally:
        process._config["daemon"] = before  # type: ignore[attr-defined]
    return ""


def test_a_daemon_is_told_that_it_may_start_no_processes() -> None:
    assert "ProcessPoolExecutor" in open_in_a_daemon()


def test_a_job_that_hangs_is_stopped(pool: WorkerPool) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerDied, match=re.escape(TOOK_TOO_LONG)):
        pool.call(sleep_long, timeout_seconds=0.5)
    assert time.monotonic() - began < 30
    assert pool.call(pow, 2, 6) == 64


def test_jobs_have_the_time_that_their_callers_give_them(pool: WorkerPool) -> None:
    hurried = InTime(pool, 0.5)
    with pytest.raises(WorkerDied, match=re.escape(TOOK_TOO_LONG)):
        hurried.call(sleep_long)
    assert hurried.call(pow, 2, 7, timeout_seconds=30.0) == 128
    assert result_of(hurried.submit(pow, 2, 8)) == 256
    assert hurried.are_here == pool.are_here
    assert hurried.slots(1) == pool.slots(1)


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


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_job_may_start_processes_of_its_own(pool: WorkerPool, method: str) -> None:
    def started() -> int | None:
        child = multiprocessing.get_context(method).Process(target=os.getpid)
        child.start()
        child.join(30)
        return child.exitcode

    assert pool.call(started) == 0


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


# ------------------------------------------------------------------------------ deaths outside a job


KILLED_WITH_A_JOB = """
import os, signal, sys, time
from pathlib import Path
from autoselect.isolation.pool import WorkerPool

pool = WorkerPool(1, log=Path(sys.argv[1]))
worker = pool.call(os.getpid)
pool.submit(time.sleep, 600)
print(worker, flush=True)
time.sleep(0.5)  # the job has begun
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_with_a_killed_parent_though_its_job_does_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_WITH_A_JOB, str(tmp_path / "log")]
    worker = int(subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=False).stdout)
    limit = time.monotonic() + 20
    while is_alive(worker):
        assert time.monotonic() < limit
        time.sleep(0.1)


_STARTED_BESIDE = """
import sys
from pathlib import Path

sys.path.remove("")  # As in a program of its own, such as `autoselect`: a script that is a word has the folder there.
from autoselect.isolation.pool import WorkerPool


def variable():
    import os, random

    return os.environ.get("PYTHONSAFEPATH"), random.__file__


with WorkerPool(1, log=Path("worker.log")) as pool:
    print(*pool.call(variable))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons always import from the working directory first")
def test_a_worker_starts_beside_files_that_are_named_like_modules_of_python(tmp_path: Path) -> None:
    for name in ("random", "select", "queue"):
        (tmp_path / f"{name}.py").write_text("")
    run = subprocess.run(
        [sys.executable, "-c", _STARTED_BESIDE], cwd=tmp_path, capture_output=True, check=False, timeout=120
    )
    variable, file = run.stdout.decode().split()
    assert (run.returncode, variable, run.stderr) == (0, "None", b"")
    assert Path(file).parent != tmp_path


def test_the_working_directory_is_left_out_only_if_a_file_there_stands_in_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_metrics.py").touch()
    assert safe_path() == {}
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "__init__.py").touch()
    assert {*safe_path()} == {"PYTHONSAFEPATH"}
    (tmp_path / "loky").mkdir()
    monkeypatch.setattr(loky, "__file__", str(tmp_path / "loky" / "__init__.py"))
    assert safe_path() == {}  # Without that folder no worker would find its packages.


def test_a_folder_that_was_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StorageError, match="deleted"):
        WorkerPool(1, log=tmp_path / "worker.log")


def test_the_last_line_that_processes_printed_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "nothing" in _printed(log)
    log.write_text("first\nlast\n\n")
    assert _printed(log).endswith("last")


def is_alive(number: int) -> bool:
    """Whether it runs; nobody may be there who buries an orphan."""
    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_until_gone(pool: WorkerPool, worker: int) -> None:
    """Wait until the pool, too, has seen that the process is gone."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            time.sleep(0.3)
            return
        time.sleep(0.02)
    raise AssertionError(f"process {worker} is still there")


def _raise_in_warm_up() -> None:
    raise ImportError("no such library")


def _refuse_in_warm_up() -> None:
    raise ModelError("not with this model")


def _die_in_warm_up() -> None:
    os.kill(os.getpid(), signal.SIGABRT)


def _leave_in_warm_up() -> None:
    sys.exit(4)


@pytest.mark.parametrize(
    ("warm_up", "error", "message"),
    [
        pytest.param(_raise_in_warm_up, WorkerDied, "could not warm up: ImportError: no such library", id="raises"),
        pytest.param(_refuse_in_warm_up, ModelError, "^not with this model$", id="an error of ours"),
        pytest.param(_die_in_warm_up, WorkerDied, "SIGABRT: native code gave up", id="dies"),
        pytest.param(_leave_in_warm_up, WorkerDied, "could not warm up: SystemExit: 4", id="exits"),
    ],
)
def test_a_warm_up_that_fails_is_the_failure_of_the_job(
    tmp_path: Path, warm_up: Callable[[], None], error: type[Exception], message: str
) -> None:
    with WorkerPool(1, log=tmp_path / "log", warm_up=warm_up) as cold:
        for _ in range(2):
            with pytest.raises(error, match=message):
                cold.call(pow, 2, 5, timeout_seconds=30)


def _die_in_warm_up_once() -> None:
    try:
        Path(os.environ["WARM_UP_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_warm_up_that_dies_in_the_background_costs_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARM_UP_MARK", str(tmp_path / "mark"))
    with WorkerPool(1, log=tmp_path / "log", warm_up=_die_in_warm_up_once) as pool:
        assert pool.call(pow, 2, 5, timeout_seconds=30) == 32
    assert (tmp_path / "mark").exists()


def _warm_up_slowly() -> None:
    Path(os.environ["WARM_UP_MARK"]).touch()
    time.sleep(0.6)


def test_warming_up_starts_at_once_and_takes_none_of_a_jobs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("WARM_UP_MARK", str(mark))
    with WorkerPool(1, log=tmp_path / "log", warm_up=_warm_up_slowly) as pool:
        limit = time.monotonic() + 20
        while not mark.exists() and time.monotonic() < limit:
            time.sleep(0.02)
        assert mark.exists()
        assert pool.call(pow, 2, 5, timeout_seconds=0.3) == 32
        # The process that takes the place of this one warms up when its first job comes.
        with pytest.raises(WorkerDied, match="SIGKILL"):
            pool.call(kill_with, signal.SIGKILL)
        assert pool.call(pow, 2, 6, timeout_seconds=0.3) == 64
        with pytest.raises(WorkerDied, match=re.escape(TOOK_TOO_LONG)):
            pool.call(sleep_long, timeout_seconds=0.3)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2, 1.0])
def test_closing_waits_for_no_warm_up_and_is_quiet(
    tmp_path: Path, seconds: float, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with WorkerPool(2, log=tmp_path / "log", warm_up=sleep_long):
        time.sleep(seconds)
    assert time.monotonic() - began < 20
    time.sleep(0.3)
    assert capfd.readouterr() == ("", "")


def test_an_idle_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "log") as pool:
        # More often than the pool starts anew without a job done.
        for _ in range(7):
            worker = pool.call(os.getpid)
            os.kill(worker, signal.SIGKILL)
            _wait_until_gone(pool, worker)
        assert pool.call(pow, 2, 5) == 32


def killed_so_often(folder: str, times: int) -> int:
    """The number of this attempt; the first attempts end by a signal that no code of a job can send by mistake."""
    number = len(list(Path(folder).iterdir())) + 1
    (Path(folder) / str(number)).touch()
    if number <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_job_whose_process_is_killed_is_begun_once_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    folders = [tmp_path / name for name in ("once", "always")]
    for folder in folders:
        folder.mkdir()
    with WorkerPool(1, log=log) as pool:
        assert pool.call(killed_so_often, str(folders[0]), 1) == 2
        assert "SIGKILL" in log.read_text()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            pool.call(killed_so_often, str(folders[1]), 9)
        assert len(list(folders[1].iterdir())) == 2
        assert pool.call(pow, 2, 5) == 32


def test_processes_that_cannot_start_are_given_up(tmp_path: Path) -> None:
    log = tmp_path / "missing" / "log"
    futures = []

    def submit_for_ever() -> None:
        for _ in range(20):
            future = pool.submit(pow, 2, 5)
            futures.append(future)
            with pytest.raises(WorkerDied, match="was lost"):
                result_of(future)

    with WorkerPool(1, log=log) as pool:
        with pytest.raises(WorkerDied, match=f"keep dying.*{log}"):
            submit_for_ever()
        assert len(futures) == 6


@pytest.mark.parametrize("leave_with_zero", [lambda: os._exit(0), sys.exit, lambda: sys.exit(0)])
def test_a_job_that_ends_its_process_with_zero(pool: WorkerPool, leave_with_zero: Callable[[], None]) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="exit code 0"):
        pool.call(leave_with_zero)
    assert time.monotonic() - began < 30
    assert pool.call(pow, 2, 5) == 32


@pytest.mark.parametrize(("code", "shown"), [(3, 3), ("a reason", 1)])
def test_a_job_that_calls_sys_exit(pool: WorkerPool, code: object, shown: int) -> None:
    with pytest.raises(WorkerDied, match=f"exit code {shown}"):
        pool.call(sys.exit, code)


def test_a_closed_pool_takes_no_jobs(tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "log") as pool:
        pass
    with pytest.raises(WorkerDied, match="was closed"):
        pool.submit(pow, 2, 5)


def test_a_job_that_a_broken_pool_gave_up() -> None:
    future: Future[int] = Future()
    future.set_exception(BrokenProcessPool("All workers expired"))
    with pytest.raises(WorkerDied, match=r"\(All workers\b"):
        result_of(future)


# ------------------------------------------------------------------------------------------ shared workers


def _where() -> tuple[int, str]:
    return os.getpid(), os.getcwd()


def test_pieces_of_work_share_workers_where_the_caller_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    found = []
    with WorkerPool(1, log=tmp_path / "own.log") as pool, shared(pool):
        for folder in (here, there):
            monkeypatch.chdir(folder)
            with open_pool(2, log=folder / "worker.log") as lent:
                assert is_shared(lent)
                found.append(lent.call(_where))
                lent.call(os.system, "echo loud")
    assert found[0][0] == found[1][0]
    assert [Path(cwd) for _, cwd in found] == [here, there]
    assert [(folder / "worker.log").read_text() for folder in (here, there)] == ["loud\n", "loud\n"]
    with open_pool(1, log=tmp_path / "own.log") as alone:
        assert not is_shared(alone)
        assert alone.call(_where)[0] != found[0][0]


def test_code_of_the_user_is_read_anew_for_each_piece_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "of_the_user.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    answers = []
    with WorkerPool(1, log=tmp_path / "log") as pool, shared(pool):
        for answer in ("1", "22"):
            module.write_text(f"def answer():\n    return {answer}\n")
            with open_pool(1, log=tmp_path / "log") as lent:
                answers += [lent.call(_answer_of, "of_the_user"), lent.call(_answer_of, "of_the_user")]
    assert answers == [1, 1, 22, 22]


def test_installed_packages_are_loaded_once_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PYTHONPATH has them, as on many a cluster: NumPy refuses to be loaded a second time."""
    (tmp_path / "installed-1.0.dist-info").mkdir()
    (tmp_path / "installed_there.py").write_text("import itertools\n\nCOUNT = itertools.count(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with WorkerPool(1, log=tmp_path / "log") as pool, shared(pool):
        for number in (1, 2):
            with open_pool(1, log=tmp_path / "log") as lent:
                assert lent.call(_next_of, "installed_there") == number


def _next_of(module: str) -> int:
    return int(next(importlib.import_module(module).COUNT))


def _answer_of(module: str) -> int:
    return int(importlib.import_module(module).answer())


def test_what_is_kept_is_kept_for_one_piece_of_work(tmp_path: Path) -> None:
    counts = []
    with WorkerPool(1, log=tmp_path / "log") as pool, shared(pool):
        for _ in range(2):
            with open_pool(1, log=tmp_path / "log") as lent:
                counts += [lent.call(_opened, tmp_path), lent.call(_opened, tmp_path)]
    assert counts == [1, 0, 1, 0]


def _opened(root: Path) -> int:
    """How often the case has to be opened, which a worker keeps."""
    before = open_case.cache_info().misses  # type: ignore[attr-defined]
    open_case(root)
    return int(open_case.cache_info().misses - before)  # type: ignore[attr-defined]


def test_what_is_not_done_when_a_piece_of_work_ends_is_cancelled(tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "log") as pool, shared(pool):
        with open_pool(1, log=tmp_path / "log") as lent:
            worker = lent.call(os.getpid)
            left = lent.submit(time.sleep, 600)
        with pytest.raises(ProcessLookupError):  # before the next job could be handed to it
            os.kill(worker, 0)
        with pytest.raises(WorkerDied, match="cancelled"):
            result_of(left)
        with open_pool(1, log=tmp_path / "log") as lent:
            assert lent.call(abs, -1) == 1


def _pause(seconds: float, answer: int) -> int:
    time.sleep(seconds)
    return answer


@pytest.mark.parametrize("is_first", [True, False], ids=["while they run", "while they wait"])
def test_a_piece_of_work_that_ends_costs_others_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    with WorkerPool(1, log=tmp_path / "log") as pool, shared(pool), contextlib.ExitStack() as stack:
        monkeypatch.chdir(here)
        mine = stack.enter_context(open_pool(1, log=here / "log"))
        running = mine.submit(_pause, 0.5, 1) if is_first else None
        monkeypatch.chdir(there)
        with open_pool(1, log=there / "log") as theirs:
            left = theirs.submit(time.sleep, 600)
            waiting = mine.submit(_where)
            assert is_first or theirs.submit(abs, -1) is not left
            time.sleep(0.2)
        with pytest.raises(WorkerDied, match="cancelled"):
            result_of(left)
        assert running is None or running.result(timeout=30) == 1
        assert Path(waiting.result(timeout=30)[1]) == here
        assert mine.submit(abs, -3).result(timeout=30) == 3


def hungry() -> int:
    """Ask for a tebibyte within an address space of a gibibyte more than there is, as ``ulimit -v`` sets it."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]))
    return len(bytearray(1 << 40))


def test_a_job_that_finds_no_memory_costs_itself_only(pool: WorkerPool) -> None:
    with pytest.raises(JobFailed, match="MemoryError"):
        pool.call(hungry)
    assert pool.call(os.getpid) != os.getpid()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems choose by themselves")
def test_where_memory_runs_out_a_worker_is_killed_and_not_its_parent(pool: WorkerPool) -> None:
    own = Path("/proc/self/oom_score_adj").read_text(encoding="ascii")
    assert int(own) < 1000
    assert pool.call(lambda: Path("/proc/self/oom_score_adj").read_text(encoding="ascii")).strip() == "1000"
    assert Path("/proc/self/oom_score_adj").read_text(encoding="ascii") == own
