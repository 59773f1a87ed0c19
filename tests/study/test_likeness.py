from __future__ import annotations

import numpy as np
import pytest
from synthetic import chain_of

from autoselect.study.proposing.hypervolume_gain import fit_link
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask

UNITS = 12
PROBLEM = chain_of([1.0] * UNITS)
COUNT = 40
CUT_OFF, LOST = 3, 0.2
"""The unit whose integers cost so much of the metric on samples that hardly count for the divergence."""


def likeness_of(losses: np.ndarray, masks: list[Mask], log_divergences: np.ndarray) -> Likeness:
    return Likeness(PROBLEM, fit_link(log_divergences, losses), masks, log_divergences, losses)


def drawn(seed: int) -> tuple[np.random.Generator, list[Mask], np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, [Mask(int(m)) for m in rng.integers(1 << UNITS, size=COUNT)], rng.uniform(-8.0, -4.0, COUNT)


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_hangs_on_one_unit_is_expected_of_candidates_that_have_it_in_integers(seed: int) -> None:
    rng, masks, divergences = drawn(seed)
    lost = np.array([LOST * (not mask.left_out >> CUT_OFF & 1) for mask in masks])
    found = likeness_of(lost + rng.normal(0.0, 0.005, COUNT), masks, divergences)
    _, others, _ = drawn(seed + 100)
    without = [mask.without(1 << CUT_OFF) for mask in others]
    left_out = [Mask(mask.left_out | 1 << CUT_OFF) for mask in others]
    at = np.full(COUNT, -6.0)
    (more, _), (less, share) = found.beyond(without, at), found.beyond(left_out, at)
    assert np.mean(more - less) > 0.25 * LOST
    assert np.mean(more > less) > 0.9
    assert np.all(share <= 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_expected_of_what_chance_explains(seed: int) -> None:
    rng, masks, divergences = drawn(seed)
    found = likeness_of(np.exp(divergences) + rng.normal(0.0, 0.01, COUNT), masks, divergences)
    beyond, left = found.beyond(masks, divergences)
    assert np.all(beyond == 0.0)
    assert np.all(left == 1.0)
