"""Simulates what bounds on a drop cover, whom races drop by mistake, and which all-integer models are accepted."""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import former
import numpy as np
from scipy.optimize import brentq
from scipy.stats import multinomial, norm, t

from autoselect.scoring import racing
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import PairedDrop, paired_drop

RESULTS = Path(__file__).parent / "results"
ACCURACY, ERROR = make_metric("accuracy"), make_metric("mae")
CONFIDENCE = 0.9
GAPS = (0.02, 0.05, 0.2)


def column(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1, 1)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


# ------------------------------------------------------------------------------------------- coverage


@functools.cache
def drop_of_hits(count: int, losses: int, wins: int) -> PairedDrop:
    ours, theirs = np.ones(count), np.ones(count)
    ours[:losses], theirs[losses : losses + wins] = 0.0, 0.0
    return paired_drop(ACCURACY, column(ours), column(theirs))


def tango(count: int, losses: int, wins: int, tail: float) -> float:
    """Upper bound of T. Tango, Statistics in Medicine 17, 1998."""

    def score(drop: float) -> float:
        b = (2 * count - losses + wins) * drop - losses - wins
        c = -wins * drop * (1.0 - drop)
        other = (math.sqrt(max(b * b - 8 * count * c, 0.0)) - b) / (4 * count)
        return losses - wins - count * drop + norm.isf(tail) * math.sqrt(count * (2 * other + drop * (1.0 - drop)))

    return 1.0 if losses == count else float(brentq(score, (losses - wins) / count + 1e-12, 1.0 - 1e-12))


def coverage_of_hits() -> str:
    rows = []
    for count in (24, 50, 250):
        most = 20 + count * 9 // 40
        outcomes = [(b, c) for b, c in itertools.product(range(most), repeat=2) if b + c <= min(count, most)]
        drops = [drop_of_hits(count, *o) for o in outcomes]
        score = {o: (tango(count, *o, 0.05), tango(count, *o, 0.025)) for o in outcomes}
        known: dict[str, list[float]] = {}
        for discordance, lost in itertools.product([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], [0, 0.1, 0.25, 0.5, 0.75, 1]):
            lose, win = discordance * lost, discordance * (1 - lost)
            chances = multinomial.pmf([(b, c, count - b - c) for b, c in outcomes], count, [lose, win, 1 - lose - win])
            true, small = lose - win, 1e-9
            covered = {
                "interval": [d.low - small <= true <= d.high + small for d in drops],
                "bound": [true <= d.bound + small for d in drops],
                "Tango's interval": [-score[o[::-1]][1] - small <= true <= score[o][1] + small for o in outcomes],
                "Tango's bound": [true <= score[o][0] + small for o in outcomes],
            }
            for name, values in covered.items():
                known.setdefault(name, []).append(float(chances @ np.array(values) / chances.sum()))
        rows += [[str(count), name, percent(min(v)), percent(float(np.mean(v)))] for name, v in known.items()]
    return table(["samples", "hits", "least coverage, %", "mean, %"], rows)


Draw = Callable[[np.random.Generator, int], np.ndarray]
DIFFERENCES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0),
    "Student's, 3 degrees": (lambda rng, n: rng.standard_t(3, n), 0.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "log-normal": (lambda rng, n: rng.lognormal(size=n), math.exp(0.5)),
    "a tenth differs, log-normal": (lambda rng, n: (rng.random(n) < 0.1) * rng.lognormal(size=n), 0.1 * math.exp(0.5)),
    "a twentieth loses 5 more": (lambda rng, n: rng.normal(size=n) + 5 * (rng.random(n) < 0.05), 0.25),
}


def coverage_of_means(repeats: int) -> str:
    rows = []
    for count, (name, (draw, mean)) in itertools.product((24, 100), DIFFERENCES.items()):
        rng = np.random.default_rng(1)
        base, held = np.linspace(0.0, 4.0, count), []
        for _ in range(repeats):
            differences = draw(rng, count)
            found = paired_drop(ERROR, column(base + differences), column(base))
            half = t.ppf(0.975, count - 1) * differences.std(ddof=1) / math.sqrt(count)
            held.append(
                [
                    found.low <= mean <= found.high,
                    mean <= found.bound,
                    abs(differences.mean() - mean) <= half,
                    (found.high - found.low) / max(2 * half, 1e-9) if half else np.nan,
                ]
            )
        interval, bound, student = (percent(value) for value in np.mean(held, axis=0)[:3])
        rows.append([str(count), name, interval, bound, student, f"{np.nanmedian([h[3] for h in held]):.2f}"])
    return table(["samples", "differences", "interval, %", "bound, %", "Student's, %", "width / Student's"], rows)


# ---------------------------------------------------------------------------------------------- races

Field = tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]
"""Hardness, losses of a candidate, of its rivals and of the float model."""


def raced_now(field: Field, goal: float, seed: int, best: float | None) -> tuple[bool, float]:
    hardness, own, rivals, _ = field
    made = racing.schedule(hardness, seed)
    race = racing.Race(made, [column(r) for r in rivals], "minimize", goal=goal, confidence=CONFIDENCE, best=best)
    for look, seen in enumerate(made.looks[:-1]):
        if race.is_lost(column(own), look):
            return True, seen / len(own)
    return False, 1.0


