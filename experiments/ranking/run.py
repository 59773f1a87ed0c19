"""Leaves each node of a model out of integers alone, and in alone, and compares that with what rankings foretell."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from scipy.stats import kendalltau, rankdata

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ranking_cases import CASES, Case

import autoselect

RESULTS = Path(__file__).resolve().parent / "results"
RANKINGS = {
    "position": "first in the graph",
    "rmse_per_scale": "rmse/scale (debugger)",
    "whole_model": "rmse/scale, whole model",
    "leave_one_out": "leave one out, SQNR",
    "leave_one_in": "leave one in, SQNR",
    "estimate": "surrogate after a search",
}
"""By column of ``units.csv``; the largest value is the most suspicious."""
TARGETS = {"gain": "left out alone", "loss": "in integers alone"}
DEBUG_SAMPLES = 100
FIVE = 5
DRAWS = 1000
SPLITS = 100
Build = Callable[[Collection[str]], bytes]


def figures_of(case: Case, samples: int, run: autoselect.Run) -> pd.DataFrame:
    """One row a node: what a diagnosis and a search say of it."""
    found = autoselect.diagnose(
        case.model,
        calibration=case.calibration,
        debug_samples=DEBUG_SAMPLES,
        whole_model=True,
        ablate=samples,
        figures=False,
    ).layer_statistics
    sensitivity = pd.read_csv(run.directory / "sensitivity.csv", keep_default_na=False, na_values={"estimate": [""]})
    estimates = dict(zip(sensitivity["tensor_name"], sensitivity["estimate"], strict=True))
    return pd.DataFrame(
        {
            "node": found["tensor_name"],
            "op": found["op_name"],
            "position": -found.index,
            "rmse_per_scale": found["rmse/scale"],
            "whole_model": found["travel_rmse/scale"],
            "leave_one_out": -found["leave_one_out"],
            "leave_one_in": found["leave_one_in"],
            "estimate": [float(estimates.get(name, np.nan)) for name in found["tensor_name"]],
        }
    )


def searched(case: Case, trials: int, folder: Path) -> autoselect.Run:
    """A search without repairs or an early end; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    options = {"repairs": False, "int16": False, "early_exit": False, "workers": 1, "output": folder}
    return autoselect.search(case.model, calibration=case.calibration, trials=trials, **case.search, **options)


def builder(case: Case, folder: Path) -> Build:
    """Builds a model of the case with some nodes in float and all others in integers."""

    def build(names: Collection[str]) -> bytes:
        recipe = autoselect.Recipe(denylisted_nodes=frozenset(names), fallback="float")
        path = folder / "candidate.tflite"
        autoselect.build(recipe, model=case.model, calibration=case.calibration, output=path)
        return path.read_bytes()

    return build


