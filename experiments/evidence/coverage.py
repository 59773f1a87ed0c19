"""Simulates small searches on the kept rows of three real cases: what bounds cover, and what is named wrongly.

All samples of a case are the population. A search on few of them is simulated by drawing them with replacement.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from former import former_recommended
from rows import CASES, RESULTS, Kept, read
from run import ACCURACY, CONFIDENCE, Field, column, drop_of_hits, percent, raced_now, table

from autoselect.cases import evidence_jobs
from autoselect.cases.divergence import shares_of
from autoselect.domain.objectives import Constraints
from autoselect.domain.picks import DEFAULT_DROP_SHARE
from autoselect.domain.quantities import METRIC, objectives_of
from autoselect.domain.rule import BREAK_PRICE, Rule, Standing
from autoselect.isolation.door import Workers
from autoselect.runs.records import Scores, TrialRecord, scores_of
from autoselect.scoring.paired import PairedDrop, resampled_drops
from autoselect.study.finishing.certainty import confidence_of, expected_drops, link_of, standings_of
from autoselect.study.finishing.front_members import front_of
from autoselect.study.proposing.hypervolume_gain import Link
from autoselect.study.proposing.observations import log_divergence
from autoselect.study.yardstick import Yardstick

SAMPLES = (250, 1000)
SHARES = (0.005, DEFAULT_DROP_SHARE, 0.02, 0.03, 0.05)
LOSS = 0.02
"""What an all-integer model loses that must not end a search."""
RESAMPLES = 100
"""As many as a search draws."""
SMALL = 1e-9
BREAK_PRICES = (1.5, BREAK_PRICE, 3.0)
FORMER = "former"
RULES: Sequence[str | float] = (FORMER, *BREAK_PRICES)
DEMO, DEMO_SAMPLES, DEMO_DRAWS = "pump", (100, 200, 400, 1000), 8
OBJECTIVES = objectives_of((METRIC, "size", "penalty"), "accuracy", "maximize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """A case with what is true of it.

    Attributes:
        kept: Its rows.
        losses: Of each candidate against float, sample by sample, shape (n_candidates, n_samples): -1, 0 or 1.
        float_score: On all samples.
    """

    kept: Kept
    losses: np.ndarray
    float_score: float

    @classmethod
    def of(cls, name: str, results: Path = RESULTS) -> Population:
        """Read a case; of candidates that answer alike on all samples one stays."""
        kept = read(name, results)
        _, first = np.unique(np.column_stack([kept.hits, kept.decibels]), axis=0, return_index=True)
        own = [kept.scores[i] for i in first.tolist()]
        kept = replace(kept, scores=own, hits=kept.hits[first], decibels=kept.decibels[first])
        return cls(kept=kept, losses=kept.float_hits - kept.hits, float_score=float(kept.float_hits.mean()))

    @property
    def drops(self) -> np.ndarray:
        """The true ones, shape (n_candidates,)."""
        return self.losses.mean(axis=1)

    def yardstick(self) -> Yardstick:
        """Without limits."""
        return Yardstick(
            float_score=self.float_score,
            float_size_bytes=self.kept.float_size_bytes,
            float_penalty=self.kept.float_penalty,
            direction="maximize",
            constraints=Constraints(),
            allowed_drop=0.0,
        )

    def searches(self, count: int, repeats: int) -> Iterator[tuple[list[Scores], list[PairedDrop], np.ndarray]]:
        """The candidates as searches on so many samples score them, their paired drops, and which samples it was."""
        rng = np.random.default_rng(0)
        shares = shares_of(self.kept.decibels)
        for _ in range(repeats):
            chosen = rng.integers(self.losses.shape[1], size=count)
            lost, won = (self.losses[:, chosen] > 0).sum(axis=1), (self.losses[:, chosen] < 0).sum(axis=1)
            score = float(self.kept.float_hits[chosen].mean())
            divergences, decibels = shares[:, chosen].mean(axis=1), self.kept.decibels[:, chosen].mean(axis=1)
            pairs = [drop_of_hits(count, b, c) for b, c in zip(lost.tolist(), won.tolist(), strict=True)]
            found = [
                replace(
                    scores,
                    metric=score - pair.drop,
                    drop=pair.drop,
                    drop_noise=pair.error,
                    drop_bound=pair.bound,
                    samples=count,
                    divergence=float(divergence),
                    sqnr_db=float(closeness),
                )
                for scores, pair, divergence, closeness in zip(
                    self.kept.scores, pairs, divergences, decibels, strict=True
                )
            ]
            yield found, pairs, chosen


def front_records(candidates: Sequence[Scores], yardstick: Yardstick) -> list[TrialRecord]:
    """The front of a search."""
    records = [TrialRecord(number=i, origin="", recipe=None, scores=s) for i, s in enumerate(candidates)]
    return front_of(records, OBJECTIVES, yardstick, link_of(candidates))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """What rules recommend on the front of one search.

    Attributes:
        members: Of the front.
        known: Of each the drop as it was scored, and the standard error of the expected one.
        yardstick: Float's figures.
    """

    members: Sequence[Standing]
    known: Mapping[str, tuple[float, float]]
    yardstick: Yardstick

    @classmethod
    def of(cls, candidates: Sequence[Scores], yardstick: Yardstick) -> Recommender:
        """By the candidates of a search."""
        front, link = front_records(candidates, yardstick), link_of(candidates)
        scores = scores_of(front)
        noise = np.array([s.drop_noise for s in scores])
        if link is not None:
            closeness = np.array([log_divergence(s) for s in scores])
            spread = link.without_noise(closeness, np.zeros_like(noise), noise)[1]
            noise = noise * spread / np.maximum(np.hypot(noise, spread), SMALL)
        known = {s.sha256[:10]: (s.drop, error) for s, error in zip(scores, noise.tolist(), strict=True)}
        return cls(members=standings_of(front, link), known=known, yardstick=yardstick)

    def chosen(self, rule: str | float, limit: float) -> Standing:
        """The recommended member by the former rule, or by today's with a break price."""
        own = replace(self.yardstick.rule, allowed_drop=limit)
        if rule == FORMER:
            return former_recommended(self.members, self.known, own)
        return replace(own, break_price=float(rule)).recommended(self.members)


