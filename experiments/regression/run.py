"""Leaves single suspects and the first five out, and searches: what each gives back where answers are numbers."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from regression_cases import ALSO, CASES, WITHOUT_MODEL, Case  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.scoring.metrics import make_metric  # noqa: E402
from autoselect.scoring.paired import paired_drop  # noqa: E402

RESULTS = HERE / "results"
INT8, FLOAT = "all int8", "float"
RANKINGS = {
    "rmse_per_scale": "rmse/scale (debugger)",
    "leave_one_out": "leave one out",
    "leave_one_in": "leave one in, from float's side",
}
FIRST = {1: "the first", 5: "the first five"}
SAMPLES = 16
"""That leaving one node in or out is measured on."""

PERFECT = 200.0
"""What float scores by closeness to itself, dB."""
TEXTS = {"each": str, "float_ops": str}
"""Columns that hold the figures of several seeds."""


def _study_of_rankings() -> ModuleType:
    """``run.py`` of the study that ranks nodes, which has the name of this one."""
    spec = importlib.util.spec_from_file_location("ranking_run", HERE.parent / "ranking" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


ranking_run = _study_of_rankings()


def searched(case: Case, folder: Path, **options: Any) -> autoselect.Run:
    """One search; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    common = {"early_exit": False, "workers": 1, "output": folder}
    return autoselect.search(case.model, calibration=case.calibration, **case.search, **common, **options)


def models_of(case: Case, seeds: int, runs: Path) -> Iterator[tuple[str, str, list[bytes]]]:
    """Name, the nodes that are left out if they were chosen by a ranking, and a file for each seed."""
    by_bits = {
        "8 bits": [searched(case, runs / f"int8_{seed}", seed=seed, int16=False) for seed in range(seeds)],
        "8 and 16 bits": [searched(case, runs / f"int16_{seed}", seed=seed, int16=True) for seed in range(seeds)],
    }
    kept = runs / "units.csv"
    if not kept.exists():
        ranking_run.figures_of(case, SAMPLES, by_bits["8 bits"][0]).to_csv(kept, index=False, lineterminator="\n")
    units = pd.read_csv(kept)
    yield FLOAT, "", [case.model.read_bytes()]
    with tempfile.TemporaryDirectory() as folder:
        build = ranking_run.builder(case, Path(folder))
        yield INT8, "", [build(())]
        for ranking, name in RANKINGS.items():
            order = ranking_run.ranked(units, ranking)
            for count, how in FIRST.items():
                ops = units.set_index("node").loc[order[:count], "op"]
                yield f"{how} by {name} left out", ", ".join(ops), [build(order[:count])]
    for bits, found in by_bits.items():
        yield f"search, {bits}: recommended", "", [run.model_path("recommended").read_bytes() for run in found]


def rows_of(name: str, case: Case, seeds: int, runs: Path) -> Iterator[dict[str, Any]]:
    """One row for each model: mean of the seeds, and the mean's differences from all int8 and from float."""
    scores: dict[str, np.ndarray] = {}
    rows: dict[str, dict[str, Any]] = {}
    if name in WITHOUT_MODEL:
        title, score = WITHOUT_MODEL[name]
        scores[title], rows[title] = score()[None], {}
    for title, ops, files in models_of(case, seeds, runs):
        scores[title] = np.stack([case.score(content) for content in files])
        costs = [autoselect.inspect(content)["fragmentation"] for content in files]
        rows[title] = {
            "left_out": ops,
            "float_ops": ", ".join(str(cost["float_ops"]) for cost in costs),
            "penalty": float(np.median([cost["penalty"] for cost in costs])),
            "also": float(np.mean([ALSO[name](content) for content in files])) if name in ALSO else np.nan,
        }
    for title, row in rows.items():
        found = scores[title]
        common = {"case": case.title, "unit": case.unit, "model": title, "samples": found.shape[1]}
        each = ", ".join(f"{value:.2f}" for value in found.mean(axis=1))
        gaps = {**_gap("int8", found, scores[INT8]), **_gap("float", found, scores[FLOAT])}
        yield {**common, "heldout": found.mean(), "each": each, **gaps, **row}


def _gap(name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Gain over another model, with its interval; none over itself, and none over what is compared with itself."""
    metric = make_metric("psnr")  # Any mean of what should be large.
    gap = paired_drop(metric, ours.mean(axis=0)[:, None], theirs.mean(axis=0)[:, None])
    is_known = not np.array_equal(ours, theirs) and max(ours.mean(), theirs.mean()) < PERFECT
    values = (-gap.drop, -gap.high, -gap.low) if is_known else (np.nan,) * 3
    return dict(zip((f"{name}_gain", f"{name}_low", f"{name}_high"), values, strict=True))


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown, a table for each case."""
    lines = []
    for case, part in rows.groupby("case", sort=False):
        first = part.iloc[0]
        also = " | px from float" if part["also"].notna().any() else ""
        lines += [
            f"**{case}**, {first['unit']}; held out: {first['samples']} samples",
            "",
            "| model | ops left out | held out | each seed | against all int8 | against float | penalty | float ops"
            f"{also} |",
            "|---" * (8 + bool(also)) + "|",
        ]
        for row in part.to_dict("records"):
            gaps = [_shown(row, name) for name in ("int8", "float")]
            costs = ["" if pd.isna(row["penalty"]) else f"{row['penalty']:.1f}", _text(row["float_ops"])]
            cells = [row["model"], _text(row["left_out"]), f"{row['heldout']:.2f}", _text(row["each"]), *gaps, *costs]
            cells += [f"{row['also']:.2f}"] if also else []
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _shown(row: dict[str, Any], name: str) -> str:
    if pd.isna(row[f"{name}_gain"]):
        return "none on any sample" if name == "int8" and row["model"] not in (INT8, FLOAT) else ""
    return f"{row[f'{name}_gain']:+.2f} ({row[f'{name}_low']:+.2f} to {row[f'{name}_high']:+.2f})"


def _text(value: object) -> str:
    return "" if pd.isna(value) else str(value)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """What each model gains over all int8, with its interval, one case beside the other."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases = list(rows.groupby("case", sort=False))
    figure, axes = plt.subplots(1, len(cases), figsize=(5.5 * len(cases), 3.6), squeeze=False, layout="constrained")
    for axis, (case, every) in zip(axes[0], cases, strict=True):
        part = every[every["int8_gain"].notna()].iloc[::-1]
        ends = np.stack([part["int8_gain"] - part["int8_low"], part["int8_high"] - part["int8_gain"]])
        axis.errorbar(part["int8_gain"], part["model"], xerr=ends, fmt="o", capsize=3)
        axis.axvline(0.0, color="grey", linewidth=0.8)
        axis.set(title=case, xlabel="dB over all int8")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--seeds", type=int, default=1, help="Of the searches.")
    parser.add_argument("--runs", type=Path, default=Path("regression-runs"), help="What is finished is used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    chosen = options.case or list(CASES)
    for name in chosen:
        kept = options.runs / name / "rows.csv"
        if not kept.exists():
            with autoselect.keep_workers(1):
                rows = pd.DataFrame(rows_of(name, CASES[name], options.seeds, options.runs / name))
            rows.to_csv(kept, index=False, lineterminator="\n")
    found = pd.concat(pd.read_csv(options.runs / name / "rows.csv", dtype=TEXTS) for name in chosen)
    found.to_csv(options.output / "regression.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(found), encoding="utf-8")
    draw(found, options.output / "regression.png")
    print(table_of(found))


if __name__ == "__main__":
    main()
