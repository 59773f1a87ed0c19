"""What users get of a search: the model that it recommends, and its front, judged on samples that it never saw.

Reads finished runs of ``bench.py`` and the rows of ``unseen.py``; runs no model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench import DEFAULT, FULL, finished_runs
from cases import BenchmarkCase, all_cases
from unseen import records_of

from autoselect.cases.files import FLOAT
from autoselect.domain.objectives import Constraints, Direction
from autoselect.domain.pareto import hypervolume, non_dominated
from autoselect.domain.quantities import METRIC, objectives_of
from autoselect.runs.records import Scores, TrialRecord, distinct, scores_of
from autoselect.scoring.metrics import make_metric
from autoselect.study.finishing.certainty import link_of, standings_of
from autoselect.study.finishing.front_members import front_of
from autoselect.study.yardstick import Yardstick

ALLOWED = (0.005, 0.01, 0.02)
"""Drops, as shares of float's score."""
VOLUME_DROP = 0.01
CLIP = 3.0
"""Drops beyond so many allowed ones are no use to anybody."""
END = np.inf
"""Mark of a run's end, whatever it cost."""
MARKS = (20, 30, 60, 100, END)
REGRETTED = (30, 60)
"""Marks at which regret is told."""
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
    samples = np.array([0 if r.reused else r.samples or 0 for r in records])
    return (note["probe_samples"] + np.cumsum(samples)) / note["search_samples"]


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
            named = yardstick.rule.recommended(standings_of(front, link))
            scores = next(r.scores for r in front if r.id == named.id and r.scores)
            limit = share * abs(unseen.float_score)
            keeping = {sha: unseen.scores[sha].penalty for sha in unseen.losses if unseen.drop(sha) <= limit}
            tried = [keeping[r.scores.sha256] for r in known if r.scores and r.scores.sha256 in keeping]
            row = {"case": case.name, "sampler": note["sampler"], "seed": note["seed"], "evaluations": mark}
            row |= {"allowed": share, "certified": named.bound <= yardstick.allowed_drop}
            row |= {
                "penalty": scores.penalty,
                "size_bytes": scores.size_bytes,
                "least": min(keeping.values(), default=np.nan),
            }
            row |= {"tried": min(tried, default=np.nan)}
            row |= {"drop": unseen.drop(scores.sha256) / abs(unseen.float_score)}
            broken = [unseen.drop(scores.sha256, chosen) > limit for chosen in resamples]
            row |= {"broken": float(np.mean(broken)), "spent": float(done[-1])}
            row |= {"probes": note["probe_samples"] / note["search_samples"], "trials": note["trials"]}
            row |= {"seconds": note["seconds"]}
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
    """Markdown: for each case and sampler the medians over seeds, and what the regret is made of."""
    lines = [
        "Penalty of the recommended model beyond the least of any candidate that keeps the allowed drop on the unseen "
        "samples, median over seeds (in brackets: how often it breaks that drop, mean over seeds and resamples of the "
        "unseen samples), after 30 and 60 evaluations; then the cross-fitted volume, %. The second table has the parts "
        "of the regret, means over seeds: what the best of the run's own candidates that keep the drop costs beyond "
        "the least one (not tried), and what the recommended one costs beyond that (not chosen; below 0 where it "
        "breaks the drop). The third has the recommended model's penalty, size and drop on the unseen samples when all "
        "trials are spent, and the seconds of the run, medians over seeds.",
        "",
    ]
    for case, whole in rows.groupby("case", sort=False):
        of_case = whole[np.isfinite(whole["evaluations"])]
        least = ", ".join(f"{share:.1%}: {part['least'].iloc[0]:.1f}" for share, part in of_case.groupby("allowed"))
        lines += [f"**{case}**; least penalty within {least}", ""]
        marks = sorted(set(of_case["evaluations"]))
        head = [f"{share:.1%} at {mark}" for share in ALLOWED for mark in REGRETTED]
        volumes = [f"volume at {mark:.0f}" for mark in marks]
        lines += _table(["sampler", "seeds", *head, *volumes, "spent"], of_case, partial(_figures, marks))
        lines += _table(["sampler", "seeds", *head], of_case, lambda own: list(map(_parts, _regretted(own))))
        head = [f"{share:.1%} at the end" for share in ALLOWED]
        lines += _table(["sampler", "seeds", *head, "seconds"], whole[whole["evaluations"] == END], _at_the_end)
    return "\n".join(lines)


