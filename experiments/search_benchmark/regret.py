"""What users get of a search: the model that it recommends, and its front, judged on samples that it never saw.

Reads finished runs of ``bench.py`` and the rows of ``unseen.py``; runs no model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cases import BenchmarkCase, all_cases
from tables import costs, finished_runs
from unseen import records_of

from autoselect.cases.files import FLOAT
from autoselect.domain.objectives import Constraints, Direction
from autoselect.domain.pareto import hypervolume, non_dominated
from autoselect.domain.picks import recommended
from autoselect.domain.quantities import METRIC, objectives_of
from autoselect.runs.records import Scores, TrialRecord, distinct, scores_of
from autoselect.scoring.metrics import make_metric
from autoselect.study.finishing.certainty import link_of, members_of
from autoselect.study.finishing.front_members import front_of
from autoselect.study.yardstick import Yardstick

ALLOWED = (0.005, 0.01, 0.02)
"""Drops, as shares of float's score."""
VOLUME_DROP = 0.01
CLIP = 3.0
"""Drops beyond so many allowed ones are no use to anybody."""
MARKS = (20, 30, 60, 100)
RESAMPLES = 200
SPLITS = 10
_LEAST = 1e-3
"""Of the volume there is: with less, nothing that was ever found loses so little, and shares are noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """What a case's candidates score where no search looked.

    Attributes:
        reference: The float model's rows, shape (n_samples,).
        losses: By hash, against float, sample by sample, shape (n_samples,); their mean is the drop.
        scores: By hash, of any run, for size and penalty.
        sign: 1 where more is better, else -1.
    """

    reference: np.ndarray
    losses: Mapping[str, np.ndarray]
    scores: Mapping[str, Scores]
    sign: float

    @property
    def float_score(self) -> float:
        """Of the float model, on these samples."""
        return float(self.reference.mean())

    def rows(self, sha256: str) -> np.ndarray:
        """Of a candidate, shape (n_samples,)."""
        return self.reference - self.sign * self.losses[sha256]

    def drop(self, sha256: str, chosen: np.ndarray | slice = slice(None)) -> float:
        """Of a candidate, on all samples or some; infinite for one that lost far too much to be observed."""
        return float(self.losses[sha256][chosen].mean()) if sha256 in self.losses else np.inf


def unseen_of(case: BenchmarkCase, rows: Path, scores: Mapping[str, Scores]) -> Unseen:
    """Read the rows of a case."""
    sign = 1.0 if make_metric(case.metric).direction == "maximize" else -1.0
    reference = np.load(rows / case.name / f"{FLOAT}.npy")
    found = {path.stem: np.load(path) for path in (rows / case.name).glob("*.npy") if path.stem in scores}
    losses = {sha: sign * (reference - values) for sha, values in found.items()}
    return Unseen(reference=reference, losses=losses, scores=scores, sign=sign)


def spent(records: Sequence[TrialRecord], note: Mapping[str, Any]) -> np.ndarray:
    """Full evaluations when each trial was done, shape (n_records,); what was probed before the first counts."""
    trials = pd.DataFrame({"samples": [r.samples for r in records], "reused": [r.reused for r in records]})
    return note["probe_samples"] / note["search_samples"] + np.cumsum(costs(trials, note["search_samples"]))


def yardstick_of(run: Any, direction: Direction, share: float) -> Yardstick:
    """Float's figures on the search samples."""
    reference = run.summary["references"]["float"]
    score = float(reference[run.manifest["metric"]["name"]])
    return Yardstick(
        float_score=score,
        float_size_bytes=int(reference["size_bytes"]),
        float_penalty=float(reference["penalty"]),
        direction=direction,
        constraints=Constraints(),
        allowed_drop=share * abs(score),
    )


def rows_of_run(case: BenchmarkCase, note: Mapping[str, Any], run: Any, unseen: Unseen) -> Iterator[dict[str, Any]]:
    """A row for each mark and allowed drop: what the run would have recommended then."""
    records = records_of(run.directory)
    done = spent(records, note)
    metric = make_metric(case.metric)
    objectives = objectives_of((METRIC, "size", "penalty"), case.metric, metric.direction)
    rng = np.random.default_rng(0)
    count = len(next(iter(unseen.losses.values())))
    resamples = [rng.integers(count, size=count) for _ in range(RESAMPLES)]
    for mark in MARKS:
        known = [r for r, cost in zip(records, done, strict=True) if cost <= mark and r.scores]
        if not known:
            continue
        link = link_of(scores_of(distinct(known)))
        for share in ALLOWED:
            yardstick = yardstick_of(run, metric.direction, share)
            front, _ = front_of(known, objectives, yardstick, link)
            named = recommended(members_of(front, yardstick, link), yardstick.allowed_drop)
            scores = next(r.scores for r in front if r.id == named.id and r.scores)
            limit = share * abs(unseen.float_score)
            keeping = [unseen.scores[sha].penalty for sha in unseen.losses if unseen.drop(sha) <= limit]
            row = {"case": case.name, "sampler": note["sampler"], "seed": note["seed"], "evaluations": mark}
            row |= {"allowed": share, "certified": named.bound <= yardstick.allowed_drop}
            row |= {"penalty": scores.penalty, "least": min(keeping, default=np.nan)}
            row |= {"drop": unseen.drop(scores.sha256) / abs(unseen.float_score)}
            broken = [unseen.drop(scores.sha256, chosen) > limit for chosen in resamples]
            row |= {"broken": float(np.mean(broken)), "spent": float(done[-1])}
            if share == VOLUME_DROP:
                row["volume"] = crossed_volume(scores_of(front), unseen, yardstick)
            yield row


