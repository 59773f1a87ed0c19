"""What pages show of the results of this study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from scipy.stats import spearmanr
from shown import listed, table

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {"mobilenet_pc": "MobileNetV1-0.25", "ds_cnn": "DS-CNN", "fsrcnn": "FSRCNN x2"}
_ROWS = (
    ("ds_cnn", (0.005,), "drop_bound"),
    ("ds_cnn", (0.005,), "expected_drop"),
    ("ds_cnn", (0.01, 0.02), "both"),
    ("mobilenet_pc", (0.01, 0.02), "expected_drop"),
    ("mobilenet_pc", (0.02,), "drop_bound"),
    ("fsrcnn", (0.1,), "drop_bound"),
    ("fsrcnn", (0.2,), "drop_bound"),
)
"""Model, limits of which all seeds have one model each, and which drop keeps them."""


def forecasts() -> str:
    """Rank correlation of the forecast with both sizes."""
    rows, kinds = pd.read_csv(RESULTS / "forecast.csv"), ("levels", "levels and other states")
    shown = []
    for model, name in NAMES.items():
        cells = [name]
        for kind in kinds:
            some = rows[(rows["model"] == model) & (rows["kind"] == kind)]
            for part, column in ((some[some["flash_bytes"] > 0], "flash_bytes"), (some, "download_bytes")):
                cells.append(f"{float(spearmanr(part['forecast_bytes'], part[column]).statistic):.4f}")
        shown.append(cells)
    return table(["model", *(f"{kind}, {how}" for kind in kinds for how in ("Vela", "deflated"))], shown)


def _chosen(model: str, limits: Sequence[float], by: str) -> pd.DataFrame:
    """A row for each seed.

    Raises:
        ValueError: If a seed has different models at these limits, so that they are not one row of a table.
    """
    rows = pd.read_csv(RESULTS / "searches.csv")
    rows = rows[(rows["model"] == model) & rows["limit"].isin(limits) & ((by == "both") | (rows["by"] == by))]
    found = rows.drop_duplicates(["seed", "flash_bytes"])
    if found["seed"].duplicated().any():
        raise ValueError(f"{model} has more than one model at the limits {limits} by {by}")
    return found


def _loss(rows: pd.DataFrame, unit: str = "") -> str:
    """The losses of all seeds, and the widest interval; in points, or in dB."""
    scale, digits = (1.0, 2) if unit else (100.0, 1)
    low, high = scale * rows["heldout_drop_low"].min(), scale * rows["heldout_drop_high"].max()
    shown = listed(scale * rows["heldout_drop"], digits, unit)
    return f"{shown} ({listed([low], digits)} to {listed([high], digits)})"


def searches() -> str:
    """The smallest members that keep a limit."""
    said = {"drop_bound": "bound", "expected_drop": "expected", "both": "both"}
    shown = []
    for model, limits, by in _ROWS:
        rows, unit = _chosen(model, limits, by), " dB" if model == "fsrcnn" else ""
        told = " and ".join(f"{limit if unit else 100 * limit:g}" for limit in limits) + unit
        shown.append([NAMES[model], told, said[by], listed(100 * rows["share_of_int8"], 0, " %"), _loss(rows, unit)])
    head = [
        "model",
        "limit, points",
        "by",
        "share of all-int8's compiled file",
        "loss on unseen samples, points (95 %)",
    ]
    return table(head, shown)


def packed_in_4_bits() -> str:
    """The smallest members whose weights are stored in 4 bits."""
    shown = []
    for target, rows in pd.read_csv(RESULTS / "four_bits.csv").groupby("target", sort=False):
        same = sorted({f"{count:.0f} of 50" for count in rows["equal_in_tflm"].dropna()})
        shown.append([str(target), listed(100 * rows["share_of_int8"], 0, " %"), _loss(rows), ", ".join(same)])
    head = ["target", "share of the all-int8 file", "loss on unseen samples, points (95 %)"]
    return table([*head, "samples on which TFLite Micro gives the bits of 8 bits"], shown)


def how_to() -> str:
    """The table of docs/how-to/fewer-bits.md."""
    shown = []
    for model, limits, by, what in (
        ("ds_cnn", (0.01, 0.02), "both", "DS-CNN, keywords; seeds 0, 1, 2"),
        ("mobilenet_pc", (0.01, 0.02), "expected_drop", "MobileNetV1-0.25, pictures; 450 images"),
        ("fsrcnn", (0.1,), "drop_bound", "FSRCNN x2, pictures; seeds 0, 1"),
    ):
        rows = _chosen(model, limits, by)
        loss = _loss(rows, " dB") if model == "fsrcnn" else _points(rows)
        shown.append([what, listed(100 * rows["share_of_int8"], 0, " %"), loss])
    head = ["model", "compiled file for `ethos-u55-128`, share of all-int8's"]
    return table([*head, "lost on samples that chose nothing (95 %)"], shown)


def _points(rows: pd.DataFrame) -> str:
    """The loss that all seeds have, with its unit."""
    loss, _, interval = _loss(rows).partition(" (")
    return f"{' '.join(sorted(set(loss.split(', '))))} points ({interval}"


def saved_by_ds_cnn() -> str:
    """Share of the flash that DS-CNN saves at a limit of 1 point."""
    return _saved("ds_cnn", (0.01, 0.02), "both")


def saved_by_mobilenet() -> str:
    """The same of MobileNetV1 by the expected drop."""
    return _saved("mobilenet_pc", (0.01, 0.02), "expected_drop")


def _saved(model: str, limits: Sequence[float], by: str) -> str:
    return (
        " to ".join(sorted({f"{100 - 100 * share:.0f}" for share in _chosen(model, limits, by)["share_of_int8"]}))
        + " %"
    )
