"""What travels between a driver and its workers, by content hash; knows files, no network and no process."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from autoselect.errors import AutoselectError, StorageError
from autoselect.runs.files import storage_errors, write_bytes

CHUNK_BYTES = 8_000_000
"""Most bytes of a file in one message: schedulers keep messages in memory, and heartbeats wait behind them."""

_OF_ONE = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job on its way to a worker.

    Attributes:
        case: Name of the piece of work.
        slot: Of the worker; each runs one job at a time.
        files: SHA-256 of the files that the job finds in its folder, by relative path; None where it has no folder.
        job: Function and arguments after the folder, pickled; only the worker's child process reads it.
        timeout_seconds: Time limit of the job.
        warm_up: What a child process does first; an importable function.
    """

    case: str
    slot: int
    files: Mapping[str, str] | None
    job: bytes
    timeout_seconds: float
    warm_up: Callable[[], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The answer of a worker that lacks files: their hashes."""

    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """The answer of a job: a pickled :class:`Outcome`, and its hash."""

    content: bytes
    sha256: str

    @classmethod
    def of(cls, outcome: Outcome) -> Parcel:
        """Pack what came of a job."""
        content = pickle.dumps(outcome)
        return cls(content=content, sha256=hashlib.sha256(content).hexdigest())

    def opened(self) -> Outcome:
        """What came of the job.

        Raises:
            StorageError: If these are not the bytes that the worker sent.
        """
        if hashlib.sha256(self.content).hexdigest() != self.sha256:
            raise StorageError("The reply of a worker was damaged on its way.")
        outcome: Outcome = pickle.loads(self.content)
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job: its value or its error, and the files that it wrote, by relative path."""

    value: Any = None
    error: AutoselectError | None = None
    files: Mapping[str, bytes]


class Folder:
    """A folder of the driver, whose files never change once they are written, but may be written anew."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[int, int], str]] = {}
        self._paths: dict[str, str] = {}

    def needed(self, args: tuple[Any, ...]) -> dict[str, str]:
        """Hashes of the files that a job needs, by relative path.

        A file that has a content hash for its name is of one candidate: it goes to the jobs that name the candidate.
        All others go to every job.
        """
        named = set(_texts(args))
        with self._lock:
            return {
                name: self._hash(name) for name in names_in(self.root) if named.issuperset(_OF_ONE.findall(name)[-1:])
            }

    def _hash(self, name: str) -> str:
        status = (self.root / name).stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        if name not in self._known or self._known[name][0] != stamp:
            self._known[name] = stamp, hash_of(self.root / name)
        self._paths[self._known[name][1]] = name
        return self._known[name][1]

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """The content that has a hash, piece by piece; one empty piece for an empty file."""
        with (self.root / self._paths[sha256]).open("rb") as file:
            chunk = file.read(CHUNK_BYTES)
            yield chunk
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def take(self, files: Mapping[str, bytes]) -> None:
        """Write what a job wrote.

        Raises:
            StorageError: If it cannot be written, or lies outside.
        """
        for name, content in files.items():
            pure = PurePosixPath(name)
            if pure.is_absolute() or ".." in pure.parts or "\\" in name:
                raise StorageError(f"A worker sent a file that lies outside of its folder: {name!r}.")
            write_bytes(self.root / pure, content)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item)


def names_in(root: Path) -> list[str]:
    """Relative paths of the whole files of a folder, sorted; those that begin with a dot are being written."""
    return sorted(
        Path(folder, file).relative_to(root).as_posix()
        for folder, _, files in os.walk(root)
        for file in files
        if not file.startswith(".")
    )


def hash_of(path: Path) -> str:
    """SHA-256 of a file, hex; a file of any size."""
    digest = hashlib.sha256()
    with storage_errors(path), path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
