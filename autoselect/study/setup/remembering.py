"""Gives no job twice whose reply is in a file; knows the jobs that are asked before the first trial, not what for."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from autoselect.cases import build_jobs, divergence, evidence_jobs, level_jobs, score_jobs
from autoselect.errors import ScoreError
from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, Workers

T = TypeVar("T")

_READERS: Mapping[Callable[..., Any], Callable[[Any], Any]] = {
    divergence.error_shares: lambda reply: [float(share) for share in reply],
    divergence.look_at_each: lambda reply: [divergence.Looked(**fields) for fields in reply],
    evidence_jobs.paired_noise: float,
    level_jobs.weigh: lambda reply: [level_jobs.Weighed(**fields) for fields in reply],
    score_jobs.score: lambda reply: score_jobs.ScoreReply(**reply),
    build_jobs.build_each: lambda reply: [fields and _built(fields) for fields in reply],
}
"""Jobs whose replies depend on the case and their arguments alone, and how a reply is read back."""

_FORMAT = "2: errors are of the scored output"
"""Another one whenever a job replies otherwise than in earlier versions, whose runs may go on."""


class Remembering:
    """Workers that remember replies, and candidates that could not be run. What else fails is done again."""

    def __init__(self, workers: Workers, path: Path, code: str | None = None) -> None:
        """Read what is there.

        Args:
            workers: Who does the jobs.
            path: A line of JSON for each reply; one that a killed process cut off counts as none.
            code: Hash of the code of the user that jobs run.
        """
        self._workers, self._path, self._code, self._writing = workers, path, code, threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                reply = json.loads(line)
                self._known[reply["job"]] = reply

    @property
    def are_here(self) -> bool:
        """As :attr:`Workers.are_here`."""
        return self._workers.are_here

    def slots(self, asked: int) -> int:
        """As :meth:`Workers.slots`."""
        return self._workers.slots(asked)

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """As :meth:`Workers.submit`; what is known is done at once."""
        if function not in _READERS:
            return self._workers.submit(function, *args, timeout_seconds=timeout_seconds)
        what = [_FORMAT, function.__name__, *args[1:], self._code]  # The first argument is the folder of the case.
        job = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):  # Unknown, or damaged.
            return _done(function, self._known[job])
        kept: Future[T] = Future()
        future = self._workers.submit(function, *args, timeout_seconds=timeout_seconds)
        future.add_done_callback(lambda done: self._pass_on(job, done, kept))
        return kept

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """As :meth:`Workers.call`; nothing is remembered."""
        return self._workers.call(function, *args, timeout_seconds=timeout_seconds)

    def lent(self, log: Path) -> AbstractContextManager[Workers]:
        """As :meth:`Workers.lent`."""
        return self._workers.lent(log)

    def _pass_on(self, job: str, done: Future[Any], kept: Future[Any]) -> None:
        """Whoever sees a reply finds it in the file."""
        if done.cancelled():
            kept.cancel()
            return
        error = done.exception()
        try:
            if error is None:
                self._keep({"job": job, "reply": done.result()})
            elif isinstance(error, ScoreError):
                self._keep({"job": job, "error": str(error), "op": error.op})
        finally:  # Nobody waits for ever.
            kept.set_result(done.result()) if error is None else kept.set_exception(error)

    def _keep(self, entry: dict[str, Any]) -> None:
        job, line = entry["job"], json.dumps(entry, default=asdict)
        # Without room nothing is remembered; whoever asked has the reply all the same.
        with self._writing, contextlib.suppress(OSError):
            if job in self._known:
                return
            self._known[job] = json.loads(line)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}\n")  # The line before may be cut off.


def _done(function: Callable[..., T], entry: Mapping[str, Any]) -> Future[T]:
    future: Future[T] = Future()
    if "error" in entry:
        future.set_exception(ScoreError(entry["error"], op=entry["op"]))
    else:
        future.set_result(_READERS[function](entry["reply"]))
    return future


def _built(fields: Mapping[str, Any]) -> build_jobs.BuildReply:
    places = {int(op): place for op, place in fields["places"].items()}
    return build_jobs.BuildReply(**{**fields, "places": places})
