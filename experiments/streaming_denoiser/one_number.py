"""Searches the denoiser with an evaluator of one number, each seed with mixtures of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import denoiser
import pandas as pd

import autoselect
from autoselect.runs.files import write_text

RESULTS = Path(__file__).resolve().parent / "results"
MOST_LOST_DB, MOST_BYTES = 0.15, 400_000
"""What a recommended model without a float op may lose held out, and how large it may be."""
PICKS = ("recommended", "accurate", "integer")
WHOLES = ("float", "fiq", "fiq+repairs", "int16", "int16+repairs")


def search(seed: int, trials: int, folder: Path) -> autoselect.Run:
    """One search with mixtures of this seed; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    os.environ[denoiser.SEED] = str(seed)
    return autoselect.search(
        denoiser.MODEL,
        calibration="denoiser:few_calibration",
        evaluator="denoiser:mean_si_snr_gain",
        trials=trials,
        seed=seed,
        workers=1,
        output=folder,
    )


def rows_of(run: autoselect.Run, seed: int) -> list[dict[str, object]]:
    """The references that were scored held out, then the picks."""
    metric = "mean_si_snr_gain"
    references, front = run.summary["references"], run.front.set_index("id")
    rows: list[dict[str, object]] = [
        {"seed": seed, "model": name, "search_db": found[metric], "heldout_db": found.get("heldout")}
        for name in WHOLES
        if (found := references.get(name))
    ]
    for name in PICKS:
        row = front.loc[run.summary["picks"][name]]
        scores = {"search_db": row[metric], "heldout_db": row[f"heldout_{metric}"]}
        sizes = {
            "bytes": int(row["size_bytes"]),
            "float_ops": int(row["float_ops"]),
            "repairs": _repairs(run, row["sha256"]),
        }
        rows.append({"seed": seed, "model": f"`{name}`", **scores, **sizes})
    return rows


def _repairs(run: autoselect.Run, sha256: str) -> str:
    text = run.trials.set_index("sha256").loc[[sha256], "recipe"].iloc[0]
    return ", ".join(autoselect.Recipe.from_json(text).repairs)


def table_of(rows: pd.DataFrame) -> str:
    """All rows as Markdown, then of how many seeds the recommended model keeps the aim."""
    kept = 0
    for _, of_seed in rows.groupby("seed"):
        found = of_seed.set_index("model").loc[["float", "`recommended`"], "heldout_db"]
        chosen = of_seed.set_index("model").loc["`recommended`"]
        lost = found.iloc[0] - found.iloc[1]
        kept += bool(lost <= MOST_LOST_DB and chosen["float_ops"] == 0 and chosen["bytes"] <= MOST_BYTES)
    lines = ["| seed | model | search, dB | held out, dB | bytes | float ops | repairs |", "|---" * 7 + "|"]
    for row in rows.itertuples():
        size = "" if pd.isna(row.bytes) else f"{row.bytes:,.0f}"
        ops = "" if pd.isna(row.float_ops) else f"{row.float_ops:.0f}"
        cells = [
            row.seed,
            row.model,
            f"{row.search_db:.2f}",
            f"{row.heldout_db:.2f}",
            size,
            ops,
            row.repairs if isinstance(row.repairs, str) else "",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    table = "\n".join(lines)
    aim = f"no float op, at most {MOST_LOST_DB} dB below float held out, at most {MOST_BYTES:,} bytes"
    return f"{table}\n\nRecommended has {aim}: {kept} of {rows['seed'].nunique()} seeds.\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all seeds and write ``one_number.csv`` and ``one_number.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--runs", type=Path, default=Path("one-number-runs"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = [
        row
        for seed in range(options.seeds)
        for row in rows_of(search(seed, options.trials, options.runs / f"seed_{seed}"), seed)
    ]
    frame = pd.DataFrame(rows)
    options.results.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.results / "one_number.csv", index=False)
    write_text(options.results / "one_number.md", table_of(frame))
    print(table_of(frame))


if __name__ == "__main__":
    main()
