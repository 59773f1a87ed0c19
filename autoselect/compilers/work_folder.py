"""The temporary folder of one call of a compiler."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autoselect.errors import StorageError

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextlib.contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """A folder that is gone afterwards.

    Raises:
        StorageError: If it cannot be written, which says nothing of the model.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as name:
            yield Path(name)
    except OSError as exc:
        if exc.errno not in _OF_THE_DISK or isinstance(exc, StorageError):
            raise
        raise StorageError(
            f"A model could not be compiled in the temporary folder {tempfile.gettempdir()}: {exc.strerror}. Free some "
            "space, or name another folder in TMPDIR."
        ) from exc
