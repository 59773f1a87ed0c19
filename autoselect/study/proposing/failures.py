"""What failed candidates have in common and no other has. Knows masks and graphs, not why anything fails.

A unit that fails alone is known from its probe. What fails is then most often a unit beside another: a division in
integers by what was rounded to zero by the op before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from autoselect.study.proposing.mask import Mask, indicator
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem

_LATEST = 12
"""At most so many failed candidates are compared, each with each."""
_UNKNOWN = -1
"""The state of an atom whose nodes are in several."""


class Failures:
    """What two failed candidates have in common and none that ran has, by atom and by pair of neighbours."""

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Compare what is seen; without two failures nothing is known."""
        self._problem = problem
        pairs = [(i, j) for i, near in enumerate(problem.neighbours) for j in near if i < j]
        self._pairs = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._shared: list[tuple[np.ndarray, np.ndarray]] = []  # of two failures: where they are alike, and how
        failed = [s for s in seen if s.failed][-_LATEST:]
        if len(failed) < 2:
            return
        states, sound = self._states_of(failed), self._states_of([s for s in seen if not s.failed])
        for one, other in combinations(states, 2):
            places = np.flatnonzero((one == other) & (one != _UNKNOWN) & ~np.any(sound == one, axis=0))
            if len(places):
                self._shared.append((places, one[places]))

    def expected(self, masks: Sequence[Mask]) -> np.ndarray:
        """Whether candidates have all of what two failed ones have in common, bool of shape (n_masks,)."""
        found = np.zeros(len(masks), dtype=bool)
        if self._shared:
            states = self._states(masks)
            for places, common in self._shared:
                found |= np.all(states[:, places] == common, axis=1)
        return found

    def _states_of(self, seen: Sequence[Seen]) -> np.ndarray:
        """The same of what was seen, and unknown where only a part of an atom is in its state."""
        split = indicator([s.split for s in seen], len(self._problem.atoms)) > 0.0
        first, second = self._pairs
        unknown = np.hstack([split, split[:, first] | split[:, second]])
        return np.where(unknown, _UNKNOWN, self._states([s.mask for s in seen]))

    def _states(self, masks: Sequence[Mask]) -> np.ndarray:
        """The states of each atom, and of each two neighbours, as numbers, shape (n_masks, n_atoms + n_pairs)."""
        count, states = len(self._problem.atoms), len(self._problem.states)
        own = np.zeros((len(masks), count), dtype=np.int8)
        for place in range(states):
            own += (indicator([mask.within(place) for mask in masks], count) * (place + 1)).astype(np.int8)
        first, second = self._pairs
        return np.hstack([own, own[:, first] * (states + 1) + own[:, second]])
