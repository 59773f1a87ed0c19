"""What pages show of the results of this study."""

from __future__ import annotations

import json
from pathlib import Path

from shown import table

RESULTS = Path(__file__).resolve().parent / "results"


def pump() -> str:
    """The pump monitor searched for a chip and without one, both compiled for the chip."""
    runs = json.loads((RESULTS / "searches.json").read_text(encoding="utf-8"))
    shown = []
    for name, target, model in (
        ("`qualcomm-sm8750`", "qualcomm-sm8750", "recommended"),
        ("`integer-only`", "integer-only", "recommended"),
        ("all-integer", "qualcomm-sm8750", "all int8"),
    ):
        row = next(row for row in runs[f"pump | {target}"]["models"] if row["model"] == model)
        here, there = (f"{100 * row[key]:.1f} %" for key in ("cpu", "emulated"))
        score = f"{there} ({here} on the CPU)" if model == "all int8" else there
        shown.append([name, str(row["partitions"]), str(row["left_ops"]), score])
    return table(["searched for", "partitions", "ops left to the CPU", "accuracy"], shown)
