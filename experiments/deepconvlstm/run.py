"""Searches a DeepConvLSTM in several units, and compares what is found with leaving both LSTMs out of integers."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
import har_data
import side_by_side

import autoselect

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"
BOTH = "both LSTMs DRQ"
"""What all models are compared with."""
BUILT = {"fiq": "all int8", "drq": "all DRQ", "heuristic": "the debugger guide's denylist"}
WAYS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "recommended, denylist alone": {"repairs": False, "int16": False},
}
"""By what is recommended, the options of its search; the second is for models that lose something in integers."""
LOST = 0.03
"""Of accuracy on the windows that are searched on."""


def model_of(units: str, epochs: int, folder: Path) -> Path:
    """The float model; what was trained before is used again."""
    path = folder / "model.tflite"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        told = ["--units", units, "--epochs", str(epochs), "--output", str(path)]
        subprocess.run([sys.executable, str(HERE / "train.py"), *told], check=True)
    return path


def recipes_of(run: autoselect.Run) -> dict[str, autoselect.Recipe]:
    """By name, what is built beside the recommended models."""
    table, recipe = run.layer_statistics, autoselect.Recipe
    lstms = frozenset(table.loc[table["op_name"] == LSTM, "tensor_name"])
    first, second = (frozenset({name}) for name in table["tensor_name"] if name in lstms)
    return {
        **side_by_side.baselines_of(run, BUILT),
        BOTH: recipe(denylisted_nodes=lstms),
        "both LSTMs float": recipe(denylisted_nodes=lstms, fallback="float"),
        "first LSTM DRQ": recipe(denylisted_nodes=first),
        "second LSTM DRQ": recipe(denylisted_nodes=second),
    }


def tensor_rows(units: str, table: pd.DataFrame) -> pd.DataFrame:
    """What the debugger says of each node."""
    found = table[["tensor_name", "op_name", "range", "rmse/scale"]].copy()
    found.columns = pd.Index(["node", "op", "range", "rmse_per_scale"])
    found.insert(0, "units", units)
    return found


def searches(units: str, model: Path, options: argparse.Namespace) -> dict[tuple[str, int], autoselect.Run]:
    """The searches in these units, by way and seed."""
    runs: dict[tuple[str, int], autoselect.Run] = {}
    for way, settings in WAYS.items():
        if runs and lost(next(iter(runs.values()))) < LOST:
            break
        for seed in range(options.seeds):
            runs[way, seed] = side_by_side.searched(
                model,
                options.runs / units / f"{'_'.join(way.replace(',', '').split())}_{seed}",
                calibration=lambda: har_data.calibration(units),
                evaluation=lambda: har_data.search(units),
                heldout=lambda: har_data.heldout(units)[:2],
                trials=options.trials,
                seed=seed,
                **settings,
            )
    return runs


def lost(run: autoselect.Run) -> float:
    """What the all-integer model loses on the windows that are searched on."""
    references = run.summary["references"]
    return float(references["float"]["accuracy"] - references["fiq"]["accuracy"])


def measured(units: str, options: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of models and of nodes in these units; those that were measured before are used again."""
    folder = options.runs / units
    model = model_of(units, options.epochs, folder)
    runs = searches(units, model, options)
    run = next(iter(runs.values()))
    kept = folder / f"rows_{len(runs)}.csv"
    if not kept.exists():
        x, y, subjects = har_data.heldout(units)
        with tempfile.TemporaryDirectory() as temporary, autoselect.keep_workers(1):
            others = side_by_side.built(recipes_of(run), model, lambda: har_data.calibration(units), Path(temporary))
            models = [("float", "", model), *others, *side_by_side.recommended(runs)]
            rows = pd.DataFrame(side_by_side.rows_of(models, x, y, BOTH, subjects))
        rows.insert(0, "units", units)
        rows.to_csv(kept, index=False, lineterminator="\n")
    return pd.read_csv(kept, dtype={"seeds": str}).fillna({"seeds": ""}), tensor_rows(units, run.layer_statistics)


def table_of(rows: pd.DataFrame) -> str:
    """The models as Markdown."""
    return "\n".join(
        f"**{units}**; held out: {part['samples'].iloc[0]:,} windows\n\n{side_by_side.table_of(part, BOTH)}"
        for units, part in rows.groupby("units", sort=False)
    )


def tensors_of(tensors: pd.DataFrame) -> str:
    """The debugger's table as Markdown, the units side by side."""
    units = list(tensors["units"].unique())
    heads = ["node", "op", *(f"{one}, {what}" for one in units for what in ("range", "rmse/scale"))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for names, part in tensors.groupby(["node", "op"], sort=False):
        found = part.set_index("units")
        cells = [f"{found.loc[one, 'range']:,.4g} | {found.loc[one, 'rmse_per_scale']:.2f}" for one in units]
        lines.append(f"| `{str(names[0]).split(';')[0]}` | {names[1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(rows: pd.DataFrame, tensors: pd.DataFrame, path: Path) -> None:
    """Error of each node in graph order, and the accuracy of each model."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    models, names = list(dict.fromkeys(rows["model"])), list(rows["units"].unique())
    for i, units in enumerate(names):
        part, one = tensors[tensors["units"] == units], rows[rows["units"] == units].drop_duplicates("model")
        left.plot(range(len(part)), part["rmse_per_scale"].clip(lower=0.01), marker="o", label=units)
        places = [models.index(name) + 0.2 * (i - (len(names) - 1) / 2) for name in one["model"]]
        error = np.abs(one[["accuracy_low", "accuracy_high"]].to_numpy().T - one["accuracy"].to_numpy())
        right.errorbar(one["accuracy"], places, xerr=error, fmt="o", label=units)
    left.axhline(0.7, color="grey", linestyle=":")
    left.set(yscale="log", xlabel="node, in graph order", ylabel="rmse/scale")
    right.set(yticks=range(len(models)), yticklabels=models, xlabel="accuracy on held-out windows, 95 % interval")
    right.invert_yaxis()
    left.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, search, measure, and write tables and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", action="append", default=[], choices=list(har_data.GAINS), help="All by default.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=1, help="Of the searches.")
    parser.add_argument("--runs", type=Path, default=Path("deepconvlstm-runs"), help="Models and runs; used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = [measured(units, options) for units in options.units or har_data.GAINS]
    rows, tensors = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "deepconvlstm.csv", index=False, lineterminator="\n")
    tensors.to_csv(options.output / "tensors.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    (options.output / "tensors.md").write_text(tensors_of(tensors), encoding="utf-8")
    draw(rows, tensors, options.output / "deepconvlstm.png")
    print(table_of(rows) + "\n" + tensors_of(tensors))


if __name__ == "__main__":
    main()
