"""The searches of ``search.py`` as who asks that asks for the least flash and no loss of speed.

Candidates have no 16-bit layers, and take at most a tenth more cycles than the all-integer model.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import search

import autoselect

SLOWER = 1.1
"""Cycles that a smaller model may take, over those of the all-integer one."""


class NoSlower(search.Study):
    """Searches of one model by one metric."""

    def searched(self, folder: Path, **options: Any) -> autoselect.Run:
        """A run for the model and metric; the one of baselines alone has no limits."""
        limits: Mapping[str, Any] = {}
        if "max_drop" in options:
            limits = {"int16": False, "max_penalty": SLOWER * self.all_integer[0]["penalty"]}
        return search.run_of(
            folder,
            model=self.case.model,
            **{**self.case.sources, "heldout": f"parts:{self.case.data}_unseen"},
            metric=self.asked.metric,
            target=search.TARGET,
            objectives="accuracy,flash",
            **options,
            **limits,
        )


def main() -> None:
    """Search all cases and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(search.ASKED))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=search.HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    table = list[dict[str, Any]]()
    for name in options.cases:
        study = NoSlower(name=name, trials=options.trials, work=options.work)
        for seed in options.seeds:
            for limit in study.asked.limits:
                table += study.found(limit, seed)
                pd.DataFrame(table).to_csv(options.output / "no_slower.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))


if __name__ == "__main__":
    main()
