"""A pool of worker processes; knows processes and signals, not what the jobs do."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
from loky.backend.context import LokyContext
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessPool

from autoselect.errors import AutoselectError, JobFailed, WorkerDied, first_line

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 900.0
_LIBRARY_SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "OMP_NUM_THREADS": "1",
}
_MOST_REBUILDS = 5
# A job's own time is measured inside its process, from when that is warm. The pool's limit is the second net: it
# leaves room for warming up, and for a job that puts the timer out of action.
_WARM_UP_SECONDS = 300.0
_SPARE_SECONDS = 5.0
_LONGEST_TIMER = 1e8
# No real exit code: the pool overlooks a process that ends with 0.
_ENDED_WITH_ZERO = 256


class _Process(LokyProcess):  # type: ignore[misc]
    """A process whose end is noticed even if its exit code is 0: a worker never ends by itself."""

    @property
    def exitcode(self) -> int | None:
        code: int | None = super().exitcode
        return _ENDED_WITH_ZERO if code == 0 else code


class _Context(LokyContext):  # type: ignore[misc]
    """Where a pool gets its processes from; remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self._started: weakref.WeakSet[_Process] = weakref.WeakSet()

    def Process(self, *args: Any, **kwargs: Any) -> _Process:  # noqa: N802 - the name that multiprocessing gave it
        process = _Process(*args, **kwargs)
        self._started.add(process)
        return process

    def terminate(self) -> None:
        for process in list(self._started):
            if process.pid is not None:
                process.terminate()


