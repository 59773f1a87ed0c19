"""Which candidates will fail, by those that did. Knows masks and graphs, not what an op does.

If the op is known that could not be run, no candidate has it in that state again. Of all others no more is known
than what failed ones have in common, most often a unit beside another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, indicator
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem

_REPAIRS = -1
"""Stands for a candidate's repairs among the places of units."""

Cause = tuple[tuple[int, int], ...]
"""Places of units, each with that of its state: candidates that have all of these cannot be run."""


class Failures:
    """Causes that are known, and pairs of facts, each of a unit and its state, that may be one.

    A known cause is the failing unit in its state. If a candidate ran with that, the state of the unit whose values it
    fails at counts as well, and then the repairs. Everything in the exact state always runs: it is the float model.

    Of the other failed candidates each pair that they share and none that ran has may be why they failed. The more of
    them share it the more likely: e times for each.
    """

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Compare what is seen."""
        self._problem, self._causes = problem, list[tuple[np.ndarray, np.ndarray]]()
        self._known, unexplained = set[Cause](), list[Seen]()
        for failure in (s for s in seen if s.failed):
            cause = self._cause(failure, seen)
            unexplained += [failure] if cause is None else []
            self._known |= set() if cause is None else {cause}
        failed = unexplained[-constants.FAILED :]
        if not failed:
            return
        failing, running = self._of_whole(failed), self._of_whole([s for s in seen if not s.failed])
        telling = failing.mean(axis=0) - (running.mean(axis=0) if len(running) else 0.0)
        kept = np.argsort(-telling, kind="stable")[: constants.FACTS]
        failing, running = failing[:, kept], running[:, kept]
        shared = np.exp(failing.T @ failing - len(failed)) * (running.T @ running == 0.0)
        for facts in failing:
            places = np.flatnonzero(facts)
            pairs = shared[np.ix_(places, places)]
            if pairs.any():
                self._causes.append((kept[places], pairs / pairs.sum()))

    def _cause(self, failure: Seen, seen: Sequence[Seen]) -> Cause | None:
        """The fewest facts of a failure that no candidate that ran has; None if each ran, or no unit is known."""
        units = [i for i in failure.failing if not failure.split >> i & 1]
        if not units:
            return None
        exact = self._problem.in_state(self._problem.everything, self._problem.by_cost[-1])
        ran = [Seen(mask=exact, share=1.0), *(s for s in seen if not s.failed)]
        facts = tuple((place, _fact(failure.mask, place)) for place in (*units, _REPAIRS))
        for count in range(1, len(facts) + 1):
            cause = facts[:count]
            if not any(_has(s.mask, cause) and not any(s.split >> i & 1 for i, _ in cause if i >= 0) for s in ran):
                return cause
        return None

    def is_known(self, mask: Mask) -> bool:
        """Whether a candidate has what others could not be run for."""
        return any(_has(mask, cause) for cause in self._known)

    def chances(self, masks: Sequence[Mask]) -> np.ndarray:
        """How likely candidates are to run, shape (n_masks,); 1 where nothing failed, 0 where that is known.

        For each failed candidate, the share of what may have been the cause that a candidate does not have; the least
        of these.
        """
        chances = np.array([0.0 if self.is_known(mask) else 1.0 for mask in masks])
        if self._causes and masks:
            facts = self._facts(masks)
            for places, pairs in self._causes:
                of_these = facts[:, places]
                chances = np.minimum(chances, 1.0 - np.einsum("ij,ij->i", of_these @ pairs, of_these))
        return np.asarray(np.maximum(chances, 0.0))

    def _of_whole(self, seen: Sequence[Seen]) -> np.ndarray:
        """The facts of what was seen, but none of a unit of which only a part is in its state."""
        facts = self._facts([s.mask for s in seen])
        whole = 1.0 - indicator([s.split for s in seen], len(self._problem.units))
        return facts * np.tile(whole, facts.shape[1] // whole.shape[1])

    def _facts(self, masks: Sequence[Mask]) -> np.ndarray:
        """Whether each unit is in each state, in those up to it, and in those beyond, integers first."""
        count = len(self._problem.units)
        inside = [1.0 - indicator([mask.left_out for mask in masks], count)]
        inside += [indicator([mask.within(place) for mask in masks], count) for place in self._problem.by_cost]
        up_to = np.cumsum(inside, axis=0)[:-1]
        return np.hstack([*up_to, *(1.0 - up_to), *inside[1:-1]])


def _fact(mask: Mask, place: int) -> int:
    return mask.repairs if place == _REPAIRS else mask.state_of(place)


def _has(mask: Mask, cause: Cause) -> bool:
    return all(_fact(mask, place) == state for place, state in cause)
