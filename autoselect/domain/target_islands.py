"""Groups of ops that a target leaves to the host, and what each of them costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from autoselect.domain.graph import IN_INTEGERS, Graph, Op, OpKind, answered
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import is_interface, left_because, precision_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Connected ops that do not compute in integers, with their conversions, or that the accelerator cannot run.

    If the target's compiler decides, only those that it leaves to the host.

    Attributes:
        ops: Indices, ascending.
        gain: By how much the penalty would fall if they were integer ops that exchange integers, on the accelerator;
            the island's cost.
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
        Island(ops=tuple(sorted(ops)), gain=whole - penalty(without(graph, ops | _at_interface(graph, ops))))
        for ops in _connected(graph, strays)
    )


def _at_interface(graph: Graph, ops: set[int]) -> set[int]:
    """The ``DEQUANTIZE`` and ``QUANTIZE`` ops at the model's integer inputs and outputs that serve only these ops.

    The model would not have them if these ops were integer.

    Args:
        graph: The model.
        ops: Indices of ops.

    Returns:
        Indices of the conversions.
    """
    producers, consumers = graph.producers(), graph.consumers()

    def is_theirs(op: Op) -> bool:
        if op.kind is not OpKind.BOUNDARY:  # A change of sign would still be there.
            return False
        source, result = op.inputs[0], op.outputs[0]
        if op.op_type == "DEQUANTIZE":
            return source in graph.inputs and result not in graph.outputs and ops.issuperset(consumers.get(result, ()))
        is_alone = source not in graph.outputs and consumers[source] == [producers[result]]
        return result in graph.outputs and producers.get(source) in ops and is_alone

    return {i for i, op in enumerate(graph.ops) if is_interface(op, graph) and is_theirs(op)}


def _is_stray(op: Op, graph: Graph, target: Target) -> bool:
    if target.asks_compiler:
        return left_because(op, graph, target) is not None
    if precision_of(op) is None or is_interface(op, graph):
        return False
    if op.kind not in IN_INTEGERS:
        return True
    return target.accelerator is not None and left_because(op, graph, target) is not None


def _connected(graph: Graph, chosen: set[int]) -> list[set[int]]:
    """Groups of the chosen ops that share tensors, in order of their first op."""
    producers = graph.producers()
    group: dict[int, set[int]] = {}
    for i in sorted(chosen):
        group[i] = {i}
        for other in {producers[t] for t in graph.ops[i].inputs if t in producers} & chosen:
            joined = group[i] | group[other]
            group.update(dict.fromkeys(joined, joined))
    neighbours: dict[int, set[int]] = {}
    for i in sorted(chosen):
        neighbours.setdefault(id(group[i]), group[i])
    return list(neighbours.values())


def computing_in(
    graph: Graph, kinds: Mapping[int, OpKind], forms: Mapping[int, Mapping[str, str | None]] | None
) -> Graph:
    """The graph with its ops computing in these kinds.

    Args:
        graph: The float model.
        kinds: By index; an op that is not named counts nowhere.
        forms: By index and by kind, what the target's compiler says of an op.
    """

    def made(index: int, op: Op) -> Op:
        kind = kinds.get(index, OpKind.NEUTRAL)
        said = (forms or {}).get(index, {})
        return replace(op, kind=kind, left_because=said.get(kind.value, ""))

    return replace(graph, ops=tuple(made(i, op) for i, op in enumerate(graph.ops)))


def without(graph: Graph, ops: Iterable[int]) -> Graph:
    """The graph as if these ops computed in 8-bit integers: conversions among them are gone, the rest is integer.

    An op that read what a conversion wrote now reads what the conversion read, so that a transfer between the sides
    still counts.
    """
    changed, tensors, source = list(graph.ops), list(graph.tensors), dict[int, int]()
    for i in sorted(ops):
        op = changed[i]
        if op.left_because:
            op = answered(op, ("",) * max(len(op.answers), 1))
        if op.kind is OpKind.BOUNDARY:
            op = replace(op, kind=OpKind.NEUTRAL)
            source[op.outputs[0]] = source.get(op.inputs[0], op.inputs[0])
        elif op.kind in (OpKind.FLOAT, OpKind.HYBRID, OpKind.INT16):
            op = replace(op, kind=OpKind.INTEGER)
            for t in set(op.outputs).difference(graph.outputs):
                if (tensor := tensors[t]).dtype in ("float32", "int16"):
                    tensors[t] = replace(tensor, dtype="int8", size_bytes=prod(tensor.shape))
        changed[i] = op
    rewired = tuple(replace(op, inputs=tuple(source.get(t, t) for t in op.inputs)) for op in changed)
    return replace(graph, ops=rewired, tensors=tuple(tensors))
