from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoselect.domain.pareto import hypervolume
from autoselect.study.proposing.hypervolume_gain import FrontVolume, Weight, fit_link, loss_worth, reference_corner
from autoselect.study.proposing.surrogate import Belief

CORNER = np.ones(3)
STEPS = 23
"""The levels of loss between 0 and 1 are its multiples, so that a loss on one of them is counted exactly."""
ON_LEVEL = st.integers(0, STEPS).map(lambda i: i / STEPS)
# Few distinct costs, so that ties are common; some lie at the corner or beyond.
COST = st.integers(0, 11).map(lambda i: i / 10)
HUNDREDTHS = st.integers(-5, 100).map(lambda i: i / 100)
FRONTS = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n, 1), elements=ON_LEVEL | st.floats(-0.2, 1.2)),
        hnp.arrays(np.float64, (n, 2), elements=COST | st.floats(0.0, 1.2)),
    ).map(np.hstack)
)


def gain(front: np.ndarray, loss: float, size: float, penalty: float, deviation: float = 0.0) -> float:
    losses = np.full((1, 7), loss)
    found = FrontVolume(front).expected_gain(
        losses, np.full_like(losses, deviation), np.array([size]), np.array([penalty])
    )
    assert found.shape == (1,)
    return float(found[0])


def growth(front: np.ndarray, loss: float, size: float, penalty: float) -> float:
    with_point = np.vstack([front, [[loss, size, penalty]]])
    return hypervolume(with_point, CORNER) - hypervolume(front, CORNER)


@settings(max_examples=400, deadline=None)
@given(FRONTS, st.data())
def test_a_certain_gain_is_the_growth_of_the_hypervolume(front: np.ndarray, data: st.DataObject) -> None:
    """Losses on a level are exact: those of the front, and even ones from 0 (or the front's lowest) to 1."""
    inside = front[np.all(front < 1.0, axis=1)]
    levels = st.just(1.0) if len(inside) and inside[:, 0].min() < 0 else ON_LEVEL
    on_front = st.sampled_from(inside[:, 0].tolist()) if len(inside) else st.nothing()
    loss = data.draw(levels | on_front)
    size, penalty = data.draw(COST | st.floats(0.0, 1.2)), data.draw(COST | st.floats(0.0, 1.2))
    assert gain(front, loss, size, penalty) == pytest.approx(growth(front, loss, size, penalty), abs=1e-7)


@settings(max_examples=200, deadline=None)
@given(FRONTS, st.floats(0.0, 1.0), COST, COST)
def test_a_loss_between_levels_is_off_by_half_a_level_at_most(
    front: np.ndarray, loss: float, size: float, penalty: float
) -> None:
    widest = 1.2 / STEPS
    assert gain(front, loss, size, penalty) == pytest.approx(growth(front, loss, size, penalty), abs=widest / 2)


BEYOND = {
    "size at the corner": (0.0, 1.0, 0.0),
    "size beyond": (0.0, 1.5, 0.0),
    "penalty at the corner": (0.0, 0.0, 1.0),
    "penalty beyond": (0.0, 0.0, 7.0),
    "loss at the corner": (1.0, 0.0, 0.0),
    "loss beyond": (3.0, 0.0, 0.0),
    "dominated": (0.6, 0.6, 0.6),
    "a member itself": (0.5, 0.5, 0.5),
}


@pytest.mark.parametrize("point", BEYOND.values(), ids=BEYOND)
def test_what_adds_nothing(point: tuple[float, float, float]) -> None:
    assert gain(np.array([[0.5, 0.5, 0.5]]), *point) == pytest.approx(0.0, abs=1e-9)


UNCERTAIN = {
    "even odds of 0 and out of reach": (np.array([0.0] * 3 + [0.0] + [9.0] * 3), 0.0, 0.25 * 0.6),
    "surely 0": (np.zeros(7), 0.0, 0.25),
    "surely out of reach": (np.full(7, 9.0), 0.0, 0.0),
}


