"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from shown import table

RESULTS = Path(__file__).resolve().parent / "results"


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
