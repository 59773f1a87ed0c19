"""Files written beside and renamed, so that a crash never leaves half of one."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoselect.errors import StorageError, UsageError

_OUTPUT = "--output (output=...)"
"""What names the file to write, in messages."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Map the system's write errors to one message.

    Raises:
        StorageError: If the body fails to write.
    """
    try:
        yield
    except StorageError:  # of a smaller part, whose message is better
        raise
    except OSError as exc:
        # Of a folder shutil gives a list of files, with a text of what went wrong with each.
        is_of_many = isinstance(exc, shutil.Error) and isinstance(exc.args[0], list)
        why = exc.args[0][0][2] if is_of_many else exc.strerror or exc
        is_full = exc.errno in _FULL or any(os.strerror(code) in str(why) for code in _FULL)
        remedy = "Free some space, or choose" if is_full else "Choose"
        error = StorageError(
            f"{path} could not be written: {why}. {remedy} another place (--output, where the command has it); nothing "
            "that was complete is lost."
        )
        error.errno = exc.errno
        raise error from exc


def refuse_folder(path: Path, option: str = _OUTPUT) -> None:
    """Refuse a folder where a file is to be written; the option names it, for the message.

    Raises:
        UsageError: If it is one.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file in it with {option}.")


def refuse_existing(path: Path, option: str = _OUTPUT) -> None:
    """Refuse to write over a file unasked.

    Args:
        path: The file.
        option: What names it, for the message.

    Raises:
        UsageError: If it exists, or is a folder.
    """
    refuse_folder(path, option)
    if path.exists():
        raise UsageError(f"{path} exists already. Choose another {option}, or pass --force (force=True).")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing.

    Raises:
        StorageError: If it cannot be written (disk full, no permission); the old file, if any, stays.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        # With the permissions that new files of this user get, which mkstemp leaves out.
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise


def copy_folder(source: Path, target: Path, *, leave_out: str = "") -> None:
    """Copy the files of a folder and its subfolders without their permissions, so that the copy can be changed.

    Args:
        source: The folder.
        target: Folder to copy into, made if it is missing. Files of the same path are replaced, others stay.
        leave_out: Files of this name are not copied, in any subfolder.

    Raises:
        OSError: If something cannot be read or written.
    """

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(source, onerror=refuse):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name != leave_out:
                shutil.copyfile(Path(folder) / name, copy / name)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing; errors as :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON with sorted keys; errors as :func:`write_bytes`."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=True) + "\n")


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a CSV file with these columns; errors as :func:`write_bytes`."""
    lines = _Lines()
    # Of the characters that end lines, the writer quotes those of its own end alone; readers take "\r" for one, too.
    writer = csv.DictWriter(lines, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, "".join(lines))


class _Lines(list[str]):
    """A stream that takes whole lines with two characters at their ends, and ends them by one."""

    def write(self, line: str) -> None:
        self.append(f"{line[:-2]}\n")


def plain(value: Any) -> Any:
    """Make a value fit JSON: NumPy's numbers become Python's, NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
