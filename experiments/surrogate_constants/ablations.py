"""What a search loses without each mechanism of the default sampler, on replayed cases and made-up ones.

A mechanism is switched off from outside: the package holds no switch. See ``run.py`` for what a replay is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from run import Truth, chosen_cases, common_options, replay_of, searched
from synthetic import CORNER, Synthetic, synthetic

from autoselect.domain.pareto import hypervolume
from autoselect.study.proposing import constants, mutation
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.hypervolume_gain import Weight
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Surrogate
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer, _Ask

COLUMNS = ("case", "without", "seed", "volume", "price")
Patches = Sequence[tuple[Any, str, Any]]
_rungs = SurrogateProposer._rungs


def _no_ladder_of_terms(self: SurrogateProposer, ranking: Any, noise: Any, integers: Any) -> list[Mask]:
    return _rungs(self, ranking, noise, integers) if integers is self._problem.sensitivities else []


def _ends(self: Any) -> list[Mask]:
    problem = self._problem
    return [Mask(), *(problem.in_state(problem.everything, place) for place in range(len(problem.states)))]


def _other_moves(*names: str) -> Patches:
    return [(mutation, name, mutation._flip_any) for name in names]


MECHANISMS: dict[str, Patches] = {
    "nothing": [],
    "likeness": [(Likeness, "beyond", lambda self, masks, _: (np.zeros(len(masks)), np.ones(len(masks))))],
    "pairs that failed": [(Failures, "chances", lambda self, masks: np.array([not self.is_known(m) for m in masks]))],
    "named causes of failures": [(Failures, "is_known", lambda self, mask: False)],
    "each fourth ask for the recommendation": [(constants, "RECOMMENDING", 10**9)],
    "the far end of the volume": [(_Ask, "_far_end", lambda self, scored: [])],
    "weights of losses": [
        (Weight, "of", lambda self, losses: np.maximum(losses, 0.0)),
        (Weight, "of_spread", lambda self, spreads, losses: spreads),
    ],
    "the Gaussian process": [(Surrogate, "_choose_kernel", lambda self, left, noise: None)],
    "its terms of units, op types and neighbours": [(constants, f"{n}_SD", 0.0) for n in ("UNIT", "TYPE", "PAIR")],
    "the choice of its scale and length": [(constants, "SCALES", (1.0,)), (constants, "LENGTHS", (0.3,))],
    "the cap": [(constants, "CAPPED", ())],
    "what repairs do to terms": [
        (constants, "TWINS", 0.0),
        (constants, "REPAIRED_SPREAD", 0.0),
        (constants, "REPAIRED_SD", 1e-3),
        (constants, "IN_SEQUENCE_SD", 1e-3),
    ],
    "the opening": [(SurrogateProposer, "_opening", _ends)],
    "the first pool": [(SurrogateProposer, "_ladders", _ends)],
    "the ladder of learned terms": [(SurrogateProposer, "_rungs", _no_ladder_of_terms)],
    "the balanced ladder": [
        (Problem, "balanced", lambda self, units, noise, integers: self.in_state(units, self.by_cost[-1]))
    ],
    "children": [(constants, "CHILDREN", 0)],
    "children of the last ask's best": [(constants, "PARENTS", 0)],
    "crossing": [(constants, "CROSSED_SHARE", 0.0)],
    "the climb": [(constants, "CLIMBED", 0)],
    "other repairs": [(constants, "REPAIRED_SHARE", 0.0), (mutation, "repaired", lambda mask, problem: [])],
    "other states": [(constants, "RESTATED_SHARE", 0.0), (mutation, "restated", lambda mask, problem, noise: [])],
    "moves of islands and gaps": _other_moves("_drop_island", "_close_gap"),
    "units that are cut off": [(Problem, "unclipped", lambda self, mask: mask)],
}
"""What is switched off, by what it is called in the docs."""
_FAILURES = ("nothing", "pairs that failed", "named causes of failures")
_LOSSES = ("nothing", "likeness", "units that are cut off", "each fourth ask for the recommendation", "the climb")
ONLY = {
    "60 units, 4 ruin all": ("nothing", "the cap"),
    "40 units, 4 of hidden loss": _LOSSES,
    "40 units, 4 cut off": _LOSSES,
    "40 units, 4 pairs fail": _FAILURES,
    "40 units, 4 pairs fail and are named": _FAILURES,
}
"""What these cases are for."""
_ELSEWHERE = {"pairs that failed", "named causes of failures", "units that are cut off"}
_REPAIRS = {"what repairs do to terms", "other repairs"}
NOT_MET = {
    "60 units, 4 redundant": {*_ELSEWHERE, *_REPAIRS, "the balanced ladder", "other states"},
    "40 hybrid units": {*_ELSEWHERE, *_REPAIRS, "the balanced ladder", "other states"},
    "pump": _ELSEWHERE,
    "mobilenet_pt": {*_ELSEWHERE, *_REPAIRS},
    "fsrcnn": {*_ELSEWHERE, *_REPAIRS},
}
"""What these cases do not meet."""


def asked(case: str, chosen: Sequence[str]) -> list[str]:
    """The mechanisms that a case says something of."""
    names = ONLY.get(case, MECHANISMS)
    return [n for n in names if n == "nothing" or (n not in NOT_MET.get(case, ()) and (not chosen or n in chosen))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden(Synthetic):
    """Some units each cost a loss in integers that hardly shows in the divergence."""

    costly: frozenset[int]
    loss: float = 0.1

    def seen(self, mask: Mask) -> Seen:
        """Score a candidate."""
        found = super(Hidden, self).seen(mask)
        lost = self.loss * sum(not mask.left_out >> i & 1 for i in self.costly)
        return replace(found, loss=(found.loss or 0.0) + lost, bound=found.bound + lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing(Synthetic):
    """Some units cannot run in integers beside a neighbour that is left out."""

    pairs: frozenset[int]
    named: bool = field(default=False)

    def seen(self, mask: Mask) -> Seen:
        """Score a candidate, unless it fails."""
        for i in self.pairs:
            if not mask.left_out >> i & 1 and mask.left_out >> i + 1 & 1:
                return Seen(mask=mask, share=0.0, feasible=False, failing=(i, i + 1) if self.named else ())
        return super(Failing, self).seen(mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruined(Synthetic):
    """Outputs that are wrong altogether grow no worse: their error power is that of the signal."""

    def log_divergence(self, mask: Mask) -> float:
        """As of a chain, with an end."""
        found = super(Ruined, self).log_divergence(mask)
        return found - math.log1p(math.exp(found))


def _ruined(seed: int) -> Ruined:
    plain = synthetic(60, seed, redundant=4, allowed_loss=ALLOWED)
    probed = [replace(unit, sensitivity=unit.sensitivity / (1.0 + unit.sensitivity)) for unit in plain.problem.units]
    terms = np.where(plain.terms == plain.terms.max(), 30.0, plain.terms)
    return Ruined(problem=_like(plain.problem, probed), terms=terms, left=plain.left)


def _hidden(seed: int, *, clipped: bool) -> Hidden:
    plain = synthetic(40, seed, hybrid=True, allowed_loss=ALLOWED)
    costly = frozenset(np.random.default_rng(seed).choice(40, 4, replace=False).tolist())
    units = [replace(unit, is_clipped=clipped and i in costly) for i, unit in enumerate(plain.problem.units)]
    return Hidden(problem=_like(plain.problem, units), terms=plain.terms, left=plain.left, costly=costly)


def _like(problem: Problem, units: Sequence[Any]) -> Problem:
    return Problem(units, problem.neighbours, problem.forecast_of, states=problem.states, rule=problem.rule)


def _failing(seed: int, *, named: bool) -> Failing:
    plain = synthetic(40, seed, hybrid=True, allowed_loss=ALLOWED)
    pairs = frozenset(np.random.default_rng(seed).choice(39, 4, replace=False).tolist())
    return Failing(problem=plain.problem, terms=plain.terms, left=plain.left, pairs=pairs, named=named)


ALLOWED = 0.3
MADE_UP: dict[str, Callable[[int], Truth]] = {
    "40 hybrid units": lambda seed: synthetic(40, seed, hybrid=True, allowed_loss=ALLOWED),
    "60 units, 4 redundant": lambda seed: synthetic(60, seed, redundant=4, allowed_loss=ALLOWED),
    "60 units, 4 ruin all": _ruined,
    "40 units, 4 of hidden loss": lambda seed: _hidden(seed, clipped=False),
    "40 units, 4 cut off": lambda seed: _hidden(seed, clipped=True),
    "40 units, 4 pairs fail": lambda seed: _failing(seed, named=False),
    "40 units, 4 pairs fail and are named": lambda seed: _failing(seed, named=True),
}
"""Cases of known truth, by the seed."""
REAL = {
    "pump": {"repairs": True, "int16": True},
    "mobilenet_pt": {"repairs": False, "int16": False, "fallback": "search"},
    "fsrcnn": {"repairs": False, "int16": False, "fallback": "search"},
}
"""Cases of the search benchmark, and the arguments of their one real search."""


@contextmanager
def replaced(patches: Patches) -> Iterator[None]:
    """Some things replaced by others, until the end of the block."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(patch.object(owner, name, value))
        yield


