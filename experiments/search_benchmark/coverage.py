"""What bounds cover, and how often a recommended model loses too much, on kept rows of real candidates.

All unseen samples of a case are the population; a search on few of them is simulated by drawing with replacement.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from cases import BenchmarkCase, all_cases
from regret import unseen_of, yardstick_of
from tables import finished_runs
from unseen import records_of

from autoselect.domain.picks import passing, recommended
from autoselect.runs.records import Scores, TrialRecord
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import paired_drop
from autoselect.study.finishing.certainty import link_of, members_of

ALLOWED = (0.01, 0.02)


def simulate(case: BenchmarkCase, runs: Path, rows: Path, count: int, repeats: int, most: int) -> list[str]:
    """One row of the table: a case with searches on so many samples."""
    found = finished_runs(runs, case.name)
    scores = {r.scores.sha256: r.scores for _, run in found for r in records_of(run.directory) if r.scores}
    unseen = unseen_of(case, rows, scores)
    shas = sorted(unseen.losses, key=lambda sha: scores[sha].penalty)
    shas = [shas[i] for i in np.unique(np.linspace(0, len(shas) - 1, min(most, len(shas))).astype(int))]
    metric = make_metric(case.metric)
    losses = np.stack([unseen.losses[sha] for sha in shas])
    true = losses.mean(axis=1)
    rng = np.random.default_rng(0)
    covered, broken, certified = np.zeros(len(shas)), np.zeros(len(ALLOWED)), np.zeros(len(ALLOWED))
    yardstick = yardstick_of(found[0][1], metric.direction, 1.0)
    theirs = unseen.reference[:, None]
    ours = [unseen.rows(sha)[:, None] for sha in shas]
    for _ in range(repeats):
        chosen = rng.integers(losses.shape[1], size=count)
        pairs = [paired_drop(metric, own[chosen], theirs[chosen]) for own in ours]
        covered += [pair.bound + 1e-9 >= drop for pair, drop in zip(pairs, true, strict=True)]
        drawn = [
            replace(scores[sha], drop=pair.drop, drop_noise=pair.error, drop_bound=pair.bound, samples=count)
            for sha, pair in zip(shas, pairs, strict=True)
        ]
        members = members_of([_record(s) for s in drawn], yardstick, link_of(drawn))
        for place, share in enumerate(ALLOWED):
            limit = share * abs(unseen.float_score)
            if passing(members, limit)[1]:
                named = recommended(members, limit).id
                certified[place] += 1
                broken[place] += true[[sha[:10] for sha in shas].index(named)] > limit
    cells = [case.name, str(len(shas)), str(losses.shape[1]), str(count)]
    cells += [_percent(float(covered.min()) / repeats), _percent(float(covered.mean()) / repeats)]
    for place in range(len(ALLOWED)):
        cells += [_percent(certified[place] / repeats), _percent(broken[place] / max(certified[place], 1))]
    return cells


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _record(scores: Scores) -> TrialRecord:
    return TrialRecord(number=0, origin="", recipe=None, scores=scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write coverage.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="--output of bench.py.")
    parser.add_argument("--rows", type=Path, required=True, help="--rows of unseen.py.")
    parser.add_argument(
        "--samples", type=int, action="append", default=[], help="Of a search; 250 and 1,000 by default."
    )
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--most", type=int, default=24, help="Candidates of a case, spread over their penalties.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    cases = [case for name, case in all_cases({}).items() if (options.rows / name).exists()]
    lines = [
        simulate(case, options.runs, options.rows, count, options.repeats, options.most)
        for case in cases
        for count in options.samples or (250, 1000)
    ]
    head = ["case", "candidates", "all samples", "of a search", "bound covers, worst candidate, %", "mean, %"]
    for share in ALLOWED:
        head += [f"something certified for {share:.0%}, %", "of these break it, %"]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)) + "\n"
    (options.output / "coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
