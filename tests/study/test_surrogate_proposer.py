from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic import Synthetic, chain_of, synthetic, volume

from autoselect.domain.objectives import Constraints
from autoselect.domain.rule import DETAIL
from autoselect.study.proposing import problem as problem_module
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Listed, Proposer, by_sensitivity, prefixes, random_masks
from autoselect.study.proposing.recommending import Recommending
from autoselect.study.proposing.surrogate import Belief, Surrogate, learn
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

TRIALS = 40


def prefix(problem: Problem, seed: int) -> Proposer:
    return Listed(map(Mask, prefixes(by_sensitivity(problem))))


RIVALS: dict[str, Callable[[Problem, int], Proposer]] = {"random": random_masks, "prefix": prefix}


@pytest.mark.slow
def test_it_finds_more_than_random_and_more_than_the_prefixes() -> None:
    """Errors that add up, and, for two of five seeds, three units of which each ruins the model."""
    won = dict.fromkeys(RIVALS, 0)
    for seed, redundant in enumerate((0, 0, 0, 3, 3)):
        truth = synthetic(16, seed, redundant=redundant)
        ours = volume(truth.run(SurrogateProposer(truth.problem, seed, TRIALS), TRIALS))
        for name, rival in RIVALS.items():
            won[name] += ours > volume(truth.run(rival(truth.problem, seed), TRIALS))
    assert min(won.values()) >= 4, won


ALLOWED = 0.03
"""So little is lost only by chains that are nearly all left out: there is hardly any volume there."""


@pytest.mark.parametrize("redundant", [0, 6])
def test_what_keeps_the_allowed_loss_for_sure_is_found_early_where_it_is_little_of_the_volume(redundant: int) -> None:
    for seed in range(3):
        truth = synthetic(24, seed, redundant=redundant, allowed_loss=ALLOWED)
        seen = truth.run(SurrogateProposer(truth.problem, seed), 20)
        exact = truth.problem.forecast(Mask(truth.problem.everything)).penalty
        sure = [s.penalty for s in seen if s.bound <= ALLOWED]
        assert min(sure, default=math.inf) < 1.1 * exact, seed


class CutOff(Synthetic):
    """Integers of the last five units ruin a few samples: that decides the metric, and does not show in divergences."""

    last = sum(1 << i for i in range(19, 24))

    def seen(self, mask: Mask) -> Seen:
        found, lost = super().seen(mask), 0.2 * bool(self.last & ~mask.left_out)
        return replace(found, loss=(found.loss or 0.0) / 10.0 + lost, bound=found.bound / 10.0 + lost)


@pytest.mark.parametrize("known", [False, True])
def test_what_a_few_samples_suffer_is_found_though_it_does_not_show_in_the_divergence(known: bool) -> None:
    """By what like candidates lose; and at once if it is known which units cut values off."""
    penalties = []
    for seed in range(3):
        plain = synthetic(24, seed, allowed_loss=0.1)
        clipped = range(19, 24) if known else ()
        problem = chain_of(plain.problem.sensitivities.tolist(), allowed_loss=0.1, clipped=clipped)
        truth = CutOff(problem=problem, terms=plain.terms, left=plain.left)
        seen = truth.run(SurrogateProposer(problem, seed), 30)
        penalties.append(min((s.penalty for s in seen if s.bound <= 0.1), default=math.inf))
    least, exact = (problem.forecast(Mask(units)).penalty for units in (CutOff.last, problem.everything))
    if known:
        assert np.mean(penalties) == pytest.approx(least)
    else:  # A mean of 0.72; without likeness 0.83. Of eight seeds 0.85 and 0.89.
        assert np.mean(penalties) < 0.8 * exact


def test_where_bounds_are_unknown_nothing_is_proposed_for_them() -> None:
    class Unbounded(Synthetic):
        def seen(self, mask: Mask) -> Seen:
            return replace(super().seen(mask), bound=math.nan)

    known = synthetic(16, 0, allowed_loss=0.1)
    unknown = Unbounded(problem=known.problem, terms=known.terms, left=known.left)
    first, second = ([s.mask for s in t.run(SurrogateProposer(t.problem, 0), 16)] for t in (known, unknown))
    assert first != second
    seen = unknown.run(random_masks(known.problem, 0), 9)
    nothing = Recommending.of(known.problem, CostModel(known.problem, seen), seen)
    assert nothing is None


