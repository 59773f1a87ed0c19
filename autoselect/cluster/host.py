"""What runs inside a Dask worker: keeps files by their hash, and hosts one child process for each slot.

Native code runs in the child. When it crashes or hangs, the Dask worker goes on and says so.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import math
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import get_worker

from autoselect.cluster.travel import Missing, Order, Outcome, Parcel, hash_of, names_in
from autoselect.errors import AutoselectError
from autoselect.isolation.pool import WorkerPool
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import storage_errors

_lock = threading.Lock()
_slots: dict[tuple[str, str, int], _Slot] = {}


def _home() -> Path:
    """Where the workers of a host keep files."""
    return cache_directory() / "cluster"


def _blob(sha256: str) -> Path:
    return _home() / "files" / sha256


# --------------------------------------------------------------------------------------------- what drivers ask


def missing(hashes: Sequence[str]) -> tuple[str, ...]:
    """Which of these files this host lacks."""
    return tuple(key for key in dict.fromkeys(hashes) if not _blob(key).exists())


def keep(sha256: str, sending: str, chunk: bytes, is_last: bool) -> bool:
    """Add a piece to a file on its way; the whole one is checked and renamed into its place.

    Returns:
        False where what came is not what the hash says.

    Raises:
        StorageError: If it cannot be written.
    """
    path = _blob(sha256)
    beside = path.with_name(f".{sha256}.{sending}")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("ab") as file:
            file.write(chunk)
        if not is_last:
            return True
        if hash_of(beside) != sha256:
            beside.unlink()
            return False
        os.replace(beside, path)
    return True


def work(order: Order) -> Missing | Parcel:
    """Run a job in the child of its slot; the answer says what it lacks, or what came of it."""
    slot = _slot(order)
    slot.used = math.inf
    try:
        return slot.work(order)
    except AutoselectError as exc:
        return Parcel.of(Outcome(error=exc, files={}))
    finally:
        slot.used = time.monotonic()


def forget(case: str) -> None:
    """End the child processes of a piece of work and remove its folders; the files by hash stay for the next."""
    with _lock:
        gone = [_slots.pop(key) for key in list(_slots) if key[1] == case]
    for slot in gone:
        slot.close()


# ---------------------------------------------------------------------------------------------------- one slot


class _Slot:
    """A child process with a folder of its own, in which it works on links to the host's files."""

    def __init__(self, warm_up: Callable[[], object] | None) -> None:
        self.used = time.monotonic()
        slots = _home() / "slots"
        with storage_errors(slots):
            slots.mkdir(parents=True, exist_ok=True)
            self._home = Path(tempfile.mkdtemp(prefix="slot-", dir=slots))
            self._root = self._home / "case"
            self._root.mkdir()
        self._laid: dict[str, str] = {}
        # Dask's nanny starts workers as daemons, which Python does not let have children. Those of the pool end with
        # their worker all the same: they see that their pipe is closed.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        # It also sets this, so that Dask workers give memory back. In a child the C library would then ask the system
        # for each tensor anew: FSRCNN took 1.4 times as long, a fifth of it in the kernel.
        os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
        self._pool = WorkerPool(1, log=self._home / "worker.log", warm_up=warm_up)

    def work(self, order: Order) -> Missing | Parcel:
        if lacking := self._lay_out(order.files or {}):
            return Missing(hashes=lacking)
        os.utime(self._home)
        before = self._stamps()
        root = None if order.files is None else self._root
        value = self._pool.call(_run, root, order.job, timeout_seconds=order.timeout_seconds)
        new = {name: (self._root / name).read_bytes() for name, s in self._stamps().items() if before.get(name) != s}
        for name, content in new.items():
            self._laid[name] = hashlib.sha256(content).hexdigest()
            _link(self._root / name, _blob(self._laid[name]))
        return Parcel.of(Outcome(value=value, files=new))

    def _stamps(self) -> dict[str, tuple[int, int]]:
        """What tells a file from another one that was put into its place."""
        status = {name: (self._root / name).stat() for name in names_in(self._root)}
        return {name: (s.st_ino, s.st_mtime_ns) for name, s in status.items()}

    def _lay_out(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Link the files into the folder; returns the hashes of those that the host lacks, or has damaged."""
        lacking = []
        for name, sha256 in files.items():
            if self._laid.get(name) == sha256:
                continue
            blob = _blob(sha256)
            if blob.exists() and hash_of(blob) == sha256:
                os.utime(blob)
                _link(blob, self._root / name)
                self._laid[name] = sha256
            else:
                blob.unlink(missing_ok=True)
                lacking.append(sha256)
        return tuple(lacking)

    def close(self) -> None:
        self._pool.close()
        shutil.rmtree(self._home, ignore_errors=True)


def _run(root: Path | None, job: bytes) -> Any:
    """Run a job in the child process, the only place where what the driver sent is unpickled."""
    function, args = cloudpickle.loads(job)
    return function(*args) if root is None else function(root, *args)


def _link(source: Path, target: Path) -> None:
    """Put a file into another place, too, beside and renamed; nothing writes into a file that is there."""
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            os.link(source, beside)
        except OSError:  # A file system without links, or with too many of them.
            shutil.copyfile(source, beside)
        os.replace(beside, target)


def _slot(order: Order) -> _Slot:
    key = (str(get_worker().address), order.case, order.slot)
    with _lock:
        if key not in _slots:
            _make_room()
            _slots[key] = _Slot(order.warm_up)
        _slots[key].used = time.monotonic()
        return _slots[key]


def _make_room() -> None:
    """Close what a driver left that is gone, and remove files that no search has used for a week."""
    now = time.monotonic()
    # A slot whose driver has not asked for half an hour is closed.
    for key in [key for key, slot in _slots.items() if now - slot.used > 1800.0]:
        _slots.pop(key).close()
    for path in [*_home().glob("slots/*"), *_home().glob("files/*"), *_home().glob("files/.*")]:
        with contextlib.suppress(OSError):
            # The host keeps files that nobody uses for a week.
            if time.time() - path.stat().st_mtime > 7 * 24 * 3600.0:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _close_all() -> None:
    """A worker that is told to end takes its children and folders along."""
    for slot in list(_slots.values()):
        slot.close()


atexit.register(_close_all)
