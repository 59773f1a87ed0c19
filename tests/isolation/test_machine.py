"""How many workers a machine gets by default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autoselect.isolation import machine
from autoselect.isolation.pool import WorkerPool


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [(1, 64e9, 1), (4, 64e9, 4), (4, 3.2e9, 2), (4, 0.5e9, 1), (64, 512e9, machine.MOST_WORKERS), (4, float("inf"), 4)],
    ids=["one processor", "processors", "memory", "little memory", "a large machine", "unknown memory"],
)
def test_workers_go_by_processors_and_memory(
    cpus: int, memory: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: cpus)
    monkeypatch.setattr(machine, "memory_bytes", lambda: memory)
    assert machine.default_workers() == expected


def test_a_container_may_have_fewer_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loky.backend.context._cpu_count_cgroup", lambda _all: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: range(64))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert machine.available_cpus() == 1


NAME = "memory.limit_in_bytes"
LIMITS: dict[str, tuple[str, dict[str, str], float | None]] = {
    "a container": ("0::/\n", {"memory.max": "1000000\n"}, 1e6),
    "no limit": ("0::/\n", {"memory.max": "max\n"}, None),
    "a job of a batch system": ("0::/slurm/job_1/step_0\n", {"slurm/job_1/memory.max": "1000000\n"}, 1e6),
    "a limit within another": ("0::/a/b\n", {"a/memory.max": "2000000\n", "a/b/memory.max": "1000000\n"}, 1e6),
    "a group that the container does not see": ("0::/../../x\n", {"memory.max": "1000000\n"}, 1e6),
    "version 1": ("9:cpu,memory:/job\n1:cpuset:/\n", {f"memory/job/{NAME}": "1000000\n"}, 1e6),
    "version 1 without a limit": ("9:memory:/\n", {f"memory/{NAME}": "9223372036854771712\n"}, None),
    "another controller's": ("9:cpuset:/job\n", {"memory.max": "1\n", f"memory/job/{NAME}": "1\n"}, None),
    "no groups": ("", {}, None),
}


@pytest.mark.parametrize(("groups", "files", "expected"), LIMITS.values(), ids=LIMITS)
def test_a_process_may_have_less_memory_than_the_machine(
    groups: str, files: dict[str, str], expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "cgroup")
    whole = machine.memory_bytes()
    assert whole > 1e6
    (tmp_path / "cgroup").write_text(groups, encoding="ascii")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert machine.memory_bytes() == (whole if expected is None else expected)


def test_a_large_model_gets_fewer_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: 4)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 8e9)
    assert [machine.default_workers(size) for size in (0, 20_000_000, 102_000_000, 10**9)] == [4, 4, 2, 1]


def test_fewer_workers_than_processors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: 4)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 8e9)
    told = {size: machine.why_fewer(machine.default_workers(size)) for size in (0, 102_000_000)}
    assert told[0] is None
    assert {"4", "8.0", "2"} <= set(re.findall(r"[\d.]+\d|\d", told[102_000_000] or ""))
    monkeypatch.setattr(machine, "available_cpus", lambda: 64)
    assert machine.why_fewer(machine.MOST_WORKERS) is None


def test_a_process_knows_the_most_that_it_took() -> None:
    before = machine.peak_bytes()
    taken = np.ones(200_000_000, np.uint8)
    assert machine.peak_bytes() >= max(before, int(taken.sum()))


@pytest.mark.parametrize(
    ("flags", "chosen", "expected"),
    [("sse avx avx2 fma", None, "Haswell"), ("sse avx", None, None), ("avx2 fma", "Zen", "Zen"), (None, None, None)],
    ids=["as most", "an old one", "the user chose", "nobody tells"],
)
def test_matrices_are_multiplied_alike_where_processors_can(
    flags: str | None, chosen: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OPENBLAS_CORETYPE", chosen)
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="ascii")
    monkeypatch.setattr(machine, "_PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr("os.environ", {**os.environ, **machine.steady_kernels()})
    assert os.environ.get("OPENBLAS_CORETYPE") == expected


def _architectures() -> set[str]:
    import scipy.linalg.blas  # noqa: F401 - it has an OpenBLAS of its own
    from threadpoolctl import threadpool_info

    return {one["architecture"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.mark.skipif(
    {**os.environ, **machine.steady_kernels()}.get("OPENBLAS_CORETYPE") != "Haswell",
    reason="the processor has other kernels, or the user chose some",
)
def test_workers_and_the_command_line_have_the_kernels_that_all_have(tmp_path: Path) -> None:
    with WorkerPool(1, log=tmp_path / "worker.log") as pool:
        assert pool.call(_architectures) == {"Haswell"}
    told = (
        "import autoselect.cli.main, numpy, threadpoolctl as t; print({a['architecture'] for a in t.threadpool_info()})"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({"Haswell"})
