from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from synthetic import Synthetic, chain_of, synthetic

from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.surrogate import Surrogate


def masks_of(count: int, units: int, seed: int) -> list[Mask]:
    """Distinct masks of random density."""
    rng = np.random.default_rng(seed)
    found: dict[Mask, None] = {}
    while len(found) < count:
        chosen = np.flatnonzero(rng.random(units) < rng.random())
        found.setdefault(Mask(sum(1 << int(i) for i in chosen)))
    return list(found)


def learned(truth: Synthetic, masks: list[Mask]) -> Surrogate:
    model = Surrogate(truth.problem)
    model.fit(masks, np.array([truth.seen(m).log_divergence for m in masks]), np.zeros(len(masks)))
    return model


def error(model: Surrogate, truth: Synthetic, masks: list[Mask]) -> float:
    """Median of what is predicted wrongly."""
    expected = np.array([truth.log_divergence(m) for m in masks])
    return float(np.median(np.abs(model.believe(masks).mean - expected)))


def test_without_candidates_the_priors_add_up() -> None:
    """In float what is left out has no error; as hybrid it has a tenth of what it has in integers."""
    priors = [0.5, 0.25, 0.125]
    for hybrid, expected in ((False, [0.875, 0.375, 0.125]), (True, [0.875, 0.425, 0.2])):
        belief = Surrogate(chain_of(priors, hybrid=hybrid)).believe([Mask(0b000), Mask(0b001), Mask(0b011)])
        assert np.exp(belief.mean) == pytest.approx(expected, rel=1e-6)
        assert (belief.deviation > 0.2).all()


@pytest.mark.parametrize("hybrid", [False, True], ids=["float", "hybrid"])
@pytest.mark.parametrize("seed", range(3))
def test_it_recovers_terms_that_the_priors_get_wrong(seed: int, hybrid: bool) -> None:
    truth = synthetic(16, seed, prior_error=1.5, hybrid=hybrid)
    priors = truth.problem.sensitivities
    model = learned(truth, masks_of(40, 16, seed))
    before, after = spearmanr(priors, truth.terms).statistic, spearmanr(model.terms, truth.terms).statistic
    assert after > 0.6
    assert after > before
    largest = np.argsort(-truth.terms)[:3]
    assert np.abs(np.log(model.terms[largest] / truth.terms[largest])).max() < (0.5 if hybrid else 0.3)


@pytest.mark.parametrize("hybrid", [False, True], ids=["float", "hybrid"])
@pytest.mark.parametrize("seed", range(3))
def test_it_predicts_what_it_has_not_seen_better_than_the_priors(seed: int, hybrid: bool) -> None:
    truth = synthetic(30, seed, hybrid=hybrid)
    masks = masks_of(140, 30, seed)
    shown, heldout = masks[:40], masks[40:]
    assert error(learned(truth, shown), truth, heldout) < 0.6 * error(Surrogate(truth.problem), truth, heldout)


@pytest.mark.parametrize("seed", range(3))
def test_it_learns_that_several_units_each_ruin_the_model(seed: int) -> None:
    """Four units, each enough to ruin the model: all four must be left out, which a sum of effects cannot say."""
    truth = synthetic(20, seed, redundant=4)
    ruinous = sum(1 << int(i) for i in np.flatnonzero(truth.terms == 2.0))
    # Each mask with the four, and with all but one of the four, left out.
    others = masks_of(30, 20, seed)
    model = learned(truth, others)
    unseen = [m for m in masks_of(60, 20, seed + 100) if m not in others]
    saved = [Mask(m.left_out | ruinous) for m in unseen]
    ruined = [m.without(ruinous & -ruinous) for m in saved]
    gap = model.believe(ruined).mean - model.believe(saved).mean
    truly = np.array([truth.log_divergence(a) - truth.log_divergence(b) for a, b in zip(ruined, saved, strict=True)])
    assert truly.min() > 1.0
    assert gap.min() > 0.0
    assert np.mean(gap) == pytest.approx(np.mean(truly), rel=0.4)


def test_it_is_sure_near_what_it_has_seen() -> None:
    truth = synthetic(30, 0)
    known = masks_of(20, 30, 0)
    model = learned(truth, known)
    before = Surrogate(truth.problem).believe(known).deviation
    at, near = model.believe(known), model.believe([Mask(m.left_out ^ 1) for m in known])
    far = model.believe([Mask(m.left_out ^ ((1 << 30) - 1)) for m in known])
    assert (at.deviation < before).all()
    assert at.deviation.mean() < near.deviation.mean() < far.deviation.mean()
    expected = np.array([truth.log_divergence(m) for m in known])
    assert np.abs(at.mean - expected).max() < 0.25


