"""What pages show of the results of this study."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from shown import table

RESULTS = Path(__file__).resolve().parent / "results"
_CASES = {
    "pump": ("pump monitor, accuracy", 3),
    "denoiser": ("denoiser, gain in dB", 2),
    "mobilenet, per channel": ("MobileNetV1-0.25, agreement with float", 3),
    "mobilenet, per tensor": ("MobileNetV1-0.25 per tensor, agreement with float", 3),
    "fsrcnn": ("FSRCNN, PSNR in dB", 2),
    "deeplab": ("DeepLab, pixels that agree with float", 3),
    "keywords": ("DS-CNN keywords, accuracy", 3),
}
"""What each is called, and digits of its score."""
_ALL_WIDE = {
    "pump": 22,
    "denoiser": 41,
    "mobilenet, per channel": 31,
    "mobilenet, per tensor": 31,
    "fsrcnn": 17,
    "deeplab": 70,
}
"""Nodes of the models."""


def _rows(case: str, int16: str = "yes") -> pd.DataFrame:
    rows = pd.read_csv(RESULTS / "int16.csv")
    return rows[(rows["case"] == case) & (rows["int16"] == int16)].set_index("model")


def cases() -> str:
    """Held-out scores of whole models and of the best all-integer member."""
    shown = []
    for case, (name, digits) in _CASES.items():
        rows = _rows(case)
        scores = rows["heldout"]
        exact, plain, repaired, wide, best = (
            f"{scores[model]:.{digits}f}" if scores[model] != 1.0 else "1"
            for model in ("float", "all int8", "all int8, repaired", "all 16-bit", "best all-integer member")
        )
        worse = scores["all int8, repaired"] < scores["all int8"]
        count = int(rows.loc["best all-integer member", "int16_nodes"])
        nodes = f"{count} of {_ALL_WIDE[case]}" if count else "none"
        shown.append([name, exact, f"{repaired} ({plain} without repairs)" if worse else repaired, wide, best, nodes])
    head = ["case", "float", "all int8, with repairs", "all 16-bit", "best all-integer member", "16-bit nodes in it"]
    return table(head, shown)


def fsrcnn() -> str:
    """The models of both searches of FSRCNN."""
    both, narrow = _rows("fsrcnn"), _rows("fsrcnn", "no").loc["recommended"]
    shown = []
    for name, row in (
        ("float", both.loc["float"]),
        ("all-integer", both.loc["all int8"]),
        ("all-integer, repaired", both.loc["all int8, repaired"]),
        ("`recommended`", both.loc["recommended"]),
        ("`recommended`, with `--no-int16`", narrow),
    ):
        ops = "all" if math.isnan(row["float_ops"]) else f"{row['float_ops']:.0f}"
        size = f"{row['size_bytes'] / 1000:.1f} kB"
        shown.append([name, f"{row['heldout']:.2f} dB", size, f"{row['penalty']:.1f}", ops])
    return table(["model", "PSNR", "size", "penalty", "float ops"], shown)
