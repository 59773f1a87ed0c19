"""Models of a run as they were timed on a device: plain rows, and lines of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.domain.result import Result, html_table
from autoselect.report.tables.frames import MISSING
from autoselect.report.tables.model_tables import aligned
from autoselect.scoring.intervals import median_interval

FLOAT = "float"
_HEADING = ("", "ms", "quartiles", "of float", "95 % interval")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Benchmark(Result):
    """How fast models are on a device.

    Attributes:
        device: Model, version of Android and serial number.
        command: That was run there for each model and round, but for the model.
        statistic: What each time is of the inferences of one round: median or mean.
        rounds: How many there were.
        models: In each ``name``; ``id`` and ``path``; ``times_ms``, one a round; ``ms``, ``low`` and ``high``, their
            median and quartiles; ``ratio`` to the float model, the median over the rounds, ``ratio_low`` and
            ``ratio_high``, its 95 % interval; ``error``, why a model could not be timed, else None.
    """

    device: str
    command: str
    statistic: str
    rounds: int
    models: list[dict[str, Any]]

    def lines(self) -> tuple[str, ...]:
        """The device, a table of 80 columns at most if names are short, and what went wrong."""
        table = aligned((_HEADING, *map(_cells, self.models)), right=range(1, 5))
        failed = [f"{model['name']}: {model['error']}" for model in self.models if model["error"]]
        told = f"{self.device}; {self.rounds} rounds, the {self.statistic} of each"
        return (told, "", *table, *([""] if failed else []), *failed)

    def _repr_html_(self) -> str:
        return html_table(_HEADING, [_cells(model) for model in self.models])


def timed(name: str, times_ms: Sequence[float], floats_ms: Sequence[float], **known: Any) -> dict[str, Any]:
    """The row of one model that was timed in each round, see :class:`Benchmark`."""
    low, median, high = (float(value) for value in np.percentile(times_ms, [25, 50, 75]))
    is_known = all(floats_ms)  # A tiny model may take less than the tool can tell from nothing.
    ratios = [time / base for time, base in zip(times_ms, floats_ms, strict=True)] if floats_ms and is_known else []
    ends = median_interval(ratios)
    return {
        "name": name,
        **known,
        "times_ms": list(times_ms),
        "ms": median,
        "low": low,
        "high": high,
        "ratio": float(np.median(ratios)) if ratios else None,
        "ratio_low": ends[0] if ratios else None,
        "ratio_high": ends[1] if ratios else None,
        "error": None,
    }


def untimed(name: str, error: str, **known: Any) -> dict[str, Any]:
    """The row of a model that could not be timed."""
    figures = ("ms", "low", "high", "ratio", "ratio_low", "ratio_high")
    return {"name": name, **known, "times_ms": [], **dict.fromkeys(figures), "error": error}


def _cells(model: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = () if model["name"] == FLOAT else ("ratio", "ratio_low", "ratio_high")
    ms, low, high, *of_float = (_number(model[key]) for key in ("ms", "low", "high", *ratio))
    times = (str(model["name"]), ms, "" if model["ms"] is None else f"{low}–{high}")
    if model["ms"] is None or not of_float or model["ratio"] is None:
        return (*times, "", "")
    return (*times, of_float[0], f"{of_float[1]}–{of_float[2]}")


def _number(value: float | None) -> str:
    """With three digits that count."""
    if not value:
        return MISSING if value is None else "0"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"
