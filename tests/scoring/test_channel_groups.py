"""Channels of one output that mean different things: boxes of 0 to 320 and scores of 0 to 1."""

from __future__ import annotations

import numpy as np
import pytest

from autoselect.scoring.channel_groups import channel_groups, short_of_steps
from autoselect.scoring.metrics import make_metric

RNG = np.random.default_rng(3)


def head(samples: int = 8) -> np.ndarray:
    """Shape (n, 1, 4 + 6, 50), as a YOLO head: four rows of boxes, six of scores; classes 4 and 5 are never seen."""
    boxes = RNG.uniform(0.0, 320.0, (samples, 1, 4, 50))
    scores = RNG.uniform(0.0, 1.0, (samples, 1, 6, 50)) ** 3
    scores[:, :, 4:] *= 1e-4
    return np.concatenate([boxes, scores], axis=2)


@pytest.mark.parametrize("axis", [2, 3])
def test_boxes_and_scores_are_two_groups_along_either_axis(axis: int) -> None:
    groups = channel_groups(np.moveaxis(head(), 2, axis))
    assert [(g.axis, g.channels) for g in groups] == [(axis - 1, (0, 1, 2, 3)), (axis - 1, (4, 5, 6, 7, 8, 9))]
    assert str(groups[1]).startswith("channels 4 to 9, ")


ORDINARY = {
    "logits": RNG.normal(0, 5, (64, 1, 1000)),
    "shares of which some classes are never seen": RNG.dirichlet(np.r_[np.ones(5), np.full(5, 1e-3)], (64, 1)),
    "an image": RNG.uniform(0, 255, (4, 1, 32, 32, 3)),
    "audio": RNG.normal(0, 0.1, (32, 1, 512)),
    "dead channels": np.concatenate([RNG.normal(size=(64, 1, 9)), np.zeros((64, 1, 3))], axis=2),
    "one sample, of which some values are near 0": RNG.normal(size=(1, 1, 4000)),
    "nothing but zeros": np.zeros((8, 1, 40)),
    "no number": np.full((8, 1, 40), np.nan),
    "no samples": np.zeros((0, 1, 4)),
}


@pytest.mark.parametrize("values", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_outputs_have_no_groups(values: np.ndarray) -> None:
    assert channel_groups(values) == ()
    assert short_of_steps(()) == []


def test_scores_of_less_than_a_step_are_found() -> None:
    """320 in 255 steps are 1.25 for each: scores of 0 to 1 have less than one."""
    ((group, steps),) = short_of_steps(channel_groups(head()))
    assert group.channels[0] == 4
    assert steps == pytest.approx(255 / 320, rel=0.05)


def test_sqnr_is_that_of_the_worst_group() -> None:
    """Scores that are all 0 are 0 dB from float's, whatever the boxes are; both ways to observe say so."""
    theirs = head()
    ours = theirs.copy()
    ours[:, :, 4:] = 0.0
    whole = make_metric("sqnr_db")
    informed = whole.informed(lambda key: channel_groups(theirs))
    assert whole.observe_block({"out": ours}, None, {"out": theirs}).min() > 40.0
    assert informed.observe_block({"out": ours}, None, {"out": theirs}) == pytest.approx(0.0)
    assert informed.observe({"out": ours[0]}, None, {"out": theirs[0]}) == pytest.approx(0.0)
    assert informed.observe({"out": theirs[0]}, None, {"out": theirs[0]}) == pytest.approx(200.0)


def test_ordinary_outputs_have_the_same_figures() -> None:
    theirs = {"out": RNG.normal(size=(8, 1, 40))}
    ours = {"out": theirs["out"] + 0.1}
    metric = make_metric("sqnr_db")
    informed = metric.informed(lambda key: channel_groups(theirs["out"]))
    assert np.array_equal(metric.observe_block(ours, None, theirs), informed.observe_block(ours, None, theirs))