def ranked(units: pd.DataFrame, ranking: str) -> list[str]:
    """Names of the nodes, most suspicious first; those without a figure last."""
    order = units[ranking].fillna(-np.inf).sort_values(ascending=False, kind="stable").index
    return list(units["node"][order])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of what both know; NaN where one of them is constant."""
    known = np.isfinite(a) & np.isfinite(b)
    x, y = rankdata(a[known]), rankdata(b[known])
    return float(np.corrcoef(x, y)[0, 1]) if x.size > 1 and np.ptp(x) and np.ptp(y) else np.nan


def interval(values: np.ndarray, gains: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """95 % bootstrap interval of a rank correlation: nodes and samples are both drawn again.

    Args:
        values: Of the ranking, shape (n_nodes,).
        gains: Shape (n_nodes, n_samples).
        rng: Draws.
    """
    count, samples = gains.shape
    draws = [
        spearman(values[nodes], gains[np.ix_(nodes, rng.integers(samples, size=samples))].mean(axis=1))
        for nodes in (rng.integers(count, size=count) for _ in range(DRAWS))
    ]
    known = np.array(draws)[np.isfinite(draws)]
    return (float(np.quantile(known, 0.025)), float(np.quantile(known, 0.975))) if known.size else (np.nan, np.nan)


def repeatability(gains: np.ndarray, rng: np.random.Generator) -> float:
    """Rank correlation of the gains on one half of the samples with those on the other, mean over splits."""
    found = []
    for _ in range(SPLITS):
        halves = np.array_split(rng.permutation(gains.shape[1]), 2)
        found.append(spearman(*(gains[:, half].mean(axis=1) for half in halves)))
    return float(np.nanmean(found)) if np.isfinite(found).any() else np.nan


def mean_interval(values: np.ndarray, rng: np.random.Generator) -> tuple[float, float, float]:
    """Mean over samples, and its 95 % bootstrap interval."""
    means = values[rng.integers(values.size, size=(DRAWS, values.size))].mean(axis=1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def measured(case: Case, name: str, units: pd.DataFrame, build: Build) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """The nodes with what each is worth, and a row for each ranking and target."""
    rng, nodes = np.random.default_rng(0), list(units["node"])
    exact, integer = case.score(build(nodes)), case.score(build(()))
    rows = {
        "gain": np.stack([case.score(build({node})) - integer for node in nodes]),
        "loss": np.stack([exact - case.score(build(set(nodes) - {node})) for node in nodes]),
    }
    units = units.assign(case=name, **{target: rows[target].mean(axis=1) for target in TARGETS})
    common = {"case": name, "nodes": len(nodes), "samples": integer.size}
    common |= {"float_score": exact.mean(), "integer_score": integer.mean(), "unit": case.unit}
    found = []
    for ranking in RANKINGS:
        five, low, high = mean_interval(case.score(build(ranked(units, ranking)[:FIVE])) - integer, rng)
        for target in TARGETS:
            values, gains = units[ranking].to_numpy(np.float64), units[target].to_numpy(np.float64)
            row = {**common, "ranking": ranking, "target": target, "spearman": spearman(values, gains)}
            row["low"], row["high"] = interval(values, rows[target], rng)
            row["kendall"] = float(kendalltau(values, gains, nan_policy="omit").statistic)
            row["repeatability"] = repeatability(rows[target], rng)
            found.append(row | {"five": five, "five_low": low, "five_high": high})
    return units, found


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown, a table for each case."""
    lines = []
    for name, part in rows.groupby("case", sort=False):
        first = part.iloc[0]
        repeated = part.drop_duplicates("target").set_index("target")["repeatability"]
        lines += [
            f"**{CASES[str(name)].title}**: {first['nodes']} nodes, {first['samples']:,} samples; float "
            f"{first['float_score']:.2f}, all-integer {first['integer_score']:.2f} {first['unit']}. Of half of the "
            f"samples with the other half: {repeated['gain']:.2f} ({TARGETS['gain']}), "
            f"{repeated['loss']:.2f} ({TARGETS['loss']}).",
            "",
            f"| ranking | Spearman, {TARGETS['gain']} | Kendall | Spearman, {TARGETS['loss']} | Kendall "
            f"| gain with its first {FIVE} left out |",
            "|---|---|---|---|---|---|",
        ]
        for ranking, own in part.groupby("ranking", sort=False):
            both = own.set_index("target")
            cells = [f"{_correlation(both.loc[target])} | {both.loc[target, 'kendall']:.2f}" for target in TARGETS]
            five = f"{own['five'].iloc[0]:+.2f} ({own['five_low'].iloc[0]:+.2f} to {own['five_high'].iloc[0]:+.2f})"
            lines.append(f"| {RANKINGS[str(ranking)]} | {' | '.join(cells)} | {five} |")
        lines.append("")
    return "\n".join(lines)


def _correlation(row: pd.Series) -> str:
    return f"{row['spearman']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def draw(units: pd.DataFrame, path: Path) -> None:
    """The debugger's figure of each node against what leaving it out gains."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(units["case"].unique())
    figure, axes = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.2), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        part = units[(units["case"] == name) & (units["rmse_per_scale"] > 0)]
        axis.scatter(part["rmse_per_scale"], part["gain"], s=16)
        axis.axvline(0.7, color="grey", linestyle=":")
        axis.axhline(0.0, color="grey", linewidth=0.8)
        axis.set(xscale="log", title=CASES[name].title, xlabel="rmse/scale", ylabel=f"gain, {CASES[name].unit}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, and write tables and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--trials", type=int, default=40, help="Of the search that the surrogate learns from.")
    parser.add_argument("--samples", type=int, default=16, help="Calibration samples for leaving one in and out.")
    parser.add_argument("--runs", type=Path, default=Path("ranking-runs"), help="Finished cases here are used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    chosen = options.case or list(CASES)
    for name in chosen:
        kept = options.runs / name
        if not (kept / "rows.csv").exists():
            with tempfile.TemporaryDirectory() as folder, autoselect.keep_workers(1):
                case = CASES[name]
                units = figures_of(case, options.samples, searched(case, options.trials, kept / "run"))
                units, rows = measured(case, name, units, builder(case, Path(folder)))
            units.to_csv(kept / "units.csv", index=False, lineterminator="\n")
            pd.DataFrame(rows).to_csv(kept / "rows.csv", index=False, lineterminator="\n")
    options.output.mkdir(parents=True, exist_ok=True)
    units, rows = (pd.concat(pd.read_csv(options.runs / n / f"{t}.csv") for n in chosen) for t in ("units", "rows"))
    units.to_csv(options.output / "units.csv", index=False, lineterminator="\n")
    rows.to_csv(options.output / "ranking.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    draw(units, options.output / "ranking.png")
    print(table_of(rows))


if __name__ == "__main__":
    main()
