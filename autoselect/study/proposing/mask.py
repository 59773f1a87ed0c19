"""Candidates as sets of atoms. Knows bits, neither graphs nor scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Atoms = int
"""A set of atoms: bit i is set where atom i belongs to it."""


class _States(NamedTuple):
    left_out: Atoms
    further: tuple[Atoms, ...]
    repairs: int


class Mask(_States):
    """A candidate: what becomes of each atom. Equal candidates are equal values.

    Attributes:
        left_out: The atoms that are not in integers. They have the first of the problem's states but for the next.
        further: Of these the atoms in each of the problem's further states, as far as any is there. No atom is in two:
            the first counts, and what is not left out is dropped.
        repairs: Which of the problem's repair sets it has, by its place.
    """

    __slots__ = ()

    def __new__(cls, left_out: Atoms = 0, further: Iterable[Atoms] = (), repairs: int = 0) -> Mask:
        """Keep what means something."""
        free, kept = left_out, list[Atoms]()
        for atoms in further:
            kept.append(atoms & free)
            free &= ~atoms
        while kept and not kept[-1]:
            kept.pop()
        return tuple.__new__(cls, (left_out, tuple(kept), repairs))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Mask:  # type: ignore[override]  # Nothing derives from this class.
        """What ``_replace`` makes is kept in the same way."""
        return cls(*iterable)

    def without(self, atoms: Atoms) -> Mask:
        """The candidate with these atoms in integers."""
        return self._replace(left_out=self.left_out & ~atoms)

    def within(self, state: int) -> Atoms:
        """The atoms in one of the problem's states, by its place: 0 is the first."""
        if state:
            return self.further[state - 1] if state <= len(self.further) else 0
        return self.left_out & ~sum(self.further)

    def state_of(self, atom: int) -> int:
        """The place of one atom's state among the problem's; -1 is in integers."""
        if not self.left_out >> atom & 1:
            return -1
        return next((place for place, atoms in enumerate(self.further, start=1) if atoms >> atom & 1), 0)

    def put(self, atoms: Atoms, state: int) -> Mask:
        """The candidate with these atoms in a state of the problem, by its place."""
        further = [others & ~atoms for others in self.further]
        further += [0] * (state - len(further))
        if state:
            further[state - 1] |= atoms
        return Mask(self.left_out | atoms, further, self.repairs)


def bits(atoms: Atoms) -> list[int]:
    """Indices of the set bits, ascending."""
    found = []
    while atoms:
        low = atoms & -atoms
        found.append(low.bit_length() - 1)
        atoms ^= low
    return found


def indicator(rows: Sequence[Atoms], count: int) -> np.ndarray:
    """Float rows, shape (n_rows, count): 1 where the atom belongs to the set."""
    if not rows:
        return np.zeros((0, count))
    size = (count + 7) // 8
    raw = np.frombuffer(b"".join(atoms.to_bytes(size, "little") for atoms in rows), dtype=np.uint8)
    return np.unpackbits(raw.reshape(len(rows), size), axis=1, bitorder="little")[:, :count].astype(np.float64)


def sides(masks: Sequence[Mask], count: int, states: int) -> np.ndarray:
    """How candidates differ, shape (n_masks, count * states): for each state but the last whether an atom is in it.

    Args:
        masks: The candidates.
        count: Of atoms.
        states: Of the problem, integers not counted: these come first.
    """
    inside = 1.0 - indicator([mask.left_out for mask in masks], count)
    return np.hstack([inside, *(indicator([m.within(state) for m in masks], count) for state in range(states - 1))])
