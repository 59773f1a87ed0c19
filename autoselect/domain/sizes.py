"""Sizes as people write them; knows bytes and their units, nothing of files."""

from __future__ import annotations

import re

from autoselect.errors import UsageError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> float:
    """Read a size in bytes: ``49320``, ``48kB`` (1000 bytes), ``1.5 MB``, ``64KiB`` (1024 bytes).

    Raises:
        UsageError: If it is no size.
    """
    found = _SIZE.fullmatch(text)
    factor = _UNITS.get(found.group(2).lower()) if found else None
    if found is None or factor is None:
        raise UsageError("expected bytes, or a size such as 48kB, 1.5MB or 64KiB")
    return float(found.group(1)) * factor
