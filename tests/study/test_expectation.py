"""What trials tell of candidates that nobody scored: intervals hold as many scores as they promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoselect.domain.repair_sets import Repairs
from autoselect.study.proposing.expectation import Expectation
from autoselect.study.proposing.hypervolume_gain import fit_link
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.surrogate import Belief, Surrogate, learn

UNITS = 16


def problem(sensitivities: Sequence[float]) -> Problem:
    def forecast(nodes: frozenset[str], _further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        return Forecast(1000 - len(nodes), float(len(nodes)), nodes)

    units = [
        Unit(nodes=frozenset({f"n{i}"}), op_type="CONV_2D", position=i, sensitivity=s)
        for i, s in enumerate(sensitivities)
    ]
    return Problem(units, [frozenset()] * len(units), forecast, states=("float",))


class World:
    """Candidates whose closeness is a noisy sum of their units' errors, and whose loss follows it noisily."""

    def __init__(self, seed: int, noise: float, misjudged: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.terms = 10.0 ** self.rng.uniform(-4.0, -1.0, UNITS)
        self.noise = noise
        self.problem = problem((self.terms * np.exp(misjudged * self.rng.normal(size=UNITS))).tolist())

    def seen(self, left_out: int) -> Seen:
        inside = np.array([not left_out >> i & 1 for i in range(UNITS)])
        total = float(self.terms[inside].sum()) + 1e-6
        divergence = math.log(total) + self.noise * self.rng.normal()
        loss = 0.3 * (1.0 - math.exp(-4.0 * total)) + 0.01 * self.rng.normal()
        return Seen(mask=Mask(left_out), loss=loss, log_divergence=divergence, share=1.0)

    def some(self, count: int) -> list[Seen]:
        return [self.seen(int(self.rng.integers(1, 2**UNITS))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "misjudged"), [(0.1, 0.5), (0.1, 2.5), (0.8, 1.0)])
def test_nine_in_ten_scores_are_inside(noise: float, misjudged: float) -> None:
    inside = []
    for seed in range(4):
        world = World(seed, noise, misjudged)
        expectation = Expectation.of(world.problem, [world.seen(0), *world.some(40)])
        assert expectation is not None
        for asked in world.some(40):
            likely = expectation.likely(asked.mask)
            inside.append(likely.low <= asked.likely_loss <= likely.high)
            assert likely.low <= likely.drop <= likely.high
    assert 0.83 <= np.mean(inside) <= 0.98


def test_chances_rise_with_the_limit_and_agree_with_the_interval() -> None:
    world = World(0, 0.3, 1.0)
    expectation = Expectation.of(world.problem, world.some(40))
    assert expectation is not None
    asked = world.some(1)[0].mask
    likely = expectation.likely(asked)
    chances = [expectation.chance_within(asked, limit) for limit in np.linspace(-0.1, 0.5, 30)]
    assert chances == sorted(chances)
    assert expectation.chance_within(asked, likely.low) == pytest.approx(0.05, abs=1e-6)
    assert expectation.chance_within(asked, likely.high) == pytest.approx(0.95, abs=1e-6)


def test_what_few_trials_are_as_far_as_may_lose_more_than_all_of_them() -> None:
    world = World(0, 0.1, 0.5)
    trials = [world.seen(0), *world.some(40)]
    expectation, capped = Expectation.of(world.problem, trials), Expectation.of(world.problem, trials, most=0.35)
    assert expectation is not None
    assert capped is not None
    ruined, most = Mask(1), max(s.likely_loss for s in trials)
    assert expectation.likely(ruined).high > most > expectation.likely(ruined).drop
    assert expectation.likely(ruined).high > capped.likely(ruined).high == pytest.approx(0.35)
    assert capped.chance_within(ruined, 0.36) == pytest.approx(1.0, abs=1e-6)


def test_near_copies_of_one_candidate_do_not_narrow_an_interval_below_the_noise_of_the_samples() -> None:
    world, noise = World(0, 0.0, 0.0), 0.05
    slightest = np.argsort(world.terms)[:12].tolist()
    copies = [replace(world.seen(1 << place), loss=0.2, noise=noise) for place in slightest]
    others = [replace(world.seen(mask), loss=0.2, noise=noise) for mask in (0, 0xFF00, 0x0FF0, 0x00FF)]
    expectation = Expectation.of(world.problem, [*copies, *others])
    assert expectation is not None
    likely = expectation.likely(Mask(0xF00F))
    assert likely.high - likely.low > 2.0 * 1.6 * noise


def test_a_spread_is_no_less_than_the_noise_of_the_losses_nearby() -> None:
    x, losses = np.array([-4.0, -3.9, -1.0, -0.9]), np.array([0.1, 0.1, 0.4, 0.4])
    noise = np.array([0.01, 0.01, 0.2, math.nan])
    link, plain = fit_link(x, losses, np.ones(4), noise), fit_link(x, losses)
    assert (link.spreads >= plain.spreads).all()
    near, far = np.interp([-4.0, -1.0], link.grid, link.spreads)
    assert plain.spreads.max() < near < 0.5 * far
    assert (fit_link(x, losses, np.ones(4), np.full(4, math.nan)).spreads == plain.spreads).all()


def test_too_few_candidates_tell_nothing() -> None:
    world = World(0, 0.3, 1.0)
    assert Expectation.of(world.problem, world.some(3)) is None
    assert Expectation.of(world.problem, world.some(4)) is not None


def test_what_is_open_of_terms_makes_beliefs_less_sure_where_nothing_was_seen() -> None:
    world = World(1, 0.1, 1.0)
    surrogate = Surrogate(world.problem)
    learn(surrogate, world.some(30))
    masks = [seen.mask for seen in world.some(20)]
    plain, honest = surrogate.believe(masks), surrogate.believe(masks, with_terms=True)
    assert (honest.deviation >= plain.deviation - 1e-12).all()
    assert (honest.mean == plain.mean).all()


def test_quantiles_of_losses_are_where_the_chances_say() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    link = fit_link(x, np.maximum(x, 0.0) + 0.05 * rng.normal(size=60))
    belief = Belief(np.array([-1.0, 0.0, 1.0]), np.array([0.5, 0.5, 0.5]))
    shares = np.array([0.05, 0.5, 0.95])
    found = link.loss_quantiles(belief, shares)
    assert (np.diff(found, axis=1) > 0.0).all()
    for place, share in enumerate(shares):
        assert link.chance_within(belief, found[:, place]) == pytest.approx(share, abs=1e-6)


def test_what_other_near_candidates_would_be_makes_a_guess_less_sure() -> None:
    world = World(2, 0.1, 0.5)
    expectation = Expectation.of(world.problem, world.some(40))
    assert expectation is not None
    mask, worst = Mask(0b1010), int(np.argmax(world.terms))
    plain, open_ = expectation.likely(mask), expectation.likely(mask, [Mask(mask.left_out ^ 1 << worst)])
    assert open_.high - open_.low > plain.high - plain.low
    assert open_.log_divergence == plain.log_divergence