def test_only_what_costs_less_than_the_recommended_lowers_its_cost_and_by_its_chance() -> None:
    truth = synthetic(16, 0, allowed_loss=0.1)
    exact = Mask(truth.problem.everything)
    seen = truth.run(random_masks(truth.problem, 0), 12)
    unsure = [replace(s, bound=0.2) for s in seen]
    masks = [exact, Mask(), seen[0].mask]
    belief = Belief(mean=np.full(3, -30.0), deviation=np.full(3, 1e-6))
    costs = CostModel(truth.problem, seen)
    lowering = Recommending.of(truth.problem, costs, unsure)
    assert lowering is not None
    prices = [
        truth.problem.rule.price(penalty=f.penalty, size_bytes=f.size_bytes) for f in map(truth.problem.forecast, masks)
    ]
    chance = float(lowering.bounds.chance_within(belief, truth.problem.rule.allowed_drop)[0])
    assert chance > 0.7
    assert lowering.lowering(masks, belief) == pytest.approx([chance * max(prices[0] - price, 0.0) for price in prices])
    hopeless = Belief(mean=np.full(3, 3.0), deviation=np.full(3, 1e-6))
    assert lowering.lowering(masks, hopeless) == pytest.approx([0.0, 0.0, 0.0], abs=1e-3)
    sure = Recommending.of(truth.problem, costs, [*unsure, replace(truth.seen(Mask()), loss=0.02, bound=0.05)])
    assert sure is not None
    assert sure.lowering(masks, belief) == pytest.approx([0.0, 0.0, 0.0], abs=DETAIL)


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("count", [6, 16])
def test_the_same_seed_gives_the_same_proposals(count: int, ahead: int) -> None:
    truth = synthetic(count, 1)
    first, again, other = (
        [s.mask for s in truth.run(SurrogateProposer(truth.problem, seed), 20, ahead=ahead)] for seed in (1, 1, 3)
    )
    assert first == again
    if count == 16:
        assert first != other


def test_of_many_candidates_the_newest_and_older_ones_of_all_divergences_are_learned_from() -> None:
    truth = synthetic(16, 0)
    seen = truth.run(random_masks(truth.problem, 0), 60)
    fitted: list[list[Mask]] = []

    class Kept(Surrogate):
        def fit(self, masks: Sequence[Mask], log_divergences: np.ndarray, noise: np.ndarray) -> None:
            fitted.append(list(masks))

    learn(Kept(truth.problem), seen)
    learn(Kept(truth.problem), seen, 20)
    whole, some = fitted
    assert whole == [s.mask for s in seen]
    assert (len(set(some)), some[10:]) == (20, whole[50:])
    older = sorted((s.log_divergence, s.mask) for s in seen[:50])
    assert {older[0][1], older[-1][1]} < set(some)


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("budget", [None, 25])
def test_nothing_known_or_under_way_is_proposed(budget: int | None, ahead: int) -> None:
    truth = synthetic(16, 2)
    found = [s.mask for s in truth.run(SurrogateProposer(truth.problem, 0, budget), 25, ahead=ahead)]
    assert len(found) == len(set(found)) == 25
    assert all(mask == Mask(mask.left_out & truth.problem.everything) for mask in found)


def seen_of(problem: Problem, mask: Mask, loss: float | None = None, divergence: float | None = None) -> Seen:
    out = mask.left_out.bit_count() / len(problem.units)
    found = problem.forecast(mask)
    return Seen(
        mask=mask,
        loss=0.9 - 0.8 * out if loss is None else loss,
        log_divergence=-6.0 * out if divergence is None else divergence,
        share=1.0,
        size_bytes=found.size_bytes,
        penalty=found.penalty,
    )


def exhausted(problem: Problem, budget: int | None = None) -> list[Mask]:
    """All that it proposes until it ends."""
    proposer = SurrogateProposer(problem, 0, budget)
    seen: list[Seen] = []
    while (mask := proposer.propose(seen, [])) is not None:
        assert len(seen) < 300, "no end"
        seen.append(seen_of(problem, mask))
    assert proposer.propose(seen, []) is None
    return [s.mask for s in seen]


SMALL = {"one": ([0.1], None), "three": ([0.1, 0.3, 0.0], None), "six, the budget is near": ([0.1] * 6, 30)}


@pytest.mark.parametrize(("priors", "budget"), SMALL.values(), ids=SMALL)
def test_a_small_problem_is_enumerated(priors: list[float], budget: int | None) -> None:
    assert sorted(exhausted(chain_of(priors), budget)) == list(map(Mask, range(1 << len(priors))))


