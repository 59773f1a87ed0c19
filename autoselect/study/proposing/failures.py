"""Which candidates will fail, by those that did. Knows masks and graphs, not why anything fails.

A unit that fails alone is known from its probe. What fails is then most often a unit beside another: a division in
integers by what was rounded to zero a few ops before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, indicator
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem


class Failures:
    """All pairs of facts, each of an atom and its state, that failed candidates share and none that ran has.

    Each pair may be why they failed, and the more of them share it the more likely: e times for each.
    """

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Compare what is seen."""
        self._problem, self._causes = problem, list[tuple[np.ndarray, np.ndarray]]()
        failed = [s for s in seen if s.failed][-constants.FAILED :]
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

    def chances(self, masks: Sequence[Mask]) -> np.ndarray:
        """How likely candidates are to run, shape (n_masks,); 1 where nothing failed.

        For each failed candidate, the share of what may have been the cause that a candidate does not have; the least
        of these.
        """
        chances = np.ones(len(masks))
        if self._causes and masks:
            facts = self._facts(masks)
            for places, pairs in self._causes:
                of_these = facts[:, places]
                chances = np.minimum(chances, 1.0 - np.einsum("ij,ij->i", of_these @ pairs, of_these))
        return np.maximum(chances, 0.0)

    def _of_whole(self, seen: Sequence[Seen]) -> np.ndarray:
        """The facts of what was seen, but none of an atom of which only a part is in its state."""
        facts = self._facts([s.mask for s in seen])
        whole = 1.0 - indicator([s.split for s in seen], len(self._problem.atoms))
        return facts * np.tile(whole, facts.shape[1] // whole.shape[1])

    def _facts(self, masks: Sequence[Mask]) -> np.ndarray:
        """Of each atom whether it is in each state, in those up to it, and in those beyond, integers first."""
        count = len(self._problem.atoms)
        inside = [1.0 - indicator([mask.left_out for mask in masks], count)]
        inside += [indicator([mask.within(place) for mask in masks], count) for place in self._problem.by_cost]
        up_to = np.cumsum(inside, axis=0)[:-1]
        return np.hstack([*up_to, *(1.0 - up_to), *inside[1:-1]])
