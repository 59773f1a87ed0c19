"""What pages show of the results of this study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"
DEFAULT = "surrogate+search"
WHOLE, FULL = f"{DEFAULT}+repairs+int16", f"{DEFAULT}+full"
OTHERS = ("tpe", "nsga2", "prefix", "greedy", "random")
DROPS = (0.005, 0.01, 0.02)
MARK = 60
_BROKEN = 0.98
"""A model that breaks its drop in such a share of resamples is no recommendation."""


def recommendations() -> str:
    """Regret of each sampler at three drops."""
    return _by_sampler((DEFAULT, *OTHERS), lambda rows: _regrets(rows, rows["evaluations"] == MARK))


def volumes() -> str:
    """Volume on unseen samples of each sampler."""
    return _by_sampler((DEFAULT, *OTHERS), _volume)


def states() -> str:
    """The default sampler with repairs and 16 bits, and without."""
    names = {DEFAULT: "nothing", WHOLE: "repairs, 16 bits"}
    head = ["case", "besides float and hybrid units", f"volume at {MARK}, %", "regret at 0.5, 1, 2 %", "seconds"]
    rows = []
    for case, of_case in _rows().groupby("case", sort=False):
        for sampler, name in names.items():
            own = of_case[of_case["sampler"] == sampler]
            regrets = _regrets(own, own["evaluations"] == MARK)
            rows.append([f"`{case}`", name, _volume(own), regrets, f"{own['seconds'].median():.0f}"])
    return table(head, rows)


def races() -> str:
    """What candidates cost with races and without."""
    rows = []
    for case, of_case in _rows().groupby("case", sort=False):
        pair = [of_case[of_case["sampler"] == name] for name in (DEFAULT, FULL)]
        spent = [f"{own['spent'].median():.1f}" for own in pair]
        rows.append([f"`{case}`", *spent, *(_regrets(own, np.isinf(own["evaluations"])) for own in pair)])
    return table(["case", "default", "scored in full", "regret at 0.5, 1, 2 %", "scored in full"], rows)


def at_the_end() -> str:
    """What each sampler recommends on the pump when all trials are spent."""
    head, *rows = table_of(RESULTS / "regret.md", 3)
    kept = {DEFAULT, *OTHERS}
    return table(head, ([f"`{row[0]}`", *row[1:]] for row in rows if row[0] in kept))


def _rows() -> pd.DataFrame:
    return pd.read_csv(RESULTS / "regret.csv")


def _by_sampler(samplers: Sequence[str], cell: Callable[[pd.DataFrame], str]) -> str:
    rows = []
    for case, of_case in _rows().groupby("case", sort=False):
        rows.append([f"`{case}`", *(cell(of_case[of_case["sampler"] == name]) for name in samplers)])
    return table(["case", "default", *(f"`{name}`" for name in samplers[1:])], rows)


def _regrets(own: pd.DataFrame, chosen: pd.Series) -> str:
    """Medians over seeds at each drop."""
    parts = (own[chosen & (own["allowed"] == drop)] for drop in DROPS)
    return ", ".join(map(_regret, parts))


def _regret(part: pd.DataFrame) -> str:
    return "–" if part["broken"].mean() >= _BROKEN else f"{(part['penalty'] - part['least']).median():.1f}"


def _volume(own: pd.DataFrame) -> str:
    at_mark = own.loc[own["evaluations"] == MARK, "volume"].dropna()
    return f"{100 * at_mark.median():.1f}" if len(at_mark) else "–"


def made_up() -> str:
    """Volumes on made-up graphs."""
    rows = pd.read_csv(RESULTS / "made_up.csv")
    rows = rows[rows["evaluations"] == MARK]
    samplers = list(dict.fromkeys(rows["sampler"]))
    shown = []
    for graph, own in rows.groupby("graph", sort=False):
        medians = own.groupby("sampler")["hypervolume"].median()
        shown.append([graph, *(f"{medians[name]:.4f}" for name in samplers)])
    return table(["graph", *(f"`{name}`" for name in samplers)], shown)
