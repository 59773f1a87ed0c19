"""The default proposer: the candidate that is expected to add most to the hypervolume.

Size and penalty of a proposal are known exactly, so only its loss is uncertain. Thousands of proposals, made by graph
moves from the front and from what the surrogate expects to be one, are weighed by their expected gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from autoselect.domain.pareto import non_dominated
from autoselect.study import moves
from autoselect.study.gain import FrontVolume, fit_link
from autoselect.study.problem import Mask, Problem
from autoselect.study.proposers import Seen, by_sensitivity
from autoselect.study.surrogate import Surrogate

_CHILDREN = 160
"""New proposals an ask; they stay, so that later asks choose among all of them."""
_CLIMBED = 2
_POOL = 4000
_PART_NOISE = 0.25
"""Deviation of a log divergence that half of the samples gave; none where all were run."""
_ENUMERATED = 12
"""Up to so many atoms all sets are proposals."""
_FAR = 1e3
_OPENING = (0.25, 0.5, 0.75)


class SurrogateProposer:
    """Proposes by expected hypervolume gain.

    Until there is something to learn from, it opens with all-integer, all left out, and prefixes of the rankings from
    both ends: leaving out the worst, and keeping only the harmless.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        """Start without knowledge."""
        self._problem = problem
        self._rng = np.random.default_rng(seed)
        self._surrogate = Surrogate(problem)
        self._pool: dict[Mask, None] = {}
        self._add(self._ladders())
        if len(problem.atoms) <= _ENUMERATED:
            self._add(range(1 << len(problem.atoms)))

    def _ladders(self) -> list[Mask]:
        rankings = [by_sensitivity(self._problem), *self._problem.ladders]
        found = [0, self._problem.everything]
        for ranking in rankings:
            mask = 0
            for i in ranking:
                mask |= 1 << i
                found.append(mask)
        kinds: dict[str, Mask] = {}
        for i, atom in enumerate(self._problem.atoms):
            kinds[atom.op_type] = kinds.get(atom.op_type, 0) | 1 << i
        found += list(kinds.values())
        found += [self._problem.everything & ~mask for mask in kinds.values()]
        return found

    def _add(self, masks: Iterable[Mask]) -> None:
        for mask in masks:
            self._pool.setdefault(mask)

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        """The proposal of the largest expected gain; None where all sets are known."""
        taken = {s.mask for s in seen} | set(pending)
        opening = next((mask for mask in self._opening() if mask not in taken), None)
        learned = [s for s in seen if math.isfinite(s.log_divergence)]
        scored = [s for s in seen if s.loss is not None]
        if opening is not None and len(seen) + len(pending) < len(self._opening()):
            return opening
        if len(learned) < 2 or len(scored) < 2:
            return opening if opening is not None else self._anything(taken)
        self._learn(learned)
        return _Ask(self, seen, pending, taken).best()

    def _opening(self) -> list[Mask]:
        """A few candidates that span the trade-off."""
        ranking = by_sensitivity(self._problem)
        found = [0, self._problem.everything]
        for share in _OPENING:
            found.append(sum(1 << i for i in ranking[: round(share * len(ranking))]))
        return list(dict.fromkeys(found))

    def _learn(self, learned: Sequence[Seen]) -> None:
        divergences = np.array([s.log_divergence for s in learned])
        noise = np.array([_PART_NOISE * math.sqrt(1.0 / max(s.share, 0.05) - 1.0) for s in learned])
        self._surrogate.fit([s.mask for s in learned], divergences, noise)

    def _anything(self, taken: set[Mask]) -> Mask | None:
        for mask in self._pool:
            if mask not in taken:
                return mask
        for _ in range(1000):
            mask = int.from_bytes(self._rng.bytes((len(self._problem.atoms) + 7) // 8), "little")
            if (mask := mask & self._problem.everything) not in taken:
                return mask
        return None


class _Ask:
    """One question to a proposer: what all its steps look at."""

    def __init__(
        self, owner: SurrogateProposer, seen: Sequence[Seen], pending: Sequence[Mask], taken: set[Mask]
    ) -> None:
        self._owner, self._taken = owner, taken
        self._problem, self._surrogate = owner._problem, owner._surrogate
        scored = [s for s in seen if s.loss is not None]
        self._corner = self._reference(scored)
        learned = [s for s in scored if math.isfinite(s.log_divergence)]
        self._link = fit_link(
            np.array([s.log_divergence for s in learned]), np.array([s.loss for s in learned], dtype=np.float64)
        )
        points = np.array([[s.loss, s.size_bytes, s.penalty] for s in scored if s.feasible], dtype=np.float64)
        points = points.reshape(-1, 3) / self._corner
        self._parents = [s.mask for s in scored]
        if len(points):
            keep = non_dominated(points)
            feasible = [s.mask for s in scored if s.feasible]
            self._parents = [mask for mask, on_front in zip(feasible, keep, strict=True) if on_front]
        self._volume = FrontVolume(np.vstack([points, self._believed(pending)]))
        self._keys = {self._problem.forecast(mask).key for mask in taken}

    def _reference(self, scored: Sequence[Seen]) -> np.ndarray:
        """The corner of the volume: a little beyond the worst of what was scored."""
        worst = np.array([[s.loss, s.size_bytes, s.penalty] for s in scored], dtype=np.float64).max(axis=0)
        return np.maximum(1.1 * worst, 1e-9)

    def _believed(self, masks: Sequence[Mask]) -> np.ndarray:
        """Where the surrogate expects candidates to lie, in units of the corner."""
        if not masks:
            return np.zeros((0, 3))
        belief = self._surrogate.believe(masks)
        losses = self._link.losses(belief).mean(axis=1)
        return np.column_stack([losses, *self._costs(masks)]) / self._corner

    def _costs(self, masks: Sequence[Mask]) -> tuple[np.ndarray, np.ndarray]:
        forecasts = [self._problem.forecast(mask) for mask in masks]
        return np.array([float(f.size_bytes) for f in forecasts]), np.array([f.penalty for f in forecasts])

    def best(self) -> Mask | None:
        self._breed()
        masks, gains = self._weighed(list(self._owner._pool))
        if not masks:
            return self._owner._anything(self._taken)
        chosen, gain = masks[int(np.argmax(gains))], float(np.max(gains))
        for _ in range(_CLIMBED):
            near, near_gains = self._weighed(moves.single_flips(chosen, self._problem))
            if not near or near_gains.max() <= gain:
                break
            chosen, gain = near[int(np.argmax(near_gains))], float(near_gains.max())
        self._owner._pool.setdefault(chosen)
        self._trim(masks, gains)
        return chosen

    def _breed(self) -> None:
        """Add children of the front, and of what is expected to be one."""
        expected = self._expected_front()
        for number in range(_CHILDREN):
            parents = self._parents if number % 2 or not expected else expected
            if parents:
                mask = moves.child(parents, self._problem, self._surrogate.terms, self._owner._rng)
                self._owner._pool.setdefault(mask)

    def _expected_front(self) -> list[Mask]:
        masks = [mask for mask in self._owner._pool if mask not in self._taken]
        if not masks:
            return []
        points = self._believed(masks)
        chosen = _front_of(points)
        return [masks[i] for i in chosen]

    def _weighed(self, masks: Sequence[Mask]) -> tuple[list[Mask], np.ndarray]:
        """The masks that are not known, nor equal to known ones once built, with their expected gains."""
        fresh = [m for m in masks if m not in self._taken and self._problem.forecast(m).key not in self._keys]
        if not fresh:
            return [], np.zeros(0)
        belief = self._surrogate.believe(fresh)
        sizes, penalties = self._costs(fresh)
        gains = self._volume.expected_gain(
            self._link.losses(belief) / self._corner[0],
            self._link.deviation / self._corner[0],
            sizes / self._corner[1],
            penalties / self._corner[2],
        )
        return fresh, gains

    def _trim(self, masks: Sequence[Mask], gains: np.ndarray) -> None:
        """Forget the least promising where there are too many to weigh in time."""
        if len(self._owner._pool) > _POOL:
            keep = np.argsort(-gains, kind="stable")[: _POOL // 2]
            self._owner._pool = dict.fromkeys(masks[i] for i in sorted(keep))


def _front_of(points: np.ndarray) -> list[int]:
    """Indices of the non-dominated rows, in chunks, so that thousands need not be compared at once."""
    chosen = np.arange(len(points))
    for start in range(0, len(points), 512):
        part = chosen[start : start + 512]
        if len(part):
            mark = non_dominated(points[part])
            points[part[~mark]] = np.inf
    alive = np.flatnonzero(np.isfinite(points[:, 0]))
    return [int(i) for i in alive[non_dominated(points[alive])]] if len(alive) else []
