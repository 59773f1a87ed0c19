"""What a target makes of a model: where each op runs and why, pieces of work, crossings, and what it all costs.

Knows the rules of a target profile and the graph of a model; refuses to know files, compilers and accuracy. A verdict
follows from op types, precisions and the graph alone, so limits on strides, axes or scales that a profile does not
name are left to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Literal

from autoselect.domain.graph import Graph, Op, OpKind, partition
from autoselect.domain.recipe import IoType

SegmentRule = Literal["any", "scheduled", "leading", "none"]
Refuser = Literal["compiler", "runtime"]


class Precision(str, Enum):
    """In what an op computes."""

    INT8 = "int8"
    INT16 = "int16"
    HYBRID = "hybrid"
    FLOAT = "float"
    CONVERSION = "conversion"
    """QUANTIZE from float or DEQUANTIZE to float."""


class Place(str, Enum):
    """Where an op runs."""

    ACCELERATOR = "accelerator"
    HOST = "host"
    EITHER = "either"
    """On whichever side it is needed: shapes and indices."""
    NOWHERE = "nowhere"
    """The target refuses the model because of this op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyWeights:
    """Points of the penalty for each share; all must be positive, so that nothing is free."""

    float_macs: float
    float_ops: float
    crossings: float
    crossing_bytes: float
    segments: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What a processor runs in one precision, and what that costs in the target's unit.

    Attributes:
        ops: Op types; None for all.
        per_mac: Cost of a multiply-accumulate.
        per_element: Cost of an element of the op's outputs.
        per_mac_of: Cost of a multiply-accumulate of op types where it is another.
    """

    ops: frozenset[str] | None
    per_mac: float
    per_element: float
    per_mac_of: Mapping[str, float] = field(default_factory=dict)

    def runs(self, op_type: str) -> bool:
        """Whether there is a kernel."""
        return self.ops is None or op_type in self.ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One of the two sides of a target.

    Attributes:
        name: For people.
        kernels: By precision; a precision that is missing does not run.
        max_rank: Largest count of dimensions of a tensor; None where there is no limit.
    """

    name: str
    kernels: Mapping[Precision, Kernels]
    max_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A hard rule: a model with such an op is refused.

    Attributes:
        ops: Op types; None for all.
        precisions: Precisions in which they are refused.
        by: What refuses: the compiler of the target or its runtime.
        why: One sentence.
    """

    ops: frozenset[str] | None
    precisions: frozenset[Precision]
    by: Refuser
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """How the compiler of a target is called; its own words for the three."""

    name: Literal["vela"]
    accelerator_config: str
    system_config: str
    memory_mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target profile.

    Attributes:
        name: As on the command line.
        why: What it stands for, in one sentence.
        unit: Of all costs, for example ``NPU cycles``; ``points`` where ``shares`` makes the penalty.
        accelerator: What should run as much as possible; None where there is one processor only.
        host: What runs the rest.
        segments: How many pieces of work the accelerator takes: any number, formed as a delegate does; any number, as
            runs of a compiler's schedule; the leading one only; or none.
        crossing_fixed: Cost of a tensor that goes from one side to the other.
        crossing_per_byte: Cost of each of its bytes.
        io_type: Type of inputs and outputs that it expects; None where it takes any.
        per_channel: Whether it takes one scale for each output channel of the weights.
        rules: Hard rules, in order.
        shares: Points by share, for a target of unknown costs; None where the costs above make the penalty.
        compiler: None where no compiler is at hand.
    """

    name: str
    why: str
    unit: str
    accelerator: Processor | None
    host: Processor
    segments: SegmentRule
    crossing_fixed: float
    crossing_per_byte: float
    io_type: IoType | None
    per_channel: bool
    rules: tuple[Rule, ...] = ()
    shares: PenaltyWeights | None = None
    compiler: Compiler | None = None

    @property
    def takes_all(self) -> bool:
        """Whether no model is refused: there is no rule, and the host runs every op in every precision."""
        kernels = [self.host.kernels.get(precision) for precision in Precision]
        return not self.rules and self.host.max_rank is None and all(k is not None and k.ops is None for k in kernels)

    @property
    def runs_hybrid(self) -> bool:
        """Whether any hybrid op runs anywhere."""
        return any(p is not None and Precision.HYBRID in p.kernels for p in (self.accelerator, self.host))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one op runs.

    Attributes:
        place: See :class:`Place`.
        precision: None for ops on shapes and indices.
        reason: Why there and not on the accelerator, or why nowhere; empty on the accelerator.
        refused_by: Set where the place is nowhere.
        cost: Of its computation, in the target's unit.
    """

    place: Place
    precision: Precision | None
    reason: str = ""
    refused_by: Refuser | None = None
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a target makes of one model.

    Attributes:
        placements: Of each op, in graph order.
        segments: Pieces of the accelerator's work.
        crossings: Tensors that go from one side to the other inside the model, each once.
        crossing_bytes: Their bytes.
        crossing_cost: Cost of the crossings.
        accelerator_cost: Cost of what the accelerator computes.
        host_cost: Cost of what the host computes.
    """

    placements: tuple[Placement, ...]
    segments: int
    crossings: tuple[int, ...]
    crossing_bytes: int
    crossing_cost: float
    accelerator_cost: float
    host_cost: float

    @property
    def cost(self) -> float:
        """All of it, in the target's unit."""
        return self.accelerator_cost + self.host_cost + self.crossing_cost

    def refused(self, by: Refuser | None = None) -> tuple[int, ...]:
        """Indices of the ops because of which the model is refused; by one of the two, or by any."""
        return tuple(
            i for i, p in enumerate(self.placements) if p.refused_by is not None and by in (None, p.refused_by)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Connected ops that do not compute in integers, with their conversions, or that the accelerator cannot run.

    Attributes:
        ops: Indices, ascending.
        gain: By how much the penalty would fall if they were integer ops that exchange integers; the island's cost.
    """

    ops: tuple[int, ...]
    gain: float


def precision_of(op: Op, graph: Graph) -> Precision | None:
    """In what an op computes; None for shapes, indices and booleans. Eight bits, signed or not, are one precision."""
    if op.kind is OpKind.INTEGER:
        # Of the inputs the first only: a fused LSTM of int8 keeps a cell state of int16.
        wide = any(graph.tensors[t].dtype == "int16" for t in (*op.inputs[:1], *op.outputs))
        return Precision.INT16 if wide else Precision.INT8
    by_kind = {OpKind.HYBRID: Precision.HYBRID, OpKind.FLOAT: Precision.FLOAT, OpKind.BOUNDARY: Precision.CONVERSION}
    return by_kind.get(op.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What a target decides of nodes before any candidate: by op index of the float model, why."""

    keep_int: Mapping[int, str]
    keep_float: Mapping[int, str]
    impossible: Mapping[int, str]


def pins(graph: Graph, nodes: Iterable[int], target: Target, *, hybrid: bool) -> Pins:
    """Which ops of a float model a target wants in integers, which in float, and which it refuses in any form.

    Args:
        graph: Of the float model.
        nodes: Indices of the ops that can be integer.
        target: The target.
        hybrid: Whether what is left out of integers may become hybrid.
    """
    found: tuple[dict[int, str], dict[int, str], dict[int, str]] = ({}, {}, {})
    choosable = set(nodes)
    for i, op in enumerate(graph.ops):
        if op.kind is not OpKind.FLOAT:
            continue
        outside = (OpKind.FLOAT, OpKind.HYBRID) if hybrid else (OpKind.FLOAT,)
        in_float = _refusals(op, graph, target, outside)
        as_integer = _refusals(op, graph, target, (OpKind.INTEGER,)) if i in choosable else ["it has no integer form"]
        if in_float and as_integer:
            found[2][i] = f"{in_float[0]}; {as_integer[0]}"
        elif in_float:
            found[0][i] = in_float[0]
        elif as_integer and i in choosable:
            found[1][i] = as_integer[0]
    return Pins(keep_int=found[0], keep_float=found[1], impossible=found[2])


def _refusals(op: Op, graph: Graph, target: Target, kinds: Iterable[OpKind]) -> list[str]:
    """Why an op is refused in all of these kinds; empty where it is not."""
    wished = [_wish(replace(op, kind=kind), graph, target) for kind in kinds]
    return [p.reason for p in wished] if all(p.refused_by is not None for p in wished) else []


def judge(graph: Graph, target: Target) -> Verdict:
    """Place every op of a model on a target.

    An op that a hard rule names, or that neither side has a kernel for, runs nowhere; then the model is refused. The
    accelerator takes what it can. Its pieces of work are those of a delegate, see
    :func:`autoselect.domain.graph.partition`, or runs of a schedule; conversions of the model's own inputs and outputs
    cut nothing.
    """
    wished = [_wish(op, graph, target) for op in graph.ops]
    sides = [_side(op, graph, placement) for op, placement in zip(graph.ops, wished, strict=True)]
    pieces = partition(graph, sides)
    segments = _runs(graph, sides) if target.segments == "scheduled" else sum(on_npu for on_npu, _ in pieces)
    if target.segments == "leading" and segments:
        kept = set(pieces[0][1]) if pieces[0][0] else set()
        wished = [_left_behind(i, p, graph, target) if i not in kept else p for i, p in enumerate(wished)]
        segments = 1 if kept else 0
    return _priced(graph, target, wished, segments)


def _runs(graph: Graph, sides: Sequence[bool | None]) -> int:
    """Runs of the accelerator's ops in a schedule that goes depth first from the outputs, an op's last input first."""
    producers, done, found, running = graph.producers(), set[int](), 0, False
    stack = [(producers[t], False) for t in reversed(graph.outputs) if t in producers]
    while stack:
        i, ready = stack.pop()
        if i in done:
            continue
        if not ready:
            stack.append((i, True))
            stack.extend((producers[t], False) for t in graph.ops[i].inputs if t in producers)
            continue
        done.add(i)
        if (side := sides[i]) is not None:
            found += side and not running
            running = side
    return found


def _wish(op: Op, graph: Graph, target: Target) -> Placement:
    precision = precision_of(op, graph)
    if precision is None:
        return Placement(place=Place.EITHER, precision=None, reason="works on shapes, indices or booleans")
    for rule in target.rules:
        if precision in rule.precisions and (rule.ops is None or op.op_type in rule.ops):
            return Placement(place=Place.NOWHERE, precision=precision, reason=rule.why, refused_by=rule.by)
    lack = _lack(op, graph, precision, target.accelerator)
    if lack is None:
        return Placement(place=Place.ACCELERATOR, precision=precision)
    return _on_host(op, graph, precision, target, lack)


def _on_host(op: Op, graph: Graph, precision: Precision, target: Target, reason: str) -> Placement:
    lack = _lack(op, graph, precision, target.host)
    if lack is None:
        return Placement(place=Place.HOST, precision=precision, reason=reason if target.accelerator else "")
    return Placement(place=Place.NOWHERE, precision=precision, reason=lack, refused_by="runtime")


def _lack(op: Op, graph: Graph, precision: Precision, processor: Processor | None) -> str | None:
    """Why a processor does not run an op; None where it does."""
    if processor is None:
        return "there is no accelerator"
    kernels = processor.kernels.get(precision)
    if kernels is None:
        return f"{processor.name} runs no {precision.value} ops"
    if not kernels.runs(op.op_type):
        return f"{processor.name} has no {precision.value} {op.op_type}"
    rank = max((len(graph.tensors[t].shape) for t in (*op.inputs, *op.outputs)), default=0)
    if processor.max_rank is not None and rank > processor.max_rank:
        return f"{processor.name} takes at most {processor.max_rank} dimensions, this op has {rank}"
    return None


def _side(op: Op, graph: Graph, placement: Placement) -> bool | None:
    """For the partition: True for the accelerator, None for what cuts nothing."""
    if placement.place is Place.EITHER or is_interface(op, graph):
        return None
    return placement.place is Place.ACCELERATOR


def is_interface(op: Op, graph: Graph) -> bool:
    """True for a conversion of one of the model's own inputs or outputs."""
    return op.kind is OpKind.BOUNDARY and (op.inputs[0] in graph.inputs or op.outputs[0] in graph.outputs)


def _left_behind(index: int, placement: Placement, graph: Graph, target: Target) -> Placement:
    if placement.place is not Place.ACCELERATOR or placement.precision is None:
        return placement
    return _on_host(graph.ops[index], graph, placement.precision, target, "comes after an op that ends the segment")


def _priced(graph: Graph, target: Target, placements: Sequence[Placement], segments: int) -> Verdict:
    priced = [
        replace(placement, cost=_compute(op, graph, placement, target))
        for op, placement in zip(graph.ops, placements, strict=True)
    ]
    crossings = _crossings(graph, priced)
    crossing_bytes = sum(graph.tensors[t].size_bytes for t in crossings)
    return Verdict(
        placements=tuple(priced),
        segments=segments,
        crossings=crossings,
        crossing_bytes=crossing_bytes,
        crossing_cost=target.crossing_fixed * len(crossings) + target.crossing_per_byte * crossing_bytes,
        accelerator_cost=sum(p.cost for p in priced if p.place is Place.ACCELERATOR),
        host_cost=sum(p.cost for p in priced if p.place is Place.HOST),
    )


def _compute(op: Op, graph: Graph, placement: Placement, target: Target) -> float:
    side = {Place.ACCELERATOR: target.accelerator, Place.HOST: target.host}.get(placement.place)
    if side is None or placement.precision is None:
        return 0.0
    kernels = side.kernels[placement.precision]
    elements = sum(prod(graph.tensors[t].shape) for t in op.outputs)
    return kernels.per_mac_of.get(op.op_type, kernels.per_mac) * op.macs + kernels.per_element * elements


def _crossings(graph: Graph, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Tensors that one side writes and the other reads, ascending; those of an interface conversion do not count."""
    producers, found = graph.producers(), set()
    for op, placement in zip(graph.ops, placements, strict=True):
        for tensor in op.inputs:
            writer = producers.get(tensor)
            if writer is None or is_interface(op, graph) or is_interface(graph.ops[writer], graph):
                continue
            if {placement.place, placements[writer].place} == {Place.ACCELERATOR, Place.HOST}:
                found.add(tensor)
    return tuple(sorted(found))


def islands(graph: Graph, target: Target, penalty: Callable[[Graph], float]) -> tuple[Island, ...]:
    """The islands of a model and what each costs.

    Args:
        graph: A built model.
        target: Decides which ops are strays.
        penalty: Of a graph on that target.

    Returns:
        In order of their first op.
    """
    strays = {i for i, op in enumerate(graph.ops) if _is_stray(op, graph, target)}
    whole = penalty(graph)
    return tuple(
        Island(ops=tuple(sorted(ops)), gain=whole - penalty(without(graph, ops))) for ops in _connected(graph, strays)
    )


def _is_stray(op: Op, graph: Graph, target: Target) -> bool:
    precision = precision_of(op, graph)
    if precision is None or is_interface(op, graph):
        return False
    if op.kind is not OpKind.INTEGER:
        return True
    return target.accelerator is not None and _lack(op, graph, precision, target.accelerator) is not None


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
    """The graph as if these ops computed in integers: float and hybrid ones are integer, conversions are gone."""
    changed = list(graph.ops)
    for i in ops:
        if changed[i].kind is OpKind.BOUNDARY:
            changed[i] = replace(changed[i], kind=OpKind.NEUTRAL)
        elif changed[i].kind in (OpKind.FLOAT, OpKind.HYBRID):
            changed[i] = replace(changed[i], kind=OpKind.INTEGER)
    return replace(graph, ops=tuple(changed))


def peak_activation_bytes(graph: Graph) -> int:
    """Most bytes of activations that are alive at once.

    A tensor lives from the op that writes it to the last that reads it, model inputs from the start and outputs to the
    end. An op's inputs and outputs are alive together: nothing is computed in place. This is the least arena that any
    allocation can reach, not what one allocator reaches.
    """
    last = {t: len(graph.ops) for t in graph.outputs}
    for i, op in enumerate(graph.ops):
        for tensor in op.inputs:
            last[tensor] = max(last.get(tensor, i), i)
    alive = set(graph.inputs)
    size = sum(graph.tensors[t].size_bytes for t in alive)
    peak = size
    for i, op in enumerate(graph.ops):
        born = set(op.outputs) - alive
        alive |= born
        size += sum(graph.tensors[t].size_bytes for t in born)
        peak = max(peak, size)
        dead = {t for t in alive if last.get(t, i) <= i}
        alive -= dead
        size -= sum(graph.tensors[t].size_bytes for t in dead)
    return peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What a compiler made of a model.

    Attributes:
        segments: Custom ops of the accelerator in the compiled file.
        host_ops: Other ops in it, by type.
        crossing_bytes: Bytes of the tensors between the two.
        sram_bytes: Working memory that the compiler allotted.
        flash_bytes: Read-only memory of what the accelerator runs.
        cycles: The compiler's estimate for the accelerator alone.
        cost: Those cycles, and the profile's cost of the host's ops and of the crossings.
        refusal: The compiler's own reason; empty where it compiled. Then all figures are 0.
    """

    segments: int = 0
    host_ops: Mapping[str, int] = field(default_factory=dict)
    crossing_bytes: int = 0
    sram_bytes: int = 0
    flash_bytes: int = 0
    cycles: int = 0
    cost: float = 0.0
    refusal: str = ""
