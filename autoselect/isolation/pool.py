"""A pool of worker processes; knows processes and signals, not what the jobs do."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
from loky.backend.context import LokyContext
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessPool

from autoselect.errors import WorkerDied
from autoselect.isolation import worker
from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, Workers, busy_with

T = TypeVar("T")

_MOST_REBUILDS = 5
# A job's own time is measured inside its process, from when that is warm. The pool's limit is the second net: it
# leaves room for warming up, and for a job that puts the timer out of action.
_WARM_UP_SECONDS = 300.0
_SPARE_SECONDS = 5.0


class _Process(LokyProcess):  # type: ignore[misc]
    """A process whose end is noticed even if its exit code is 0: a worker never ends by itself."""

    @property
    def exitcode(self) -> int | None:
        code: int | None = super().exitcode
        return worker.ENDED_WITH_ZERO if code == 0 else code


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
        self._place = _place(0, log)
        self._lock = threading.RLock()
        self._closed = False
        self._rebuilds = 0
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._pool = self._build()

    def _build(self) -> ProcessPool:
        self._context = _Context()
        pool = ProcessPool(
            max_workers=self._workers,
            context=self._context,
            initializer=worker.start,
            initargs=(self._place, self._warm_up),
        )
        if self._warm_up is not None:
            # How these end is of no interest: a process that is still cold warms up when its first job comes.
            with contextlib.suppress(RuntimeError):
                for _ in range(self._workers):
                    pool.schedule(worker.warm, timeout=_WARM_UP_SECONDS)
        return pool

    @property
    def are_here(self) -> bool:
        """They see this machine's files and modules."""
        return True

    def slots(self, asked: int) -> int:
        """Enough for as many as the caller asked for: what is too much waits for its turn."""
        return busy_with(asked)

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
                    future = self._pool.schedule(worker.run, args=(self._place, job, timeout_seconds), timeout=limit)
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

    def _cancel(self) -> None:
        """Stop the processes, and end all futures."""
        for future in list(self._futures):
            future.cancel()
        self._stop()
        for future in list(self._futures):
            # A job that had only just been handed over would else keep its reader waiting for ever.
            future.cancel()

    @contextlib.contextmanager
    def lent(self, log: Path) -> Iterator[WorkerPool]:
        """Serve another piece of work: its jobs find this process's folder and modules as they are now.

        Workers forget what they kept of the piece of work before. What is not done at its end is cancelled, and new
        processes take over.
        """
        before = self._place
        self._place = _place(before.number + 1, log)
        try:
            yield self
        finally:
            self._place = replace(before, number=self._place.number + 1)
            # Not only cancelled: pebble (5.2.3) may stop the process of a cancelled job once that has begun the next
            # job, whose result then never comes.
            with self._lock:
                if not (self._closed or all(future.done() for future in list(self._futures))):
                    self._cancel()
                    self._pool = self._build()

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`result_of`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def close(self) -> None:
        """Kill the processes; running jobs are lost."""
        with self._lock:
            self._closed = True
            self._cancel()

    def __enter__(self) -> WorkerPool:
        """Use the pool as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()


def _place(number: int, log: Path) -> worker.Place:
    return worker.Place(number=number, log=str(log.absolute()), folder=os.getcwd(), path=tuple(sys.path))


_shared: list[Workers] = []


@contextlib.contextmanager
def shared(pool: Workers) -> Iterator[Workers]:
    """Within it, :func:`open_pool` gives these workers instead of new processes."""
    _shared.append(pool)
    try:
        yield pool
    finally:
        _shared.remove(pool)


def open_pool(
    workers: int, *, log: Path, warm_up: Callable[[], object] | None = None
) -> contextlib.AbstractContextManager[Workers]:
    """Workers for one piece of work: those that the caller shares, or new ones of its own, as :class:`WorkerPool`."""
    return _shared[-1].lent(log) if _shared else WorkerPool(workers, log=log, warm_up=warm_up)


def is_shared(pool: Workers) -> bool:
    """Whether they serve other pieces of work too."""
    return pool in _shared


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
        raise WorkerDied(worker.death_notice(exc.exitcode)) from exc
    except FutureTimeoutError as exc:
        raise WorkerDied(worker.TOOK_TOO_LONG) from exc
    except BrokenProcessPool as exc:
        raise WorkerDied(
            f"The job was lost: its worker process died before the job began, or sent an unreadable reply ({exc})."
        ) from exc
    except CancelledError as exc:
        raise WorkerDied("The job was cancelled, or its pool was closed.") from exc
