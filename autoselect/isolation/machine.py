"""How many worker processes the machine has room for, and their BLAS kernels; does not know what workers do."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MOST_WORKERS = 8
"""Most workers. More would start trials that know little of each other's outcome."""
_GROUPS = Path("/sys/fs/cgroup")
"""Where Linux tells the limits of groups of processes: of containers, of jobs of batch systems, of services."""
_OWN_GROUPS = Path("/proc/self/cgroup")
"""Names the groups of this process."""
_PROCESSORS = Path("/proc/cpuinfo")
"""Where Linux tells what its processors can do."""


def default_workers(model_bytes: int = 0) -> int:
    """As many as there are processors for this process, within what its memory holds; at least 1.

    Args:
        model_bytes: Size of the model that they work on; 0 if that is not known yet.
    """
    # Bytes, of a worker that has imported TensorFlow and runs an ordinary model.
    # Bytes beside that for each byte of the model: a worker keeps whole builds of it, and sums of products of its
    # layers' inputs. Of ResNet-50 (102 MB) the largest worker took 2.3 GB.
    each = 1.5e9 + 15 * model_bytes
    return max(1, int(min(available_cpus(), memory_bytes() / each, MOST_WORKERS)))


def steady_kernels() -> dict[str, str]:
    """Environment variables that make OpenBLAS use the same kernels on every processor with AVX2.

    OpenBLAS reads them as it is loaded. Otherwise it takes the kernels made for the processor, whose sums differ in the
    last digits; these decide how some weights are rounded. The result is empty if the processor lacks AVX2, if
    ``/proc/cpuinfo`` cannot be read, or if the user has set the variable.
    """
    name = "OPENBLAS_CORETYPE"
    with contextlib.suppress(OSError):
        can = set(_PROCESSORS.read_text(encoding="utf-8", errors="replace").split())
        if {"avx2", "fma"} <= can and name not in os.environ:
            return {name: "Haswell"}
    return {}


def why_fewer(workers: int) -> str | None:
    """The message that memory holds fewer workers than processors would serve, up to :data:`MOST_WORKERS`; else None.

    Args:
        workers: What :func:`default_workers` gave.
    """
    served = min(available_cpus(), MOST_WORKERS)
    if workers >= served:
        return None
    return (
        f"The processors would serve {served} workers, but of this model {memory_bytes() / 1e9:.1f} GB of memory hold "
        f"{workers}. --workers takes another number."
    )


def peak_bytes() -> int:
    """The most memory that this process had so far; 0 where the system does not say."""
    with contextlib.suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 0


def available_cpus() -> int:
    """Processors that this process may use, as many as the quota of its container is worth at most."""
    from loky import cpu_count

    return int(cpu_count())


def memory_bytes() -> float:
    """Memory of the machine, or as much of it as this process may have; infinite where nobody says."""
    try:
        whole = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        whole = float("inf")
    return min([whole, *_memory_limits()])


def _memory_limits() -> Iterator[float]:
    """Memory limits in bytes of the control groups of Linux that this process is in, and of the groups around them.

    Groups of version 1 and 2 count. A group without a limit yields nothing; neither do other systems.
    """
    try:
        groups = [line.split(":", 2) for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines()]
    except OSError:  # no Linux
        return
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        # Version 2 of the groups has one tree, version 1 one for each controller.
        root, name = (_GROUPS / "memory", "memory.limit_in_bytes") if controllers else (_GROUPS, "memory.max")
        # A container that does not see its own group is told a path out of its root.
        inner = PurePosixPath(os.path.normpath("/" + path.lstrip("/"))).relative_to("/")
        for folder in (root / inner, *(root / around for around in inner.parents)):
            with contextlib.suppress(OSError, ValueError):  # There is none, or it says "max".
                yield float((folder / name).read_text(encoding="ascii"))
