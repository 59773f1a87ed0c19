"""A model of how far a candidate's outputs are from the float model's, learned from every sample scored so far.

The log of the divergence (error power over signal power) is that of a sum of one positive term for each atom and each
state in which it makes an error, whose priors come from the debugger's statistics and a few probes: independent errors
add up. Outputs that are wrong altogether grow
no worse, so the sum ends in a cap: where several atoms each do all the damage alone, taking one of them out changes
nothing. What that leaves over is a Gaussian process with terms for each atom, each op type and each pair of neighbours,
and one for candidates that are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, indicator, sides
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem

_FLOOR = 1e-9
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Belief:
    """What the surrogate expects of candidates: mean and standard deviation of the log divergence, shape (n,)."""

    mean: np.ndarray
    deviation: np.ndarray


class Surrogate:
    """Fits the candidates scored so far and predicts any other."""

    def __init__(self, problem: Problem) -> None:
        """Start from the priors of the problem's atoms."""
        self._problem = problem
        count = len(problem.atoms)
        self._noisy = [place for place, atoms in enumerate(problem.noisy) if atoms]
        self._cap = math.inf
        self._theta = self._prior(self._cap)
        self._starts: dict[float | None, np.ndarray] = {}  # by the quantile that is the cap; None without one
        self._known_free = np.zeros(0)
        self._floor = _FLOOR
        self._types = _type_shares(problem)
        self._pairs = np.array(
            [(i, j) for i in range(count) for j in problem.neighbours[i] if i < j], dtype=np.int64
        ).reshape(-1, 2)
        self._known = np.zeros((0, len(self._theta)))
        self._known_sides = np.zeros((0, count * len(problem.states)))
        self._refining = (constants.REFINING_PRIOR, constants.REFINING_SD)
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
        refined = _refined(masks)
        self._refining = _refining(masks, log_divergences)
        log_divergences = log_divergences - self._refining[0] * refined
        self._known, self._known_sides = self._rows(masks), self._sides(masks)
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
        mean, self._known_free = self._base(self._known)
        self._choose_kernel(log_divergences - mean, noise)

    def believe(self, masks: Sequence[Mask]) -> Belief:
        """Predict candidates."""
        found, refined = self._sides(masks), _refined(masks)
        mean, free = self._base(self._rows(masks))
        variance = free**2 * self._prior_variance(found)
        if self._factor is not None:
            cross = self._kernel(found, self._known_sides) * free[:, None] * self._known_free
            mean = mean + cross @ self._weights
            variance = variance - np.einsum("ij,ji->i", cross, cho_solve(self._factor, cross.T))
        shift, doubt = self._refining
        return Belief(mean + shift * refined, np.sqrt(np.maximum(variance, 1e-4) + doubt**2 * refined))

    @property
    def terms(self) -> np.ndarray:
        """Estimated divergence that each atom gives in integers, shape (n_atoms,)."""
        return np.asarray(np.exp(self._theta[: len(self._problem.atoms)]))

    @property
    def noise(self) -> np.ndarray:
        """Estimated divergence that each atom gives in each other state, shape (n_states, n_atoms)."""
        found = np.zeros_like(self._problem.noise)
        count = len(self._problem.atoms)
        for row, place in enumerate(self._noisy, start=1):
            found[place] = np.exp(self._theta[row * count : (row + 1) * count])
        return np.asarray(found * indicator(self._problem.noisy, count))

    def _rows(self, masks: Sequence[Mask]) -> np.ndarray:
        """1 for each integer atom; then, for each state that makes errors, 1 for each atom that makes one there."""
        count = len(self._problem.atoms)
        inside = 1.0 - indicator([mask.left_out for mask in masks], count)
        others = ([m.within(place) & self._problem.noisy[place] for m in masks] for place in self._noisy)
        return np.hstack([inside, *(indicator(atoms, count) for atoms in others)])

    def _sides(self, masks: Sequence[Mask]) -> np.ndarray:
        """The columns by which candidates are alike."""
        return sides(masks, len(self._problem.atoms), len(self._problem.states))

    def _prior(self, cap: float) -> np.ndarray:
        """Logs of the terms that the problem's probes stand for, if divergences end in this cap."""
        probes = [self._problem.sensitivities, *(self._problem.noise[place] for place in self._noisy)]
        seen = np.maximum(np.concatenate(probes), _FLOOR)
        return np.asarray(np.log(seen / np.maximum(1.0 - seen / cap, 1.0 / constants.ABOVE_CAP)))

    def _base(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log of the capped sum, and how free it is to vary: 1 far below the cap."""
        total = rows @ np.exp(self._theta) + self._floor
        return np.log(total) - np.log1p(total / self._cap), _free(total, self._cap)

    def _map(
        self, target: np.ndarray, noise: np.ndarray, cap: float, start: np.ndarray | None
    ) -> tuple[float, float, np.ndarray]:
        """The most likely terms under a cap, by Gauss-Newton steps in the space of the data, which are fewer.

        Returns:
            The log of their likelihood but for a constant, the cap, and the terms' logs.
        """
        design, prior = self._known, self._prior(cap)
        theta = prior.copy() if start is None else start
        for _ in range(_ROUNDS):
            parts = design * np.exp(theta)
            total = parts.sum(axis=1) + self._floor
            slope = parts / (total * (1.0 + total / cap))[:, None]
            residual = target - np.log(total) + np.log1p(total / cap)
            variance = noise**2 + (constants.ALIKE_SD * _free(total, cap)) ** 2
            system = constants.PRIOR_SD**2 * slope @ slope.T + np.diag(variance)
            wanted = prior + constants.PRIOR_SD**2 * slope.T @ np.linalg.solve(
                system, residual + slope @ (theta - prior)
            )
            step = np.clip(wanted - theta, -1.0, 1.0)
            theta = theta + step
            if np.abs(step).max() < 1e-3:
                break
        total = design @ np.exp(theta) + self._floor
        residual = target - np.log(total) + np.log1p(total / cap)
        variance = noise**2 + (constants.ALIKE_SD * _free(total, cap)) ** 2
        misfit = (residual**2 / variance + np.log(variance)).sum() + (((theta - prior) / constants.PRIOR_SD) ** 2).sum()
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
        count, atoms = max(a.shape[1], 1), len(self._problem.atoms)
        unlike = (a @ (1.0 - b).T + (1.0 - a) @ b.T) / count
        centred_a, centred_b = a - 0.5, b - 0.5
        kernel = constants.ALIKE_SD**2 * np.exp(-unlike / self._length)
        kernel += constants.UNIT_SD**2 * centred_a @ centred_b.T
        kernel += constants.TYPE_SD**2 * (centred_a[:, :atoms] @ self._types) @ (centred_b[:, :atoms] @ self._types).T
        kernel += constants.PAIR_SD**2 * paired / np.sqrt(max(len(self._pairs), 1))
        return np.asarray(self._scale**2 * kernel)

    def _prior_variance(self, rows: np.ndarray) -> np.ndarray:
        centred = rows - 0.5
        variance = np.full(len(rows), constants.ALIKE_SD**2) + constants.UNIT_SD**2 * (centred**2).sum(axis=1)
        variance += constants.TYPE_SD**2 * ((centred[:, : len(self._problem.atoms)] @ self._types) ** 2).sum(axis=1)
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


def _refined(masks: Sequence[Mask]) -> np.ndarray:
    """1 if biases are corrected further, else 0, shape (n_masks,)."""
    return np.array([float(mask.refined) for mask in masks])


def _refining(masks: Sequence[Mask], log_divergences: np.ndarray) -> tuple[float, float]:
    """What correcting biases further does to a log divergence, and how sure that is, from pairs known both ways."""
    known = dict(zip(masks, log_divergences.tolist(), strict=True))
    both = [(m, m._replace(refined=False)) for m in masks if m.refined]
    pairs = [known[m] - known[plain] for m, plain in both if plain in known]
    precision = 1.0 / constants.REFINING_SD**2 + len(pairs) / constants.REFINING_SPREAD**2
    mean = (constants.REFINING_PRIOR / constants.REFINING_SD**2 + sum(pairs) / constants.REFINING_SPREAD**2) / precision
    return mean, math.sqrt(1.0 / precision + (constants.REFINING_SPREAD**2 if pairs else 0.0))


def _free(total: np.ndarray, cap: float) -> np.ndarray:
    """How much of a change of the sum's log is left of it below the cap."""
    return np.asarray(np.maximum(1.0 / (1.0 + total / cap), constants.LEAST_FREE))


def _type_shares(problem: Problem) -> np.ndarray:
    """Shape (n_atoms, n_types): columns sum to 1."""
    kinds = sorted({atom.op_type for atom in problem.atoms})
    shares = np.zeros((len(problem.atoms), len(kinds)))
    for i, atom in enumerate(problem.atoms):
        shares[i, kinds.index(atom.op_type)] = 1.0
    return np.asarray(shares / np.maximum(shares.sum(axis=0), 1.0))