def bounds_and_picks(
    people: Population, count: int, repeats: int, ruled_repeats: int
) -> tuple[list[str], list[list[str]], list[str]]:
    """A row of the table of bounds, those of the table of recommendations, and one of the table of rules.

    Args:
        people: The case.
        count: Of samples.
        repeats: Searches whose bounds are looked at.
        ruled_repeats: The first of them, whose recommendations are.
    """
    true = {s.sha256[:10]: drop for s, drop in zip(people.kept.scores, people.drops.tolist(), strict=True)}
    shown = [share * people.float_score for share in SHARES]
    # A candidate breaks each of the others by nothing.
    limits = shown + [drop - SMALL for drop in sorted(set(true.values())) if 0.0 < drop <= 2.0 * shown[-1]]
    certified = np.zeros((len(limits), 3))
    ruled = np.zeros((len(limits), len(RULES), 2))
    covered = np.zeros((2, len(true)))
    for number, (candidates, pairs, _) in enumerate(people.searches(count, repeats)):
        low, high, bound = np.array([(pair.low, pair.high, pair.bound) for pair in pairs]).T
        covered += [bound + SMALL >= people.drops, (low - SMALL <= people.drops) & (people.drops <= high + SMALL)]
        if number >= ruled_repeats:
            continue
        recommender = Recommender.of(candidates, people.yardstick())
        for place, limit in enumerate(limits):
            every = [recommender.chosen(rule, limit) for rule in RULES]
            ruled[place] += [(true[one.id] > limit, one.penalty) for one in every]
            own = every[RULES.index(BREAK_PRICE)]
            is_certified = own.bound <= limit
            certified[place] += [is_certified, is_certified and true[own.id] > limit, own.drop > limit]
    hardest = len(shown) + int(np.argmax(certified[len(shown) :, 1]))
    names = [f"{100 * share:g} % of float's score" for share in SHARES] + ["the hardest"]
    rows = [
        [
            str(count),
            name,
            f"{100 * limits[place]:.2f}",
            *(percent(value / ruled_repeats) for value in certified[place].tolist()),
            *_cells(ruled[place] / ruled_repeats),
        ]
        for name, place in zip(names, [*range(len(shown)), hardest], strict=True)
    ]
    cells = [percent(value / repeats) for row in covered for value in (row.min(), row.mean())]
    means = [str(count), str(len(limits)), *_cells(ruled.mean(axis=0) / ruled_repeats)]
    return [str(count), str(len(true)), *cells], rows, means