def crossed_volume(front: Sequence[Scores], unseen: Unseen, yardstick: Yardstick) -> float:
    """Volume of a front on half of the unseen samples over that of the front which the other half chooses of all.

    The mean over splits, each both ways round. Drops are clipped to 0 and three times the allowed one; units are that,
    and the float model's size and penalty.
    """
    rng = np.random.default_rng(1)
    shas = list(unseen.losses)
    fixed = np.array([_costs(unseen.scores[sha], yardstick) for sha in shas])
    losses = np.stack([unseen.losses[sha] for sha in shas])
    own = np.array([shas.index(s.sha256) for s in front if s.sha256 in unseen.losses], dtype=int)
    unit = CLIP * VOLUME_DROP * abs(unseen.float_score)
    shares = []
    for _ in range(SPLITS):
        halves = np.array_split(rng.permutation(losses.shape[1]), 2)
        drops = [np.clip(losses[:, half].mean(axis=1) / unit, 0.0, 1.0) for half in halves]
        for here, there in ((0, 1), (1, 0)):
            chosen = np.flatnonzero(non_dominated(np.column_stack([drops[there], fixed])))
            tables = [np.column_stack([drops[here][places], fixed[places]]) for places in (own, chosen)]
            ours, best = (hypervolume(table, np.ones(3)) if len(table) else 0.0 for table in tables)
            shares.append(ours / best if best > _LEAST else np.nan)
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else np.nan


def _costs(scores: Scores, yardstick: Yardstick) -> tuple[float, float]:
    return scores.size_bytes / yardstick.float_size_bytes, scores.penalty / yardstick.float_penalty


def table_of(rows: pd.DataFrame) -> str:
    """Markdown: for each case and sampler the medians over seeds."""
    lines = [
        "Penalty of the recommended model beyond the least of any candidate that keeps the allowed drop on the unseen "
        "samples, median over seeds (in brackets: how often it breaks that drop, mean over seeds and resamples of the "
        "unseen samples), after 30 and 60 evaluations; then the cross-fitted volume, %.",
        "",
    ]
    for case, of_case in rows.groupby("case", sort=False):
        least = ", ".join(f"{share:.1%}: {part['least'].iloc[0]:.1f}" for share, part in of_case.groupby("allowed"))
        lines += [f"**{case}**; least penalty within {least}", ""]
        marks = [m for m in MARKS if m in set(of_case["evaluations"])]
        head = [f"{share:.1%} at {mark}" for share in ALLOWED for mark in (30, 60) if mark in marks]
        lines += [f"| sampler | seeds | {' | '.join(head)} | {' | '.join(f'volume at {m}' for m in marks)} | spent |"]
        lines += ["|---" * (len(head) + len(marks) + 3) + "|"]
        for sampler, own in of_case.groupby("sampler", sort=False):
            cells = [str(sampler), str(own["seed"].nunique())]
            for share in ALLOWED:
                for mark in (30, 60):
                    part = own[(own["allowed"] == share) & (own["evaluations"] == mark)]
                    regret = (part["penalty"] - part["least"]).median()
                    cells.append(f"{regret:.1f} ({part['broken'].mean():.0%})")
            for mark in marks:
                part = own[(own["evaluations"] == mark) & own["volume"].notna()]
                cells.append(f"{100 * part['volume'].median():.1f}" if len(part) else "–")
            cells.append(f"{own['spent'].median():.1f}")
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write regret.csv and regret.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="--output of bench.py.")
    parser.add_argument("--rows", type=Path, required=True, help="--rows of unseen.py.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    found = []
    for name, case in all_cases({}).items():
        runs = finished_runs(options.runs, name)
        if not runs or not (options.rows / name).exists():
            continue
        scores = {r.scores.sha256: r.scores for _, run in runs for r in records_of(run.directory) if r.scores}
        unseen = unseen_of(case, options.rows, scores)
        for note, run in runs:
            found += rows_of_run(case, note, run, unseen)
    if not found:
        raise SystemExit(f"{options.runs} holds no finished run whose candidates were observed in {options.rows}.")
    rows = pd.DataFrame(found)
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "regret.csv", index=False)
    text = table_of(rows)
    (options.output / "regret.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
