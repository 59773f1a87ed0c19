"""What half and double of each constant of the default sampler change of a search, on replayed cases.

One real search a case gives the problem (units, probes, exact forecasts), and its candidates teach a surrogate and a
link. These two then say what any candidate scores, with some chance, so that nothing is built or run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "search_benchmark"))
from cases import BenchmarkCase, chosen_cases

import autoselect
from autoselect.domain.pareto import hypervolume
from autoselect.domain.repair_sets import Repairs
from autoselect.study.proposing import constants
from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Forecast, Forecaster, Problem
from autoselect.study.proposing.surrogate import Belief, Surrogate, learn
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

NOT_MET = {
    "REPAIRED_SD",
    "IN_SEQUENCE",
    "IN_SEQUENCE_SD",
    "REPAIRED_SPREAD",
    "TWINS",
    "REPAIRED_SHARE",
    "LARGE",
    "PART_NOISE",
    "RIDGE",
    "LEAST_COST",
    "LEARNED",
    "UNDER_WAY",
}
NOT_MET |= {"ENUMERATED", "OTHER_SHARE", "RECOMMENDING", "LEAST_LOWERED", "ALIKE_SHARES", "CLEARLY", "FURTHEST_LEFT"}
NOT_MET |= {"FAILED", "FACTS", "END_SHARE"}
"""They need repairs, graphs of 256 units, races, bounds, costs that are measured, failures, or losses that
closeness does not explain; the replayed cases have none of these. Of twice as many units all sets are millions."""
NAMES = tuple(name for name in vars(constants) if name.isupper() and name not in NOT_MET)
SHARES = {"CAPPED", "OPENING", "CROSSED_SHARE", "LAST_MOVE", "RESTATED_SHARE", "ISLAND_SHARE"}
"""At most 1."""
FACTORS = (0.5, 2.0)
CHANCE = 0.1
"""Deviation of a candidate's log divergence from what the surrogate says, the same whenever it is asked."""
COLUMNS = ("case", "constant", "factor", "seed", "hypervolume")


class Truth(Protocol):
    """A case whose every candidate can be scored at once."""

    problem: Problem

    def seen(self, mask: Mask) -> Seen:
        """Score a candidate."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A real case as its candidates say that it is."""

    problem: Problem
    surrogate: Surrogate
    link: Link
    margins: np.ndarray
    """Log divergences of the real candidates, ascending, and how far above its loss each one's bound lay."""

    def seen(self, mask: Mask) -> Seen:
        """Score a candidate; what chance adds depends on the candidate alone."""
        chance = np.random.default_rng([mask.left_out, *mask.further, mask.repairs]).normal(size=2)
        divergence = self.surrogate.believe([mask]).mean + CHANCE * chance[0]
        exact = Belief(divergence, np.zeros(1))
        loss = self.link.losses(exact)[0, 0] + chance[1] * self.link.deviations(exact)[0, 0]
        found = self.problem.forecast(mask)
        return Seen(
            mask=mask,
            loss=float(loss),
            bound=float(loss + np.interp(divergence[0], *self.margins)),
            log_divergence=float(divergence[0]),
            share=1.0,
            size_bytes=found.size_bytes,
            penalty=found.penalty,
        )


