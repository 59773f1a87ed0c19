"""How each kind of op and node is told and drawn, for every surface alike; knows no surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoselect.domain.graph import OpKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a reader sees of one kind.

    Attributes:
        word: Of an op.
        node_word: Of a node; empty for kinds that no node is of.
        mark: A character: calm water for integers, higher with 16 bits, letters for the islands, a shore between them.
        colour: Of its cell; Okabe and Ito's, which any common colour vision tells apart.
        ink: Of a text on that.
        style: On a terminal.
        height: Of its bar in a strip that is ten high.
    """

    word: str
    node_word: str = ""
    mark: str
    colour: str
    ink: str = "#FFFFFF"
    style: str
    height: int = 10


LOOKS: Mapping[str, Look] = {
    OpKind.INTEGER.value: Look(word="integer", node_word="int8", mark="-", colour="#0072B2", style="green", height=4),
    OpKind.INT16.value: Look(
        word="16-bit integer", node_word="int16", mark="=", colour="#009E73", style="bright_cyan", height=5
    ),
    OpKind.HYBRID.value: Look(
        word="hybrid", node_word="DRQ", mark="h", colour="#E69F00", ink="#000000", style="yellow", height=7
    ),
    OpKind.FLOAT.value: Look(word="float", node_word="float", mark="F", colour="#D55E00", style="bold red"),
    OpKind.BOUNDARY.value: Look(word="conversion", mark="|", colour="#000000", style="cyan"),
    OpKind.NEUTRAL.value: Look(word="shapes and indices", mark=".", colour="#E0E0E0", ink="#000000", style="dim"),
}
"""The look of each kind of op, in the order of legends."""

OF_NODES: Mapping[str, Look] = {kind: look for kind, look in LOOKS.items() if look.node_word}
"""The looks of the kinds that a node can have."""
