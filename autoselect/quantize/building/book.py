"""Keeps book of what the parts of a blueprint take in a file, together and each by itself, and conversions too."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cache

from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import BuildError
from autoselect.quantize.building.blueprint import Conversion, Cost
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
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


@cache
def conversion_footprint(op_type: str) -> fp.Footprint:
    """What one takes in a file, its tensors aside."""
    shell: fb.Model = schema.ModelT()
    shell.operatorCodes = [editing.conversion_code(op_type, [])]
    return fp.op_footprint(shell, editing.conversion_op(0, 0, 0))


def sorted_chain(chain: Iterable[Conversion], own: int) -> list[Conversion]:
    """Each behind the one whose result it converts."""
    left, made, found = list(chain), {own}, []
    while left:
        ready = [c for c in left if c.reads in made]
        if not ready:
            raise BuildError("The quantizer converts a tensor in a circle.")
        found += ready
        made |= {c.writes for c in ready}
        left = [c for c in left if c not in ready]
    return found