@pytest.mark.parametrize(("losses", "deviation", "expected"), UNCERTAIN.values(), ids=UNCERTAIN)
def test_uncertain_losses_weigh_by_their_bins(losses: np.ndarray, deviation: float, expected: float) -> None:
    """Nothing known, half of size and of penalty free: a quarter; the lower four of seven quantiles stand for 0.6."""
    empty = FrontVolume(np.zeros((0, 3)))
    found = empty.expected_gain(losses[None, :], np.full((1, 7), deviation), np.array([0.5]), np.array([0.5]))
    assert found[0] == pytest.approx(expected)


def test_many_points_at_once_are_each_their_own() -> None:
    front = np.array([[0.2, 0.8, 0.1], [0.6, 0.3, 0.4]])
    points = np.array([[0.1, 0.9, 0.0], [0.6, 0.2, 0.3], [0.9, 0.0, 0.0], [0.3, 1.1, 0.2]])
    losses = np.repeat(points[:, :1], 7, axis=1)
    together = FrontVolume(front).expected_gain(losses, np.full((4, 7), 0.05), points[:, 1], points[:, 2])
    assert together.tolist() == [pytest.approx(gain(front, *p, deviation=0.05)) for p in points]


def at(link_x: float) -> Belief:
    return Belief(np.array([link_x]), np.array([0.0]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(HUNDREDTHS.map(lambda v: 12 * v), HUNDREDTHS), min_size=1, max_size=20))
def test_the_link_rises(rows: list[tuple[float, float]]) -> None:
    found = fit_link(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]))
    xs = np.linspace(-4, 13, 200)
    losses = found.losses(Belief(xs, np.zeros(200)))[:, 0]
    assert (np.diff(losses) >= -1e-12).all()
    assert losses.min() >= min(0.0, *(r[1] for r in rows)) - 1e-12
    assert losses.max() <= max(0.0, *(r[1] for r in rows)) + 1e-12
    assert (found.deviations(Belief(xs, np.zeros(200))) > 0.0).all()


def test_the_link_passes_through_rising_data() -> None:
    x, y = np.array([-2.0, -6.0, -4.0, 0.0]), np.array([0.3, 0.01, 0.05, 0.7])
    found = fit_link(x, y)
    assert [float(found.losses(at(v))[0, 3]) for v in x] == pytest.approx(y.tolist())
    assert float(found.losses(at(-1.0))[0, 3]) == pytest.approx(0.5)
    assert float(found.losses(at(-9.0))[0, 3]) == pytest.approx(0.0, abs=1e-12)
    assert found.deviations(at(-2.0)).tolist() == [[pytest.approx(0.69e-3)] * 7]


def test_equal_divergences_count_for_their_mean_loss_by_weight() -> None:
    link = fit_link(np.array([-4.0, -2.0, -2.0]), np.array([0.0, 0.1, 0.4]), np.array([1.0, 1.0, 0.5]))
    there = Belief(np.array([-2.0]), np.array([0.0]))
    assert link.losses(there) == pytest.approx(0.2)


def test_the_link_passes_near_noisy_data() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-8, 1, 60)
    truth = 0.8 / (1 + np.exp(-1.5 * (x + 2)))
    found = fit_link(x, truth + rng.normal(0, 0.02, 60))
    inside = np.linspace(-7, 0.5, 50)
    losses = found.losses(Belief(inside, np.zeros(50)))[:, 3]
    assert np.abs(losses - 0.8 / (1 + np.exp(-1.5 * (inside + 2)))).max() < 0.08
    deviations = found.deviations(Belief(inside, np.zeros(50)))
    assert 0.012 < np.median(deviations) < 0.025
    assert deviations.max() < 0.04


def test_losses_vary_where_they_were_seen_to() -> None:
    """Twenty outputs that are wrong altogether, and twenty half way of which every other one is right more often."""
    x = np.concatenate([np.linspace(0.0, 0.2, 20), np.linspace(-3.0, -2.0, 20)])
    y = np.concatenate([np.ones(20), 0.5 + 0.05 * (-1.0) ** np.arange(20)])
    found = fit_link(x, y)
    assert float(found.deviations(at(-2.5))[0, 3]) == pytest.approx(0.05, rel=0.2)
    assert float(found.deviations(at(0.1))[0, 3]) < 0.02


