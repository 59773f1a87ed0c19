"""Workers that run each job at once in this process; what they answer is known without any process or network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from autoselect.errors import AutoselectError, JobFailed, WorkerDied
from autoselect.isolation.door import busy_with

T = TypeVar("T")


class AtOnce:
    """A fake of :class:`autoselect.isolation.door.Workers` that knows no crash."""

    are_here = True

    def __init__(self) -> None:
        self._is_closed = False

    def slots(self, asked: int) -> int:
        return busy_with(asked)

    def submit(self, function: Callable[..., T], *args: Any, timeout_seconds: float = 0.0) -> Future[T]:
        if self._is_closed:
            raise WorkerDied("no more jobs")
        future: Future[T] = Future()
        try:
            future.set_result(function(*args))
        except AutoselectError as exc:
            future.set_exception(exc)
        except Exception as exc:  # noqa: BLE001 - as the workers do
            future.set_exception(JobFailed(f"{type(exc).__name__}: {exc}"))
        return future

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = 0.0) -> T:
        return self.submit(function, *args).result()

    @contextlib.contextmanager
    def lent(self, log: Path) -> Iterator[AtOnce]:
        yield self

    def close(self) -> None:
        self._is_closed = True
