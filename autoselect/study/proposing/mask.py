"""Candidates as sets of units. Knows bits, neither graphs nor scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Units = int
"""A set of units: bit i is set where unit i belongs to it."""


class _States(NamedTuple):
    left_out: Units
    further: tuple[Units, ...]
    repairs: int


class Mask(_States):
    """A candidate: what becomes of each unit. Equal candidates are equal values.

    Attributes:
        left_out: The units that are not in integers. They have the first of the problem's states but for the next.
        further: Of these the units in each of the problem's further states, as far as any is there. No unit is in two:
            the first counts, and what is not left out is dropped.
        repairs: Which of the problem's repair sets it has, by its place.
    """

    __slots__ = ()

    def __new__(cls, left_out: Units = 0, further: Iterable[Units] = (), repairs: int = 0) -> Mask:
        """Keep what means something."""
        free, kept = left_out, list[Units]()
        for units in further:
            kept.append(units & free)
            free &= ~units
        while kept and not kept[-1]:
            kept.pop()
        return tuple.__new__(cls, (left_out, tuple(kept), repairs))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Mask:  # type: ignore[override]  # Nothing derives from this class.
        """What ``_replace`` makes is kept in the same way."""
        return cls(*iterable)

    def without(self, units: Units) -> Mask:
        """The candidate with these units in integers."""
        return self._replace(left_out=self.left_out & ~units)

    def within(self, state: int) -> Units:
        """The units in one of the problem's states, by its place: 0 is the first."""
        if state:
            return self.further[state - 1] if state <= len(self.further) else 0
        return self.left_out & ~sum(self.further)

    def state_of(self, unit: int) -> int:
        """The place of one unit's state among the problem's; -1 is in integers."""
        if not self.left_out >> unit & 1:
            return -1
        return next((place for place, units in enumerate(self.further, start=1) if units >> unit & 1), 0)

    def put(self, units: Units, state: int) -> Mask:
        """The candidate with these units in a state of the problem, by its place."""
        further = [others & ~units for others in self.further]
        further += [0] * (state - len(further))
        if state:
            further[state - 1] |= units
        return Mask(self.left_out | units, further, self.repairs)


def bits(units: Units) -> list[int]:
    """Indices of the set bits, ascending."""
    indices = []
    while units:
        low = units & -units
        indices.append(low.bit_length() - 1)
        units ^= low
    return indices


def indicator(rows: Sequence[Units], count: int) -> np.ndarray:
    """Float rows, shape (n_rows, count): 1 where the unit belongs to the set."""
    if not rows:
        return np.zeros((0, count))
    size = (count + 7) // 8
    raw = np.frombuffer(b"".join(units.to_bytes(size, "little") for units in rows), dtype=np.uint8)
    return np.unpackbits(raw.reshape(len(rows), size), axis=1, bitorder="little")[:, :count].astype(np.float64)
