"""Measures of one built model what the objectives of a run ask for beside the usual figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoselect.domain.arena import peak_activation_bytes
from autoselect.domain.graph import Graph
from autoselect.tflite.latency import Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What is measured.

    Attributes:
        columns: Of the run's objectives.
        latency_threads: Of the interpreter that is timed.
    """

    columns: frozenset[str] = frozenset()
    latency_threads: int = 1

    def of_model(
        self, graph: Graph, compiled: Mapping[str, Any], latency: Callable[[int], Latency]
    ) -> dict[str, float]:
        """The measured columns of one model.

        Args:
            graph: As built.
            compiled: What the compiler made of it; empty where it was not compiled, which leaves out ``npu_cycles``.
            latency: Times the model with so many threads.
        """
        found: dict[str, float] = {}
        if "arena_bytes" in self.columns:
            found["arena_bytes"] = peak_activation_bytes(graph)
        if "npu_cycles" in self.columns and compiled:
            found["npu_cycles"] = compiled["cycles"]
        if "latency_ms" in self.columns:
            found |= latency_columns(latency(self.latency_threads))
        return found


def latency_columns(latency: Latency) -> dict[str, float]:
    """A latency as columns of the tables."""
    return {"latency_ms": latency.median, "latency_low": latency.low, "latency_high": latency.high}