def replay_of(case: BenchmarkCase, trials: int) -> Replay:
    """Search once for real, without races, and learn from all candidates."""
    told: list[tuple[Problem, Sequence[Seen]]] = []
    original = SurrogateProposer.propose

    def listening(self: SurrogateProposer, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        told.append((self._problem, seen))
        return original(self, seen, pending)

    options = {"fallback": "search", "repairs": False, "int16": False, **case.options}
    SurrogateProposer.propose = listening  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            autoselect.search(
                case.model,
                **case.sources,
                metric=case.metric,
                trials=trials,
                early_exit=False,
                racing=False,
                workers=1,
                output=Path(folder) / "run",
                **options,
            )
    finally:
        SurrogateProposer.propose = original  # type: ignore[method-assign]
    problem, seen = told[-1]
    known = [s for s in seen if s.loss is not None and np.isfinite(s.log_divergence)]
    problem.forecast_of = _cached(problem.forecast_of)
    surrogate = Surrogate(problem)
    learn(surrogate, known)
    bounded = sorted((s for s in known if np.isfinite(s.bound)), key=lambda s: s.log_divergence)
    return Replay(
        problem=problem,
        surrogate=surrogate,
        link=fit_link(np.array([s.log_divergence for s in known]), np.array([s.loss for s in known])),
        margins=np.array([(s.log_divergence, s.bound - (s.loss or 0.0)) for s in bounded]).T,
    )


def _cached(forecast: Forecaster) -> Forecaster:
    """All that was asked is remembered."""
    known: dict[object, Forecast] = {}

    def remembered(nodes: frozenset[str], further: Mapping[str, frozenset[str]], repairs: Repairs) -> Forecast:
        key = nodes, tuple(further.items()), repairs
        if key not in known:
            known[key] = forecast(nodes, further, repairs)
        return known[key]

    return remembered


@contextmanager
def changed(name: str, factor: float) -> Iterator[None]:
    """A constant times a factor, until the end of the block; whole numbers stay whole and at least 1."""
    before = getattr(constants, name)
    most = 1.0 if name in SHARES else np.inf
    values = [
        min(value * factor, most) if isinstance(value, float) else max(1, round(value * factor))
        for value in np.atleast_1d(before).tolist()
    ]
    setattr(constants, name, tuple(values) if isinstance(before, tuple) else values[0])
    try:
        yield
    finally:
        setattr(constants, name, before)


def searched(truth: Truth, changing: Callable[[], AbstractContextManager[None]], seed: int, trials: int) -> list[Seen]:
    """What a search scores while its sampler is changed; the truth is the same whatever is changed."""
    seen: list[Seen] = []
    with changing():
        proposer = SurrogateProposer(truth.problem, seed, trials)
    for _ in range(trials):
        with changing():
            mask = proposer.propose(seen, [])
        if mask is None:
            break
        seen.append(truth.seen(mask))
    return seen


def volume(truth: Truth, corner: np.ndarray, name: str, factor: float, seed: int, trials: int) -> float:
    """Hypervolume of a search with one constant changed, as a share of the box up to the corner."""
    seen = searched(truth, partial(changed, name, factor), seed, trials)
    points = np.array([[max(s.loss or 0.0, 0.0), s.size_bytes, s.penalty] for s in seen])
    return hypervolume(points / corner, np.ones(3))


def rows_of(
    case: str, truth: Truth, corner: np.ndarray, names: Sequence[str], seeds: int, trials: int
) -> Iterator[dict[str, object]]:
    """One row a search: first with all constants as they are, then with one changed."""
    for name, factor in [(names[0], 1.0), *((name, factor) for name in names for factor in FACTORS)]:
        for seed in range(seeds):
            found = volume(truth, corner, name, factor, seed, trials)
            told = "" if factor == 1.0 else name
            yield dict(zip(COLUMNS, (case, told, factor, seed, round(found, 6)), strict=True))


def table(rows: pd.DataFrame) -> str:
    """Changes in percent: median over seeds of the change against the same seed with all constants as they are."""
    lines = []
    for case, own in rows.groupby("case", sort=False):
        plain = own[own["factor"] == 1.0].set_index("seed")["hypervolume"]
        spread = 100.0 * (plain / plain.median() - 1.0)
        told = f"its {len(plain)} seeds differ from that by {spread.min():+.2f} to {spread.max():+.2f} %"
        lines += [f"**{case}**: {plain.median():.4f} as it is; {told}.", ""]
        lines += ["| constant | is | half, % | double, % |", "|---|---|---|---|"]
        for name, of_name in own[own["factor"] != 1.0].groupby("constant", sort=False):
            cells = []
            for factor in FACTORS:
                volumes = of_name[of_name["factor"] == factor].set_index("seed")["hypervolume"]
                change = 100.0 * (volumes / plain - 1.0)
                cells.append(f"{change.median():+.2f} ({change.min():+.2f} to {change.max():+.2f})")
            lines.append(f"| `{name}` | {getattr(constants, str(name))} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def common_options(description: str | None) -> argparse.ArgumentParser:
    """The options of all experiments on replayed cases."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--real-trials", type=int, default=60, help="Candidates that are scored for real, a case.")
    parser.add_argument("--trials", type=int, default=40, help="Of each replayed search.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write runs.csv and table.md."""
    parser = common_options(__doc__)
    parser.add_argument("--case", action="append", help="A case of ../search_benchmark; repeat it. pump by default.")
    parser.add_argument("--model", action="append", default=[], help="NAME=PATH of a model trained elsewhere.")
    parser.add_argument("--constant", action="append", choices=NAMES, metavar="NAME", help="Repeat it. All by default.")
    options = parser.parse_args(arguments)
    rows: list[dict[str, object]] = []
    options.output.mkdir(parents=True, exist_ok=True)
    for case in chosen_cases(options.case or ["pump"], options.model):
        assert case.reference is not None
        truth = replay_of(case, options.real_trials)
        corner = np.array([case.reference.drop, case.reference.size_bytes, case.reference.penalty])
        names = options.constant or NAMES
        for row in rows_of(case.name, truth, corner, names, options.seeds, options.trials):
            rows.append(row)
            pd.DataFrame(rows).to_csv(options.output / "runs.csv", index=False)
    text = table(pd.DataFrame(rows))
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
