"""Tells what several parts of a file share, and is there once, from what only one part needs.

Knows footprints of parts, not how they were found.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from autoselect.domain.graph import Op
from autoselect.quantize.predict import Cost, Edge, Form, OpState
from autoselect.tflite import footprint as fp


@dataclass(frozen=True, slots=True)
class OpDraft:
    """An op in one state, with what it needs; see :class:`autoselect.quantize.predict.OpState`."""

    owner: Hashable
    footprint: fp.Footprint
    kind: str
    record: Op | None
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class FormDraft:
    """A form of a tensor, with what it needs; see :class:`autoselect.quantize.predict.Form`."""

    tensor: int
    footprint: fp.Footprint
    conversions: tuple[Op, ...]


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

    def op_state(self, draft: OpDraft) -> OpState:
        """The op with its cost, once all parts are added."""
        return OpState(self.cost(draft.owner, draft.footprint), draft.kind, draft.record, draft.edges)

    def forms(self, drafts: Mapping[int, FormDraft]) -> dict[int, Form]:
        """The forms with their costs, by the same keys, once all parts are added."""
        return {
            key: Form(self.cost(("wire", draft.tensor), draft.footprint), draft.conversions)
            for key, draft in drafts.items()
        }

    def item_bytes(self) -> tuple[int, ...]:
        """Bytes of each item with a bit."""
        return tuple(size for _, size in self._bits.values())
