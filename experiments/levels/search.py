"""How small models become by searches that may choose fewer levels of weights: Vela's file, loss on unseen samples.

Each limit on the drop has a search of its own. The member with the smallest compiled file is taken whose bound on the
search samples keeps the limit, and the same by the expected drop. ``results/searches.csv`` has a row for each model,
seed, limit and way to choose. Runs stay in ``--work``, and a run that is there is not made again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("search_benchmark", "real_models")]
from cases import all_cases  # noqa: E402 - found by the path above

import autoselect  # noqa: E402

TARGET = "ethos-u55-128"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a model: its case, the metric, and the drops that are allowed, in the metric's units."""

    case: str
    metric: str
    limits: tuple[float, ...]


ASKED: Mapping[str, Asked] = {
    "mobilenet_pc": Asked("mobilenet_pc", "accuracy", (0.005, 0.01, 0.02)),
    "mobilenet_pc_agreement": Asked("mobilenet_pc", "agreement", (0.005, 0.01, 0.02)),
    "ds_cnn": Asked("ds_cnn", "accuracy", (0.005, 0.01, 0.02)),
    "fsrcnn": Asked("fsrcnn", "psnr", (0.05, 0.1, 0.2)),
}


def searched(name: str, limit: float, seed: int, trials: int, work: Path) -> autoselect.Run:
    """The run for a model, limit and seed."""
    folder = work / f"{name}-{limit:g}-{seed}"
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    case = all_cases({})[ASKED[name].case]
    data = {**case.sources, "heldout": f"parts:{case.data}_unseen"}
    return autoselect.search(
        case.model,
        **data,
        metric=ASKED[name].metric,
        target=TARGET,
        objectives="accuracy,flash,penalty",
        weights=4,
        max_drop=limit,
        trials=trials,
        seed=seed,
        output=folder,
        progress=False,
    )


def smallest(front: pd.DataFrame, limit: float, column: str) -> Iterator[tuple[str, Any]]:
    """The member that is smallest by a column and keeps a limit: by its bound, and by its expected drop."""
    scored = front[front["heldout_drop"].notna()]
    for way in ("drop_bound", "expected_drop"):
        kept = scored[scored[way] <= limit]
        if len(kept):
            yield way, kept.loc[kept[column].idxmin()]


def rows(name: str, limit: float, seed: int, run: autoselect.Run) -> Iterator[dict[str, Any]]:
    """A row for each way to choose."""
    front, trials = pd.read_csv(run.directory / "front.csv"), pd.read_csv(run.directory / "trials.csv")
    whole = float(trials.loc[trials.origin == "baseline:fiq", "flash_bytes"].iloc[0])
    for way, best in smallest(front, limit, "flash_bytes"):
        yield {
            "model": name,
            "seed": seed,
            "limit": limit,
            "by": way,
            "flash_bytes": int(best["flash_bytes"]),
            "share_of_int8": round(best["flash_bytes"] / whole, 4),
            "penalty": best["penalty"],
            "heldout_drop": best["heldout_drop"],
            "heldout_drop_low": best.get("heldout_drop_low", math.nan),
            "heldout_drop_high": best.get("heldout_drop_high", math.nan),
            "float_ops": int(best["float_ops"]),
        }


def main() -> None:
    """Search all cases and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(ASKED))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    found = list[dict[str, Any]]()
    for seed in options.seeds:
        for name in options.cases:
            for limit in ASKED[name].limits:
                run = searched(name, limit, seed, options.trials, options.work)
                found += rows(name, limit, seed, run)
                pd.DataFrame(found).to_csv(options.output / "searches.csv", index=False)
    print(pd.DataFrame(found).to_string(index=False))


if __name__ == "__main__":
    main()