def raced_before(field: Field, goal: float, seed: int, best: float | None) -> tuple[bool, float]:
    hardness, own, rivals, float_losses = field
    made = former.schedule(hardness, seed)
    known = [column(r) for r in rivals]
    expected = former.expected_variances(known, made)
    if not expected.any():
        expected = former.expected_variances([known[0], column(float_losses)], made)
    race = former.Race(made, known, expected, "minimize", goal=goal, confidence=CONFIDENCE)
    for look, seen in enumerate(made.looks[:-1]):
        if race.is_lost(column(own), look):
            return True, seen / len(own)
    return False, 1.0


def turned(rng: np.random.Generator, misses: np.ndarray, count: int) -> np.ndarray:
    """Misses with so many samples turned round, 50 times as often among the hardest as among the easiest."""
    chances = np.exp(-4.0 * np.linspace(0.0, 1.0, len(misses)))
    places = rng.choice(len(misses), count, replace=False, p=chances / chances.sum())
    found = misses.copy()
    found[places] = 1.0 - found[places]
    return found


def made_of_hits(own: float, apart: int, fields: int) -> list[Field]:
    rng, found = np.random.default_rng(3), []
    for _ in range(fields):
        misses = (rng.random(400) < 0.12).astype(np.float64)
        common = turned(rng, misses, max(1, round(400 * own)))
        rivals = [turned(rng, common, apart) for _ in range(3)]
        found.append((-np.arange(400.0), misses, rivals, turned(rng, misses, 2)))
    return found


def heavy_tailed(fields: int) -> list[Field]:
    rng, found = np.random.default_rng(4), []
    scale = np.linspace(5.0, 0.5, 400)
    for _ in range(fields):
        base = np.abs(rng.standard_t(3, 400)) * scale
        own, *rivals = (np.abs(base + rng.standard_t(3, 400) * scale * share) for share in (0.3, 0.1, 0.1, 0.1))
        found.append((scale, own, rivals, base))
    return found


def races(orders: int, fields: int) -> str:
    cases = {
        f"{percent(own)} % differ, rivals by {apart} of 400": (made_of_hits(own, apart, fields), 0.0)
        for own, apart in itertools.product([0.0025, 0.01, 0.03, 0.1, 0.2], [0, 1, 8])
    }
    cases["heavy-tailed errors"] = heavy_tailed(fields), None
    rows = []
    for name, (known, best) in cases.items():
        for rule, race in (("before", raced_before), ("now", raced_now)):
            drops = [np.mean([race(f, float(f[1].mean()), seed, best)[0] for seed in range(orders)]) for f in known]
            shares = []
            for gap in GAPS:
                unit = 1.0 if best is not None else float(known[0][1].mean())
                runs = [race(f, float(f[1].mean()) - gap * unit, seed, best)[1] for f in known for seed in range(5)]
                shares.append(percent(float(np.mean(runs))))
            rows.append([name, rule, percent(float(np.mean(drops))), percent(float(max(drops))), *shares])
        print(rows[-2:], flush=True)
    return table(
        [
            "candidates",
            "rule",
            "false drops, mean %",
            "worst candidate, %",
            *(f"run, {100 * g:.0f} worse" for g in GAPS),
        ],
        rows,
    )


# ----------------------------------------------------------------------------------------- early exit

MODELS = {
    "loses 2 points (2 lost, 0 won)": (0.02, 0.0),
    "loses 2 points (4 lost, 2 won)": (0.04, 0.02),
    "loses 1 point (1 lost, 0 won)": (0.01, 0.0),
    "equal (1 lost, 1 won)": (0.01, 0.01),
    "equal, nothing differs": (0.0, 0.0),
}


def early_exit(repeats: int) -> str:
    """Chance to accept where the bound is at most one point, and where the drop was within one standard error."""
    rows, rng = [], np.random.default_rng(5)
    for name, (lose, win) in MODELS.items():
        for count in (50, 250, 1000):
            drawn = rng.multinomial(count, [lose, win, 1.0 - lose - win], size=repeats)[:, :2]
            now = np.mean([drop_of_hits(count, b, c).bound <= 0.01 for b, c in drawn.tolist()])
            errors = np.sqrt(drawn.sum(axis=1) - (drawn[:, 0] - drawn[:, 1]) ** 2 / count) / math.sqrt(count - 1)
            before = np.mean((drawn[:, 0] - drawn[:, 1]) / math.sqrt(count) <= errors)
            rows.append([name, str(count), percent(float(before)), percent(float(now))])
    return table(["all-integer model", "samples", "within one standard error, %", "bound within 1 point, %"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000, help="Of coverage and early exit.")
    parser.add_argument("--orders", type=int, default=200, help="Races for each candidate.")
    parser.add_argument("--fields", type=int, default=6, help="Candidates of each made-up kind.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    parts = {
        "Coverage at 95 %: hits, by the chances of all outcomes": coverage_of_hits(),
        "Coverage at 95 %: means": coverage_of_means(options.repeats),
        "Early exit": early_exit(options.repeats),
        f"Races at confidence {CONFIDENCE:g}": races(options.orders, options.fields),
    }
    text = "\n".join(f"## {title}\n\n{content}" for title, content in parts.items())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
