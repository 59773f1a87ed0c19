"""The one door to those who work: what the local pool and a cluster both are; knows no process and no network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

DEFAULT_TIMEOUT_SECONDS = 900.0


def busy_with(workers: int) -> int:
    """How many candidates keep so many workers busy: results are taken in order, so quick ones wait for slow ones."""
    return workers if workers <= 1 else 2 * workers


class Workers(Protocol):
    """Where jobs run. A job that crashes, hangs or raises costs itself only; jobs that wait are not lost.

    A job whose first argument is a folder finds that folder's files, and what it writes there is in the folder when its
    future is done.
    """

    @property
    def are_here(self) -> bool:
        """Whether jobs see this machine's files and modules; else they see the folder that they are given."""
        ...

    def slots(self, asked: int) -> int:
        """How many candidates a caller that asked for so many workers shall keep under way; it may change.

        Returns:
            :func:`busy_with` the count of those that work.
        """
        ...

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """Run ``function(*args)``; read the future with :func:`autoselect.isolation.pool.result_of`.

        Raises:
            WorkerDied: If no more jobs are taken.
        """
        ...

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`autoselect.isolation.pool.result_of`."""
        ...

    def lent(self, log: Path) -> AbstractContextManager[Workers]:
        """Serve one piece of work; what native libraries print on this machine goes to ``log``."""
        ...


class Behind:
    """Workers who give jobs to others: what these are and have is theirs, too.

    Attributes:
        workers: The others.
    """

    workers: Workers

    @property
    def are_here(self) -> bool:
        """As :attr:`Workers.are_here`."""
        return self.workers.are_here

    def slots(self, asked: int) -> int:
        """As :meth:`Workers.slots`."""
        return self.workers.slots(asked)

    def lent(self, log: Path) -> AbstractContextManager[Workers]:
        """As :meth:`Workers.lent`."""
        return self.workers.lent(log)


@dataclass(frozen=True, slots=True)
class InTime(Behind):
    """Workers that give each job so many seconds, where the caller says nothing else.

    Attributes:
        workers: Who does the jobs.
        seconds: For each job.
    """

    workers: Workers
    seconds: float

    def submit(self, function: Callable[..., T], *args: Any, timeout_seconds: float | None = None) -> Future[T]:
        """As :meth:`Workers.submit`."""
        return self.workers.submit(function, *args, timeout_seconds=timeout_seconds or self.seconds)

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float | None = None) -> T:
        """As :meth:`Workers.call`."""
        return self.workers.call(function, *args, timeout_seconds=timeout_seconds or self.seconds)