def figures(problem: Problem, seen: Sequence[Seen], corner: np.ndarray) -> tuple[float, float]:
    """Volume as a share of the box up to the corner, and what the cheapest candidate costs that keeps the drop.

    The latter is the mean over half, all and twice the allowed drop, in percent of what float costs, which is
    recommended if no candidate keeps it.
    """
    scored, rule = [s for s in seen if s.loss is not None], problem.rule
    points = np.array([[max(s.loss or 0.0, 0.0), s.size_bytes, s.penalty] for s in scored])
    full = rule.price(penalty=rule.float_penalty, size_bytes=rule.float_size_bytes)
    prices = np.array([rule.price(penalty=s.penalty, size_bytes=s.size_bytes) for s in scored])
    bounds = np.array([s.bound for s in scored])
    least = [min([full, *prices[bounds <= share * rule.allowed_drop]]) for share in (0.5, 1.0, 2.0)]
    return hypervolume(points / corner, np.ones(3)), 100.0 * float(np.mean(least)) / full


def cases_of(names: Sequence[str], real_trials: int) -> Iterator[tuple[str, Callable[[int], Truth], np.ndarray]]:
    """Each case by the seed, with its corner."""
    for name in names:
        if name in MADE_UP:
            yield name, MADE_UP[name], CORNER
            continue
        (case,) = chosen_cases([name], [])
        assert case.reference is not None
        truth = replay_of(replace(case, options={**case.options, **REAL[name]}), real_trials)
        corner = np.array([case.reference.drop, case.reference.size_bytes, case.reference.penalty])
        yield name, lambda seed, truth=truth: truth, corner  # type: ignore[misc]


