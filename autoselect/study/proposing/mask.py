"""Candidates as sets of atoms. Knows bits, neither graphs nor scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Atoms = int
"""A set of atoms: bit i is set where atom i belongs to it."""


class _States(NamedTuple):
    left_out: Atoms
    in_float: Atoms
    refined: bool


class Mask(_States):
    """A candidate: what becomes of each atom. Equal candidates are equal values.

    Attributes:
        left_out: The atoms that are not in integers.
        in_float: Those of them that are float where the others are hybrid; what is not left out is dropped.
        refined: Whether its biases are corrected further.
    """

    __slots__ = ()

    def __new__(cls, left_out: Atoms = 0, in_float: Atoms = 0, refined: bool = False) -> Mask:
        """Keep what means something."""
        return tuple.__new__(cls, (left_out, in_float & left_out, refined))

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Mask:  # type: ignore[override]  # Nothing derives from this class.
        """What ``_replace`` makes is kept in the same way."""
        return cls(*iterable)

    def without(self, atoms: Atoms) -> Mask:
        """The candidate with these atoms in integers."""
        return self._replace(left_out=self.left_out & ~atoms)


def bits(atoms: Atoms) -> list[int]:
    """Indices of the set bits, ascending."""
    found = []
    while atoms:
        low = atoms & -atoms
        found.append(low.bit_length() - 1)
        atoms ^= low
    return found


def indicator(rows: Sequence[Atoms], count: int) -> np.ndarray:
    """Float rows, shape (n_rows, count): 1 where the atom is in integers, 0 where it is left out."""
    if not rows:
        return np.zeros((0, count))
    size = (count + 7) // 8
    raw = np.frombuffer(b"".join(atoms.to_bytes(size, "little") for atoms in rows), dtype=np.uint8)
    left_out = np.unpackbits(raw.reshape(len(rows), size), axis=1, bitorder="little")[:, :count]
    return 1.0 - left_out.astype(np.float64)
