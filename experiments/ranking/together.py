"""What is known of units that are tried with their neighbours, beside units tried alone and the debugger's statistics.

A search of more units than it tries alone tries neighbours together. Here models of few units are treated so, and what
is said of each unit is held against what it does alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from ranking_cases import CASES, Case
from scipy.stats import spearmanr

import autoselect
from autoselect.study.setup import probing, problem

SIZES = (2, 4)
STATISTICS = "statistics alone"
FIRST = 5
LEAST = 1e-6
"""Error power over signal power, 60 dB; less is none."""
HEAD = ("case", "units", "tried", "rank correlation", "error, factor", f"of the first {FIRST}")


class Found(Exception):
    """Ends a search that has tried its units."""


def sensitivities(case: Case) -> Mapping[str, np.ndarray]:
    """Of each unit by how it was tried: error power over signal power of the outputs, shape (n_units,)."""
    found: dict[str, np.ndarray] = {}
    probed = probing.probed

    def spied(units: Sequence[Any], *rest: Any) -> Any:
        found[STATISTICS] = np.array([unit.sensitivity for unit in units])
        for size in (1, *SIZES):
            with mock.patch.object(probing, "_MOST", -(-len(units) // size)):
                tried, _ = probed(units, *rest[:-1])
            found["alone" if size == 1 else f"{size} together"] = np.array([unit.sensitivity for unit in tried])
        raise Found

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(problem, "probed", spied):
        try:
            options = {"repairs": False, "int16": False, "fallback": "float", "workers": 1, "trials": 20, **case.search}
            autoselect.search(case.model, calibration=case.calibration, output=Path(folder) / "run", **options)
        except Found:
            pass
    return found


def rows_of(title: str, found: Mapping[str, np.ndarray]) -> list[tuple[object, ...]]:
    """For each way that is not *alone*: Spearman's correlation, the geometric mean error, and hits among the first."""
    logs = {name: np.log10(np.maximum(values, LEAST)) for name, values in found.items()}
    true = logs["alone"]
    rows = []
    for name in (*(f"{size} together" for size in SIZES), STATISTICS):
        error = 10.0 ** np.sqrt(np.mean((logs[name] - true) ** 2))
        both = {*np.argsort(-true)[:FIRST].tolist()} & {*np.argsort(-logs[name])[:FIRST].tolist()}
        correlation = spearmanr(true, logs[name]).statistic
        rows.append((title, len(true), name, f"{correlation:.2f}", f"{error:.3g}", len(both)))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Write together.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], choices=CASES, help="Repeat it; all by default.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    lines = [HEAD, ["---"] * len(HEAD)]
    for name in options.case or CASES:
        lines += rows_of(CASES[name].title, sensitivities(CASES[name]))
    text = "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
    print(text)
    (options.output / "together.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
