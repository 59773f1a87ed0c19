"""What was done before, to compare with.

The races until 2026-11-22: a normal approximation of the stratified mean of paired differences. The recommendation
until 2026-11-25: the least penalty that is proved, else the best trade among the first group that has a member.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from autoselect.domain.objectives import Direction, Objective, losses
from autoselect.domain.rule import Rule, Standing
from autoselect.scoring.racing import Schedule

_SHARES = (4.0, 3.0, 2.0, 1.0)
"""How many samples the strata give to a block, hardest first, until one has no more: differences between candidates
are most frequent among hard samples, and the easy ones must show that they hold none."""

_FIRST_SHARE = 0.1
_FIRST_COUNT = 30
_GROWTH = 1.5
_LAST_SHARE = 0.85
"""No look after this share of the samples but the one at all of them: there is too little left to save."""
_EXPECTED_COUNT = 32
"""Samples of a stratum that the expected variance counts for."""


def schedule(hardness: np.ndarray, seed: int) -> Schedule:
    """Put samples into strata of equal size by hardness, and in an order in which every block mixes all strata.

    The first look comes after a tenth of the samples, at least 30, each further one after half as many again. Early
    blocks hold four samples of the hardest quarter for three, two and one of the others.

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
    turn = (_random_places(strata, rng) + 0.5) / np.array(_SHARES)[strata]
    order = np.lexsort((strata, turn)).astype(np.int64)
    return Schedule(order=order, strata=strata, looks=_looks(count))


def stratified_mean(rows: np.ndarray, schedule: Schedule, look: int) -> float:
    """Estimate the mean over all samples from those seen at a look, without bias over the seeds of the schedule.

    Args:
        rows: Shape (n_samples, 1), float64, in sample order. Those not seen yet are not read and may be NaN.
        schedule: Of the samples.
        look: Number of the look, from 0 on.

    Returns:
        The estimate; at the last look the mean itself.
    """
    if schedule.looks[look] == len(schedule.order):
        return float(rows[:, 0].mean())
    return math.fsum(part.weight * float(part.values.mean()) for part in _parts(rows[:, 0], schedule, look))


def stratified_error(rows: np.ndarray, schedule: Schedule, look: int, expected: np.ndarray) -> float:
    """Estimate the standard error of :func:`stratified_mean`, with finite population correction.

    The variance of a stratum is that of its rows seen, drawn to the expected one as if that came from
    ``_EXPECTED_COUNT`` further rows: a stratum that has shown no difference may still hold one.

    Args:
        rows: As for :func:`stratified_mean`.
        schedule: Of the samples.
        look: Number of the look, from 0 on.
        expected: Variance of each stratum, shape (n_strata,), see :func:`expected_variances`.

    Returns:
        The error in the unit of the rows; 0 at the last look.
    """
    total = 0.0
    for part, prior in zip(_parts(rows[:, 0], schedule, look), expected.tolist(), strict=True):
        count = len(part.values)
        own = float(part.values.var(ddof=1)) if count > 1 else 0.0
        variance = ((count - 1) * own + _EXPECTED_COUNT * prior) / (count - 1 + _EXPECTED_COUNT)
        total += part.weight**2 * (1.0 - count / part.size) * variance / count
    return math.sqrt(total)


def expected_variances(rivals: Sequence[np.ndarray], schedule: Schedule) -> np.ndarray:
    """How much candidates like these differ: the variance of their paired differences, of the pair with the most.

    Args:
        rivals: Rows of candidates that have seen all samples, each of shape (n_samples, 1).
        schedule: Of the samples.

    Returns:
        A variance for each stratum, shape (n_strata,); zeros for fewer than two candidates.
    """
    strata = [np.flatnonzero(schedule.strata == stratum) for stratum in range(int(schedule.strata.max()) + 1)]
    found = np.zeros(len(strata))
    for one, other in itertools.combinations(rivals, 2):
        differences = (one - other)[:, 0]
        found = np.maximum(found, [differences[members].var() for members in strata])
    return found


