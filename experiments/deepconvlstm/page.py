"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"
UNITS = ("normalised", "raw", "scaled")
_REPORTED = ("1,434", "5.4", "0.93")
"""Of the paper: range of the fourth convolution, rmse/scale of both LSTMs."""
_APART = ("both LSTMs float", "first LSTM DRQ", "second LSTM DRQ")
"""Models that differ from both LSTMs DRQ by chance: in the file of results alone."""


def models() -> str:
    """The models of all units."""
    shown, head = [], list[str]()
    for number, units in enumerate(UNITS, start=1):
        columns, *rows = table_of(RESULTS / "table.md", number)
        head = ["model", "accuracy", "over float, points", "over both LSTMs DRQ, points", "penalty", "ops not integer"]
        places = [columns.index(name) for name in head]
        shown += [[units, *(row[place] for place in places)] for row in rows if row[0] not in _APART]
        shown = [[name, model, accuracy.split(" (")[0], *others] for name, model, accuracy, *others in shown]
    return table(["units", *head], shown)


def tensors() -> str:
    """Range of the fourth convolution and rmse/scale of the LSTMs, as reported and here."""
    columns, *rows = table_of(RESULTS / "tensors.md")
    convolution = [row for row in rows if row[1] == "CONV_2D"][3]
    lstms = [row for row in rows if "LSTM" in row[1]]
    shown = [["reported", *_REPORTED]]
    for units in UNITS:
        of_range, of_error = columns.index(f"{units}, range"), columns.index(f"{units}, rmse/scale")
        shown.append([units, convolution[of_range], *(row[of_error] for row in lstms)])
    return table(
        ["units", "range of the fourth convolution", "rmse/scale, first LSTM", "rmse/scale, second LSTM"], shown
    )
