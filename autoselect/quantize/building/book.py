"""Keeps book of what the parts of a blueprint take in a file, together and each by itself; knows no op."""

from __future__ import annotations

from collections.abc import Hashable

from autoselect.quantize.building.blueprint import Cost
from autoselect.tflite import footprint as fp


class Book:
    """Tells items that several parts share, which get a bit, from those that only one part needs."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, set[Hashable]] = {}
        self._bits: dict[Hashable, tuple[int, int]] = {}

    def add(self, owner: Hashable, footprint: fp.Footprint) -> None:
        """Note what a part needs; two parts of one owner are never in one file."""
        for item in footprint.items:
            self._owners.setdefault(item, set()).add(owner)

    def cost(self, owner: Hashable, footprint: fp.Footprint) -> Cost:
        """The footprint with what is always there, or this part's alone, counted in."""
        own, mask = footprint.own, 0
        for item, size in footprint.items.items():
            owners = self._owners[item]
            if owners == {owner} or owner == "frame":
                own += size
            elif "frame" not in owners:
                mask |= 1 << self._bits.setdefault(item, (len(self._bits), size))[0]
        return Cost(own, mask)

    def item_bytes(self) -> tuple[int, ...]:
        """Bytes of each item with a bit."""
        return tuple(size for _, size in self._bits.values())
