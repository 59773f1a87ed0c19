"""How many worker processes the machine has room for; knows processors and memory, not what workers do."""

from __future__ import annotations

import os
from pathlib import Path

MOST_WORKERS = 8
"""More would start trials that know little of each other's outcome."""
_MEMORY_EACH = 1.5e9
"""Bytes, of a worker that has imported TensorFlow and runs an ordinary model."""
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Of the container, if this is one."""


def default_workers() -> int:
    """As many as there are processors for this process, within what its memory holds; at least 1."""
    return max(1, min(available_cpus(), int(memory_bytes() / _MEMORY_EACH), MOST_WORKERS))


def available_cpus() -> int:
    """Processors that this process may use, as many as the quota of its container is worth at most."""
    from loky import cpu_count

    return int(cpu_count())


def memory_bytes() -> float:
    """Memory of the machine or of the container; infinite where nobody says."""
    try:
        whole = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        whole = float("inf")
    try:
        return min(whole, float(_MEMORY_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit, which says "max"
        return whole
