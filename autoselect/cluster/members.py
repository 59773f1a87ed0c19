"""The workers of a cluster as the driver knows them: which are taken, and how one is asked; knows Dask, no jobs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from distributed import CancelledError, Client, KilledWorker
from distributed import TimeoutError as DaskTimeout

from autoselect.cluster import host
from autoselect.cluster.address import is_closed
from autoselect.cluster.travel import Folder
from autoselect.errors import JobFailed, StorageError, first_line

LOST = (OSError, RuntimeError, DaskTimeout, CancelledError)
"""What Dask raises where the scheduler, or the way to it, is gone."""

_PATIENCE_SECONDS = 0.5


class Gone(Exception):
    """A worker gave no result of a job, which goes to another worker.

    Attributes:
        counts: Whether the job may be the reason, since the worker died or sent no answer while it had the job. A job
            fails if that happens twice. False if the worker or the scheduler only went away.
        unfit: Why the worker takes no more jobs, if it cannot write its files; None if it went away.
    """

    def __init__(self, *, counts: bool, unfit: StorageError | None = None) -> None:
        super().__init__("gone")
        self.counts, self.unfit = counts, unfit


@dataclass(eq=False, slots=True)
class Member:
    """A worker that jobs are sent to.

    Attributes:
        client: Through which it is asked.
        address: Of the worker; tells it from all others.
        name: As users know it.
        host: Whose workers share files.
        slots: How many jobs it runs at once.
        gone: Set when it has left.
    """

    client: Client
    address: str
    name: str
    host: str
    slots: int
    gone: threading.Event = field(default_factory=threading.Event)

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the Dask worker itself.

        However long it takes: Dask finds out which workers are there.

        Raises:
            Gone: If it left, died, sends no answer, or the scheduler is lost.
            JobFailed: If the function raised; for example where autoselect is not installed.
        """
        try:
            future = self.client.submit(function, *args, workers=[self.address], allow_other_workers=False, pure=False)
            done: Future[None] = Future()
            future.add_done_callback(lambda _future: done.set_result(None))
            self._await(done)
            raised = future.exception() if future.status == "error" else None
            if raised is None:
                gathering = self.client.gather(future, asynchronous=True)
                return self._await(asyncio.run_coroutine_threadsafe(gathering, self.client.loop.asyncio_loop))
        except LOST as exc:
            # Where the way is lost, whoever watches the members knows a little later.
            raise Gone(counts=not self.gone.wait(2 * _PATIENCE_SECONDS)) from exc
        if isinstance(raised, KilledWorker):
            raise Gone(counts=True) from raised
        raise JobFailed(f"Worker {self.name}: {type(raised).__name__}: {first_line(raised)}") from raised

    def _await(self, future: Future[Any]) -> Any:
        """What a future gives, as long as the worker is there."""
        while not wait([future], timeout=_PATIENCE_SECONDS).done:
            # That the job's worker died may be known a little later than that it is gone.
            if self.gone.is_set() and not wait([future], timeout=_PATIENCE_SECONDS).done:
                raise Gone(counts=False)
        return future.result()

    def send(self, folder: Folder, hashes: Sequence[str], way: threading.Lock) -> None:
        """Send files that the host lacks; ``way`` is the host's, so that each goes there once.

        Raises:
            Gone, JobFailed: As :meth:`ask`.
        """
        with way:
            for sha256 in self.ask(host.missing, tuple(hashes)):
                sending = uuid.uuid4().hex
                held: bytes | None = None
                for chunk in folder.chunks(sha256):
                    if held is not None:
                        self.ask(host.keep, sha256, sending, held, False)
                    held = chunk
                self.ask(host.keep, sha256, sending, held, True)


def members_of(client: Client) -> dict[str, Member]:
    """The workers that a scheduler has now, by address.

    Raises:
        OSError: If the scheduler does not answer.
    """
    return {
        address: Member(
            client=client,
            address=address,
            name=str(worker.get("name", address)),
            host=str(worker.get("host", address)),
            slots=max(int(worker.get("nthreads", 1)), 1),
        )
        for address, worker in client.scheduler_info().get("workers", {}).items()
    }


def why_refused(
    member: Member, versions: Mapping[str, str], describe: Callable[[], Mapping[str, str]], *, insecure: bool
) -> str | None:
    """Why a worker is not taken; None for one that is.

    Raises:
        Gone: If it left.
    """
    if not insecure and not is_closed(member.address):
        return f"its address {member.address} is neither on this machine nor encrypted"
    try:
        theirs = member.ask(describe)
    except JobFailed as exc:
        return str(exc)
    others = [
        f"{name} {theirs.get(name, 'is missing')} there, {versions.get(name, 'missing')} here"
        for name in sorted({*versions, *theirs})
        if versions.get(name) != theirs.get(name)
    ]
    return "; ".join(others) or None
