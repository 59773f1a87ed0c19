"""What other tools do, as proposers: a ranking from one end, a greedy loop, the guide's denylist.

Inside of :func:`known` ``autoselect.search`` takes their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from unittest.mock import patch

from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Listed, Proposer, by_sensitivity, prefixes
from autoselect.study.recording.samplers import PROPOSERS


def prefix(problem: Problem, seed: int, budget: int | None = None) -> Proposer:
    """A fixed ranking, one more unit left out in each step: from all-integer to all left out, as SeQTO does."""
    return Listed(filter(problem.accepts, map(Mask, prefixes(by_sensitivity(problem)))))


def heuristic(problem: Problem, seed: int, budget: int | None = None) -> Proposer:
    """The Quantization Debugger guide alone: every search scores its choice as a baseline, and nothing more follows."""
    return Listed(filter(problem.accepts, [Mask()]))


class Greedy:
    """The loop of accuracy-aware tuners (NNCF, AIMET): leave out the next unit of a ranking and keep it if that helps.

    Starting from all-integer, units are left out in the order of the ranking. A step that does not lower the loss is
    taken back, and its unit goes to the end of the ranking, until a whole round has not helped.
    """

    def __init__(self, problem: Problem, seed: int, budget: int | None = None) -> None:
        """Rank by what each unit did alone in integers on few samples."""
        self._ranking = by_sensitivity(problem)
        self._kept = Mask()
        self._tried: Mask | None = None
        self._refused: list[int] = []
        self._accepts = problem.accepts

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        """One step further, or one back; a step waits for the one before, and meanwhile looks further ahead."""
        known = {s.mask: s for s in seen}
        taken = set(known) | set(pending)
        while self._tried is None or self._tried in known:
            if self._tried is not None:
                self._settle(known)
            self._tried = self._next()
            if self._tried is None:
                return None
        if self._tried not in taken:
            return self._tried
        return self._ahead(taken)

    def _settle(self, known: dict[Mask, Seen]) -> None:
        assert self._tried is not None
        before, after = known.get(self._kept), known[self._tried]
        step = (self._tried.left_out ^ self._kept.left_out).bit_length() - 1
        if before is None or _loss(after) < _loss(before):
            self._kept = self._tried
            self._ranking = [i for i in [*self._ranking, *self._refused] if not self._kept.left_out >> i & 1]
            self._refused = []
        elif step >= 0:
            self._ranking = [i for i in self._ranking if i != step]
            self._refused.append(step)
        self._tried = None

    def _next(self) -> Mask | None:
        """The first step of the ranking that the target takes."""
        return next(filter(self._accepts, (Mask(self._kept.left_out | 1 << i) for i in self._ranking)), None)

    def _ahead(self, taken: set[Mask]) -> Mask | None:
        """What would come next if the steps under way are kept."""
        mask = self._kept
        for i in self._ranking:
            mask = Mask(mask.left_out | 1 << i)
            if mask not in taken and self._accepts(mask):
                return mask
        return None


def _loss(seen: Seen) -> float:
    return math.inf if seen.loss is None else seen.loss


BASELINES: dict[str, Callable[[Problem, int, int | None], Proposer]] = {
    "prefix": prefix,
    "greedy": Greedy,
    "heuristic": heuristic,
}


def known() -> AbstractContextManager[object]:
    """Until the end of the block searches know these samplers by name, beside the project's own."""
    return patch.dict(PROPOSERS, BASELINES)
