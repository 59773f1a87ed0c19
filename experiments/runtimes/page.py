"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from shown import table

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {"mobilenet_pc": "MobileNetV1-0.25", "ds_cnn": "DS-CNN", "fsrcnn": "FSRCNN x2"}


def runtimes() -> str:
    """How many models each runtime runs, and what it refuses."""
    rows = pd.read_csv(RESULTS / "runtimes.csv", keep_default_na=False).astype(str)
    head = ["runtime", "models", "run", "refused, by the first op that it lacks", "table says otherwise"]
    return table(head, rows.to_numpy().tolist())


def models() -> str:
    """How many models there are."""
    return str(pd.read_csv(RESULTS / "runtimes.csv")["models"].iloc[0])


def otherwise() -> str:
    """In how many answers the table was wrong."""
    rows = pd.read_csv(RESULTS / "runtimes.csv")
    return f"{rows['said_otherwise'].sum()} of {rows['models'].sum():,}"


def kernels() -> str:
    """How far scores depend on the kernels."""
    rows = []
    for row in pd.read_csv(RESULTS / "kernels.csv").to_dict("records"):
        times, unit = (100.0, "points") if row["metric"] == "accuracy" else (1.0, "dB")
        digits = 1 if unit == "points" else 2
        loss, low, high = (f"{times * row[key] + 0.0:.{digits}f}" for key in ("loss", "loss_low", "loss_high"))
        answers = "" if pd.isna(row["other_answers"]) else f"{100 * row['other_answers']:.1f} %"
        scores = [f"{times * row[key]:.{digits}f}" for key in ("with_xnnpack", "score")]
        rows.append(
            [
                f"{NAMES[row['model']]}, {row['metric']}",
                f"{row['samples']:,}",
                row["kernels"],
                *scores,
                f"{loss} {unit} ({low} to {high})",
                f"{100 * row['other_outputs']:.0f} %",
                answers,
            ]
        )
    scored = ["score with XNNPACK", "score", "loss (95 %)"]
    return table(["model", "samples", "kernels", *scored, "other outputs", "other answers"], rows)


def most_of_other_answers() -> str:
    """The largest share of samples with another answer."""
    return f"{100 * pd.read_csv(RESULTS / 'kernels.csv')['other_answers'].max():.1f} %"