def test_ruined_candidates_do_not_say_how_scores_next_to_float_vary() -> None:
    """Of two that are close to float the closer one scored a little worse, by less than its noise: that was luck."""
    ruined = np.random.default_rng(0).uniform(0.1, 1.0, 15)
    x = np.array([-9.7, -9.6, -8.1, -7.3, -7.25, *np.linspace(-1.0, 0.0, 15)])
    y = np.array([0.009, 0.020, 0.020, 0.022, 0.018, *ruined])
    latent = fit_link(x, y).latent(x, y, np.full(20, 0.0066))
    assert latent[1] < latent[4] - 0.002
    assert latent[5:] == pytest.approx(ruined, abs=0.02)


def test_luck_at_its_end_does_not_make_the_link_steep() -> None:
    """Forty scores next to float that say the same but for their noise, and four ruined candidates."""
    rng, ends = np.random.default_rng(0), []
    for _ in range(50):
        x = np.concatenate([np.sort(rng.uniform(-7.8, -7.5, 40)), np.linspace(-2.0, 0.0, 4)])
        y = np.concatenate([rng.normal(0.07, 0.05, 40), np.linspace(3.0, 8.0, 4)])
        losses = fit_link(x, y).losses(Belief(x[[0, 20]], np.zeros(2)))[:, 3]
        ends.append(losses[1] - losses[0])
    assert 0.0 <= np.median(ends) < 0.01
    assert np.quantile(ends, 0.9) < 0.02


def test_a_long_step_is_flat_but_at_its_ends() -> None:
    found = fit_link(np.array([-2.0, *np.linspace(0.0, 1.0, 11)]), np.array([0.4, *np.ones(11)]))
    assert [float(found.losses(at(v))[0, 3]) for v in (0.1, 0.5, 3.0)] == pytest.approx([1.0, 1.0, 1.0])
    assert 0.4 < float(found.losses(at(-0.5))[0, 3]) < 1.0


@pytest.mark.parametrize(
    "good", [[-5.0, -4.9], [-8.0, -5.0, -4.9], [-8.0, -7.5, -6.0, -5.0, -4.9]], ids=["two", "three", "five"]
)
def test_candidates_that_lost_nothing_are_not_believed_to_lose_because_far_others_lost_all(good: list[float]) -> None:
    """What is half way between steps is in the gap between them, where it is wide, not within a step."""
    x = np.array([*good, 3.0, 3.1])
    found = fit_link(x, np.where(x < 0.0, 0.0, 0.8))
    assert [float(found.losses(at(v))[0, 3]) for v in x] == pytest.approx(np.where(x < 0.0, 0.0, 0.8).tolist())
    assert float(found.losses(at(-0.95))[0, 3]) == pytest.approx(0.4)


def test_a_wide_belief_gives_losses_on_both_sides_of_its_middle() -> None:
    found = fit_link(np.array([-6.0, -4.0, -2.0, 0.0]), np.array([0.0, 0.1, 0.5, 0.7]))
    losses = found.losses(Belief(np.array([-3.0]), np.array([1.0])))[0]
    assert losses[3] == pytest.approx(0.3)
    assert losses[0] < 0.2 < 0.4 < losses[-1]
    assert (np.diff(losses) > 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(0, 8), st.data())
def test_the_gain_is_the_growth_whatever_the_number_of_costs(costs: int, count: int, data: st.DataObject) -> None:
    front = data.draw(hnp.arrays(np.float64, (count, 1 + costs), elements=COST))
    point = data.draw(hnp.arrays(np.float64, (costs,), elements=COST | st.floats(0.0, 1.2)))
    loss = data.draw(ON_LEVEL)
    corner = np.ones(1 + costs)
    found = FrontVolume(front).expected_gain(np.full((1, 7), loss), np.zeros((1, 7)), *point[:, None])
    before, after = hypervolume(front, corner), hypervolume(np.vstack([front, [loss, *point]]), corner)
    assert found == pytest.approx([after - before], abs=1e-7)


