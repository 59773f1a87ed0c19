"""What second-order rounding is worth beside the other repairs, all-integer, on two models that rounding harms.

Each row is written when it is measured, and what is in the file is not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from run import append, cases, known_rows, line, measure

REPAIRS: dict[str, tuple[str, ...]] = {
    "nearest": (),
    "bias": ("bias",),
    "rounding-gptq": ("rounding-gptq",),
    "rounding-gptq, bias": ("rounding-gptq", "bias"),
    "equalization": ("equalization",),
    "equalization, bias": ("equalization", "bias"),
    "equalization, rounding-gptq": ("equalization", "rounding-gptq"),
    "equalization, rounding-gptq, bias": ("equalization", "rounding-gptq", "bias"),
    "equalization, rounding-gptq, bias-sequential, ranges-mse": (
        "equalization",
        "rounding-gptq",
        "bias-sequential",
        "ranges-mse",
    ),
}
"""Rows of the table."""

CASES = ("MobileNetV1-0.25", "MobileNetV1-0.25 per tensor", "FSRCNN x2", "FSRCNN x2 per tensor")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="", help="Cases whose name has this in it.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results" / "rounding.csv")
    options = parser.parse_args(arguments)
    for case in cases(None, None):
        if case.name in CASES and options.case in case.name:
            known = {name for where, name in known_rows(options.output) if where == case.name}
            for row in measure(case, known, REPAIRS):
                print(line(row), flush=True)
                append(row, options.output)


if __name__ == "__main__":
    main()
