"""What pages show of the results of this study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from shown import table, table_of

RESULTS = Path(__file__).resolve().parent / "results"
_Worst = Callable[[Iterable[float]], float]
SUMMARY: tuple[tuple[str, int, int, str, _Worst], ...] = (
    ("a bound covers the true drop, worst candidate", 1, 3, "at least 94 %", min),
    ("an interval covers it, worst candidate", 1, 5, "at least 94 %", min),
    ("a model is certified and breaks its limit, hardest limit", 2, 5, "at most 8 %", max),
    ("an all-integer model that loses two points ends the search, worst candidate", 5, 3, "at most 5 %", max),
    ("a race drops a candidate exactly at its goal, worst candidate", 6, 4, "at most 10 %", max),
)
"""What is asked, and the table and column of ``coverage.md`` that say it."""


def summary() -> str:
    """Five figures of each case, for the worst of both sample sizes."""
    shown, cases = [], list[str]()
    for name, number, place, asked, worst in SUMMARY:
        _, *rows = table_of(RESULTS / "coverage.md", number)
        cases = list(dict.fromkeys(row[0] for row in rows))
        figures = (worst(float(row[place]) for row in rows if row[0] == case) for case in cases)
        shown.append([name, asked, *(f"{figure:.1f}" for figure in figures)])
    return table(["", "asked", *cases], shown)


def groups() -> str:
    """Coverage of both bounds, for the worst of all sizes and numbers of groups."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in table_of(RESULTS / "groups.md")[1:]:
        found.setdefault((row[0], row[1]), []).append((float(row[4]), float(row[5])))
    shown = [[*key, *(f"{min(column):.1f}" for column in zip(*pairs, strict=True))] for key, pairs in found.items()]
    return table(["measure", "kind", "over samples, %", "over groups, %"], shown)


def scores() -> str:
    """Least coverage of the bounds of scores that are no mean, and the bound on a model that answers as float does."""
    head, *rows = table_of(RESULTS / "scores.md")
    counts = [title.split()[0] for title in head[5::2]]
    shown = []
    for key in dict.fromkeys((row[0], row[1]) for row in rows):
        own = [row for row in rows if (row[0], row[1]) == key]
        (alike,) = (row for row in own if row[2:4] == ["90.0", "0.0"])
        shown.append([*key, *(f"{min(float(row[place]) for row in own):.1f}" for place in range(5, len(head), 2))])
        shown[-1] += alike[6::2]
    covered = [f"covered with {count} samples, %" for count in counts]
    return table(["metric", "classes", *covered, *(f"bound with {count}, points" for count in counts)], shown)


def break_prices() -> str:
    """Means of each rule, as in docs/explanation.md."""
    head, *rows = table_of(RESULTS / "coverage.md", 3)
    means = dict(zip(head[3::2], zip(rows[-1][3::2], rows[-1][4::2], strict=True), strict=True))
    names = {name.split(":")[0].replace("former", "the rule before"): pair for name, pair in means.items()}
    names["the rule before"] = names.pop("the rule before")
    shown = [
        [name.removeprefix("break price "), f"{float(broken):.1f} %", f"{float(penalty):.1f}"]
        for name, (broken, penalty) in names.items()
    ]
    return table(["`--break-price`", "recommended models that break the limit", "their penalty"], shown)
