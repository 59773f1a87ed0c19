"""Which repairs finished searches chose, and what that was worth on held-out samples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import autoselect

RESULTS = Path(__file__).resolve().parent / "results"


def row_of(run: autoselect.Run) -> dict[str, Any]:
    """A search: its repairs, and points lost held out by plain integers, by repaired ones and by what it recommends."""
    references, recommended = run.summary["references"], run.summary["picks"]["recommended"]
    member = run.front.set_index("id").loc[recommended]
    plain = references["fiq"]["heldout_drop"]
    repaired = references.get("fiq+repairs", references["fiq"])["heldout_drop"]
    return {
        "search": run.directory.name,
        "repairs": ", ".join(run.manifest["settings"]["repairs"]) or "none",
        "16 bits": "yes" if run.manifest["settings"]["int16"] else "no",
        "all int8 loses": 100.0 * plain,
        "repaired loses": 100.0 * repaired,
        "recommended loses": 100.0 * float(member["heldout_drop"]),
        "its penalty": float(member["penalty"]),
        "its float ops": int(member["float_ops"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write and print one row for each run folder, in the order that they are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", metavar="RUN", help="Folder of a finished search.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = pd.DataFrame([row_of(autoselect.load_run(folder)) for folder in options.folders])
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "choice.csv", index=False, lineterminator="\n", float_format="%.2f")
    print("\n".join([f"| {' | '.join(rows)} |", "|---" * len(rows.columns) + "|"]))
    for row in rows.to_dict("records"):
        cells = [f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
