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
    """A temporary folder that is removed at the end of the ``with`` block.

    Args:
        prefix: With which its name begins.

    Raises:
        StorageError: If its disk is full or read-only, also within the block: that is no fault of the model.
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
