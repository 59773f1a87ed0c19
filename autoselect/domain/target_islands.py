"""Groups of ops that a target leaves to the host, and what each of them costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from autoselect.domain.graph import IN_INTEGERS, Graph, Op, OpKind
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import is_interface, lack_of, precision_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Connected ops that do not compute in integers, with their conversions, or that the accelerator cannot run.

    Attributes:
        ops: Indices, ascending.
        gain: By how much the penalty would fall if they were integer ops that exchange integers; the island's cost.
    """

    ops: tuple[int, ...]
    gain: float


def islands(graph: Graph, target: Target, penalty: Callable[[Graph], float]) -> tuple[Island, ...]:
    """The islands of a model and what each costs.

    Returns:
        In order of their first op.
    """
    strays = {i for i, op in enumerate(graph.ops) if _is_stray(op, graph, target)}
    whole = penalty(graph)
    return tuple(
        Island(ops=tuple(sorted(ops)), gain=whole - penalty(without(graph, ops))) for ops in _connected(graph, strays)
    )


def _is_stray(op: Op, graph: Graph, target: Target) -> bool:
    precision = precision_of(op)
    if precision is None or is_interface(op, graph):
        return False
    if op.kind not in IN_INTEGERS:
        return True
    return target.accelerator is not None and lack_of(op, graph, precision, target.accelerator) is not None


def _connected(graph: Graph, chosen: set[int]) -> list[set[int]]:
    """Groups of the chosen ops that share tensors, in order of their first op."""
    producers = graph.producers()
    group: dict[int, set[int]] = {}
    for i in sorted(chosen):
        group[i] = {i}
        for other in {producers[t] for t in graph.ops[i].inputs if t in producers} & chosen:
            joined = group[i] | group[other]
            group.update(dict.fromkeys(joined, joined))
    found: dict[int, set[int]] = {}
    for i in sorted(chosen):
        found.setdefault(id(group[i]), group[i])
    return list(found.values())


def computing_in(graph: Graph, kinds: Mapping[int, OpKind]) -> Graph:
    """The graph with its ops computing in these kinds, by index; an op that is not named counts nowhere."""
    return replace(graph, ops=tuple(replace(op, kind=kinds.get(i, OpKind.NEUTRAL)) for i, op in enumerate(graph.ops)))


def without(graph: Graph, ops: Iterable[int]) -> Graph:
    """The graph as if these ops computed in 8-bit integers: all others are integer, conversions are gone."""
    changed = list(graph.ops)
    for i in ops:
        if changed[i].kind is OpKind.BOUNDARY:
            changed[i] = replace(changed[i], kind=OpKind.NEUTRAL)
        elif changed[i].kind in (OpKind.FLOAT, OpKind.HYBRID, OpKind.INT16):
            changed[i] = replace(changed[i], kind=OpKind.INTEGER)
    return replace(graph, ops=tuple(changed))