def table(rows: pd.DataFrame) -> str:
    """Changes of volume (percent) and price (points): the median over seeds, and the range."""
    lines = []
    for case, own in rows.groupby("case", sort=False):
        plain = own[own["without"] == "nothing"].set_index("seed")
        volumes, prices = 100.0 * (plain["volume"] / plain["volume"].median() - 1.0), plain["price"]
        lines += [
            f"**{case}**: volume {plain['volume'].median():.4f}, whose {len(plain)} seeds differ from that by "
            f"{volumes.min():+.2f} to {volumes.max():+.2f} %; price {prices.median():.1f} % of float's "
            f"({prices.min():.1f} to {prices.max():.1f}).",
            "",
            "| without | volume, % | price, points |",
            "|---|---|---|",
        ]
        for without, of_one in own[own["without"] != "nothing"].groupby("without", sort=False):
            found = of_one.set_index("seed")
            volume = 100.0 * (found["volume"] / plain["volume"] - 1.0)
            lines.append(f"| {without} | {_told(volume, 2)} | {_told(found['price'] - plain['price'], 1)} |")
        lines.append("")
    return "\n".join(lines)


def _told(changes: pd.Series, digits: int) -> str:
    median, low, high = (f"{value:+.{digits}f}" for value in (changes.median(), changes.min(), changes.max()))
    return median if math.isclose(changes.min(), changes.max()) else f"{median} ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write ablations.csv and ablations.md."""
    names = [*REAL, *MADE_UP]
    parser = common_options(__doc__)
    parser.add_argument("--case", action="append", choices=names, metavar="CASE", help="Repeat it. All by default.")
    parser.add_argument("--without", action="append", choices=MECHANISMS, metavar="NAME", help="Repeat it.")
    options = parser.parse_args(arguments)
    rows: list[dict[str, object]] = []
    options.output.mkdir(parents=True, exist_ok=True)
    for case, truth_of, corner in cases_of(options.case or names, options.real_trials):
        for without in asked(case, options.without or ()):
            for seed in range(options.seeds):
                truth = truth_of(seed)
                found = figures(
                    truth.problem, searched(truth, partial(replaced, MECHANISMS[without]), seed, options.trials), corner
                )
                rows.append(
                    dict(zip(COLUMNS, (case, without, seed, *(round(float(f), 6) for f in found)), strict=True))
                )
            pd.DataFrame(rows).to_csv(options.output / "ablations.csv", index=False)
    text = table(pd.DataFrame(rows))
    (options.output / "ablations.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