def _cells(means: np.ndarray) -> list[str]:
    return [cell for broken, penalty in means.tolist() for cell in (percent(broken), f"{penalty:.2f}")]


def demo() -> list[list[str]]:
    """The penalties that small searches on the demo's model recommend, and whether one is far beyond the usual."""
    people = Population.of(DEMO)
    limit, found = DEFAULT_DROP_SHARE * people.float_score, []
    for count in DEMO_SAMPLES:
        draws = [Recommender.of(c, people.yardstick()) for c, _, _ in people.searches(count, DEMO_DRAWS)]
        for rule in (FORMER, BREAK_PRICE):
            penalties = sorted(draw.chosen(rule, limit).penalty for draw in draws)
            median = float(np.median(penalties))
            keep = sum(penalty <= 2.0 * median + SMALL for penalty in penalties)
            told = " ".join(f"{penalty:.1f}" for penalty in penalties)
            found.append([str(count), name_of(rule), told, f"{median:.2f}", f"{keep} of {DEMO_DRAWS}"])
    return found


def name_of(rule: str | float) -> str:
    return rule if isinstance(rule, str) else f"break price {rule:g}"


def early_exits(people: Population, count: int, repeats: int) -> list[str]:
    """How often a model that loses two points is accepted; each candidate stands for it, its losses made as many."""
    rng, limit = np.random.default_rng(1), DEFAULT_DROP_SHARE * people.float_score
    accepted = {}
    for name, loss in (("two points", LOSS), ("the limit", limit + SMALL)):
        accepted[name] = []
        for won in (people.losses < 0).mean(axis=1).tolist():
            drawn = rng.multinomial(count, [won + loss, won, 1.0 - 2.0 * won - loss], size=repeats)[:, :2]
            accepted[name].append(np.mean([drop_of_hits(count, b, c).bound <= limit for b, c in drawn.tolist()]))
    return [
        str(count),
        *(percent(float(value)) for known in accepted.values() for value in (np.mean(known), max(known))),
    ]


