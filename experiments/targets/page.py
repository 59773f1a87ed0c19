"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from shown import table

RESULTS = Path(__file__).resolve().parent / "results"


def agreement() -> str:
    """How often the forecast is Vela's verdict."""
    shown, wrong = [], [0, 0]
    for name, rows in pd.read_csv(RESULTS / "agreement.csv").groupby("model", sort=False):
        both = rows[(rows["vela"] == "compiles") & (rows["predicted"] == "compiles")]
        verdicts, segments = rows["vela"] == rows["predicted"], both["predicted_segments"] == both["segments"]
        rank = both["predicted_cost"].rank().corr(both["cost"].rank())
        equal = f"{verdicts.mean():.1%}", f"{segments.mean():.1%}"
        shown.append([str(name), str(len(rows)), str(len(both)), *equal, f"{rank:.4f}"])
        wrong = [wrong[0] + int((~verdicts).sum()), wrong[1] + int((~segments).sum())]
    head = ["model", "recipes", "compiled", "verdict equal", "segments equal", "Spearman of cost"]
    return f"{table(head, shown)}\n\nWrong verdicts: {wrong[0]}; wrong segments: {wrong[1]}."