def _table(head: Sequence[str], rows: pd.DataFrame, cells: Callable[[pd.DataFrame], list[str]]) -> list[str]:
    """A row for each sampler."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for sampler, own in rows.groupby("sampler", sort=False):
        lines.append(f"| {' | '.join([str(sampler), str(own['seed'].nunique()), *cells(own)])} |")
    return [*lines, ""]


def _regretted(own: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of each allowed drop and mark."""
    for share in ALLOWED:
        for mark in REGRETTED:
            yield own[(own["allowed"] == share) & (own["evaluations"] == mark)]


def _figures(marks: Sequence[float], own: pd.DataFrame) -> list[str]:
    cells = [_regret(part) for part in _regretted(own)]
    for mark in marks:
        part = own[(own["evaluations"] == mark) & own["volume"].notna()]
        cells.append(f"{100 * part['volume'].median():.1f}" if len(part) else "–")
    return [*cells, f"{own['spent'].median():.1f}"]


def _regret(part: pd.DataFrame) -> str:
    return f"{(part['penalty'] - part['least']).median():.1f} ({part['broken'].mean():.0%})" if len(part) else "–"


def _at_the_end(own: pd.DataFrame) -> list[str]:
    medians = own.groupby("allowed")[["penalty", "size_bytes", "drop", "seconds"]].median()
    found = [medians.loc[share] for share in ALLOWED]
    told = [f"{m['penalty']:.1f}, {m['size_bytes'] / 1000:.1f} kB, {100 * m['drop']:.2f} %" for m in found]
    return [*told, f"{found[0]['seconds']:.0f}"]


def _parts(part: pd.DataFrame) -> str:
    """Means over seeds add up, medians do not."""
    untried, unchosen = (part["tried"] - part["least"]).mean(), (part["penalty"] - part["tried"]).mean()
    return f"{untried:.1f} + {unchosen:.1f}" if np.isfinite(untried) else "–"


def races_of(rows: pd.DataFrame) -> str:
    """Markdown: what candidates cost with races and in full, and what is recommended at the end of the same seeds."""
    lines = [
        "Full evaluations that the trials cost, % of their number, median over seeds (in brackets: with the probes); "
        "regret and breaking of what is recommended at the end, as in regret.md; the same seeds of all rows of a case.",
        "",
    ]
    head = ["case", "sampler", "seeds", "trials", "evaluations, %", *(f"{share:.1%}" for share in ALLOWED)]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    ends = rows[(rows["evaluations"] == END) & rows["sampler"].isin([DEFAULT, f"{DEFAULT}+{FULL}"])]
    for case, versions in ends.groupby("case", sort=False):
        seeds = set.intersection(*(set(own["seed"]) for _, own in versions.groupby("sampler")))
        shown = versions if versions["sampler"].str.endswith(f"+{FULL}").any() else versions[:0]
        for sampler, own in shown[shown["seed"].isin(seeds)].groupby("sampler", sort=False):
            spent, trials = own["spent"], own["trials"]
            shares = [f"{100 * (cost / trials).median():.1f}" for cost in (spent - own["probes"], spent)]
            cells = [case, sampler, len(seeds), trials.iloc[0], f"{shares[0]} ({shares[1]})"]
            regrets = [_regret(own[own["allowed"] == share]) for share in ALLOWED]
            lines.append(f"| {' | '.join(map(str, [*cells, *regrets]))} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write regret.csv, regret.md and races.md."""
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
    for name, text in (("regret.md", table_of(rows)), ("races.md", races_of(rows))):
        (options.output / name).write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
