"""Proposers: from what is scored to the next set of nodes to leave out; one interface for the guide's rule and ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from autoselect.study.proposing.mask import Atoms, Mask
from autoselect.study.proposing.mutation import repaired
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem


class Proposer(Protocol):
    """Proposes candidates; one for each search."""

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        """The next candidate.

        Args:
            seen: All that is scored, in order.
            pending: What is under way.

        Returns:
            A mask, or None if there is nothing left to try.
        """
        ...


class Listed:
    """Proposes what a list holds, one after the other, leaving out what is known."""

    def __init__(self, masks: Iterator[Mask]) -> None:
        """Keep the list; it may be long, it is read as needed."""
        self._masks = masks

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        """The next one that is not known."""
        known = {s.mask for s in seen} | set(pending)
        return next((mask for mask in self._masks if mask not in known), None)


def prefix(problem: Problem, seed: int) -> Proposer:
    """A fixed ranking, one more atom left out in each step: from all-integer to all left out, as SeQTO does."""
    return Listed(filter(problem.accepts, map(Mask, prefixes(by_sensitivity(problem)))))


def heuristic(problem: Problem, seed: int) -> Proposer:
    """The Quantization Debugger guide: nodes above 0.7, and the first five; nothing more."""
    return Listed(filter(problem.accepts, [Mask(), problem.mask_of(problem.heuristic)]))


def exhaustive(problem: Problem, seed: int) -> Proposer:
    """Every set of atoms in every state, smallest sets first."""
    return Listed(filter(problem.accepts, all_masks(problem)))


class Greedy:
    """The loop of accuracy-aware tuners (NNCF, AIMET): leave out the next atom of a ranking and keep it if that helps.

    Starting from all-integer, atoms are left out in the order of the ranking. A step that does not lower the loss is
    taken back, and its atom goes to the end of the ranking, until a whole round has not helped.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        """Rank by what each atom did alone in integers on few samples."""
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


def by_sensitivity(problem: Problem) -> list[int]:
    """Atoms, most sensitive first; ties in graph order."""
    return sorted(range(len(problem.atoms)), key=lambda i: (-problem.atoms[i].sensitivity, i))


def prefixes(ranking: Sequence[int]) -> Iterator[Atoms]:
    """The first 0, 1, 2, ... atoms of a ranking."""
    atoms = 0
    yield atoms
    for i in ranking:
        atoms |= 1 << i
        yield atoms


def all_masks(problem: Problem) -> Iterator[Mask]:
    """Every set of atoms in every state with every set of repairs, smallest sets first."""
    for size in range(len(problem.atoms) + 1):
        for chosen in itertools.combinations(range(len(problem.atoms)), size):
            forms = ([place for place, form in enumerate(problem.forms) if form >> i & 1] for i in chosen)
            for places in itertools.product(*forms):
                mask = Mask()
                for i, place in zip(chosen, places, strict=True):
                    mask = mask.put(1 << i, place)
                yield from (mask, *repaired(mask, problem))


def random_masks(problem: Problem, seed: int) -> Proposer:
    """Masks of random density, each set of atoms once, until all were drawn; states and repairs by chance."""
    rng = np.random.default_rng(seed)

    def draws() -> Iterator[Mask]:
        count = len(problem.atoms)
        drawn: set[Atoms] = set()
        while len(drawn) < 1 << count:
            chosen = np.flatnonzero(rng.random(count) < rng.random())
            atoms = sum(1 << int(i) for i in chosen)
            if atoms not in drawn:
                drawn.add(atoms)
                further = problem.forms[1:]
                places = rng.integers(len(problem.states), size=count) if further else np.zeros(count)
                yield Mask(
                    atoms,
                    [form & sum(1 << int(i) for i in np.flatnonzero(places == p)) for p, form in enumerate(further, 1)],
                    problem.offered[int(rng.integers(len(problem.offered)))] if len(problem.offered) > 1 else 0,
                )

    return Listed(filter(problem.accepts, draws()))
