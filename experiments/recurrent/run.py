"""Searches two recurrent nets whose calibration samples hold states at rest, and those that feedback reaches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import nets
import pandas as pd

import autoselect
from autoselect.runs.files import write_text

RESULTS = Path(__file__).resolve().parent / "results"
CALIBRATIONS = ("at rest", "feedback")
WHOLES = {"float": "float", "fiq": "all-integer", "fiq+repairs": "all-integer, repaired"}


def searched(key: str, calibration: str, model: Path, folder: Path, trials: int, seed: int) -> autoselect.Run:
    """One search; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    net, feeds = nets.NETS[key], calibration == "feedback"
    return autoselect.search(
        model,
        calibration=net.steps if feeds else net.at_rest,
        feedback=dict(net.feedback) if feeds else None,
        evaluator=net.score,
        direction=net.direction,
        target="integer-only",
        early_exit=False,
        trials=trials,
        seed=seed,
        workers=1,
        output=folder,
    )


def rows_of(run: autoselect.Run, key: str, calibration: str) -> list[dict[str, object]]:
    """The whole models that were scored held out, and the recommended one."""
    net, metric = nets.NETS[key], nets.NETS[key].score.__name__
    sign = 1.0 if net.direction == "maximize" else -1.0
    base = run.summary["references"]["float"]
    found = [(WHOLES[name], row) for name, row in run.summary["references"].items() if name in WHOLES]
    own = run.front.set_index("id").loc[run.summary["picks"]["recommended"]]
    recommended = {
        "heldout": own[f"heldout_{metric}"],
        **{name: own[name] for name in (metric, "float_ops", "size_bytes")},
    }
    warned = any(text.startswith("Values leave the ranges") for text in run.summary["warnings"])
    return [
        {
            "net": net.name,
            "calibration": calibration,
            "model": name,
            "search": float(row[metric]),
            "held out": float(row["heldout"]),
            "drop held out": sign * (float(base["heldout"]) - float(row["heldout"])) + 0.0,
            "float ops": int(row["float_ops"]),
            "bytes": int(row["size_bytes"]),
            "warned": "yes" if warned else "no",
        }
        for name, row in [*found, ("`recommended`", recommended)]
    ]


def table_of(rows: pd.DataFrame) -> str:
    """All rows as Markdown."""
    lines = [f"| {' | '.join(rows.columns)} |", "|---" * len(rows.columns) + "|"]
    for row in rows.itertuples(index=False):
        cells = [_cell(value) for value in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Search and write ``recurrent.csv`` and ``table.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", type=Path, default=RESULTS, help="Folder of the nets that train.py wrote.")
    parser.add_argument("--runs", type=Path, default=Path("recurrent-runs"), help="Used again.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = []
    for key in nets.NETS:
        for calibration in CALIBRATIONS:
            folder = options.runs / f"{key}_{calibration.replace(' ', '_')}"
            run = searched(key, calibration, options.nets / f"{key}.tflite", folder, options.trials, options.seed)
            rows += rows_of(run, key, calibration)
    frame = pd.DataFrame(rows)
    options.results.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.results / "recurrent.csv", index=False)
    write_text(options.results / "table.md", table_of(frame))
    print(table_of(frame))


if __name__ == "__main__":
    main()
