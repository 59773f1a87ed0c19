"""Prints the table of ``docs/repairs.md`` from what ``run.py`` wrote."""

from __future__ import annotations

import csv
import math
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "repairs.csv"


def main() -> None:
    """One line a row, in the file's order."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            agreement, sqnr = float(row["agreement"]), float(row["sqnr_db"])
            figures = (
                f"{float(row['score']):.4f}",
                "" if math.isnan(agreement) else f"{agreement:.4f}",
                "" if math.isinf(sqnr) else f"{sqnr:.1f}",
                row["size_bytes"],
            )
            print("|", " | ".join((row["case"], row["model"], *figures)), "|")


if __name__ == "__main__":
    main()