def test_what_part_of_the_samples_said_counts_for_less() -> None:
    truth = synthetic(12, 1)
    masks = masks_of(12, 12, 1)
    values = np.array([truth.log_divergence(m) for m in masks])
    values[0] += 3.0
    exact, vague = Surrogate(truth.problem), Surrogate(truth.problem)
    exact.fit(masks, values, np.zeros(12))
    vague.fit(masks, values, np.array([2.0] + [0.0] * 11))
    off_exact, off_vague = (abs(m.believe(masks[:1]).mean[0] - values[0]) for m in (exact, vague))
    assert off_exact < off_vague
    assert vague.believe(masks[:1]).deviation[0] > exact.believe(masks[:1]).deviation[0]


ODD = {
    "one unit": ([0.1], [0, 1]),
    "no sensitivity is known": ([0.0] * 4, [0, 3, 15]),
    "one candidate": ([0.1] * 3, [5]),
    "the same candidate twice": ([0.1] * 3, [0, 0, 7]),
}


@pytest.mark.parametrize("hybrid", [False, True], ids=["float", "hybrid"])
@pytest.mark.parametrize(("priors", "known"), ODD.values(), ids=ODD)
def test_odd_problems_are_believed_all_the_same(priors: list[float], known: list[Units], hybrid: bool) -> None:
    """What was seen is believed; a candidate in which nothing is in integers may be far from any sum."""
    model = Surrogate(chain_of(priors, hybrid=hybrid))
    model.fit(list(map(Mask, known)), np.full(len(known), math.log(0.2)), np.zeros(len(known)))
    belief = model.believe(list(map(Mask, range(1 << len(priors)))))
    assert np.isfinite(belief.mean).all()
    assert (belief.deviation > 0).all()
    assert belief.mean[known[0]] == pytest.approx(math.log(0.2), abs=1.0)


@pytest.mark.parametrize("other", [(("bias-sequential",), True), ((), False)], ids=["in sequence", "without"])
def test_it_learns_what_other_repairs_do(other: tuple[tuple[str, ...], bool]) -> None:
    """Every candidate is better by half with them: so is one that was not tried that way."""
    names, is_expected = other
    problem = chain_of([0.01, 0.02, 0.03, 0.04, 0.05], repair_sets=(("bias",), names))
    masks = list(map(Mask, [0b00001, 0b00110, 0b01100, 0b11000]))
    plain = np.log([0.14, 0.10, 0.08, 0.06])
    surrogate = Surrogate(problem)
    before = surrogate.believe([Mask(0b00011), Mask(0b00011, repairs=1)])
    assert (before.mean[1] < before.mean[0]) == is_expected
    assert before.deviation[1] > before.deviation[0]
    refined = [mask._replace(repairs=1) for mask in masks]
    surrogate.fit([*masks, *refined], np.concatenate([plain, plain + np.log(0.5)]), np.zeros(8))
    after = surrogate.believe([Mask(0b00011), Mask(0b00011, repairs=1)])
    assert after.mean[1] - after.mean[0] == pytest.approx(np.log(0.5), abs=0.15)
    assert after.deviation[1] < before.deviation[1]


def test_what_is_float_has_no_term_of_its_own() -> None:
    problem = chain_of([0.5, 0.5], hybrid=True, mixed=True)
    integer, hybrid, in_float = Surrogate(problem).believe([Mask(), Mask(0b11), Mask(0b11, [0b11])]).mean
    assert in_float < hybrid < integer


def test_beside_the_cap_one_unit_of_many_changes_nothing() -> None:
    """Ten units of which each gives three times what outputs can be wrong by."""
    problem = chain_of([0.75] * 10)
    known = list(map(Mask, [0, 1, 2, 4, 1023 & ~1, 1023 & ~3, 1023 & ~7]))
    surrogate = Surrogate(problem)
    total = np.array([3.0 * (10 - mask.left_out.bit_count()) for mask in known])
    surrogate.fit(known, np.log(total / (1.0 + total)), np.zeros(len(known)))
    believed = surrogate.believe([Mask(0b1000), Mask(0b11_1111_0111)])
    assert believed.mean.tolist() == pytest.approx(np.log([27 / 28, 3 / 4]).tolist(), abs=0.08)
    assert believed.deviation[0] < 0.1


def test_fewer_levels_add_what_they_were_measured_to_add() -> None:
    """Without a score of a candidate that has them; a score then corrects it."""
    problem = chain_of([0.01, 0.02], repair_sets=((), ("levels-6",), ("levels-4",)), added_noise=(0.0, 0.03, 0.3))
    surrogate = Surrogate(problem)
    believed = surrogate.believe([Mask(), Mask(repairs=1), Mask(repairs=2), Mask(0b11, repairs=2)])
    assert np.exp(believed.mean).tolist() == pytest.approx([0.03, 0.06, 0.33, 0.3], rel=0.05)
    known = [Mask(), Mask(repairs=1), Mask(1, repairs=1), Mask(2, repairs=1)]
    surrogate.fit(known, np.log([0.03, 0.045, 0.035, 0.025]), np.zeros(4))
    assert np.exp(surrogate.believe([Mask(repairs=1)]).mean[0]) == pytest.approx(0.045, rel=0.1)
