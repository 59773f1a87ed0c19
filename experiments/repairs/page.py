"""What pages show of the results of this study."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from shown import table

RESULTS = Path(__file__).resolve().parent / "results"


def _read(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _worth(name: str, title: str) -> str:
    """A line for each model, a column for each case, both in the file's order."""
    found = {(row["case"], row["model"]): _score(row) for row in _read(name)}
    cases, models = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    rows = ([model.removeprefix("fiq + "), *(found[case, model] for case in cases)] for model in models)
    return table([title, *cases], rows)


def _score(row: Mapping[str, str]) -> str:
    """Agreement and top-1 of a classifier, PSNR of FSRCNN."""
    score, agreement = float(row["score"]), float(row["agreement"])
    return f"{score:.2f} dB" if math.isnan(agreement) else f"{agreement:.3f} ({score:.3f})"


def worth() -> str:
    """What each repair is worth on all models."""
    return _worth("repairs.csv", "all-integer with")


def rounding() -> str:
    """Second-order rounding beside others."""
    return _worth("rounding.csv", "repairs")
