"""A model of how far a candidate's outputs are from the float model's, learned from every sample scored so far.

The log of the divergence (error power over signal power) is that of a sum of one positive term for each unit and each
state in which it makes an error, whose priors come from the debugger's statistics and a few probes: independent errors
add up. A set of repairs has a gain in each state, the factor by which it changes all terms of that state, and fewer
levels of weights add what they were measured to add. Outputs that are wrong altogether grow no worse, so the sum ends
in a cap: where several units each do all the damage alone, taking one of them out changes nothing. What that leaves
over is a Gaussian process with terms for each unit, each op type and each pair of neighbours, and one for candidates
that are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, indicator
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem

_FLOOR = 1e-9


@dataclass(frozen=True, slots=True)
class Belief:
    """What the surrogate expects of candidates: mean and standard deviation of the log divergence, shape (n,)."""

    mean: np.ndarray
    deviation: np.ndarray


class Surrogate:
    """Fits the candidates scored so far and predicts any other."""

    def __init__(self, problem: Problem) -> None:
        """Start from the priors of the problem's units."""
        self._problem = problem
        count = len(problem.units)
        self._noisy = [place for place, units in enumerate(problem.noisy) if units]
        self._cap = math.inf
        self._features, gains, doubts = _features(problem)
        self._gains = np.tile(gains, 1 + len(self._noisy))  # each state's, one behind the other
        self._deviations = np.concatenate(
            [np.full(count * (1 + len(self._noisy)), constants.PRIOR_SD), np.tile(doubts, 1 + len(self._noisy))]
        )
        self._doubt = np.diag(self._deviations[len(self._deviations) - len(self._gains) :] ** 2)
        self._theta = self._prior(self._cap)
        self._starts: dict[float | None, np.ndarray] = {}  # by the quantile that is the cap; None without one
        self._known_free = np.zeros(0)
        self._floor, self._added = _FLOOR, np.array(problem.added_noise)
        self._types = _type_shares(problem)
        self._pairs = np.array(
            [(i, j) for i in range(count) for j in problem.neighbours[i] if i < j], dtype=np.int64
        ).reshape(-1, 2)
        self._known, self._known_repairs = self._rows([]), _places([])
        self._known_noise = np.zeros(0)
        self._known_sides = np.zeros((0, count * len(problem.states)))
        self._weights = np.zeros(0)
        self._factor: tuple[np.ndarray, bool] | None = None
        self._scale, self._length = 1.0, 0.3

    def fit(self, masks: Sequence[Mask], log_divergences: np.ndarray, noise: np.ndarray) -> None:
        """Learn from scored candidates.

        Args:
            masks: What each left out.
            log_divergences: Natural logs, shape (n,).
            noise: Standard deviation of each, shape (n,); larger for those scored on part of the samples.
        """
        self._known, self._known_sides, self._known_repairs = (
            self._rows(masks),
            self._problem.sides(masks),
            _places(masks),
        )
        self._known_noise = noise
        # With everything in float no term is left: what such a candidate shows is what all others have too.
        bare = log_divergences[self._known.sum(axis=1) == 0.0]
        self._floor = float(np.exp(bare.mean())) if len(bare) else _FLOOR
        seen_caps = constants.CAP_ROOM * np.exp(np.quantile(log_divergences, constants.CAPPED))
        caps: dict[float | None, float] = {None: math.inf}
        caps |= {
            q: float(cap) for q, cap in zip(constants.CAPPED, seen_caps, strict=True) if cap >= constants.LEAST_CAP
        }
        uncapped = self._starts.get(None)
        fits = {q: self._map(log_divergences, noise, cap, self._starts.get(q, uncapped)) for q, cap in caps.items()}
        self._starts = {q: theta for q, (_, _, theta) in fits.items()}
        _, self._cap, self._theta = max(fits.values(), key=lambda fit: fit[0])
        mean, self._known_free = self._base(self._known, self._known_repairs)
        self._doubt = self._left_doubt(noise)
        self._choose_kernel(log_divergences - mean, noise)

    def believe(self, masks: Sequence[Mask], *, with_terms: bool = False) -> Belief:
        """Predict candidates.

        Args:
            masks: The candidates.
            with_terms: Whether the deviation also has what was seen leaves open of the terms. Proposals go without:
                what is open of them is the same for most.
        """
        sides, rows, repairs = self._problem.sides(masks), self._rows(masks), _places(masks)
        mean, free = self._base(rows, repairs)
        variance = free**2 * self._prior_variance(sides)
        if self._factor is not None:
            cross = self._kernel(sides, self._known_sides) * free[:, None] * self._known_free
            mean = mean + cross @ self._weights
            variance = variance - np.einsum("ij,ji->i", cross, cho_solve(self._factor, cross.T))
        _, slope = self._slope(rows, repairs, self._theta, self._cap)
        if with_terms:
            doubt = self._doubt_of_all(slope)
        else:
            by_gain = slope[:, rows.shape[1] :]
            doubt = np.einsum("ij,jk,ik->i", by_gain, self._doubt, by_gain)
        doubt = doubt + self._spread(slope, repairs) ** 2
        return Belief(mean, np.sqrt(np.maximum(variance, 1e-4) + doubt))

    def _doubt_of_all(self, slope: np.ndarray) -> np.ndarray:
        """What is open of candidates' sums, as a variance, because their terms and gains are, shape (n,)."""
        scaled = slope * self._deviations**2
        prior = np.asarray(np.einsum("ij,ij->i", scaled, slope))
        if not len(self._known):
            return prior
        total, known_slope = self._slope(self._known, self._known_repairs, self._theta, self._cap)
        left = self._left_over(self._known_noise, total, known_slope, self._cap)
        cross = scaled @ known_slope.T
        system = (known_slope * self._deviations**2) @ known_slope.T + left
        return np.asarray(np.maximum(prior - np.einsum("ij,ji->i", cross, np.linalg.solve(system, cross.T)), 0.0))

    @property
    def terms(self) -> np.ndarray:
        """Estimated divergence that each unit gives in integers, shape (n_units,)."""
        return np.asarray(np.exp(self._theta[: len(self._problem.units)]))

    @property
    def noise(self) -> np.ndarray:
        """Estimated divergence that each unit gives in each other state, shape (n_states, n_units)."""
        noise = np.zeros_like(self._problem.noise)
        count = len(self._problem.units)
        for row, place in enumerate(self._noisy, start=1):
            noise[place] = np.exp(self._theta[row * count : (row + 1) * count])
        return np.asarray(noise * indicator(self._problem.noisy, count))

    def _rows(self, masks: Sequence[Mask]) -> np.ndarray:
        """1 for each integer unit; then, for each state that makes errors, 1 for each unit that makes one there."""
        count = len(self._problem.units)
        inside = 1.0 - indicator([mask.left_out for mask in masks], count)
        others = ([m.within(place) & self._problem.noisy[place] for m in masks] for place in self._noisy)
        return np.hstack([inside, *(indicator(units, count) for units in others)])

    def _prior(self, cap: float) -> np.ndarray:
        """Logs of the terms that the problem's probes stand for, if divergences end in this cap."""
        probes = [self._problem.sensitivities, *(self._problem.noise[place] for place in self._noisy)]
        seen = np.maximum(np.concatenate(probes), _FLOOR)
        terms = np.log(seen / np.maximum(1.0 - seen / cap, 1.0 / constants.ABOVE_CAP))
        return np.concatenate([terms, self._gains])

    def _base(self, rows: np.ndarray, repairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log of the capped sum, and how free it is to vary: 1 far below the cap."""
        total = self._parts(rows, repairs, self._theta).sum(axis=1) + self._floor + self._added[repairs]
        return np.log(total) - np.log1p(total / self._cap), _free(total, self._cap)

    def _parts(self, rows: np.ndarray, repairs: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """What each unit adds to each candidate in each state, of the shape of ``rows``."""
        terms, gains = np.split(theta, [rows.shape[1]])
        shifts = self._features[repairs] @ gains.reshape(1 + len(self._noisy), -1).T
        return np.asarray(rows * np.exp(terms + np.repeat(shifts, len(self._problem.units), axis=1)))

    def _slope(
        self, rows: np.ndarray, repairs: np.ndarray, theta: np.ndarray, cap: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sum of each candidate, and how its capped log follows terms, then gains, shape (n, n_theta)."""
        parts = self._parts(rows, repairs, theta)
        total = parts.sum(axis=1) + self._floor + self._added[repairs]
        by_term = parts / (total * (1.0 + total / cap))[:, None]
        states = by_term.reshape(len(rows), 1 + len(self._noisy), len(self._problem.units)).sum(axis=2)
        by_gain = (states[:, :, None] * self._features[repairs][:, None, :]).reshape(len(rows), len(self._gains))
        return total, np.hstack([by_term, by_gain])

    def _spread(self, slope: np.ndarray, repairs: np.ndarray) -> np.ndarray:
        """Deviation of what the repairs of each candidate do, against those of others, shape (n,)."""
        terms = slope.shape[1] - len(self._gains)
        return np.asarray(constants.REPAIRED_SPREAD * slope[:, :terms].sum(axis=1) * (repairs > 0))

    def _left_doubt(self, noise: np.ndarray) -> np.ndarray:
        """The covariance of the gains, as far as what was seen leaves it open."""
        total, slope = self._slope(self._known, self._known_repairs, self._theta, self._cap)
        scaled = slope * self._deviations**2
        left = self._left_over(noise, total, slope, self._cap)
        by_gain, prior = scaled[:, self._known.shape[1] :], self._deviations[self._known.shape[1] :] ** 2
        return np.asarray(np.diag(prior) - by_gain.T @ np.linalg.solve(scaled @ slope.T + left, by_gain))

    def _left_over(self, noise: np.ndarray, total: np.ndarray, slope: np.ndarray, cap: float) -> np.ndarray:
        """The covariance of what the sum leaves over of the known candidates, shape (n, n).

        What it leaves over of a candidate it leaves over of the same with other repairs, too: pairs tell gains.
        """
        alike = constants.ALIKE_SD * _free(total, cap)
        others = self._known_repairs[:, None] != self._known_repairs
        twins = (self._known_sides @ (1.0 - self._known_sides).T == 0.0) & others
        shared = constants.TWINS * np.outer(alike, alike) * (twins & twins.T)
        return np.asarray(np.diag(noise**2 + alike**2 + self._spread(slope, self._known_repairs) ** 2) + shared)

    def _map(
        self, target: np.ndarray, noise: np.ndarray, cap: float, start: np.ndarray | None
    ) -> tuple[float, float, np.ndarray]:
        """The most likely terms under a cap, by Gauss-Newton steps in the space of the data, which are fewer.

        Returns:
            The log of their likelihood but for a constant, the cap, and the terms' logs.
        """
        design, repairs, prior = self._known, self._known_repairs, self._prior(cap)
        theta = prior.copy() if start is None else start
        for _ in range(12):
            total, slope = self._slope(design, repairs, theta, cap)
            residual = target - np.log(total) + np.log1p(total / cap)
            scaled = slope * self._deviations**2
            system = scaled @ slope.T + self._left_over(noise, total, slope, cap)
            wanted = prior + scaled.T @ np.linalg.solve(system, residual + slope @ (theta - prior))
            step = np.clip(wanted - theta, -1.0, 1.0)
            theta = theta + step
            if np.abs(step).max() < 1e-3:
                break
        total, slope = self._slope(design, repairs, theta, cap)
        residual = target - np.log(total) + np.log1p(total / cap)
        left = self._left_over(noise, total, slope, cap)
        misfit = residual @ np.linalg.solve(left, residual) + np.linalg.slogdet(left)[1]
        misfit += (((theta - prior) / self._deviations) ** 2).sum()
        return -0.5 * float(misfit), cap, theta

    def _choose_kernel(self, left: np.ndarray, noise: np.ndarray) -> None:
        """The scale and the reach of likeness that explain best what the sum leaves over."""
        best = -np.inf
        for scale in constants.SCALES:
            for length in constants.LENGTHS:
                self._scale, self._length = scale, length
                system = self._kernel(self._known_sides, self._known_sides) * np.outer(
                    self._known_free, self._known_free
                )
                system += np.diag(noise**2 + (constants.NOISE_SD * self._known_free) ** 2)
                factor = cho_factor(system, lower=True)
                weights = cho_solve(factor, left)
                evidence = -0.5 * left @ weights - np.log(np.diag(factor[0])).sum()
                if evidence > best:
                    best, chosen = evidence, (scale, length, factor, weights)
        self._scale, self._length, self._factor, self._weights = chosen

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        paired = self._paired(a) @ self._paired(b).T if len(self._pairs) else 0.0
        count, units = max(a.shape[1], 1), len(self._problem.units)
        unlike = (a @ (1.0 - b).T + (1.0 - a) @ b.T) / count
        centred_a, centred_b = a - 0.5, b - 0.5
        kernel = constants.ALIKE_SD**2 * np.exp(-unlike / self._length)
        kernel += constants.UNIT_SD**2 * centred_a @ centred_b.T
        kernel += constants.TYPE_SD**2 * (centred_a[:, :units] @ self._types) @ (centred_b[:, :units] @ self._types).T
        kernel += constants.PAIR_SD**2 * paired / np.sqrt(max(len(self._pairs), 1))
        return np.asarray(self._scale**2 * kernel)

    def _prior_variance(self, rows: np.ndarray) -> np.ndarray:
        centred = rows - 0.5
        variance = np.full(len(rows), constants.ALIKE_SD**2) + constants.UNIT_SD**2 * (centred**2).sum(axis=1)
        variance += constants.TYPE_SD**2 * ((centred[:, : len(self._problem.units)] @ self._types) ** 2).sum(axis=1)
        if len(self._pairs):
            variance += constants.PAIR_SD**2 * (self._paired(rows) ** 2).sum(axis=1) / np.sqrt(len(self._pairs))
        return np.asarray(self._scale**2 * variance)

    def _paired(self, rows: np.ndarray) -> np.ndarray:
        """A column for each pair of neighbours: 1 if they are on different sides, else 0."""
        return np.asarray(np.abs(rows[:, self._pairs[:, 0]] - rows[:, self._pairs[:, 1]]))


def one_thread() -> threadpool_limits:
    """Matrices are small here: further threads would only take the cores from the workers."""
    return threadpool_limits(limits=1, user_api="blas")


def learn(surrogate: Surrogate, seen: Sequence[Seen], most: int | None = None) -> None:
    """Fit a surrogate to candidates whose divergences are known: to all, or to ``most`` of them.

    Of more than that it learns from the newest, which are most like those to come, and from older ones of all
    divergences, half of each.
    """
    most = most or constants.LEARNED
    if len(seen) > most:
        newest, older = seen[-(most // 2) :], sorted(seen[: -(most // 2)], key=lambda s: s.log_divergence)
        places = np.linspace(0, len(older) - 1, most - len(newest)).round().astype(int)
        seen = [*(older[i] for i in places), *newest]
    divergences = np.array([s.log_divergence for s in seen])
    noise = np.array([constants.PART_NOISE * math.sqrt(1.0 / max(s.share, 0.05) - 1.0) for s in seen])
    surrogate.fit([s.mask for s in seen], divergences, noise)


def _places(masks: Sequence[Mask]) -> np.ndarray:
    """Which repair set each mask has, shape (n_masks,)."""
    return np.array([mask.repairs for mask in masks], dtype=np.int64)


def _features(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What tells repair sets apart: which set it is, but for the first, and whether biases are corrected in sequence.

    Returns:
        Shape (n_sets, n_features), and the expected gain of each feature with its deviation, shape (n_features,).
    """
    places = [problem.without_sequence.get(place, place) for place in range(len(problem.repair_sets))]
    kinds, in_sequence = problem.offered[1:], [place in problem.without_sequence for place in range(len(places))]
    columns = [[float(place == kind) for place in places] for kind in kinds]
    columns += [list(map(float, in_sequence))] if any(in_sequence) else []
    gains = [0.0] * len(kinds) + [constants.IN_SEQUENCE] * any(in_sequence)
    deviations = [constants.REPAIRED_SD] * len(kinds) + [constants.IN_SEQUENCE_SD] * any(in_sequence)
    return np.array(columns).reshape(-1, len(places)).T, np.array(gains), np.array(deviations)


def _free(total: np.ndarray, cap: float) -> np.ndarray:
    """How much of a change of the sum's log is left of it below the cap."""
    return np.asarray(np.maximum(1.0 / (1.0 + total / cap), constants.LEAST_FREE))


def _type_shares(problem: Problem) -> np.ndarray:
    """Shape (n_units, n_types): columns sum to 1."""
    kinds = sorted({unit.op_type for unit in problem.units})
    shares = np.zeros((len(problem.units), len(kinds)))
    for i, unit in enumerate(problem.units):
        shares[i, kinds.index(unit.op_type)] = 1.0
    return np.asarray(shares / np.maximum(shares.sum(axis=0), 1.0))
