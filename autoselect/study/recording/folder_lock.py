"""Keeps a second process out of a run folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from filelock import FileLock, Timeout

from autoselect.errors import RunFolderError
from autoselect.runs.files import storage_errors
from autoselect.runs.folder import RunFolder


@contextlib.contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Refuse a second process in the same folder; the lock ends with the process, however it ends."""
    lock = FileLock(str(folder.lock))
    with storage_errors(folder.lock):
        try:
            lock.acquire(timeout=0)
        except Timeout:  # an OSError too
            raise RunFolderError(
                f"Another process is working in {folder.root}. Wait for it, or stop it first."
            ) from None
    try:
        yield
    finally:
        lock.release()
