"""What candidates are expected to lose that nobody has scored, and how sure that is; knows numbers, no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Belief, Surrogate, learn, one_thread
from autoselect.study.proposing.unseen import Unseen

COVERED = 0.9
"""Share of scores that an interval holds."""
_ENDS = np.array([0.5 - COVERED / 2.0, 0.5 + COVERED / 2.0])
_FEWEST = 4
"""Candidates that say something of how losses follow closeness."""
_GROUPS = (10, 20)
"""Into how many groups like candidates are parted, each of which is foretold from the others: once into the first
number, once into the second. The wider of both answers counts."""
_ALWAYS = -1
"""Number of the group that is never left out."""
_WIDTHS = np.geomspace(0.25, 16.0, 49)
"""Factors of all deviations that are tried."""


_Believed = tuple[Belief, np.ndarray, np.ndarray]
"""Closeness, loss beyond what that says, and the share of spreads that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """What a score on the search samples is expected to be.

    Attributes:
        drop: The expected loss against float, in the metric's units.
        low: Lower end of an interval that holds nine in ten of such losses.
        high: Its upper end.
        log_divergence: The expected log of the outputs' error power over signal power.
    """

    drop: float
    low: float
    high: float
    log_divergence: float


class Expectation:
    """Predicts from the trials of a search how close a candidate's outputs are to float's, then what it loses.

    An interval is for the loss that a score would measure. So it allows for the surrogate's doubt about the closeness,
    and for how losses of equally close candidates differ, by no less than the noise of the samples. The trials may
    widen it: the losses of each group of like candidates are predicted from all other groups, and all standard
    deviations are multiplied by the one factor, 1 or more, with which nine in ten intervals hold the measured loss
    (cross-conformal prediction: Vovk, "Cross-conformal predictors", Annals of Mathematics and Artificial Intelligence
    74, 2015). Whole groups are left out, because many trials are close neighbours of each other, and few candidates
    that are asked about have such a neighbour. If few groups are as far from float as a candidate, its interval also
    allows for a larger loss than theirs: see :class:`autoselect.study.proposing.unseen.Unseen`.
    """

    def __init__(
        self, problem: Problem, seen: Sequence[Seen], width: float = 1.0, unseen: Unseen | None = None
    ) -> None:
        """Learn.

        Args:
            problem: What the masks mean.
            seen: With a known divergence and a likely loss each, at least four.
            width: Factor of all deviations.
            unseen: What candidates may lose beyond what is usual; None leaves that out.
        """
        self._width, self._unseen = width, unseen
        self._lately: tuple[object, _Believed] | None = None
        self._surrogate = Surrogate(problem)
        learn(self._surrogate, seen)
        figures = np.array([(s.log_divergence, s.likely_loss, s.share, s.noise) for s in seen]).T
        self._link: Link = fit_link(*figures)
        self._likeness = Likeness(problem, self._link, [s.mask for s in seen], *figures[:2])

    @classmethod
    def of(cls, problem: Problem, seen: Sequence[Seen], most: float = math.inf) -> Expectation | None:
        """Learn from candidates, with intervals as wide as their losses demand; None if fewer than four are known.

        Args:
            problem: What the masks mean.
            seen: The candidates; those without a known divergence and loss are left out.
            most: The largest loss that the metric allows, such as float's accuracy; infinite if there is none.
        """
        candidates = [s for s in seen if math.isfinite(s.log_divergence) and math.isfinite(s.likely_loss)]
        if len(candidates) < _FEWEST:
            return None
        with one_thread():
            return cls(problem, candidates, _width_for(problem, candidates, most), _unseen(problem, candidates, most))

    def likely(self, mask: Mask, others: Sequence[Mask] = ()) -> Likely:
        """What a candidate is expected to lose.

        Args:
            mask: The candidate, or the nearest of whole units.
            others: Candidates of whole units that are about as near; how much they differ is open then.
        """
        return self._likely(*self._believed_of(mask, others))[0]

    def likely_each(self, masks: Sequence[Mask]) -> list[Likely]:
        """What each of several candidates of whole units is expected to lose, asked for at once."""
        return self._likely(*self._believed(masks, self._width)) if masks else []

    def _likely(self, belief: Belief, beyond: np.ndarray, left: np.ndarray) -> list[Likely]:
        ends = self._link.loss_quantiles(belief, _ENDS, beyond, left)
        if self._unseen is not None:
            ends[:, 1] = self._unseen.ends(belief.mean, ends[:, 1], 1.0 - _ENDS[1])
        middles = np.clip(self._link.expected(belief) + beyond, *ends.T)
        rows = zip(middles.tolist(), *ends.T.tolist(), belief.mean.tolist(), strict=True)
        return [Likely(drop=drop, low=low, high=high, log_divergence=mean) for drop, low, high, mean in rows]

    def chance_within(self, mask: Mask, limit: float, others: Sequence[Mask] = ()) -> float:
        """How likely a candidate's measured loss is at most a limit; the arguments are those of :meth:`likely`."""
        return float(self._chances(*self._believed_of(mask, others), np.array([limit]))[0])

    def chances_within(self, masks: Sequence[Mask], limits: np.ndarray, widths: Sequence[float]) -> np.ndarray:
        """Chances of several candidates, each with its own limit, by factors of all deviations; shape (n_widths, n)."""
        belief, beyond, left = self._believed(masks, 1.0)
        wider = [(Belief(belief.mean, width * belief.deviation), beyond, width * left) for width in widths]
        return np.array([self._chances(*each, limits) for each in wider])

    def _chances(self, belief: Belief, beyond: np.ndarray, left: np.ndarray, limits: np.ndarray) -> np.ndarray:
        chances = self._link.chance_within(belief, limits, beyond, left)
        if self._unseen is None:
            return chances
        usual = self._link.loss_quantiles(belief, _ENDS[1:], beyond, left)[:, 0]
        return np.asarray(np.minimum(chances, 1.0 - self._unseen.chances(belief.mean, usual, limits)))

    def _believed_of(self, mask: Mask, others: Sequence[Mask]) -> _Believed:
        """What is believed of one candidate; of the latest one it is known: an answer asks several times."""
        key = mask, tuple(others)
        if self._lately is None or self._lately[0] != key:
            self._lately = key, self._believed([mask], self._width, others)
        return self._lately[1]

    def _believed(self, masks: Sequence[Mask], width: float, others: Sequence[Mask] = ()) -> _Believed:
        """The closeness of candidates, what they lose beyond what that says, and the share of spreads that is left."""
        belief = self._surrogate.believe(masks, with_terms=True)
        beyond, left = self._likeness.beyond(masks, belief.mean)
        deviation = belief.deviation
        if others:
            apart = self._surrogate.believe(others).mean[:, None] - belief.mean
            deviation = np.sqrt(deviation**2 + (apart**2).sum(axis=0))
        return Belief(belief.mean, width * deviation), beyond, width * left


