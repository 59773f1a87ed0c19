"""The samplers on made-up graphs whose truth is known: 400 nodes, and damage that several nodes each do alone.

No model is run: the loss of a candidate is worked out from the terms of its nodes, as in the tests of the samplers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import optuna
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
from baseline_samplers import BASELINES
from synthetic import Synthetic, synthetic, volume

from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.recording.samplers import PROPOSERS

MARKS = (20, 40, 60, 100)
OPTUNAS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
}
SAMPLERS = ("surrogate", "random", "tpe", "nsga2", "prefix", "greedy", "heuristic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A made-up case: how many nodes, and how many of them each ruin the model alone."""

    name: str
    nodes: int
    redundant: int


GRAPHS = {
    graph.name: graph
    for graph in (
        Graph(name="400 nodes, additive", nodes=400, redundant=0),
        Graph(name="60 nodes, 4 redundant", nodes=60, redundant=4),
    )
}


def seen_of(sampler: str, truth: Synthetic, seed: int) -> list[Seen]:
    """What a sampler scores within the budget, in order."""
    if make := {**PROPOSERS, **BASELINES}.get(sampler):
        return truth.run(make(truth.problem, seed, MARKS[-1]), MARKS[-1])
    found: list[Seen] = []

    def objective(trial: optuna.Trial) -> tuple[float, float, float]:
        bits = [trial.suggest_categorical(f"n{i}", [False, True]) for i in range(len(truth.problem.units))]
        mask = Mask(sum(1 << i for i, on in enumerate(bits) if on))
        found.append(truth.seen(mask))
        return float(found[-1].loss or 0.0), found[-1].size_bytes, found[-1].penalty

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(directions=["minimize"] * 3, sampler=OPTUNAS[sampler](seed)).optimize(objective, MARKS[-1])
    return found


def run(task: tuple[str, str, int]) -> list[dict[str, object]]:
    """Hypervolume of one sampler on one graph with one seed, at each mark; the seed is of the graph too."""
    name, sampler, seed = task
    graph = GRAPHS[name]
    seen = seen_of(sampler, synthetic(graph.nodes, seed, redundant=graph.redundant), seed)
    own = {"graph": name, "sampler": sampler, "seed": seed}
    return [own | {"evaluations": mark, "hypervolume": round(volume(seen[:mark]), 5)} for mark in MARKS]


def markdown(rows: pd.DataFrame) -> str:
    """A table a graph: median and range over seeds."""
    lines = []
    for name, of_graph in rows.groupby("graph", sort=False):
        lines += [f"**{name}**", "", "| sampler | " + " | ".join(f"at {mark}" for mark in MARKS) + " |"]
        lines.append("|---" * (len(MARKS) + 1) + "|")
        for sampler, own in of_graph.groupby("sampler", sort=False):
            cells = [own[own["evaluations"] == mark]["hypervolume"] for mark in MARKS]
            told = [f"{v.median():.4f} ({v.min():.4f} to {v.max():.4f})" for v in cells]
            lines.append(f"| {sampler} | " + " | ".join(told) + " |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write made_up.csv and made_up.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sampler", action="append", choices=SAMPLERS, help="Repeat it. All by default.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    tasks = list(product(GRAPHS, options.sampler or SAMPLERS, range(options.seeds)))
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = pd.DataFrame([row for found in pool.map(run, tasks) for row in found])
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "made_up.csv", index=False)
    text = markdown(rows)
    (options.output / "made_up.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