class WorkerPool:
    """Worker processes that outlive their jobs and are replaced when they die, at work or not.

    Processes start fresh (never forked, and without importing the caller's main module), ignore Ctrl-C, which
    belongs to the parent, and write whatever native libraries print to a log file.
    """

    def __init__(self, workers: int, *, log: Path, warm_up: Callable[[], object] | None = None) -> None:
        """Start the pool, and warm its processes up in the background.

        Args:
            workers: Count of processes, at least 1.
            log: File that the processes' output is appended to.
            warm_up: Importable function that each process runs first, for example to import a slow library. If it
                fails or dies, that is the failure of the job that the process was about to run. It does not count
                towards the job's time limit.
        """
        self._workers, self._log = workers, log
        self._warm_up = None if warm_up is None else cloudpickle.dumps(warm_up)
        self._setting = (str(log), os.getcwd(), list(sys.path), self._warm_up)
        self._lock = threading.RLock()
        self._closed = False
        self._rebuilds = 0
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._pool = self._build()

    def _build(self) -> ProcessPool:
        self._context = _Context()
        pool = ProcessPool(
            max_workers=self._workers, context=self._context, initializer=_start_worker, initargs=self._setting
        )
        if self._warm_up is not None:
            # How these end is of no interest: a process that is still cold warms up when its first job comes.
            with contextlib.suppress(RuntimeError):
                for _ in range(self._workers):
                    pool.schedule(_warm, timeout=_WARM_UP_SECONDS)
        return pool

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """Run ``function(*args)`` in a worker; read the future with :func:`result_of`.

        Raises:
            WorkerDied: If the pool was closed, or if its processes die again and again without having done a job.
        """
        job = cloudpickle.dumps((function, args))
        limit = timeout_seconds + (_SPARE_SECONDS if self._warm_up is None else _WARM_UP_SECONDS)
        with self._lock:
            future: Future[T] | None = None
            while future is None:
                if self._closed:
                    raise WorkerDied("The pool of worker processes was closed; it takes no more jobs.")
                try:
                    future = self._pool.schedule(_run, args=(job, timeout_seconds), timeout=limit)
                except RuntimeError as exc:
                    self._rebuild(exc)
            self._futures.add(future)
        future.add_done_callback(self._note)
        return future

    def _rebuild(self, cause: RuntimeError) -> None:
        """Replace the broken pool; what it still held is lost."""
        if self._rebuilds >= _MOST_REBUILDS:
            raise WorkerDied(
                f"Worker processes keep dying before they can work: {self._rebuilds} new starts in a row did not get "
                f"one job done. See what they printed in {self._log}."
            ) from cause
        self._rebuilds += 1
        self._stop()
        for future in list(self._futures):
            with contextlib.suppress(InvalidStateError):
                future.set_exception(BrokenProcessPool("the pool was restarted"))
        self._futures.clear()
        self._pool = self._build()

    def _note(self, future: Future[Any]) -> None:
        """A job that came to an end, good or bad, shows that processes can work."""
        if future.cancelled():
            return
        if not isinstance(future.exception(), (ProcessExpired, FutureTimeoutError, BrokenProcessPool, WorkerDied)):
            self._rebuilds = 0

    def _stop(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        # Before the pool takes its locks away: a process that is only just starting would complain on the terminal.
        self._context.terminate()
        self._pool.join()

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`result_of`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def close(self) -> None:
        """Kill the processes; running jobs are lost."""
        with self._lock:
            self._closed = True
            for future in list(self._futures):
                future.cancel()
            self._stop()
        for future in list(self._futures):
            # A job that had only just been handed over would else keep its reader waiting for ever.
            future.cancel()

    def __enter__(self) -> WorkerPool:
        """Use the pool as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()


def result_of(future: Future[T]) -> T:
    """Result of a job.

    Raises:
        WorkerDied: If its process crashed, was killed or took too long.
        JobFailed: If it raised an error of another library; the pool's log has its traceback.
        AutoselectError: What the job itself raised.
    """
    try:
        return future.result()
    except ProcessExpired as exc:
        raise WorkerDied(_death_notice(exc.exitcode)) from exc
    except FutureTimeoutError as exc:
        raise WorkerDied(_TOOK_TOO_LONG) from exc
    except BrokenProcessPool as exc:
        raise WorkerDied(
            f"The job was lost: its worker process died before the job began, or sent an unreadable reply ({exc})."
        ) from exc
    except CancelledError as exc:
        raise WorkerDied("The job was cancelled, or its pool was closed.") from exc


_TOOK_TOO_LONG = "The worker process took longer than its time limit (--trial-timeout) and was stopped."


def _death_notice(exit_code: int | None) -> str:
    if exit_code == _ENDED_WITH_ZERO:
        exit_code = 0
    if exit_code is None or exit_code >= 0:
        return f"The worker process ended by itself with exit code {exit_code}."
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGALRM":
        return _TOOK_TOO_LONG
    meaning = {
        "SIGSEGV": "a segmentation fault in native code",
        "SIGABRT": "native code gave up",
        "SIGKILL": "it was killed, most often for lack of memory",
        "SIGFPE": "an arithmetic fault in native code",
        "SIGILL": "an instruction that this CPU lacks",
    }.get(name, "native code or the system ended it")
    return f"The worker process died of {name}: {meaning}."


# Inside a worker: what it still has to run before its first job.
_to_warm_up: list[bytes] = []


def _start_worker(log: str, folder: str, path: list[str], warm_up: bytes | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.environ.update({k: v for k, v in _LIBRARY_SETTINGS.items() if k not in os.environ})
    os.chdir(folder)
    sys.path[:] = path
    if warm_up is not None:
        _to_warm_up.append(warm_up)


def _warm() -> None:
    """Warm this process up, if that is still to be done."""
    if not _to_warm_up:
        return
    try:
        cloudpickle.loads(_to_warm_up[0])()
    except AutoselectError:
        raise
    except BaseException as exc:  # SystemExit too: it is the failure of one job, not of the process or its parent
        raise WorkerDied(f"The worker process could not warm up: {type(exc).__name__}: {exc}") from exc
    _to_warm_up.clear()
    gc.freeze()  # what was imported stays; walking through it at every collection doubles the time of parsing a model


def _run(job: bytes, timeout_seconds: float) -> Any:
    _warm()
    _set_timer(timeout_seconds)
    try:
        function, args = cloudpickle.loads(job)
        return function(*args)
    except AutoselectError:
        raise
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        raise WorkerDied(_death_notice(abs(code))) from exc
    except Exception as exc:  # The one place where the errors of libraries become autoselect's.
        traceback.print_exc()  # into the log
        raise JobFailed(f"{type(exc).__name__}: {first_line(exc)}") from exc
    finally:
        _set_timer(0)


def _set_timer(seconds: float) -> None:
    """Let the system end this process after so many seconds, whatever it is doing by then; 0 calls that off."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST_TIMER))