def _width_for(problem: Problem, seen: Sequence[Seen], most: float) -> float:
    """The least factor, from 1 on, of all standard deviations with which intervals hold nine in ten measured losses.

    It narrows no interval: near copies of one candidate may fall into several groups, which then predict each other
    better than they predict a candidate that is unlike them.
    """
    needed = [_needed(problem, seen, most, count) for count in _GROUPS]
    return max([1.0, *(float(np.quantile(widths, COVERED)) for widths in needed if widths)])


def _needed(problem: Problem, seen: Sequence[Seen], most: float, count: int) -> list[float]:
    """The least factor with which the interval of each scored candidate holds its loss, foretold from other groups."""
    widths, groups = list[float](), _groups(problem, seen, count)
    for group in sorted({*groups.tolist()} - {_ALWAYS}):
        others = [s for s, own in zip(seen, groups, strict=True) if own != group]
        inside = [s for s, own in zip(seen, groups, strict=True) if own == group and s.loss is not None]
        if len(others) < _FEWEST or not inside:
            continue
        rest, masks = Expectation(problem, others, unseen=_unseen(problem, others, most)), [s.mask for s in inside]
        losses = np.array([s.likely_loss for s in inside])
        chances = rest.chances_within(masks, losses, _WIDTHS.tolist())
        misses = (chances < _ENDS[0]) | (chances > _ENDS[1])
        # The first width from which on no width misses.
        first = np.where(misses.any(axis=0), len(_WIDTHS) - np.argmax(misses[::-1], axis=0), 0)
        widths += _WIDTHS[np.minimum(first, len(_WIDTHS) - 1)].tolist()
    return widths


def _groups(problem: Problem, seen: Sequence[Seen], count: int) -> np.ndarray:
    """The number of the group of each candidate: those whose units are in like states, shape (n,).

    Whole models are in none of them: every search scores these, so no question is without them.
    """
    masks = [s.mask for s in seen]
    groups = np.full(len(seen), _ALWAYS)
    mixed = np.array([not _is_whole(problem, mask) for mask in masks])
    rows = problem.sides([mask for mask, is_mixed in zip(masks, mixed, strict=True) if is_mixed])
    if len(rows) > 1:
        groups[mixed] = fcluster(linkage(rows, "average", "cityblock"), count, "maxclust")
    return groups


def _unseen(problem: Problem, seen: Sequence[Seen], most: float) -> Unseen:
    """What the groups leave open; each whole model is a group of its own, whatever its repairs."""
    groups, wholes = _groups(problem, seen, max(_GROUPS)), dict[Mask, int]()
    for i in np.flatnonzero(groups == _ALWAYS).tolist():
        groups[i] = -1 - wholes.setdefault(seen[i].mask._replace(repairs=0), len(wholes))
    divergences, losses = np.array([(s.log_divergence, s.likely_loss) for s in seen]).T
    return Unseen(groups, divergences, losses, most)


def _is_whole(problem: Problem, mask: Mask) -> bool:
    """Whether all units are in integers, or in one state as far as they have it."""
    wholes = (problem.in_state(problem.everything, place) for place in range(len(problem.states)))
    return not mask.left_out or any(mask._replace(repairs=0) == whole for whole in wholes)
