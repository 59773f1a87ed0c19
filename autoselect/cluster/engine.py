"""The workers of a Dask cluster behind the door of the local pool.

Each slot of each worker is served by a thread that takes the next job, sends it there and waits. So there are exactly
as many jobs in the cluster as slots, and a job whose worker is gone goes to the next free slot. Without a scheduler the
same threads serve processes of this machine.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import cloudpickle
from distributed import Client

from autoselect.cluster import host
from autoselect.cluster.jobs import Job, Local
from autoselect.cluster.members import LOST, Gone, Member, members_of, why_refused
from autoselect.cluster.travel import Folder, Missing, Order
from autoselect.errors import AutoselectError, JobFailed, StorageError, UsageError, WorkerDied, first_line
from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, busy_with
from autoselect.isolation.pool import Lease, WorkerPool, result_of

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 5.0
"""Seconds between looks for a lost scheduler, and at refused workers."""


class _Heard(Future[Any]):
    """A job's future.

    Each second until it has its result, ``result`` calls ``say``, in the thread that waits. So the user reads messages
    of the cluster, such as why a worker is refused.
    """

    def __init__(self, say: Callable[[], None]) -> None:
        super().__init__()
        self._say = say

    def result(self, timeout: float | None = None) -> Any:
        while timeout is None and not wait([self], timeout=1.0).done:
            self._say()
        return super().result(timeout)


class Cluster:
    """Workers of a Dask cluster; they may come and go, and so may the scheduler."""

    def __init__(
        self,
        connect: Callable[[], Client],
        *,
        describe: Callable[[], Mapping[str, str]],
        local: Local,
        insecure: bool,
        tell: Callable[[str], None],
    ) -> None:
        """Connect, and wait until the workers that are there are looked at.

        Args:
            connect: Gives a client of the scheduler; called again when the scheduler was lost.
            describe: Importable function that gives the versions of the packages that decide bytes.
            local: What is done without a scheduler; its ``warm_up`` is what every child process does first.
            insecure: Whether workers at open addresses are taken.
            tell: Told of what users should know, in sentences, in the thread that submits jobs.

        Raises:
            UsageError: If none of the workers that are there can be taken, with the reasons.
            OSError: If there is no scheduler.
        """
        self._connect, self._describe, self._versions = connect, describe, dict(describe())
        self._local, self._insecure, self._tell = local, insecure, tell
        self._case = uuid.uuid4().hex
        self._news: SimpleQueue[str] = SimpleQueue()
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._futures: dict[Future[Any], object] = {}  # with the piece of work that it belongs to
        self._members: dict[str, Member] = {}
        self._served: dict[str, int] = {}  # slots by address, of the members that are taken
        self._refused: dict[str, str] = {}  # why, by address
        self._unfit: set[str] = set()  # addresses of those of them that are not looked at again
        self._looked = 0.0  # when a lost scheduler, or refused workers, were last looked at
        self._ways: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._folders: dict[Path, Folder] = {}
        self._pool: WorkerPool | None = None
        self._alone = threading.Event()  # there is no scheduler
        self._told: int | None = None
        self._closed = threading.Event()
        self._client = self._connected()
        self._muster()
        self._await_first()
        self._told = self._count()
        threading.Thread(target=self._watch, daemon=True).start()

    # ------------------------------------------------------------------------------------------------ the door

    @property
    def are_here(self) -> bool:
        """False: workers see the folder that they are given, and no other file of this machine."""
        return False

    def slots(self, asked: int) -> int:
        """Enough for those that are there now, however many the caller asked for; 1 while it waits for the first."""
        self._say()
        return max(busy_with(self._count()), 1)

    def _count(self) -> int:
        return sum(list(self._served.values()))

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Future[T]:
        """Run ``function(*args)`` on the next free slot.

        Raises:
            WorkerDied: If the cluster was closed.
        """
        return self._submit(self, function, args, timeout_seconds)

    def _submit(
        self, owner: object, function: Callable[..., T], args: tuple[Any, ...], timeout_seconds: float
    ) -> Future[T]:
        self._say()
        job = Job(function, args, timeout_seconds, future=_Heard(self._say))
        with self._changed:
            if self._closed.is_set():
                raise WorkerDied("The workers of the cluster were given back; they take no more jobs.")
            self._futures[job.future] = owner
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def call(self, function: Callable[..., T], *args: Any, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> T:
        """Run a job and wait for its result, with the errors of :func:`autoselect.isolation.pool.result_of`."""
        return result_of(self.submit(function, *args, timeout_seconds=timeout_seconds))

    @contextlib.contextmanager
    def lent(self, log: Path) -> Iterator[Lease]:
        """Serve a piece of work; processes of this machine, should they be needed, write to its log."""
        self._local = Local(workers=self._local.workers, log=log, warm_up=self._local.warm_up)
        owner = object()
        try:
            yield Lease(self, partial(self._submit, owner))
        finally:
            with self._changed:
                futures = [future for future, owns in self._futures.items() if owns is owner]
            self._end_all(futures, "The job was cancelled.")

    def close(self) -> None:
        """Give the workers back: what runs is lost, and their hosts keep nothing but files known by hash."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            futures = list(self._futures)
        self._end_all(futures, "The workers of the cluster were given back.")
        limit = time.monotonic() + 10.0
        with contextlib.suppress(*LOST):
            for forgetting in [self._forgetting(member) for member in self._members.values() if member.address]:
                forgetting.exception(timeout=max(limit - time.monotonic(), 0.1))
        if self._pool is not None:
            self._pool.close()
        self._say()

    def _forgetting(self, member: Member) -> Any:
        return self._client.submit(host.forget, self._case, workers=[member.address], pure=False)

    def _end_all(self, futures: Iterable[Future[Any]], why: str) -> None:
        for future in futures:
            with self._changed:
                self._futures.pop(future, None)
            if not future.cancel():
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(WorkerDied(why))

    def _say(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._tell(self._news.get_nowait())

    # ---------------------------------------------------------------------------------------------- membership

    def _watch(self) -> None:
        """See who comes and goes, while the cluster is open."""
        while not self._closed.wait(0.5):
            # Whatever one look raises, nobody else sees who comes and goes: the next look may go well.
            with contextlib.suppress(Exception):
                self._look()

    def _look(self) -> None:
        if self._client.status == "running":
            self._muster()
        elif not self._alone.is_set():
            self._go_on_alone()
        elif self._client.status == "closed" and time.monotonic() > self._looked + _LOOK_AGAIN_SECONDS:
            self._looked = time.monotonic()
            self._client = self._connected()

    def _connected(self) -> Client:
        """A client of the scheduler."""
        client = self._connect()
        if client.status != "running":
            raise OSError("the client is closed")
        return client

    def _muster(self) -> None:
        present = members_of(self._client)
        if self._alone.is_set() and present:
            self._alone.clear()
            self._dismiss({""})
            self._news.put("The scheduler is back: the search goes on with its workers.")
        self._dismiss({address for address in list(self._members) if address and address not in present})
        for address in self._refused.keys() - present.keys():
            del self._refused[address]
            self._unfit.discard(address)
        if look_again := time.monotonic() > self._looked + _LOOK_AGAIN_SECONDS:
            self._looked = time.monotonic()
        for address, member in present.items():
            if address in self._unfit:
                continue
            if address not in self._members and (look_again or address not in self._refused):
                self._members[address] = member
                threading.Thread(target=self._join, args=(member,), daemon=True).start()
        self._report()

    def _report(self) -> None:
        now = self._count()
        if self._told is not None and now != self._told:
            self._news.put(f"Slots of the cluster: {now} now, {self._told} before.")
            self._told = now

    def _dismiss(self, addresses: set[str]) -> None:
        for address in addresses:
            if member := self._members.pop(address, None):
                member.gone.set()
            self._served.pop(address, None)
        with self._changed:
            self._changed.notify_all()

    def _join(self, member: Member) -> None:
        """Look at a worker, and serve its slots if it is taken."""
        try:
            reason = why_refused(member, self._versions, self._describe, insecure=self._insecure)
            # The scheduler says of a job at once that its worker died, and this room asks again itself. One that was
            # started again has forgotten that, and the client need not have noticed.
            self._client.run_on_scheduler(_fail_at_once)
        except (Gone, *LOST):
            self._dismiss({member.address})
            return
        if reason is None:
            self._refused.pop(member.address, None)
            self._serve_all(member, self._there)
            return
        self._refuse(member, reason)

    def _refuse(self, member: Member, reason: str) -> None:
        sentence = f"Worker {member.name} is refused: {reason}."
        if self._refused.get(member.address) != sentence:
            self._news.put(sentence)
        self._refused[member.address] = sentence
        self._dismiss({member.address})

    def _await_first(self) -> None:
        """Wait until a worker is taken, or all that are there are refused."""
        limit = time.monotonic() + 60.0
        while self._members and not self._served and time.monotonic() < limit:
            time.sleep(0.05)
        if self._refused and not self._members:
            raise UsageError("scheduler: no worker can be taken. " + " ".join(self._refused.values()))
        if not self._served:
            self._news.put("The scheduler has no worker yet: the search waits for the first.")

    def _go_on_alone(self) -> None:
        self._dismiss(set(self._members))
        count = self._local.workers
        if self._pool is None:
            self._pool = WorkerPool(count, log=self._local.log, warm_up=self._local.warm_up)
        self._alone.set()
        self._news.put(
            f"The scheduler is lost: the search goes on with {count} processes of this machine until it is back."
        )
        here = Member(client=self._client, address="", name="this machine", host="", slots=count)
        self._members[""] = here
        self._serve_all(here, self._here)
        self._told = count

    # -------------------------------------------------------------------------------------------------- slots

    def _serve_all(self, member: Member, run: Callable[[Member, int, Job], Any]) -> None:
        self._served[member.address] = member.slots
        for number in range(member.slots):
            threading.Thread(target=self._serve, args=(member, number, run), daemon=True).start()

    def _serve(self, member: Member, number: int, run: Callable[[Member, int, Job], Any]) -> None:
        """Run jobs on a slot until its worker is gone or the cluster is closed."""
        while (job := self._next(member)) is not None:
            try:
                value = run(member, number, job)
            except Gone as exc:
                if exc.unfit is not None:
                    self._unfit.add(member.address)
                    what = str(exc.unfit).partition(". ")[0].rstrip(".")
                    self._refuse(member, f"{what}. Make room there, and start it again")
                self._dismiss({member.address})
                self._ask_again(job, exc)
            except AutoselectError as exc:
                self._end(job, error=exc)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, someone waits for the job and for the slot
                self._end(job, error=JobFailed(f"{type(exc).__name__}: {first_line(exc)}"))
            else:
                self._end(job, value=value)

    def _next(self, member: Member) -> Job | None:
        with self._changed:
            while not self._closed.is_set() and not member.gone.is_set():
                while self._waiting:
                    job = self._waiting.popleft()
                    if job.future.done():
                        continue
                    if job.future.running() or job.future.set_running_or_notify_cancel():
                        return job
                self._changed.wait()
        return None

    def _ask_again(self, job: Job, gone: Gone) -> None:
        job.losses += gone.counts
        # A job fails once two workers died on it, were there and sent no answer, or could not write.
        if job.losses >= 2:
            notice = f"{job.losses} workers of the cluster died or sent no answer while they had this job."
            self._end(job, error=gone.unfit or WorkerDied(notice))
            return
        with self._changed:
            self._waiting.appendleft(job)
            self._changed.notify()

    def _end(self, job: Job, *, value: Any = None, error: AutoselectError | None = None) -> None:
        with self._changed:
            self._futures.pop(job.future, None)
        with contextlib.suppress(InvalidStateError):  # Cancelled, or closed meanwhile.
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)

    def _here(self, _member: Member, _number: int, job: Job) -> Any:
        assert self._pool is not None
        return self._pool.call(job.function, *job.args, timeout_seconds=job.timeout_seconds)

    def _there(self, member: Member, number: int, job: Job) -> Any:
        """Send a job, and what it needs; take what it wrote.

        Raises:
            Gone: If the worker is.
            AutoselectError: What the job raised.
        """
        folder, args = self._folder_of(job.args)
        packed = cloudpickle.dumps((job.function, args))
        for _ in range(4):
            order = Order(
                case=self._case,
                slot=number,
                files=None if folder is None else folder.needed(args),
                job=packed,
                timeout_seconds=job.timeout_seconds,
                warm_up=self._local.warm_up,
            )
            reply = member.ask(host.work, order)
            if not isinstance(reply, Missing):
                outcome = reply.opened()
                if isinstance(outcome.error, StorageError):  # Its disk is full, or not its own; that of others is not.
                    raise Gone(counts=True, unfit=outcome.error)
                if outcome.error is not None:
                    raise outcome.error
                if folder is not None:
                    folder.take(outcome.files)
                return outcome.value
            if folder is not None:
                member.send(folder, reply.hashes, self._ways[member.host])
        raise JobFailed(f"Worker {member.name} did not get the files of the job; they arrive damaged, or are removed.")

    def _folder_of(self, args: tuple[Any, ...]) -> tuple[Folder | None, tuple[Any, ...]]:
        if not args or not isinstance(args[0], Path) or not args[0].is_dir():
            return None, args
        return self._folders.setdefault(args[0], Folder(args[0])), args[1:]


def _fail_at_once(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0
