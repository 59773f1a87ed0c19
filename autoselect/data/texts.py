"""Small text files that a user brings: recipes and settings; knows their size, not what they say."""

from __future__ import annotations

from pathlib import Path

from autoselect.errors import UsageError

MOST_BYTES = 16 << 20


def read_text(path: Path) -> str:
    """Read a whole text file.

    Raises:
        UsageError: If it is larger than any recipe or settings file.
        OSError, UnicodeDecodeError: If it cannot be read.
    """
    if path.exists() and (size := path.stat().st_size) > MOST_BYTES:
        raise UsageError(
            f"{path} has {size} bytes, and files of this kind at most {MOST_BYTES}. Check that it is the right one."
        )
    return path.read_text(encoding="utf-8")
