"""What pages show of the results of this study."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def summary() -> str:
    """How many models are built, and how many forecasts are exact."""
    rows = json.loads((RESULTS / "strangers.json").read_text(encoding="utf-8"))["models"].values()
    whole = [row for row in rows if row["step"] == "" and row["finite"]]
    exact, count = (sum(row.get(key, 0) for row in rows) for key in ("exact", "recipes"))
    return f"{len(whole)} of {len(rows)} models are built all-integer and run, and {exact} of {count} forecasts are exact."
