"""Simulates samples that come in groups, such as recordings of a speaker: what bounds on the drop cover.

Whole groups are drawn, each with a loss of its own; what all groups lose on the mean is the true drop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rows import RESULTS
from run import percent, table

from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import PairedDrop, paired_drop

COUNTS = (10, 20, 40, 100)
EACH = 20
"""Samples of a group, or their mean number."""
DROP = 0.1
MISSED = 0.12
"""Of the samples by the float model."""
SMALL = 1e-12

Rates = Callable[[np.random.Generator, int], np.ndarray]


def _alike(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.full(count, DROP)


def _spread(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.beta(1.0, 1.0 / DROP - 1.0, size=count)


def _some(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.where(rng.random(count) < 2.0 * DROP, 0.5, 0.0)


def _few(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.where(rng.random(count) < DROP, 1.0, 0.0)


KINDS: dict[str, Rates] = {
    "all groups lose alike": _alike,
    "losses spread from group to group": _spread,
    "a fifth of the groups lose half of their samples": _some,
    "a tenth of the groups lose all": _few,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Samples of one search: rows of a candidate and of float, and each sample's group."""

    rows: np.ndarray
    float_rows: np.ndarray
    groups: np.ndarray


def _groups(rng: np.random.Generator, count: int, are_equal: bool) -> np.ndarray:
    sizes = np.full(count, EACH) if are_equal else 1 + rng.geometric(1.0 / (EACH - 1), size=count)
    return np.repeat(np.arange(count), sizes)


def hits(rng: np.random.Generator, count: int, rates: Rates, are_equal: bool) -> Draw:
    """Hits and misses; the candidate misses what float misses, and loses others by its group's rate."""
    groups = _groups(rng, count, are_equal)
    lost = rng.random(len(groups)) < rates(rng, count)[groups]
    floats = np.where(lost, 1.0, (rng.random(len(groups)) >= MISSED).astype(float))
    return Draw(rows=(floats * ~lost)[:, np.newaxis], float_rows=floats[:, np.newaxis], groups=groups)


def errors(rng: np.random.Generator, count: int, rates: Rates, are_equal: bool) -> Draw:
    """Errors that only grow; by how much is exponential, with the mean of the sample's group."""
    groups = _groups(rng, count, are_equal)
    floats = rng.exponential(size=len(groups))
    added = rng.exponential(size=len(groups)) * rates(rng, count)[groups]
    return Draw(rows=(floats + added)[:, np.newaxis], float_rows=floats[:, np.newaxis], groups=groups)


MEASURES: dict[str, tuple[Metric, Callable[..., Draw]]] = {
    "hits": (make_metric("accuracy"), hits),
    "errors": (make_metric("mse"), errors),
}


def covered(measure: str, rates: Rates, count: int, *, are_equal: bool, repeats: int) -> np.ndarray:
    """Shares of draws whose bound, and whose interval, hold the true drop.

    Returns:
        Shape (2, 2): over samples, over groups; bound, interval.
    """
    metric, draw = MEASURES[measure]
    rng, found = np.random.default_rng(count), np.zeros((2, 2))
    for _ in range(repeats):
        drawn = draw(rng, count, rates, are_equal)
        for place, groups in enumerate((None, drawn.groups)):
            found[place] += _holds(paired_drop(metric, drawn.rows, drawn.float_rows, groups=groups))
    return found / repeats


def _holds(pair: PairedDrop) -> tuple[bool, bool]:
    return pair.bound + SMALL >= DROP, pair.low - SMALL <= DROP <= pair.high + SMALL


def main(arguments: list[str] | None = None) -> None:
    """Write groups.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="Draws of each row.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)  # Before the work, which would be lost without it.
    rows = []
    for measure in MEASURES:
        for kind, rates in KINDS.items():
            for are_equal in (True, False):
                for count in COUNTS:
                    found = covered(measure, rates, count, are_equal=are_equal, repeats=options.repeats)
                    sizes = "equal" if are_equal else "unequal"
                    rows.append([measure, kind, sizes, str(count), *map(percent, found.T.ravel().tolist())])
                    print(*rows[-1], sep=" | ", flush=True)
    head = ["measure", "kind", "sizes", "groups", "bound covers, over samples, %", "over groups, %"]
    head += ["interval covers, over samples, %", "over groups, %"]
    (options.output / "groups.md").write_text(table(head, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