def races(people: Population, count: int, orders: int) -> list[str]:
    """How often a candidate is dropped that just reaches its goal, its rivals the three that answer most like it."""
    losses = 1.0 - people.kept.hits[:, :count]
    float_losses = 1.0 - people.kept.float_hits[:count]
    integer = int(np.argmin([s.penalty for s in people.kept.scores]))
    fields: list[Field] = []
    for number, own in enumerate(losses):
        nearest = [i for i in np.argsort(np.abs(losses - own).sum(axis=1), kind="stable") if i != number]
        rivals = [losses[i] for i in nearest[:3]]
        fields.append((-people.kept.decibels[integer, :count], own, rivals, float_losses))
    dropped = [np.mean([raced_now(f, float(f[1].mean()), seed, 0.0)[0] for seed in range(orders)]) for f in fields]
    return [str(losses.shape[1]), str(len(losses)), percent(float(np.mean(dropped))), percent(float(max(dropped)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Stands for the workers of a search on some samples: reads rows, sample by sample."""

    hits: Mapping[str, np.ndarray]
    float_hits: np.ndarray

    def call(self, job: Callable[..., Any], root: Path, *arguments: Any) -> Any:
        """What the job would answer."""
        if job is not evidence_jobs.resampled_drops:
            return None
        theirs = column(self.float_hits)
        drawn = [resampled_drops(ACCURACY, column(self.hits[sha]), theirs, resamples=RESAMPLES) for sha in arguments[0]]
        return np.stack(drawn, axis=1)


def agreement(people: Population, count: int, repeats: int, searches: int) -> list[str]:
    """In how many other searches a model is recommended, and in how many resamples, as a search says and as before."""
    yardstick = replace(people.yardstick(), allowed_drop=DEFAULT_DROP_SHARE * people.float_score)
    named: Counter[str] = Counter()
    found = []
    for number, (candidates, _, chosen) in enumerate(people.searches(count, repeats)):
        front = front_records(candidates, yardstick)
        members, rule = standings_of(front, link := link_of(candidates)), yardstick.rule
        name = rule.recommended(members).id
        named[name] += 1
        if number >= searches:
            continue
        hits = {s.sha256: row[chosen] for s, row in zip(people.kept.scores, people.kept.hits, strict=True)}
        pool = KeptRows(hits=hits, float_hits=people.kept.float_hits[chosen])
        told = confidence_of(front, candidates, yardstick, Path(), cast(Workers, pool))
        found.append((name, told.resampled, by_scores_alone(scores_of(front), members, link, pool, name, rule)))
    true = np.array([named[name] / repeats for name, *_ in found])
    now, before = (np.array([one[place] for one in found]) for place in (1, 2))
    return [
        str(count),
        str(len(found)),
        *(percent(float(values.mean())) for values in (true, now, before)),
        *(percent(float((values >= 0.995).mean())) for values in (now, before)),
    ]


def by_scores_alone(
    scores: Sequence[Scores],
    members: Sequence[Standing],
    link: Link | None,
    pool: KeptRows,
    name: str,
    rule: Rule,
) -> float:
    """The share of resamples until 2026-11-23: neither the bounds' widths nor what closeness foretells were redrawn."""
    drawn = pool.call(evidence_jobs.resampled_drops, Path(), [s.sha256 for s in scores])
    again = []
    for row in drawn[:, :, 0].tolist():
        moved = [replace(s, drop=drop) for s, drop in zip(scores, row, strict=True)]
        expected = expected_drops(moved, link).drops.tolist()
        some = [replace(m, drop=e, bound=e + m.bound - m.drop) for m, e in zip(members, expected, strict=True)]
        again.append(rule.recommended(some).id == name)
    return float(np.mean(again))


_HEAD_OF_RULES = " | ".join(f"{name_of(rule)}: broken, % | penalty" for rule in RULES)
RULES_TITLE = "Rules, means over all limits"
HEADS = {
    "Bounds on the drop at 95 %": (
        "candidates | bound covers, worst candidate, % | mean, % | interval covers, worst candidate, % | mean, %"
    ),
    "Recommended models": ("limit | points | certified, % | certified and broken, % | expected to be broken, % | ")
    + _HEAD_OF_RULES,
    RULES_TITLE: f"limits | {_HEAD_OF_RULES}",
    "The same model recommended, limit of 1 % of float's score": (
        "searches looked at | in other searches, % | in resamples, as said, % | as said before, % "
        "| said to be in all resamples, % of searches | before"
    ),
    "Early exit with a limit of 1 % of float's score": (
        "loses two points: accepted, mean % | worst candidate, % | loses the limit: accepted, mean % "
        "| worst candidate, %"
    ),
    f"Races at confidence {CONFIDENCE:g}, goal reached exactly": "candidates | dropped, mean % | worst candidate, %",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write coverage.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], choices=CASES, help="Repeat it; all by default.")
    parser.add_argument("--repeats", type=int, default=1000, help="Searches of each size, and orders of each race.")
    parser.add_argument("--ruled", type=int, default=300, help="Of these searches those whose recommendations count.")
    parser.add_argument("--searches", type=int, default=20, help="Whose recommendations are resampled.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)  # Before the work, which would be lost without it.
    tables: dict[str, list[list[str]]] = {title: [] for title in HEADS}
    people_of = {CASES[name].title: Population.of(name) for name in options.case or CASES}
    for name, people in people_of.items():
        for count in SAMPLES:
            bounds, picks, rules = bounds_and_picks(people, count, options.repeats, min(options.repeats, options.ruled))
            exits = early_exits(people, count, options.repeats)
            said = agreement(people, count, min(options.repeats, options.ruled), options.searches)
            raced = races(people, count, options.repeats)
            for known, rows in zip(tables.values(), ([bounds], picks, [rules], [said], [exits], [raced]), strict=True):
                known += [[name, *row] for row in rows]
            print(name, bounds, *picks, rules, said, exits, raced, sep="\n", flush=True)
    means = np.array([row[3:] for row in tables[RULES_TITLE]], dtype=np.float64).mean(axis=0).tolist()
    tables[RULES_TITLE].append(["mean", "", "", *(f"{mean:.2f}" for mean in means)])
    parts = [
        f"## {title}\n\n{table(['case', 'samples', *head.split(' | ')], tables[title])}"
        for title, head in HEADS.items()
    ]
    head = ["samples", "rule", "penalties of eight draws", "median", "at most twice the median"]
    parts.append(f"## The demo, limit of 1 % of float's score\n\n{table(head, demo())}")
    (options.output / "coverage.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
