"""Decides on few samples whether a candidate can still reach a goal; runs no model and knows no particular metric.

The samples are a finite population: what counts is the mean over all of them, and what is not known of it comes only
from those not seen yet. They are seen in random order, hard ones sooner, with known chances, so that each sample is an
unbiased draw of what is left. Whoever bets on these draws that the candidate does not reach its goal, and is right to
do so by chance only, multiplies a stake by ``1 / (1 - confidence)`` at most with a chance of ``1 - confidence``,
whenever one looks (Ville). So that much won is the proof (Waudby-Smith and Ramdas, arXiv:2006.04347, without
replacement; Shekhar et al., arXiv:2305.06884, with chances that differ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.domain.objectives import Direction, Objective, losses

_SHARES = (6.0, 5.0, 4.0, 3.0)
"""Chances of a sample to be seen next, by stratum, hardest first: differences between candidates are most frequent
among hard samples. Steeper ones make what is not seen of the easy samples worth too much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The order in which samples are seen, and the counts of samples after which there is a look.

    Attributes:
        order: Every sample number once, shape (n_samples,), int64; the order in which they are seen.
        strata: Stratum of each sample, shape (n_samples,), int64, in sample order; 0 is the hardest.
        looks: How many samples are seen at each look, rising; the last one is all of them.
    """

    order: np.ndarray
    strata: np.ndarray
    looks: tuple[int, ...]

    def seen(self, look: int) -> np.ndarray:
        """Numbers of the samples seen at a look, shape (looks[look],), int64."""
        return self.order[: self.looks[look]]

    def block(self, look: int) -> np.ndarray:
        """Numbers of the samples seen at a look but not at the one before it."""
        return self.order[self.looks[look - 1] if look else 0 : self.looks[look]]


def schedule(hardness: np.ndarray, seed: int) -> Schedule:
    """Put samples into strata of equal size by hardness, and in a random order that has hard ones sooner.

    The first look comes after a tenth of the samples, at least 30, each further one after half as many again. Each
    next sample is drawn from those left, one of the hardest quarter twice as likely as one of the easiest (Efraimidis
    and Spirakis, Information Processing Letters 97, 2006).

    Args:
        hardness: Shape (n_samples,), float, more is harder; for example the divergence of a quantized model from
            float. Ties are broken at random.
        seed: Of the order; equal seeds give equal schedules.

    Returns:
        The schedule. With fewer than 36 samples the only look is the one at all of them.

    Raises:
        ValueError: If there are no samples, or a hardness is not a finite number.
    """
    values = np.asarray(hardness, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"expected one finite hardness for each of at least one sample, got shape {values.shape}; "
            "leave out samples that the model cannot run"
        )
    rng = np.random.default_rng(seed)
    count = len(values)
    strata = _hardness_ranks(values, rng) * min(len(_SHARES), math.ceil(count / 4)) // count
    order = np.argsort(rng.exponential(size=count) / np.array(_SHARES)[strata])
    return Schedule(order=order, strata=strata, looks=_looks(count))


def stratified_mean(rows: np.ndarray, schedule: Schedule, look: int) -> float:
    """Estimate the mean over all samples from those seen at a look, without bias over the seeds of the schedule.

    A stratum of which none was seen yet counts with the mean of all that were.

    Args:
        rows: Shape (n_samples, 1), float64, in sample order. Those not seen yet are not read and may be NaN.
        schedule: Of the samples.
        look: Number of the look, from 0 on.

    Returns:
        The estimate; at the last look the mean itself.
    """
    seen = schedule.seen(look)
    if len(seen) == len(schedule.order):
        return float(rows[:, 0].mean())
    values, strata = rows[seen, 0], schedule.strata[seen]
    counts, sizes = np.bincount(strata, minlength=len(_SHARES)), np.bincount(schedule.strata, minlength=len(_SHARES))
    sums = np.bincount(strata, values, minlength=len(_SHARES))
    means = np.divide(sums, counts, out=np.full(len(_SHARES), float(values.mean())), where=counts > 0)
    return float(means @ sizes) / len(schedule.order)


class Race:
    """Decides at each look whether a candidate may be dropped: its score does not reach the goal.

    What is left of its loss is known but for the differences to a rival on the samples not seen yet. On each sample
    the bet is by how much the draw passes what the goal leaves; the stake is chosen by what was seen before, as if
    the candidate did as the rival at first. The stakes won against all rivals are averaged, so that the most alike
    decides. A candidate that reaches the goal on all samples is dropped anywhere in the race with a chance of at most
    ``1 - confidence`` over the orders of the samples, whatever the candidate and its rivals are.

    That is a theorem where it is known how well a sample can be answered at best, as for hits and misses. If that is
    taken from the rows seen, it rests on no unseen sample being answered much better than all of them.
    """

    def __init__(
        self,
        schedule: Schedule,
        rivals: Sequence[np.ndarray],
        direction: Direction,
        *,
        goal: float,
        confidence: float,
        best: float | None = None,
    ) -> None:
        """Set the goal.

        Args:
            schedule: Of the samples.
            rivals: Rows of at least one candidate that has seen all samples, each of shape (n_samples, 1), float64,
                in sample order; the metric's score is their mean.
            direction: Of the metric.
            goal: Score that the candidate must beat, or at least reach.
            confidence: Above 0 and below 1.
            best: The best that a sample can be answered, as 1 for a hit; None for the best of all rows seen.

        Raises:
            ValueError: If the confidence is not between 0 and 1.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"expected a confidence above 0 and below 1, got {confidence}; give for example 0.95")
        self._order, self._direction = schedule.order, direction
        self._looks = schedule.looks
        self._shares = np.array(_SHARES)[schedule.strata[schedule.order]]
        self._left = np.cumsum(self._shares[::-1])[::-1]
        self._rivals = [_loss(rows, direction)[self._order, 0] for rows in rivals]
        self._goal = float(_loss(np.array([[goal]]), direction)[0, 0])
        self._best = min(float(rival.min()) for rival in self._rivals)
        if best is not None:
            self._best = float(_loss(np.array([[best]]), direction)[0, 0])
        self._needed = -math.log(1.0 - confidence)

    def is_lost(self, rows: np.ndarray, look: int) -> bool:
        """Whether the candidate may be dropped.

        Args:
            rows: Its evidence, shape (n_samples, 1), float64, in sample order. Rows not seen yet are not read and may
                be NaN.
            look: Number of the look, from 0 on; before the last one, at which there is nothing left to save.
        """
        own = _loss(rows, self._direction)[self._order[: self._looks[look]], 0]
        won = np.logaddexp.reduce([self._won(own, rival) for rival in self._rivals]) - math.log(len(self._rivals))
        return bool(won.max() >= self._needed)

    def _won(self, own: np.ndarray, rival: np.ndarray) -> np.ndarray:
        """Logarithm of the stake after each sample seen."""
        # Samples that count for the belief, before any is seen, that the candidate does as its rival.
        belief = 5.0
        count = len(own)
        differences = own - rival[:count]
        allowed = self._goal * len(rival) - float(rival.sum()) - _before(differences)
        chances = self._shares / self._left
        # The draw that would gain most, of all samples that are left.
        best = min(self._best, float(own.min()))
        gains = np.minimum.accumulate(((best - rival) / self._shares)[::-1])[::-1] * self._left
        at_stake = allowed - gains[:count]
        rounding = 1e-9 * max(1.0, float(np.abs(rival).max())) * len(rival)
        unit = np.where(at_stake > rounding, at_stake, np.inf)  # Where nothing is at stake there is no bet.
        outcomes = (differences / chances[:count] - allowed) / unit
        as_rival = -allowed / unit
        seen = belief + np.arange(count)
        mean = (belief * as_rival + _before(outcomes)) / seen
        # Variance that this belief gives the outcome of a bet, in shares of the square of what can be lost by it.
        square = (belief * (as_rival**2 + 0.02) + _before(outcomes**2)) / seen
        # The largest share of the stake that is bet: all of it would be lost for good by one sample.
        bets = np.clip(mean / square, 0.0, 0.95)
        won = np.cumsum(np.log(np.maximum(1.0 + bets * outcomes, np.finfo(np.float64).tiny)))
        # Logarithm of what is won where the goal is out of reach whatever comes.
        return np.where(np.maximum.accumulate(at_stake < -rounding), 1e9, won)


def _before(values: np.ndarray) -> np.ndarray:
    """Sum of all values before each one."""
    return np.concatenate([[0.0], np.cumsum(values)[:-1]])


def _loss(rows: np.ndarray, direction: Direction) -> np.ndarray:
    return losses(rows, [Objective(name="metric", direction=direction)])


def _hardness_ranks(hardness: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank 0 is the hardest."""
    shuffled = rng.permutation(len(hardness))
    ranks = np.empty(len(hardness), dtype=np.int64)
    ranks[shuffled[np.argsort(-hardness[shuffled], kind="stable")]] = np.arange(len(hardness))
    return ranks


def first_look(count: int) -> int:
    """After how many of so many samples a candidate may be dropped first; all of them if there are few."""
    return _looks(count)[0]


def _looks(count: int) -> tuple[int, ...]:
    looks = []
    seen = max(30, math.ceil(0.1 * count))
    # No look after this share of the samples but the one at all of them: there is too little left to save.
    while seen < 0.85 * count:
        looks.append(seen)
        seen = math.ceil(1.5 * seen)
    return (*looks, count)
