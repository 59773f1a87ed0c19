"""Small text files that a user brings: recipes and settings; knows their size and what is wrong, not what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autoselect.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def toml_of(path: Path, *, called: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: If it cannot be read, or is no TOML; with what the file is called.
    """
    try:
        return tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{called} cannot be read: {exc}.") from exc
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise UsageError(f"{called} is not TOML: {exc}.") from exc


def first_wrong(exc: ValidationError) -> str:
    """Of the first wrong value of a pydantic model, its place, what was expected, and what came.

    The alternatives of a union are no places, and the last of them is meant.
    """
    first = exc.errors()[-1] if exc.errors()[0]["type"] == "literal_error" else exc.errors()[0]
    place = [str(part) for part in first["loc"] if not str(part).startswith(("literal[", "list[", "function-"))]
    came = "" if first["type"] == "missing" else f", got {first.get('input')!r}"
    return f"{'.'.join(place)}: {first['msg'].removeprefix('Value error, ')}{came}."
