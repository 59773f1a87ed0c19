"""Prints the table of ``docs/repairs.md`` from what ``run.py`` wrote."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "repairs.csv"


def cell(row: Mapping[str, str]) -> str:
    """Agreement and top-1 of a classifier, PSNR of FSRCNN."""
    score, agreement = float(row["score"]), float(row["agreement"])
    return f"{score:.2f} dB" if math.isnan(agreement) else f"{agreement:.3f} ({score:.3f})"


def main() -> None:
    """A line for each model, a column for each case, both in the file's order."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        found = {(row["case"], row["model"]): cell(row) for row in csv.DictReader(file)}
    cases, models = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    print("| all-integer with |", " | ".join(cases), "|")
    print("|---" * (1 + len(cases)) + "|")
    for model in models:
        print("|", " | ".join((model.removeprefix("fiq + "), *(found[case, model] for case in cases))), "|")


if __name__ == "__main__":
    main()
