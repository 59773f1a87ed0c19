"""How far penalties of small searches on the demo's model are apart: one search, then the rule on draws of its samples.

The aim: no draw recommends more than twice the median penalty of its sample size.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from coverage import RULES, SMALL, Population, Recommender, name_of
from rows import RESULTS, keep
from run import percent, table

from autoselect.domain.picks import DEFAULT_DROP_SHARE

CASE, SAMPLES, SHOWN = "pump", (100, 200, 400, 1000), 8
HEAD = (
    "samples",
    "rule",
    "penalties of the first eight draws",
    "at most twice their median",
    "median of all draws",
    "at most twice the median, % of draws",
    "largest",
)


def rows_of(people: Population, draws: int) -> list[list[str]]:
    """A row for each sample size and rule."""
    limit, found = DEFAULT_DROP_SHARE * people.float_score, []
    for count in SAMPLES:
        searches = [Recommender.of(c, people.yardstick()) for c, _, _ in people.searches(count, draws)]
        for rule in RULES:
            penalties = np.array([search.chosen(rule, limit).penalty for search in searches])
            shown = np.sort(penalties[:SHOWN])
            few, many = (float(np.mean(some <= 2.0 * np.median(some) + SMALL)) for some in (shown, penalties))
            told = " ".join(f"{penalty:.1f}" for penalty in shown)
            figures = [f"{np.median(penalties):.2f}", percent(many), f"{penalties.max():.1f}"]
            found.append([str(count), name_of(rule), told, f"{few * len(shown):.0f} of {len(shown)}", *figures])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write demo.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40, help="Of the search whose candidates are scored on draws.")
    parser.add_argument("--draws", type=int, default=100, help="Searches of each size that are simulated.")
    parser.add_argument("--rows", type=Path, help="Folder with the rows of such a search, by rows.py; none searches.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)  # Before the work, which would be lost without it.
    if options.rows is None:
        with tempfile.TemporaryDirectory() as folder:
            keep(CASE, options.trials, Path(folder))
            people = Population.of(CASE, Path(folder))
    else:
        people = Population.of(CASE, options.rows)
    (options.output / "demo.md").write_text(table(HEAD, rows_of(people, options.draws)), encoding="utf-8")


if __name__ == "__main__":
    main()
