"""A pool of worker processes; knows processes and signals, not what the jobs do."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
from loky.backend import get_context
from pebble import ProcessExpired, ProcessPool

from autoselect.errors import WorkerDied

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 900.0
_LIBRARY_SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "OMP_NUM_THREADS": "1",
}


class WorkerPool:
    """Worker processes that outlive their jobs and are replaced when they die.

    Processes start fresh (never forked, and without importing the caller's main module), ignore Ctrl-C, which
    belongs to the parent, and write whatever native libraries print to a log file.
    """

    def __init__(self, workers: int, *, log: Path, warm_up: Callable[[], object] | None = None) -> None:
        """Start the pool.

        Args:
            workers: Count of processes, at least 1.
            log: File that the processes' output is appended to.
            warm_up: Importable function that each process runs first, for example to import a slow library.
        """
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._pool = ProcessPool(
            max_workers=workers,
            context=get_context("loky"),
            initializer=_start_worker,
            initargs=(str(log), os.getcwd(), list(sys.path), warm_up),
        )

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """Run ``function(*args)`` in a worker; read the future with :func:`result_of`."""
        job = cloudpickle.dumps((function, args))
        future: Future[T] = self._pool.schedule(_run, args=(job,), timeout=timeout_seconds)
        self._futures.add(future)
        return future

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`result_of`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def close(self) -> None:
        """Kill the processes; running jobs are lost."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()
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
        AutoselectError: What the job itself raised.
    """
    try:
        return future.result()
    except ProcessExpired as exc:
        raise WorkerDied(_death_notice(exc.exitcode)) from exc
    except FutureTimeoutError as exc:
        raise WorkerDied("The worker process took longer than its time limit and was stopped.") from exc
    except (CancelledError, BrokenProcessPool) as exc:
        raise WorkerDied("The job was cancelled, or its pool was closed.") from exc


def _death_notice(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"The worker process ended by itself with exit code {exit_code}."
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    meaning = {
        "SIGSEGV": "a segmentation fault in native code",
        "SIGABRT": "native code gave up",
        "SIGKILL": "it was killed, most often for lack of memory",
        "SIGFPE": "an arithmetic fault in native code",
        "SIGILL": "an instruction that this CPU lacks",
    }.get(name, "native code or the system ended it")
    return f"The worker process died of {name}: {meaning}."


def _start_worker(log: str, folder: str, path: list[str], warm_up: Callable[[], object] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.environ.update({k: v for k, v in _LIBRARY_SETTINGS.items() if k not in os.environ})
    os.chdir(folder)
    sys.path[:] = path
    if warm_up is not None:
        warm_up()


def _run(job: bytes) -> Any:
    function, args = cloudpickle.loads(job)
    return function(*args)
