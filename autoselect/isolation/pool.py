"""A pool of worker processes; knows processes and signals, not what the jobs do."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
from loky.backend import resource_tracker
from loky.backend.context import LokyContext
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessPool

from autoselect.errors import StorageError, UsageError, WorkerDied
from autoselect.isolation import worker
from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, Workers, busy_with
from autoselect.isolation.machine import steady_kernels

T = TypeVar("T")

# A job's own time is measured inside its process, from when that is warm. The pool's limit is the second net: it
# leaves room for warming up, and for a job that puts the timer out of action.
_WARM_UP_SECONDS = 300.0


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
        self._safe_path = worker.safe_path()
        self._started: weakref.WeakSet[_Process] = weakref.WeakSet()

    def Process(self, *args: Any, **kwargs: Any) -> _Process:  # noqa: N802 - the name that multiprocessing gave it
        process = _Process(*args, env={**self._safe_path, **os.environ, **steady_kernels()}, **kwargs)
        self._started.add(process)
        return process

    def terminate(self) -> None:
        for process in list(self._started):
            if process.pid is not None:
                process.terminate()


@dataclass(eq=False, slots=True)
class _Job:
    """A job on its way.

    Attributes:
        place: Where it runs; tells whose it is.
        content: Function and arguments, pickled.
        timeout_seconds: Time limit.
        future: What the caller waits for.
        handed: The same for the processes that have it now; None if its end is of no interest any more.
        is_again: Whether it was begun once before, in a process that was killed from outside.
    """

    place: worker.Place
    content: bytes
    timeout_seconds: float
    future: Future[Any] = field(default_factory=Future)
    handed: Future[Any] | None = None
    is_again: bool = False


class WorkerPool:
    """Worker processes that outlive their jobs and are replaced when they die, at work or not.

    Processes start fresh (never forked, and without importing the caller's main module), ignore Ctrl-C, which
    belongs to the parent, and write whatever native libraries print to a log file. A worker that dies of SIGKILL was
    most likely killed by the system for lack of memory, which may have passed. So its job is begun once more, and the
    log file says so. A second SIGKILL, and any other death, is the job's failure.
    """

    def __init__(self, workers: int, *, log: Path, warm_up: Callable[[], object] | None = None) -> None:
        """Start the pool, and warm its processes up in the background.

        Args:
            workers: Count of processes, at least 1.
            log: File that the processes' output is appended to.
            warm_up: Importable function that each process runs first, for example to import a slow library. If it
                fails or dies, that is the failure of the job that the process was about to run. It does not count
                towards the job's time limit.

        Raises:
            UsageError: If this process is a daemon, which may start no others.
        """
        if multiprocessing.current_process().daemon:
            raise UsageError(
                "This process is a daemon of multiprocessing, which may start no processes, and a search needs some. "
                "Start it from Process(daemon=False), concurrent.futures.ProcessPoolExecutor, or a thread."
            )
        self._workers, self._log = workers, log
        self._warm_up = None if warm_up is None else cloudpickle.dumps(warm_up)
        self._numbers = itertools.count()
        self._place = _place(next(self._numbers), log)
        self._lock = threading.RLock()
        self._closed = False
        self._rebuilds = 0
        self._jobs: set[_Job] = set()
        self._pool = self._build()

    def _build(self) -> ProcessPool:
        _start_trackers()
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
        """True: the processes see this machine's files and modules."""
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
        return self._submit(self._place, function, args, timeout_seconds)

    def _submit(
        self, place: worker.Place, function: Callable[..., T], args: tuple[Any, ...], timeout_seconds: float
    ) -> Future[T]:
        job = _Job(place, cloudpickle.dumps((function, args)), timeout_seconds)
        with self._lock:
            self._hand_over(job)
        return job.future

    def _hand_over(self, job: _Job) -> None:
        while True:
            if self._closed:
                raise WorkerDied("The pool of worker processes was closed; it takes no more jobs.")
            try:
                self._schedule(job)
                return
            except RuntimeError as exc:
                self._rebuild(exc)

    def _schedule(self, job: _Job) -> None:
        """Hand a job over; a RuntimeError if the pool takes none."""
        limit = job.timeout_seconds + (5.0 if self._warm_up is None else _WARM_UP_SECONDS)
        arguments = (job.place, job.content, job.timeout_seconds)
        handed: Future[Any] = self._pool.schedule(worker.run, args=arguments, timeout=limit)
        job.handed = handed
        self._jobs.add(job)
        handed.add_done_callback(partial(self._take, job))

    def _begin_again(self, job: _Job) -> bool:
        """Hand over once more the job of a worker that was killed; False if the pool is closed, broken or stopping."""
        # Who holds the lock for longer stops the pool, and waits for the thread that runs this.
        if not self._lock.acquire(timeout=1.0):
            return False
        try:
            if self._closed or job.handed is None:
                return False
            job.is_again = True
            self._schedule(job)
        except RuntimeError:
            return False
        finally:
            self._lock.release()
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write("A worker process was killed by SIGKILL. Its job is begun once more.\n")
        return True

    def _rebuild(self, cause: RuntimeError) -> None:
        """Replace the broken pool; what it still held is lost."""
        if self._rebuilds >= 5:
            raise WorkerDied(
                f"Worker processes keep dying before they can work: {self._rebuilds} new starts in a row did not get "
                f"one job done. {_printed(self._log)}"
            ) from cause
        self._rebuilds += 1
        self._stop()
        self._end(list(self._jobs), BrokenProcessPool("the pool was restarted"))
        self._pool = self._build()

    def _take(self, job: _Job, handed: Future[Any]) -> None:
        """Tell the caller what came of a job. One that came to an end, good or bad, shows that processes can work."""
        if job.handed is not handed:
            return
        error = CancelledError() if handed.cancelled() else handed.exception()
        was_killed = isinstance(error, ProcessExpired) and error.exitcode == -signal.SIGKILL
        if was_killed and not job.is_again and self._begin_again(job):
            return
        if error is not None:
            self._end([job], error)
        else:
            self._jobs.discard(job)
            with contextlib.suppress(InvalidStateError):
                job.future.set_result(handed.result())
        lost = (CancelledError, ProcessExpired, FutureTimeoutError, BrokenProcessPool, WorkerDied)
        if not isinstance(error, lost):
            self._rebuilds = 0

    def _end(self, jobs: Iterable[_Job], error: BaseException) -> None:
        for job in jobs:
            job.handed = None
            self._jobs.discard(job)
            with contextlib.suppress(InvalidStateError):
                job.future.set_exception(error)

    def _stop(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        # Before the pool takes its locks away: a process that is only just starting would complain on the terminal.
        self._context.terminate()
        self._pool.join()

    @contextlib.contextmanager
    def lent(self, log: Path) -> Iterator[Lease]:
        """Serve a piece of work: its jobs find this process's folder and modules as they are now.

        Workers forget what they kept of another piece of work. What is not done at its end is cancelled, and new
        processes take over. They begin anew with what other pieces of work have under way.
        """
        place = _place(next(self._numbers), log)
        try:
            yield Lease(self, partial(self._submit, place))
        finally:
            with self._lock:
                self._end_work(place)

    def _end_work(self, place: worker.Place) -> None:
        jobs = list(self._jobs)
        if self._closed or not any(job.place == place for job in jobs):
            return
        others = [job for job in jobs if job.place != place]
        for job in others:
            job.handed = None
        self._end((job for job in jobs if job.place == place), CancelledError())
        # Not only cancelled: pebble (5.2.3) may stop the process of a cancelled job once that has begun the next job,
        # whose result then never comes.
        self._stop()
        self._pool = self._build()
        for job in others:
            if not job.future.done():
                try:
                    self._hand_over(job)
                except WorkerDied as exc:
                    self._end([job], exc)

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`result_of`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def close(self) -> None:
        """Kill the processes; running jobs are lost."""
        with self._lock:
            self._closed = True
            self._end(list(self._jobs), CancelledError())
            self._stop()

    def __enter__(self) -> WorkerPool:
        """Use the pool as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()


def _printed(log: Path) -> str:
    """A sentence on what processes printed: the last line, since the log of a single model is gone with its folder."""
    with contextlib.suppress(OSError):
        if lines := log.read_text(encoding="utf-8", errors="replace").strip().splitlines():
            return f"The last line of {log}: {lines[-1].strip()}"
    return f"They printed nothing to {log}."


def _start_trackers() -> None:
    """Start the two helpers of Python's and loky's processes, which, too, import nothing from the working directory."""
    added = {name: value for name, value in worker.safe_path().items() if name not in os.environ}
    os.environ.update(added)
    try:
        multiprocessing.resource_tracker.ensure_running()
        resource_tracker.ensure_running()
    finally:
        for name in added:
            del os.environ[name]


def _place(number: int, log: Path) -> worker.Place:
    try:
        folder = os.getcwd()
    except FileNotFoundError as exc:
        raise StorageError("The current folder was deleted. Change to one that is there.") from exc
    return worker.Place(number=number, log=str(log.absolute()), folder=folder, path=tuple(sys.path))


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """Workers that are lent for one piece of work: the jobs that come through it are its own, and end with it.

    Attributes:
        lender: Whose they are; it may lend them to others at the same time.
        take: Runs a job of this piece of work: function, arguments, time limit in seconds.
    """

    lender: Workers
    take: Callable[[Callable[..., Any], tuple[Any, ...], float], Future[Any]]

    @property
    def are_here(self) -> bool:
        """As :attr:`Workers.are_here`."""
        return self.lender.are_here

    def slots(self, asked: int) -> int:
        """As :meth:`Workers.slots`."""
        return self.lender.slots(asked)

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """As :meth:`Workers.submit`."""
        return self.take(function, args, timeout_seconds)

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """As :meth:`Workers.call`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def lent(self, log: Path) -> contextlib.AbstractContextManager[Workers]:
        """As :meth:`Workers.lent`."""
        return self.lender.lent(log)


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
    return isinstance(pool, Lease)


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
