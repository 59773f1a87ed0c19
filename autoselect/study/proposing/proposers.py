"""Proposers: from what is scored to the next candidate; one interface for chance and for what learns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from autoselect.study.proposing.mask import Mask, Units
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
        taken_masks = {s.mask for s in seen} | set(pending)
        return next((mask for mask in self._masks if mask not in taken_masks), None)


def by_sensitivity(problem: Problem) -> list[int]:
    """Units, most sensitive first; ties in graph order."""
    return sorted(range(len(problem.units)), key=lambda i: (-problem.units[i].sensitivity, i))


def prefixes(ranking: Sequence[int]) -> Iterator[Units]:
    """The first 0, 1, 2, ... units of a ranking."""
    units = 0
    yield units
    for i in ranking:
        units |= 1 << i
        yield units


def all_masks(problem: Problem) -> Iterator[Mask]:
    """Every set of units in every state with every set of repairs, smallest sets first."""
    for size in range(len(problem.units) + 1):
        for chosen in itertools.combinations(range(len(problem.units)), size):
            forms = ([place for place, form in enumerate(problem.forms) if form >> i & 1] for i in chosen)
            for places in itertools.product(*forms):
                mask = Mask()
                for i, place in zip(chosen, places, strict=True):
                    mask = mask.put(1 << i, place)
                yield from (mask, *repaired(mask, problem))


def random_masks(problem: Problem, seed: int) -> Proposer:
    """Masks of random density, each set of units once, until all were drawn; states and repairs by chance.

    What a user pinned is put into them once they are drawn.
    """
    rng = np.random.default_rng(seed)

    def draws() -> Iterator[Mask]:
        count, drawn = len(problem.units), set[Units]()
        held = problem.not_int8 | problem.not_outside  # A mask of units alone does not say what these have.
        free = held | (problem.hold(Mask()).left_out ^ problem.hold(Mask(problem.everything)).left_out)
        while len(drawn) < 1 << free.bit_count():
            chosen = np.flatnonzero(rng.random(count) < rng.random())
            units = sum(1 << int(i) for i in chosen)
            key = problem.hold(Mask(units)).left_out & ~held | units & held
            if key not in drawn:
                drawn.add(key)
                further = problem.forms[1:]
                places = rng.integers(len(problem.states), size=count) if further else np.zeros(count)
                mask = Mask(
                    units,
                    [form & sum(1 << int(i) for i in np.flatnonzero(places == p)) for p, form in enumerate(further, 1)],
                    problem.offered[int(rng.integers(len(problem.offered)))] if len(problem.offered) > 1 else 0,
                )
                yield problem.hold(mask)

    return Listed(filter(problem.accepts, draws()))
