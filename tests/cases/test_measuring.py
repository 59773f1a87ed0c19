from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autoselect.cases import build_jobs
from autoselect.domain.graph import Graph
from autoselect.tflite.runner import Latency

EMPTY = Graph(tensors=(), ops=(), inputs=(), outputs=())
MEASURED = {
    "nothing by default": (set(), {"cycles": 7}, {}),
    "the arena": ({"arena_bytes", "size_bytes"}, {}, {"arena_bytes": 0}),
    "cycles": ({"npu_cycles"}, {"cycles": 7}, {"npu_cycles": 7}),
    "cycles of what was not compiled": ({"npu_cycles"}, {}, {}),
    "latency with the threads asked for": (
        {"latency_ms"},
        {},
        {"latency_ms": 4.0, "latency_low": 3.0, "latency_high": 5.0},
    ),
}


@pytest.mark.parametrize(("columns", "compiled", "expected"), MEASURED.values(), ids=MEASURED)
def test_only_what_the_objectives_ask_for_is_measured(
    monkeypatch: pytest.MonkeyPatch, columns: set[str], compiled: dict[str, Any], expected: dict[str, float]
) -> None:
    def latency_of(content: bytes, sample: object, *, threads: int) -> Latency:
        assert "latency_ms" in columns
        assert threads == 3
        return Latency(median=4.0, low=3.0, high=5.0, runs=5)

    monkeypatch.setattr(build_jobs, "latency_of", latency_of)
    case: Any = SimpleNamespace(
        scoring=SimpleNamespace(costs=frozenset(columns), latency_threads=3),
        samples=lambda _name: SimpleNamespace(inputs=lambda _number: {}),
    )
    assert build_jobs._quantities(case, b"", EMPTY, compiled) == expected
