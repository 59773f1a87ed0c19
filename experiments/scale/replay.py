"""What it costs a search that its sampler learns from fewer candidates, or asks without the newest scores.

Made-up chains of nodes whose truth is known, as in the tests of the samplers: no model is run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
from synthetic import synthetic, volume

from autoselect.study.proposing import constants
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

HERE = Path(__file__).resolve().parent
NODES = 60
MANY = 10**6
KINDS = {
    "one under way": (MANY, 0, MANY),
    "one under way, learns from 60": (60, 0, MANY),
    "one under way, learns from 30": (30, 0, MANY),
    "64 under way, 1 an ask": (MANY, 63, MANY),
    "64 under way, 2 an ask": (MANY, 63, 32),
    "64 under way, 5 an ask": (MANY, 63, 15),
}
"""How many candidates it learns from, how many are under way, and for how many of these an ask chooses one more."""


def run(task: tuple[str, int, int]) -> tuple[float, float]:
    """Hypervolume at the end, and processor seconds an ask."""
    kind, seed, trials = task
    constants.LEARNED, ahead, constants.UNDER_WAY = KINDS[kind]
    truth = synthetic(NODES, seed, redundant=2)
    begun = time.process_time()
    seen = truth.run(SurrogateProposer(truth.problem, seed, trials), trials, ahead=ahead)
    return volume(seen), (time.process_time() - begun) / trials


def main(arguments: Sequence[str] | None = None) -> None:
    """Write replay.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    tasks = [(kind, seed, options.trials) for kind, seed in product(KINDS, range(options.seeds))]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip(tasks, pool.map(run, tasks), strict=True))
    first = next(iter(KINDS))
    lines = ["| candidates | hypervolume against the first row | range over seeds | an ask, s |", "|---|---|---|---|"]
    for kind in KINDS:
        own = [found[kind, seed, options.trials] for seed in range(options.seeds)]
        shares = [v / found[first, seed, options.trials][0] - 1.0 for seed, (v, _) in enumerate(own)]
        span = f"{min(shares):+.2%} to {max(shares):+.2%}"
        lines.append(f"| {kind} | {mean(shares):+.2%} | {span} | {median(s for _, s in own):.2f} |")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "replay.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
