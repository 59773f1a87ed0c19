"""What saturates first: jobs of 0.1, 1 and 10 s at 1, 8, 64 and 256 slots, in virtual time with measured costs.

One driver asks, tells and writes the journal, each in turn; replies come through one line. ``large.py`` measured the
driver, and the line is measured here, with a Dask cluster of this machine.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
from synthetic import synthetic

from autoselect.study.proposing import constants
from autoselect.study.proposing.proposers import random_masks
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

HERE = Path(__file__).resolve().parent
SLOTS, SECONDS = (1, 8, 64, 256), (0.1, 1.0, 10.0)
REPLY_BYTES = 1_000_000
JOBS_OF_A_TRIAL = 2
"""It is built, then scored."""


def versions() -> Mapping[str, str]:
    return {}


def reply() -> bytes:
    return os.urandom(REPLY_BYTES)


def line_seconds(count: int = 40) -> float:
    """Seconds that the driver's side of the cluster takes for a job with a reply, once it is warm."""
    from autoselect.cluster.jobs import Local
    from autoselect.cluster.opening import opened

    with tempfile.TemporaryDirectory() as folder:
        local = Local(workers=1, log=Path(folder) / "worker.log", warm_up=None)
        with opened("local:1", describe=versions, local=local, insecure=False, tell=print) as cluster:
            cluster.call(reply)
            begun = time.process_time()
            for _ in range(count):
                cluster.call(reply)
            return (time.process_time() - begun) / count


def further_seconds(nodes: int) -> float:
    """Seconds for each further candidate that an ask chooses."""
    truth = synthetic(nodes, 0)
    seen = truth.run(random_masks(truth.problem, 0), 60)
    pending = [s.mask for s in truth.run(random_masks(truth.problem, 1), 64)]
    found = []
    for constants.UNDER_WAY in (10**6, 8):
        begun = time.process_time()
        SurrogateProposer(truth.problem, 0).propose(seen, pending)
        found.append(time.process_time() - begun)
    return max(found[1] - found[0], 0.0) / (len(pending) // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Seconds of an ask, of each further candidate that it chooses for the next asks, and of a tell."""

    ask: float
    further: float
    tell: float


def drivers(path: Path) -> dict[str, Driver]:
    """What ``large.py`` found at its last mark, by the number of nodes."""
    rows = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    last = {row[0]: (float(row[2]), float(row[3])) for row in cells}
    return {n: Driver(ask=ask, tell=tell, further=further_seconds(int(n))) for n, (ask, tell) in last.items()}


def simulated(slots: int, seconds: float, driver: Driver, line: float, *, together: int) -> dict[str, float]:
    """Shares of the time in which each part is busy, and trials a second.

    Args:
        slots: Of the cluster; twice as many candidates are under way.
        seconds: A trial takes on a slot, on average.
        driver: What each of its steps takes.
        line: Seconds in which a reply arrives.
        together: How many candidates an ask chooses.
    """
    rng, trials = np.random.default_rng(0), max(40 * slots, 400)
    jobs = seconds * rng.lognormal(-0.125, 0.5, trials)  # of mean 1
    free, under_way = [0.0] * slots, deque[float]()
    now = arrived = asking = 0.0
    most = slots if slots == 1 else 2 * slots
    for number, job in enumerate(jobs.tolist()):
        while len(under_way) >= most:
            now = max(now, under_way.popleft()) + driver.tell
        step = driver.ask if number % together == 0 else driver.further
        now, asking = now + step, asking + step
        end = max(now, heapq.heappop(free)) + job
        heapq.heappush(free, end)
        arrived = max(arrived, end) + line
        under_way.append(arrived)
    whole = max(now, *under_way)
    return {
        "slots": float(jobs.sum()) / slots / whole,
        "ask": asking / whole,
        "journal": driver.tell * trials / whole,
        "replies": line * trials / whole,
        "rate": trials / whole,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write slots.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=Path, default=HERE / "results" / "large.md", help="What large.py wrote.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    each, line = constants.UNDER_WAY, JOBS_OF_A_TRIAL * line_seconds()
    lines = [f"Replies of a trial, {JOBS_OF_A_TRIAL} of {REPLY_BYTES / 1e6:.0f} MB: {line:.3f} s. "]
    lines += ["| nodes | job, s | slots | trials/s at most | trials/s | slots busy | busiest of the driver |"]
    lines += ["|---" * 7 + "|"]
    measured = drivers(options.large)
    for nodes, driver in measured.items():
        lines[0] += f"{nodes} nodes: an ask {driver.ask:.2f} s, each further candidate of it {driver.further:.3f} s, "
        lines[0] += f"a tell {driver.tell:.3f} s. "
    lines[0] = lines[0].rstrip() + "\n"
    for (nodes, driver), seconds, slots in product(measured.items(), SECONDS, SLOTS):
        found = simulated(slots, seconds, driver, line, together=1 + 2 * slots // each)
        busiest = max(("ask", "journal", "replies"), key=lambda name: found[name])
        shown = f"{busiest}, {found[busiest]:.0%}"
        lines.append(
            f"| {nodes} | {seconds:g} | {slots} | {slots / seconds:.3g} | {found['rate']:.3g} | {found['slots']:.0%} "
            f"| {shown} |"
        )
    (options.output / "slots.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
