"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from scipy.stats import spearmanr
from shown import listed, table

RESULTS = Path(__file__).resolve().parent / "results"
ALL_STATES, NO_SLOWER = "searches.csv", "no_slower.csv"
NAMES = {
    "mobilenet_pc": "MobileNetV1-0.25",
    "mobilenet_pc_agreement": "MobileNetV1-0.25, agreement with float",
    "ds_cnn": "DS-CNN",
    "fsrcnn": "FSRCNN x2",
    "denoiser": "streaming denoiser",
}
IN_DB = ("fsrcnn", "denoiser")
"""Models whose score is in decibels; others are told in points."""
WAYS = {"drop_bound": "bound", "expected_drop": "expected"}


def forecasts() -> str:
    """Rank correlation of the forecast with both sizes."""
    rows, kinds = pd.read_csv(RESULTS / "forecast.csv"), ("levels", "levels and other states")
    shown = []
    for model in rows["model"].unique():
        cells = [NAMES[model]]
        for kind in kinds:
            some = rows[(rows["model"] == model) & (rows["kind"] == kind)]
            for part, column in ((some[some["flash_bytes"] > 0], "flash_bytes"), (some, "download_bytes")):
                cells.append(f"{float(spearmanr(part['forecast_bytes'], part[column]).statistic):.4f}")
        shown.append(cells)
    return table(["model", *(f"{kind}, {how}" for kind in kinds for how in ("Vela", "deflated"))], shown)


def _searched(name: str, model: str, limit: float, by: str) -> pd.DataFrame:
    """A row for each seed that has such a member."""
    rows = _results(name)
    return rows[(rows["model"] == model) & (rows["limit"] == limit) & (rows["by"] == by)]


def _results(name: str) -> pd.DataFrame:
    """Rows of a file of results, by seed."""
    return pd.read_csv(RESULTS / name).sort_values("seed", kind="stable")


def _unit(model: str) -> str:
    return " dB" if model in IN_DB else ""


def _limit(model: str, limit: float) -> str:
    return f"{limit:g} dB" if model in IN_DB else f"{100 * limit:g} point{'s' * (limit != 0.01)}"


def _loss(model: str, rows: pd.DataFrame) -> str:
    """The losses of all seeds, and the widest interval; in points, or in dB."""
    scale, digits = (1.0, 2) if model in IN_DB else (100.0, 1)
    low, high = scale * rows["heldout_drop_low"].min(), scale * rows["heldout_drop_high"].max()
    shown = listed(scale * rows["heldout_drop"], digits, _unit(model))
    return f"{shown} ({listed([low], digits)} to {listed([high], digits)})"


def _seeds(rows: pd.DataFrame) -> str:
    return ", ".join(str(seed) for seed in rows["seed"])


def searches() -> str:
    """The smallest members that keep a limit, of searches over all states."""
    return _smallest(ALL_STATES)


def no_slower() -> str:
    """The smallest members that keep a limit, of searches that allow no loss of speed."""
    return _smallest(NO_SLOWER)


def _smallest(name: str) -> str:
    shown = []
    for (model, limit, by), rows in _results(name).groupby(["model", "limit", "by"]):
        share = listed(100 * rows["share_of_int8"], 0, " %")
        shown.append([NAMES[model], _limit(model, limit), WAYS[by], _seeds(rows), share, _loss(model, rows)])
    head = ["model", "limit", "by", "seeds", "share of all-int8's compiled file", "further loss, unseen samples (95 %)"]
    return table(head, shown)


def packed_in_4_bits() -> str:
    """The smallest members whose weights may be stored in 4 bits."""
    shown = []
    results = _results("four_bits.csv")
    for (target, model, limit, by), rows in results.groupby(["target", "model", "limit", "by"]):
        same = ", ".join(sorted({f"{count:.0f} of 50" for count in rows["equal_in_tflm"].dropna()}))
        share = listed(100 * rows["share_of_int8"], 0, " %")
        shown.append([target, NAMES[model], _limit(model, limit), WAYS[by], share, _loss(model, rows), same])
    head = ["target", "model", "limit", "by", "share of the all-int8 file", "loss on unseen samples (95 %)"]
    return table([*head, "samples on which TFLite Micro gives the bits of 8 bits"], shown)


def how_to() -> str:
    """The table of docs/how-to/fewer-bits.md."""
    shown = []
    for name, model, limit, by, what in (
        (NO_SLOWER, "ds_cnn", 0.01, "drop_bound", "DS-CNN, keywords"),
        (NO_SLOWER, "ds_cnn", 0.02, "drop_bound", ""),
        (NO_SLOWER, "mobilenet_pc", 0.005, "expected_drop", "MobileNetV1-0.25, pictures; 450 images"),
        (ALL_STATES, "mobilenet_pc_agreement", 0.01, "drop_bound", "the same, agreement with float"),
        (ALL_STATES, "fsrcnn", 0.2, "drop_bound", "FSRCNN x2, super-resolution"),
    ):
        rows = _searched(name, model, limit, by)
        kept = f"{_limit(model, limit)}, {WAYS[by]}"
        share = listed(100 * rows["share_of_int8"], 0, " %")
        shown.append([what, "no" if name == NO_SLOWER else "yes", kept, share, _loss(model, rows)])
    head = ["model", "16 bits, slower", "limit beyond all-int8, and by what it is kept"]
    shares = ["file for `ethos-u55-128`, share of all-int8's"]
    return table([*head, *shares, "lost beyond all-int8 on samples that chose nothing (95 %)"], shown)


def saved_by_ds_cnn() -> str:
    """Share of the flash that DS-CNN saves by a bound of 1 point."""
    return _saved(NO_SLOWER, "ds_cnn", 0.01, "drop_bound")


def saved_by_ds_cnn_at_2() -> str:
    """The same by a bound of 2 points."""
    return _saved(NO_SLOWER, "ds_cnn", 0.02, "drop_bound")


def saved_by_mobilenet() -> str:
    """Share that MobileNetV1 saves by an expected drop of half a point."""
    return _saved(NO_SLOWER, "mobilenet_pc", 0.005, "expected_drop")


def saved_by_agreement() -> str:
    """Share that MobileNetV1 saves by a bound of 1 point of agreement."""
    return _saved(ALL_STATES, "mobilenet_pc_agreement", 0.01, "drop_bound")


def saved_by_fsrcnn() -> str:
    """Share that FSRCNN saves by a bound of 0.2 dB."""
    return _saved(ALL_STATES, "fsrcnn", 0.2, "drop_bound")


def _saved(name: str, model: str, limit: float, by: str) -> str:
    saved = sorted({round(100 - 100 * share) for share in _searched(name, model, limit, by)["share_of_int8"]})
    return " to ".join(f"{share}" for share in saved[:: max(len(saved) - 1, 1)]) + " %"