class Race:
    """Decides at each look whether a candidate may be dropped: its score does not reach the goal.

    The candidate's mean over all samples is a rival's, which is known, and the stratified mean of their paired
    differences; of several rivals the one counts that differs least from the candidate on what was seen. The
    candidate is dropped where this estimate is on the wrong side of the goal by a multiple of its standard error. The
    chance of error is shared equally by all looks before the last (Bonferroni), so that a candidate that reaches the
    goal on all samples is dropped anywhere in the race with a chance of at most ``1 - confidence``. That rests on the
    normal approximation and on candidates being as unlike as their rivals are among themselves; simulations of shares
    of hits and of heavy-tailed errors kept the chance. It cannot hold where a few unseen samples weigh more than all
    that were seen.
    """

    def __init__(
        self,
        schedule: Schedule,
        rivals: Sequence[np.ndarray],
        expected: np.ndarray,
        direction: Direction,
        *,
        goal: float,
        confidence: float,
    ) -> None:
        """Set the goal.

        Args:
            schedule: Of the samples.
            rivals: Rows of at least one candidate that has seen all samples, each of shape (n_samples, 1), float64,
                in sample order; the metric's score is their mean.
            expected: See :func:`expected_variances`.
            direction: Of the metric.
            goal: Score that the candidate must beat, or at least reach.
            confidence: Above 0 and below 1.

        Raises:
            ValueError: If the confidence is not between 0 and 1.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"expected a confidence above 0 and below 1, got {confidence}; give for example 0.95")
        self._schedule, self._expected = schedule, expected
        self._rivals = [_loss(rows, direction) for rows in rivals]
        self._direction: Direction = direction
        self._goal = float(_loss(np.array([[goal]]), direction)[0, 0])
        early = max(len(schedule.looks) - 1, 1)
        self._critical = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / early)

    def is_lost(self, rows: np.ndarray, look: int) -> bool:
        """Whether the candidate may be dropped.

        Args:
            rows: Its evidence, shape (n_samples, 1), float64, in sample order. Rows not seen yet are not read and may
                be NaN.
            look: Number of the look, from 0 on; before the last one, at which there is nothing left to save.
        """
        own = _loss(rows, self._direction)
        estimates = [self._estimate(own, rival, look) for rival in self._rivals]
        error, loss = min(estimates)
        return loss - self._goal > 0.0 and loss - self._goal >= self._critical * error

    def _estimate(self, own: np.ndarray, rival: np.ndarray, look: int) -> tuple[float, float]:
        """Standard error, and the estimated loss over all samples."""
        differences = own - rival
        error = stratified_error(differences, self._schedule, look, self._expected)
        return error, float(rival.mean()) + stratified_mean(differences, self._schedule, look)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """What was seen of one stratum: its values, how many samples it has in all, and their share in all strata."""

    values: np.ndarray
    size: int
    weight: float


def _parts(values: np.ndarray, schedule: Schedule, look: int) -> list[_Part]:
    seen = schedule.seen(look)
    sizes = np.bincount(schedule.strata)
    return [
        _Part(
            values=values[seen[schedule.strata[seen] == stratum]],
            size=int(size),
            weight=float(size) / len(schedule.order),
        )
        for stratum, size in enumerate(sizes)
    ]


def _loss(rows: np.ndarray, direction: Direction) -> np.ndarray:
    return losses(rows, [Objective(name="metric", direction=direction)])


def _hardness_ranks(hardness: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank 0 is the hardest."""
    shuffled = rng.permutation(len(hardness))
    ranks = np.empty(len(hardness), dtype=np.int64)
    ranks[shuffled[np.argsort(-hardness[shuffled], kind="stable")]] = np.arange(len(hardness))
    return ranks


def _random_places(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Place of each sample in a random order of its stratum, from 0 on."""
    places = np.empty(len(strata), dtype=np.int64)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        places[members] = rng.permutation(len(members))
    return places


def _looks(count: int) -> tuple[int, ...]:
    looks = []
    seen = max(_FIRST_COUNT, math.ceil(_FIRST_SHARE * count))
    while seen < _LAST_SHARE * count:
        looks.append(seen)
        seen = math.ceil(_GROWTH * seen)
    return (*looks, count)


_EASILY = 0.5
_WORTH, _WORTH_OF_INTEGERS = 2.0, 40.0
"""Allowed drops that float's penalty was worth, among all and among members without float ops that lose little."""


def former_recommended(members: Sequence[Standing], known: Mapping[str, tuple[float, float]], rule: Rule) -> Standing:
    """The recommendation until 2026-11-25, of members with bounds of their own.

    Args:
        members: At least one.
        known: Of each member by id the drop as it was scored, and the standard error of the expected one.
        rule: With the allowed drop and the penalty of float.
    """
    allowed, unit = rule.allowed_drop, rule.float_penalty or 1.0

    def price(member: Standing) -> tuple[float, float, float, str]:
        error = 10.0 ** (-member.fidelity / 20.0)
        return member.penalty, member.size_bytes * error, member.size_bytes, member.id

    def is_easy(member: Standing) -> bool:
        return not member.left_ops and member.drop <= _EASILY * allowed

    def trade(member: Standing, worth: float, less: float = 0.0) -> float:
        return max(member.bound - less, 0.0) + worth * allowed * member.penalty / unit

    sure = [m for m in members if m.bound <= allowed]
    if any(map(is_easy, members)):
        sure = [m for m in sure if m.penalty < (rule.float_penalty or math.inf)]
    if sure:
        return min(sure, key=price)
    hopeful = [m for m in members if m.drop <= allowed] or members
    easily = [m for m in hopeful if is_easy(m)]
    worth = _WORTH_OF_INTEGERS if easily else _WORTH
    chosen = min(easily or hopeful, key=lambda m: (trade(m, worth), *price(m)))
    worth = _WORTH_OF_INTEGERS if is_easy(chosen) else _WORTH

    def is_equal(other: Standing) -> bool:
        more = max(other.drop - chosen.drop, 0.0)
        (scored, noise), (own, own_noise) = known[other.id], known[chosen.id]
        if not scored <= own or more > math.hypot(noise, own_noise):
            return False
        return trade(other, worth, more) <= trade(chosen, worth)

    cheaper = [m for m in members if price(m) < price(chosen) and m.left_ops <= chosen.left_ops]
    return min([chosen, *filter(is_equal, cheaper)], key=price)
