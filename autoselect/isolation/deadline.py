"""Workers that give up at a deadline; who waits for them then goes on with something else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, Behind, Workers
from autoselect.isolation.pool import result_of

T = TypeVar("T")


class TimeUp(Exception):
    """The deadline came before the job was done; nothing is known of what it asks."""


@contextlib.contextmanager
def until(workers: Workers, seconds: float, log: Path) -> Iterator[Workers]:
    """Lend workers for so many seconds: jobs that are not done then, or submitted later, end in :class:`TimeUp`.

    Processes that are still at work when the block ends are replaced.

    Args:
        workers: Those who lend.
        seconds: From the start of the block.
        log: File for what native libraries print, as of :meth:`Workers.lent`.
    """
    with workers.lent(log) as lent:
        hurried = _Hurried(lent)
        timer = threading.Timer(max(seconds, 0.0), hurried.end)
        timer.daemon = True
        timer.start()
        try:
            yield hurried
        finally:
            timer.cancel()


class _Hurried(Behind):
    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._lock = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._is_over = False

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        shown: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise TimeUp
            self._waiting.add(shown)
        future = self.workers.submit(function, *args, timeout_seconds=timeout_seconds)
        future.add_done_callback(lambda done: self._pass_on(done, shown))
        return shown

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    def end(self) -> None:
        """Let all who wait for a job have :class:`TimeUp`, and all who submit one later."""
        with self._lock:
            self._is_over = True
            left, self._waiting = self._waiting, set()
        for future in left:
            future.set_exception(TimeUp())

    def _pass_on(self, done: Future[T], shown: Future[T]) -> None:
        with self._lock:
            if shown not in self._waiting:
                return
            self._waiting.remove(shown)
        if done.cancelled():
            shown.cancel()
        elif error := done.exception():
            shown.set_exception(error)
        else:
            shown.set_result(done.result())
