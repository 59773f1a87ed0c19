"""Proposers: from what is scored to the next candidate; one interface for chance and for what learns."""

from __future__ import annotations

import itertools
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
