"""Simulates drops of scores that are no mean over samples: what their bounds cover, and how wide they are.

Samples are drawn from 400,000, of which the true drop is known.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from rows import RESULTS
from run import percent, table

from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import paired_drop

METRICS: tuple[Metric, ...] = (make_metric("f1_macro"), make_metric("balanced_accuracy"))
COUNTS = (150, 600, 2500)
CLASSES, POPULATION = 4, 400_000
RIGHT = (1.0, 0.9)
"""Of the samples by the float model."""
CHANGES = ((0.0, 1.0), (0.002, 1.0), (0.002, 0.5), (0.01, 1.0), (0.05, 0.6))
"""Share of the samples that the candidate answers otherwise than float, and how many of these it loses."""
SMALL = 1e-9


def population(rng: np.random.Generator, *, right: float, are_even: bool, changed: float, lost: float) -> np.ndarray:
    """Label, float's and the candidate's answer, shape (n_samples, 3), int64; uneven classes have 70 to 2 %."""
    shares = np.ones(CLASSES) if are_even else 0.3 ** np.arange(CLASSES)
    labels = rng.choice(CLASSES, POPULATION, p=shares / shares.sum())
    others = (labels + rng.integers(1, CLASSES, POPULATION)) % CLASSES
    floats = np.where(rng.random(POPULATION) < right, labels, others)
    moved, is_lost = rng.random(POPULATION) < changed, rng.random(POPULATION) < lost
    elsewhere = (floats + rng.integers(1, CLASSES, POPULATION)) % CLASSES
    ours = np.where(moved, np.where(is_lost, elsewhere, labels), floats)
    return np.stack([labels, floats, ours], axis=1)


def sides(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the candidate and of float."""
    return samples[:, [0, 2]].astype(np.float64), samples[:, [0, 1]].astype(np.float64)


def covered(metric: Metric, samples: np.ndarray, count: int, repeats: int) -> tuple[float, float]:
    """The share of draws whose bound holds the true drop, and the median distance between the two."""
    ours, theirs = sides(samples)
    true, rng = metric.summarise(theirs) - metric.summarise(ours), np.random.default_rng(count)
    drawn = (samples[rng.integers(len(samples), size=count)] for _ in range(repeats))
    beyond = np.array([paired_drop(metric, *sides(one)).bound - true for one in drawn])
    return float((beyond >= -SMALL).mean()), float(np.median(beyond))


def main(arguments: list[str] | None = None) -> None:
    """Write scores.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400, help="Draws of each row.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)  # Before the work, which would be lost without it.
    head = ["metric", "classes", "float is right, %", "answers that differ, %", "of them lost, %"]
    head += [f"{count} samples: {what}" for count in COUNTS for what in ("covered, %", "bound beyond the drop, points")]
    rows = []
    for metric, are_even, right, (changed, lost) in itertools.product(METRICS, (True, False), RIGHT, CHANGES):
        rng = np.random.default_rng(0)
        samples = population(rng, right=right, are_even=are_even, changed=changed, lost=lost)
        cells = [metric.name, "even" if are_even else "uneven", *map(percent, (right, changed, lost))]
        for count in COUNTS:
            share, beyond = covered(metric, samples, count, options.repeats)
            cells += [percent(share), f"{100 * beyond:.2f}"]
        rows.append(cells)
        print(*cells, sep=" | ", flush=True)
    (options.output / "scores.md").write_text(table(head, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
