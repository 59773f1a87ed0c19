"""Which piece of the accelerator's work runs each op of a model, and where values go from one side to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoselect.domain.graph import Graph, partition
from autoselect.domain.targets import Place, Target
from autoselect.domain.verdicts import Verdict, is_interface, views
from autoselect.scoring.fragmentation import crossing_tensors, sides_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What a drawing of a model on a target shows beside its ops.

    Attributes:
        piece_of: For each op the number of the piece that runs it, from 1; 0 where the accelerator does not.
        crossings: Edges between both sides, ascending: index of the op that writes, and of the op that reads.
        reasons: For each op why the accelerator does not run it; empty where it does, or nobody says why.
    """

    piece_of: tuple[int, ...]
    crossings: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...]


def pieces_of(graph: Graph, target: Target) -> Pieces:
    """Draw a built or planned model on a target; of several chips on the one whose work is in the most pieces.

    There are as many pieces as segments. Only where a compiler orders the ops anew, nobody has asked it for the order:
    pieces are then those of the order in the file, which may be more.
    """
    if target.shares is not None:
        sides = sides_of(graph)
        numbers, tensors, reasons = _delegated(graph, sides), crossing_tensors(graph), [""] * len(graph.ops)
        taken = [side is not False for side in sides]
    else:
        chip, verdict = max(views(graph, target), key=lambda view: view[1].segments)
        taken = [placement.place is Place.ACCELERATOR for placement in verdict.placements]
        in_order = chip.asks_compiler or chip.segments == "scheduled"
        numbers = _listed(taken) if in_order else _delegated(graph, _cutting(graph, verdict, taken))
        tensors = list(verdict.crossings)
        reasons = [p.reason if p.place in (Place.HOST, Place.NOWHERE) else "" for p in verdict.placements]
    return Pieces(
        piece_of=tuple(number if mine else 0 for number, mine in zip(numbers, taken, strict=True)),
        crossings=_edges(graph, tensors),
        reasons=tuple(reasons),
    )


def _cutting(graph: Graph, verdict: Verdict, taken: Sequence[bool]) -> list[bool | None]:
    """The side of each op; None where it cuts nothing."""
    return [
        None if placement.place is Place.EITHER or is_interface(op, graph) else mine
        for op, placement, mine in zip(graph.ops, verdict.placements, taken, strict=True)
    ]


def _delegated(graph: Graph, sides: Sequence[bool | None]) -> list[int]:
    """The number of the accelerator's piece of each op, as a delegate makes them; 0 for those of the host."""
    numbers, count = [0] * len(graph.ops), 0
    for on_accelerator, ops in partition(graph, sides):
        count += on_accelerator
        for i in ops if on_accelerator else ():
            numbers[i] = count
    return numbers


def _listed(taken: Sequence[bool]) -> list[int]:
    """The pieces that runs in the order of the file make."""
    numbers, count, before = list[int](), 0, False
    for mine in taken:
        count += mine and not before
        numbers.append(count if mine else 0)
        before = mine
    return numbers


def _edges(graph: Graph, tensors: Sequence[int]) -> tuple[tuple[int, int], ...]:
    producers, consumers = graph.producers(), graph.consumers()
    return tuple(sorted({(producers[t], reader) for t in tensors if t in producers for reader in consumers.get(t, ())}))