@pytest.mark.parametrize(("costs", "members"), [(3, 60), (2, 400)])
def test_a_coarse_grid_dominates_a_little_less_and_never_more(costs: int, members: int) -> None:
    rng = np.random.default_rng(0)
    front = rng.random((members, 1 + costs))
    front[:, 0] = rng.integers(0, STEPS, members) / STEPS
    points = rng.random((20, costs))
    found = FrontVolume(front).expected_gain(np.full((20, 7), 1 / STEPS), np.zeros((20, 7)), *points.T)
    corner = np.ones(1 + costs)
    before = hypervolume(front, corner)
    exact = np.array([hypervolume(np.vstack([front, [1 / STEPS, *p]]), corner) - before for p in points])
    assert np.all(found >= exact - 1e-12)
    assert np.abs(found - exact).max() < 0.02


@settings(max_examples=300, deadline=None)
@given(FRONTS, st.sampled_from([0.0, 0.001, 0.05, 0.5]), COST, COST)
def test_the_loss_worth_a_share_is_where_the_hypervolume_grows_by_it(
    front: np.ndarray, share: float, size: float, penalty: float
) -> None:
    found = loss_worth(front, share, np.array([size, penalty]))
    wanted = share * hypervolume(front, CORNER)
    if size >= 1.0 or penalty >= 1.0:
        assert found == -np.inf
        return
    grown = [growth(front, loss, size, penalty) for loss in (found + 1e-3, found, found - 1e-3)]
    assert grown[1] == pytest.approx(wanted, abs=1e-9)
    assert grown[0] <= grown[1] + 1e-9
    assert grown[2] >= grown[1] - 1e-12


def test_the_loss_worth_a_share_by_hand() -> None:
    """The front's one point dominates 0.5 x 0.5 x 0.5."""
    front = np.array([[0.5, 0.5, 0.5]])
    assert loss_worth(front, 0.0, np.array([0.5, 0.5])) == pytest.approx(0.5)
    assert loss_worth(front, 0.0, np.array([0.25, 0.5])) == pytest.approx(1.0)
    assert loss_worth(front, 1.0, np.array([0.5, 0.5])) == pytest.approx(0.0)
    assert loss_worth(front, 2.0, np.array([0.5, 0.5])) == pytest.approx(-0.5)  # better than float


def test_the_corner_is_a_little_beyond_the_worst_of_each_objective() -> None:
    points = np.array([[0.5, 100.0, 0.0], [-0.1, 200.0, 0.0]])
    assert reference_corner(points) == pytest.approx([0.55, 220.0, 1e-9])


def test_the_weight_of_a_loss_is_nearly_itself_up_to_what_is_allowed_and_its_logarithm_far_beyond() -> None:
    weight = Weight(0.01)
    assert weight.of(np.array([-0.1, 0.0, 0.0001, 0.01, 1.0])) == pytest.approx(
        [0, 0, 0.01, math.log(2), math.log(101)], rel=0.01
    )
    assert weight.of_spread(np.array([0.001]), np.array([0.01])) == pytest.approx([0.05])
    assert [weight.loss(float(w)) for w in weight.of(np.array([0.0, 0.02, 0.5]))] == pytest.approx([0.0, 0.02, 0.5])


@pytest.mark.parametrize("allowed", [0.0, math.inf])
def test_without_an_allowed_loss_the_weight_of_a_loss_is_the_loss(allowed: float) -> None:
    weight = Weight(allowed)
    assert weight.of(np.array([-1.0, 0.5])).tolist() == [0.0, 0.5]
    assert (weight.of_spread(np.array([0.1]), np.array([0.5])).item(), weight.loss(0.5)) == (0.1, 0.5)
