"""Searches the embedded case on few and many samples, and judges what is recommended where no search looked."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

import autoselect
from autoselect import embedded
from autoselect.tflite.runner import Runner

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = (50, 200, 1000, 3000)
SEEDS = 3
ALLOWED = 0.01
"""Drop that a search allows by default, as a share of float's score."""
UNSEEN, UNSEEN_SEED = 10_000, 20_260
SEARCH_SEED = 5_000
"""Of the first search set; every seed has windows of its own."""

Windows = tuple[np.ndarray, np.ndarray]


@cache
def windows(seed: int, count: int) -> Windows:
    """Windows of machines that no other set has, and their labels."""
    return embedded.make_windows(np.random.default_rng(seed), count)


def searched(size: int, seed: int, trials: int, folder: Path) -> autoselect.Run:
    """A search on so many windows, without repairs; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return autoselect.search(
        embedded.model_path(),
        calibration=embedded.calibration,
        evaluation=windows(SEARCH_SEED + seed, size),
        heldout=windows(UNSEEN_SEED + 1, 10),
        metric="accuracy",
        trials=trials,
        seed=seed,
        repairs=False,
        int16=False,
        early_exit=False,
        workers=1,
        output=folder,
    )


def accuracy(content: bytes, count: int) -> float:
    """Share of the unseen windows that a model gets right."""
    runner = Runner(content)
    found, labels = windows(UNSEEN_SEED, count)
    answers = [int(next(iter(runner(window[None]).values())).argmax()) for window in found]
    return float((np.array(answers) == labels).mean())


def rows_of(runs: dict[tuple[int, int], autoselect.Run], unseen: int) -> Iterator[dict[str, Any]]:
    """What each search recommends, against the cheapest member of any front that keeps the drop on unseen windows."""
    exact = accuracy(embedded.model_bytes(), unseen)
    members = {
        row.sha256: (row.penalty, exact - accuracy(run.model_path(row.id).read_bytes(), unseen))
        for run in runs.values()
        for row in run.front.drop_duplicates("sha256").itertuples()
    }
    least = min((penalty for penalty, drop in members.values() if drop <= ALLOWED * exact), default=np.nan)
    for (size, seed), run in runs.items():
        chosen = run.front.set_index("id").loc[run.picks["recommended"]]
        limit = ALLOWED * float(run.summary["references"]["float"]["accuracy"])
        penalty, drop = members[chosen["sha256"]]
        yield {
            "samples": size,
            "seed": seed,
            "penalty": penalty,
            "regret": penalty - least,
            "seen_drop": 100 * float(chosen["drop"]),
            "bound": 100 * float(chosen["drop_bound"]),
            "certified": bool(chosen["drop_bound"] <= limit),
            "unseen_drop": 100 * drop,
            "kept": bool(drop <= ALLOWED * exact),
            "evaluations": float(run.trials.loc[~run.trials["reused"], "samples"].sum()) / size,
        }


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown, a row for each size with the figures of each seed."""
    lines = [
        f"| search samples | penalty | regret | drop seen, points | bound | drop on {UNSEEN:,} unseen "
        "| bound within 1 % | kept 1 % | full evaluations |",
        "|---" * 9 + "|",
    ]
    for size, part in rows.groupby("samples"):
        columns = [
            [f"{value:.1f}" for value in part["penalty"]],
            [f"{value:.1f}" for value in part["regret"]],
            *([f"{value:.2f}" for value in part[name]] for name in ("seen_drop", "bound", "unseen_drop")),
        ]
        counts = [f"{part[name].sum()} of {len(part)}" for name in ("certified", "kept")]
        spent = ", ".join(f"{value:.0f}" for value in part["evaluations"])
        cells = [", ".join(column) for column in columns]
        lines.append(f"| {size:,} | {' | '.join([*cells, *counts, spent])} |")
    return "\n".join(lines) + "\n"


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Regret and bound against the number of samples."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axis, columns in zip(axes, (("regret",), ("bound", "unseen_drop")), strict=True):
        for column, marker in zip(columns, "ox", strict=False):
            axis.plot(rows["samples"], rows[column], marker, label=column.replace("_", " "))
        axis.set(xscale="log", xlabel="search samples", ylabel="penalty" if len(columns) == 1 else "points of accuracy")
        axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search with every size and seed, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", action="append", type=int, default=[], help=f"Repeat it. {SIZES} by default.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--unseen", type=int, default=UNSEEN)
    parser.add_argument("--runs", type=Path, default=Path("sample-size-runs"), help="Folder of the runs.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    with autoselect.keep_workers(1):
        runs = {
            (size, seed): searched(size, seed, options.trials, options.runs / f"{size}_{seed}")
            for seed in range(options.seeds)
            for size in options.size or SIZES
        }
    rows = pd.DataFrame(rows_of(runs, options.unseen))
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "sample_sizes.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    draw(rows, options.output / "sample_sizes.png")
    print(table_of(rows))


if __name__ == "__main__":
    main()
