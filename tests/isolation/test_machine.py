"""How many workers a machine gets by default."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from autoselect.isolation import machine


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [(1, 64e9, 1), (4, 64e9, 4), (4, 3.2e9, 2), (4, 0.5e9, 1), (64, 512e9, machine.MOST_WORKERS), (4, float("inf"), 4)],
    ids=["one processor", "processors", "memory", "little memory", "a large machine", "unknown memory"],
)
def test_workers_go_by_processors_and_memory(
    cpus: int, memory: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: cpus)
    monkeypatch.setattr(machine, "memory_bytes", lambda: memory if memory < 1e15 else 1e15)
    assert machine.default_workers() == expected


def test_a_container_may_have_fewer_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loky.backend.context._cpu_count_cgroup", lambda _all: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: range(64))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert machine.available_cpus() == 1


@pytest.mark.parametrize(("text", "expected"), [("1000000\n", 1e6), ("max\n", None), (None, None)])
def test_a_container_may_have_less_memory(
    text: str | None, expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_MEMORY_LIMIT", limit)
    whole = machine.memory_bytes()
    assert whole > 1e6
    if text is not None:
        limit.write_text(text, encoding="ascii")
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
