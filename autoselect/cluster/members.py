"""The workers of a cluster as the driver knows them: which are taken, and how one is asked; knows Dask, no jobs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import CancelledError, Client, KilledWorker
from distributed import TimeoutError as DaskTimeout

from autoselect.cluster import host
from autoselect.cluster.address import is_closed
from autoselect.cluster.travel import Folder
from autoselect.errors import JobFailed, first_line

LOST = (OSError, RuntimeError, DaskTimeout, CancelledError)
"""What Dask raises where the scheduler, or the way to it, is gone."""

_PATIENCE_SECONDS = 0.5
_GATHER_SECONDS = 60.0


class Gone(Exception):
    """The worker left, or the scheduler did; ``killed`` where the worker died while it had the job."""

    def __init__(self, *, killed: bool) -> None:
        super().__init__("gone")
        self.killed = killed


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

        Raises:
            Gone: If it left, died, or the scheduler is lost.
            JobFailed: If the function raised; for example where autoselect is not installed.
        """
        done = threading.Event()
        try:
            future = self.client.submit(function, *args, workers=[self.address], allow_other_workers=False, pure=False)
            future.add_done_callback(lambda _future: done.set())
            while not done.wait(_PATIENCE_SECONDS):
                # That the job's worker died may be known a little later than that it is gone.
                if self.gone.is_set() and not done.wait(_PATIENCE_SECONDS):
                    raise Gone(killed=False)
            raised = future.exception(timeout=_GATHER_SECONDS) if future.status == "error" else None
            if raised is None:
                return future.result(timeout=_GATHER_SECONDS)
        except LOST as exc:
            raise Gone(killed=False) from exc
        if isinstance(raised, KilledWorker):
            raise Gone(killed=True) from raised
        raise JobFailed(f"Worker {self.name}: {type(raised).__name__}: {first_line(raised)}") from raised

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