def test_of_what_is_built_alike_only_one_is_proposed() -> None:
    """Two of five units change nothing: of 32 sets 8 are different once built."""
    problem = chain_of([0.1, 0.2, 0.4, 0.3, 0.05], idle=frozenset({1, 2}))
    found = exhausted(problem)
    assert len({problem.forecast(mask).key for mask in found}) == len(found) == 8


def test_of_what_is_built_alike_none_is_proposed_while_it_is_under_way() -> None:
    problem = chain_of([0.1, 0.2, 0.4], idle=frozenset({0}))
    proposer = SurrogateProposer(problem, 0)
    pending: list[Mask] = []
    while (mask := proposer.propose([], pending)) is not None:
        pending.append(mask)
        assert len(pending) < 9, "no end"
    assert len({problem.forecast(mask).key for mask in pending}) == len(pending) == 4


LIMITS = {
    "size": Constraints(max_size_bytes=200),
    "penalty": Constraints(max_penalty=0.6),
    "both": Constraints(max_size_bytes=250, max_penalty=0.8),
}


@pytest.mark.parametrize("constraints", LIMITS.values(), ids=LIMITS)
def test_limits_are_kept_once_the_opening_is_over(constraints: Constraints) -> None:
    truth = synthetic(14, 0, constraints=constraints)
    free = synthetic(14, 0)
    kept = [truth.problem.within_limits(s.mask) for s in truth.run(SurrogateProposer(truth.problem, 0), 15)]
    careless = [truth.problem.within_limits(s.mask) for s in free.run(SurrogateProposer(free.problem, 0), 15)]
    assert all(kept[5:])
    assert not all(careless[5:])


def test_where_nothing_keeps_the_limits_it_still_searches() -> None:
    truth = synthetic(8, 0, constraints=Constraints(max_size_bytes=50))
    found = [s.mask for s in truth.run(SurrogateProposer(truth.problem, 0), 20)]
    assert len(set(found)) == 20


def test_a_largest_drop_draws_the_search_to_what_keeps_it() -> None:
    """A limit on the drop is not known beforehand: more of what is proposed must keep it than without the limit."""
    limited, free = synthetic(14, 3, constraints=Constraints(max_drop=0.1)), synthetic(14, 3)
    kept, careless = (
        sum(s.loss is not None and s.loss <= 0.1 for s in t.run(SurrogateProposer(t.problem, 0), 25)[5:])
        for t in (limited, free)
    )
    assert kept > careless
    assert kept >= 10, (kept, careless)


OPENING = {
    "eight units": ([0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], [0x00, 0xFF, 0x03, 0x0F, 0x3F]),
    "ranked the other way": ([0.1, 0.2, 0.3, 0.4], [0b0000, 0b1111, 0b1000, 0b1100, 0b1110]),
    "one unit": ([0.1], [0, 1]),
}


@pytest.mark.parametrize(("priors", "expected"), OPENING.values(), ids=OPENING)
def test_the_opening_by_hand(priors: list[float], expected: list[Units]) -> None:
    """All in integers, all hybrid, then the worst quarter, half and three quarters."""
    assert opening(priors, hybrid=True, count=len(expected)) == list(map(Mask, expected))


def test_the_opening_has_no_float_model_whose_figures_are_known() -> None:
    found = opening([0.1, 0.2, 0.3, 0.4], hybrid=False, count=4)
    assert found == list(map(Mask, [0b0000, 0b1000, 0b1100, 0b1110]))


def opening(priors: list[float], *, hybrid: bool, count: int) -> list[Mask]:
    proposer = SurrogateProposer(chain_of(priors, hybrid=hybrid), 0)
    pending: list[Mask] = []
    for _ in range(count):
        mask = proposer.propose([], pending)
        assert mask is not None
        pending.append(mask)
    return pending


def test_where_no_divergence_is_known_it_still_proposes() -> None:
    problem = chain_of([0.3, 0.2, 0.1])
    proposer = SurrogateProposer(problem, 0)
    seen: list[Seen] = []
    while (mask := proposer.propose(seen, [])) is not None:
        assert len(seen) < 9, "no end"
        seen.append(seen_of(problem, mask, divergence=float("nan")))
    assert sorted(s.mask for s in seen) == list(map(Mask, range(8)))


def test_a_search_finds_the_same_however_few_forecasts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Mask]:
        truth = synthetic(40, 3)
        return [s.mask for s in truth.run(SurrogateProposer(truth.problem, 0, 20), 20)]

    expected = found()
    monkeypatch.setattr(problem_module, "FORECASTS_KEPT", 16)
    assert found() == expected
