"""Where each op of a model runs on a target, what that costs, and what the target refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from autoselect.domain.graph import (
    IN_INTEGERS,
    Graph,
    Op,
    OpKind,
    count_listed,
    partition,
    peak_activation_bytes,
    seen_by,
)
from autoselect.domain.runtimes import Runtime
from autoselect.domain.schedule import count_runs
from autoselect.domain.states import COMPOSED, STOOD_FOR
from autoselect.domain.targets import Kernels, Place, Precision, Processor, Refuser, Target, unreadable


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
        ddr_bytes: Bytes that the pieces read from or write to memory outside of the accelerator: what they exchange
            with the rest, and their constants. Estimated as if nothing else had to leave the accelerator.
        piece_cost: Cost of the pieces beyond the first, and of those bytes.
    """

    placements: tuple[Placement, ...]
    segments: int
    crossings: tuple[int, ...]
    crossing_bytes: int
    crossing_cost: float
    accelerator_cost: float
    host_cost: float
    ddr_bytes: int = 0
    piece_cost: float = 0.0

    @property
    def cost(self) -> float:
        """The whole cost: accelerator, host, crossings and pieces, in the target's unit."""
        return self.accelerator_cost + self.host_cost + self.crossing_cost + self.piece_cost

    @property
    def left_ops(self) -> int:
        """How many ops the accelerator does not run."""
        return sum(p.place in (Place.HOST, Place.NOWHERE) for p in self.placements)

    def refused(self, by: Refuser | None = None) -> tuple[int, ...]:
        """Indices of the ops because of which the model is refused, by this refuser or by any."""
        return tuple(
            i for i, p in enumerate(self.placements) if p.refused_by is not None and by in (None, p.refused_by)
        )


def precision_of(op: Op) -> Precision | None:
    """The precision in which an op computes; None for shapes, indices and booleans. Signed or not, 8 bits are one."""
    return _PRECISIONS.get(op.kind)


_PRECISIONS = {
    OpKind.INTEGER: Precision.INT8,
    OpKind.INT16: Precision.INT16,
    OpKind.HYBRID: Precision.HYBRID,
    OpKind.FLOAT: Precision.FLOAT,
    OpKind.BOUNDARY: Precision.CONVERSION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What a target decides of nodes before any candidate: by op index of the float model, why.

    ``not_int16`` are the nodes that it refuses with 16-bit activations.
    """

    keep_int: Mapping[int, str]
    keep_float: Mapping[int, str]
    impossible: Mapping[int, str]
    not_int16: Mapping[int, str]


def pins(graph: Graph, nodes: Iterable[int], target: Target, *, hybrid: bool, runtime: Runtime | None = None) -> Pins:
    """Which ops of a float model a target wants in integers, which in float, and which it refuses in any form.

    Ops that the runtime lacks in 8 or 16 bits count as refused there.
    """
    decided: tuple[dict[int, str], dict[int, str], dict[int, str], dict[int, str]] = ({}, {}, {}, {})
    choosable = set(nodes)
    if target.parts:
        each = (pins(graph, choosable, part, hybrid=hybrid, runtime=runtime) for part in target.parts)
        return _pinned_by_any([*each])
    for i, op in enumerate(graph.ops):
        if not target.asks_compiler and (lack := _neutral_nowhere(op, graph, target)) is not None:
            decided[2][i] = lack
        if op.kind is not OpKind.FLOAT:
            continue
        outside = (OpKind.FLOAT, OpKind.HYBRID) if hybrid else (OpKind.FLOAT,)
        in_float = _refusals(op, graph, target, outside)
        as_integer = ["it has no integer form"]
        if i in choosable:
            twin = replace(op, op_type=STOOD_FOR.get(op.op_type, op.op_type))
            as_integer = _refusals(twin, graph, target, (OpKind.INTEGER,)) or _lacks(twin, runtime, "int8")
        in_int16 = [why for part in in_16_bits(op) for why in _refusals(part, graph, target, (OpKind.INT16,))]
        in_int16 += [why for part in in_16_bits(op) for why in _lacks(part, runtime, "int16")]
        if i in choosable and in_int16:
            decided[3][i] = in_int16[0]
        if in_float and as_integer:
            decided[2][i] = "; ".join(dict.fromkeys((in_float[0], as_integer[0])))
        elif in_float:
            decided[0][i] = in_float[0]
        elif as_integer and i in choosable:
            decided[1][i] = as_integer[0]
    return Pins(keep_int=decided[0], keep_float=decided[1], impossible=decided[2], not_int16=decided[3])


def _pinned_by_any(chip_pins: Sequence[Pins]) -> Pins:
    """What any of several chips decides; impossible is also what one wants in integers and another out of them."""
    keep_int, keep_float, impossible, not_int16 = (
        {i: why for decisions in chip_pins for i, why in getattr(decisions, name).items()}
        for name in ("keep_int", "keep_float", "impossible", "not_int16")
    )
    for i in keep_int.keys() & keep_float.keys():
        impossible[i] = f"{keep_int[i]}; {keep_float[i]}"
    return Pins(keep_int=keep_int, keep_float=keep_float, impossible=impossible, not_int16=not_int16)


def in_16_bits(op: Op) -> tuple[Op, ...]:
    """What stands for an op of the float model where it has 16-bit activations: itself, or those that it is made of."""
    twins = COMPOSED.get(op.op_type, (STOOD_FOR.get(op.op_type, op.op_type),))
    return tuple(replace(op, op_type=op_type, kind=OpKind.INT16) for op_type in twins)


def _refusals(op: Op, graph: Graph, target: Target, kinds: Iterable[OpKind]) -> list[str]:
    """Why an op is refused in all of these kinds; empty where it is not. What a compiler takes is not known here."""
    wished = [_wish(replace(op, kind=kind, left_because=""), graph, target) for kind in kinds]
    return [p.reason for p in wished] if all(p.refused_by is not None for p in wished) else []


def _lacks(op: Op, runtime: Runtime | None, dtype: str) -> list[str]:
    why = None if runtime is None else runtime.why_not(op.op_type, dtype)
    return [] if why is None else [why]


def judge(graph: Graph, target: Target) -> Verdict:
    """Place every op of a model on a target.

    An op that a hard rule names, or that neither side has a kernel for, runs nowhere; then the model is refused. The
    accelerator takes what it can. Its pieces of work are those of a delegate, see
    :func:`autoselect.domain.graph.partition`, or runs of a schedule; conversions of the model's own inputs and outputs
    cut nothing. If the target's compiler decides, it has said of each op whether it takes it, every other op cuts,
    and pieces are runs in the order of the file.
    """
    if target.parts:
        return _worst(views(graph, target))
    wished = [_wish(op, graph, target) for op in graph.ops]
    if target.asks_compiler:
        runs = count_listed([p.place is Place.ACCELERATOR for p in wished])
        return _priced(graph, target, wished, runs)
    sides = [_side(op, graph, placement) for op, placement in zip(graph.ops, wished, strict=True)]
    pieces = partition(graph, sides)
    segments = count_runs(graph, sides) if target.segments == "scheduled" else sum(on_npu for on_npu, _ in pieces)
    if target.segments == "leading" and segments:
        kept = set(pieces[0][1]) if pieces[0][0] else set()
        wished = [_left_behind(i, p, graph, target) if i not in kept else p for i, p in enumerate(wished)]
        segments = 1 if kept else 0
    return _priced(graph, target, wished, segments)


def views(graph: Graph, target: Target) -> list[tuple[Target, Verdict]]:
    """What each chip of a target makes of a model; the target itself where it is one."""
    if not target.parts:
        return [(target, judge(graph, target))]
    asked, pairs = list(target.asked), []
    for chip in target.parts:
        own = graph
        if chip in asked and len(asked) > 1:
            own = seen_by(graph, asked.index(chip))
        pairs.append((chip, judge(own, chip)))
    return pairs


def _worst(chip_verdicts: Sequence[tuple[Target, Verdict]]) -> Verdict:
    """One verdict of several: most pieces, worst cost in units of the chip's best, what any chip leaves or refuses."""
    costs = [verdict.cost / (chip.best or 1.0) for chip, verdict in chip_verdicts]
    worst = chip_verdicts[costs.index(max(costs))][1]
    order = (Place.NOWHERE, Place.HOST, Place.EITHER, Place.ACCELERATOR)
    rows = zip(*(verdict.placements for _, verdict in chip_verdicts), strict=True)
    return Verdict(
        placements=tuple(min(row, key=lambda p: order.index(p.place)) for row in rows),
        segments=max(verdict.segments for _, verdict in chip_verdicts),
        crossings=worst.crossings,
        crossing_bytes=worst.crossing_bytes,
        crossing_cost=0.0,
        accelerator_cost=max(costs),
        host_cost=0.0,
        ddr_bytes=max(verdict.ddr_bytes for _, verdict in chip_verdicts),
    )


def _wish(op: Op, graph: Graph, target: Target) -> Placement:
    precision = precision_of(op)
    if precision is None and not target.asks_compiler:
        if (lack := _neutral_nowhere(op, graph, target)) is not None:
            return Placement(place=Place.NOWHERE, precision=None, reason=lack, refused_by="runtime")
        return Placement(place=Place.EITHER, precision=None, reason="works on shapes, indices or booleans")
    if (why := unreadable(op, graph, target.compiler) or _many_scales(op, graph, target)) is not None:
        return Placement(place=Place.NOWHERE, precision=precision, reason=why, refused_by="compiler")
    for rule in target.rules:
        if precision in rule.precisions and (rule.ops is None or op.op_type in rule.ops):
            return Placement(place=Place.NOWHERE, precision=precision, reason=rule.why, refused_by=rule.by)
    lack = left_because(op, graph, target)
    if lack is None:
        return Placement(place=Place.ACCELERATOR, precision=precision)
    return _on_host(op, graph, precision, target, lack)


def _many_scales(op: Op, graph: Graph, target: Target) -> str | None:
    """Why a target refuses an integer op with a constant of more than one scale; None if it does not."""
    if target.per_channel or op.kind not in IN_INTEGERS or all(graph.tensors[t].scales == 1 for t in op.constants):
        return None
    return f"{target.name} takes one scale for all channels of a weight"


def _neutral_nowhere(op: Op, graph: Graph, target: Target) -> str | None:
    """Why no side runs an op on shapes, indices or booleans; None if the accelerator's lists name its type."""
    if target.accelerator is not None and _names(target.accelerator, op.op_type):
        return None
    return _neutral_lack(op, graph, target)


def _neutral_lack(op: Op, graph: Graph, target: Target) -> str | None:
    """Why the host cannot run an op on shapes, indices or booleans; None where it can, or for another op.

    Profiles list kernels for values. A host whose lists do not name a type has no kernel of it for indices either.
    A neutral op that writes float values lacks nothing: it is gone from the model.
    """
    if op.kind is not OpKind.NEUTRAL or op.op_type in _NEVER_ON_VALUES:
        return None
    if any("float" in graph.tensors[t].dtype for t in op.outputs):
        return None
    if not _names(target.host, op.op_type):
        return f"{target.host.name} has no {op.op_type}"
    return _type_lack(op, graph, target.host)


def _type_lack(op: Op, graph: Graph, processor: Processor) -> str | None:
    """Why a processor does not run an op on values of the types that it has; None where it does."""
    lacking = processor.lacks_types.get(op.op_type, frozenset())
    types = (graph.tensors[t].dtype for t in (*op.inputs, *op.outputs))
    dtype = next((dtype for dtype in types if dtype in lacking), None)
    return None if dtype is None else f"{processor.name} has no {op.op_type} of {dtype}"


def _names(processor: Processor, op_type: str) -> bool:
    """Whether any list of a processor names a type. The list of conversions says nothing of other ops."""
    return any(
        kernels.runs(op_type)
        for precision, kernels in processor.kernels.items()
        if precision is not Precision.CONVERSION or op_type in _CONVERSIONS
    )


_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE"})
_NEVER_ON_VALUES = frozenset(
    {"SHAPE", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "REDUCE_ALL", "CALL_ONCE", "IF", "WHILE", "VAR_HANDLE"}
)
"""Op types that no list of kernels for values names, and that TensorFlow Lite Micro, the host of few ops, has."""


def left_because(op: Op, graph: Graph, target: Target) -> str | None:
    """Why an op does not run on the accelerator of a target; None where it does.

    Raises:
        ValueError: If only the target's compiler knows, and it has not been asked.
    """
    precision = precision_of(op)
    if not target.asks_compiler:
        return None if precision is None else lack_of(op, graph, precision, target.accelerator)
    if op.left_because is None:
        raise ValueError(f"the compiler of {target.name} has not been asked about {op.op_type}")
    return op.left_because or None


def _on_host(op: Op, graph: Graph, precision: Precision | None, target: Target, reason: str) -> Placement:
    lack = _host_lack(op, graph, target)
    if lack is None:
        return Placement(place=Place.HOST, precision=precision, reason=reason if target.accelerator else "")
    return Placement(place=Place.NOWHERE, precision=precision, reason=lack, refused_by="runtime")


def lack_of(op: Op, graph: Graph, precision: Precision, processor: Processor | None) -> str | None:
    """Why a processor does not run an op; None where it does."""
    if processor is None:
        return "there is no accelerator"
    kernels = processor.kernels.get(precision)
    if kernels is None:
        return f"{processor.name} runs no {precision.value} ops"
    if not kernels.runs(op.op_type):
        return f"{processor.name} has no {precision.value} {op.op_type}"
    return _type_lack(op, graph, processor) or _shape_lack(op, graph, processor)


def _shape_lack(op: Op, graph: Graph, processor: Processor) -> str | None:
    """Why a processor does not run an op of such shapes and steps; None where it does."""
    rank = max((len(graph.tensors[t].shape) for t in (*op.inputs, *op.outputs)), default=0)
    if processor.max_rank is not None and rank > processor.max_rank:
        return f"{processor.name} takes at most {processor.max_rank} dimensions, this op has {rank}"
    is_free = op.op_type in processor.any_stride and not op.is_padded
    if processor.max_stride is not None and op.stride > processor.max_stride and not is_free:
        return f"{processor.name} takes strides of at most {processor.max_stride}, this op has {op.stride}"
    return None


def _host_lack(op: Op, graph: Graph, target: Target) -> str | None:
    precision = precision_of(op)
    return _neutral_lack(op, graph, target) if precision is None else lack_of(op, graph, precision, target.host)


def host_lacks(graph: Graph, left: Iterable[int], target: Target) -> str | None:
    """Why the host cannot run an op that the compiler has left to it, for the first such op; None if it runs all."""
    for i in left:
        op = graph.ops[i]
        if (lack := _host_lack(op, graph, target)) is not None:
            name = graph.tensors[op.outputs[0]].name if op.outputs else "?"
            return f"{lack}, and the compiler leaves {name!r} to it"
    return None


def _side(op: Op, graph: Graph, placement: Placement) -> bool | None:
    """The side of a partition that an op is on: True for the accelerator, None for an op that cuts nothing."""
    if placement.place is Place.EITHER or is_interface(op, graph):
        return None
    return placement.place is Place.ACCELERATOR


def is_interface(op: Op, graph: Graph) -> bool:
    """True for a conversion of a model's own input or output: between float and integers, or int8 and uint8."""
    if op.kind is not OpKind.BOUNDARY and not _changes_sign(op, graph):
        return False
    return op.inputs[0] in graph.inputs or op.outputs[0] in graph.outputs


def _changes_sign(op: Op, graph: Graph) -> bool:
    """Whether an op converts int8 to uint8, or uint8 to int8."""
    return op.op_type == "QUANTIZE" and {graph.tensors[t].dtype for t in (*op.inputs, *op.outputs)} == {"int8", "uint8"}


def _left_behind(index: int, placement: Placement, graph: Graph, target: Target) -> Placement:
    if placement.place is not Place.ACCELERATOR or placement.precision is None:
        return placement
    return _on_host(graph.ops[index], graph, placement.precision, target, "comes after an op that ends the segment")


def _priced(graph: Graph, target: Target, placements: Sequence[Placement], segments: int) -> Verdict:
    priced = [
        replace(placement, cost=_compute(op, graph, placement, target))
        for op, placement in zip(graph.ops, placements, strict=True)
    ]
    crossings = _crossings(graph, priced, with_interface=target.asks_compiler)
    crossing_bytes = sum(graph.tensors[t].size_bytes for t in crossings)
    ddr_bytes = _ddr_bytes(graph, placements, target.ddr_per_op) if target.ddr_per_byte else 0
    return Verdict(
        placements=tuple(priced),
        segments=segments,
        crossings=crossings,
        crossing_bytes=crossing_bytes,
        crossing_cost=target.crossing_fixed * len(crossings) + target.crossing_per_byte * crossing_bytes,
        accelerator_cost=sum(p.cost for p in priced if p.place is Place.ACCELERATOR),
        host_cost=sum(p.cost for p in priced if p.place in (Place.HOST, Place.NOWHERE)),
        ddr_bytes=ddr_bytes,
        piece_cost=target.piece_fixed * max(segments - 1, 0) + target.ddr_per_byte * ddr_bytes,
    )


def _compute(op: Op, graph: Graph, placement: Placement, target: Target) -> float:
    """The cost of an op; of one that runs nowhere what it would cost on the host, if its rule did not refuse it.

    If that side has no kernels of the op's precision, the highest cost counts that any kernels of the target give.
    """
    side = {Place.ACCELERATOR: target.accelerator, Place.EITHER: None}.get(placement.place, target.host)
    if side is None or placement.precision is None:
        return 0.0
    counted = [side.kernels[placement.precision]] if placement.precision in side.kernels else _computing(target)
    shapes = [graph.tensors[t].shape for t in op.outputs]
    # A weight is used at each place of the output, of a TRANSPOSE_CONV at fewer.
    elements, uses = sum(map(prod, shapes)), max((prod(shape[:-1]) for shape in shapes[:1]), default=1) or 1
    costs = (k.of_mac(op.op_type, uses) * op.macs + k.per_element * elements for k in counted)
    return max(costs, default=0.0)


def _computing(target: Target) -> list[Kernels]:
    """The kernels of accelerator and host in all precisions, without those of conversions."""
    sides = [side for side in (target.accelerator, target.host) if side is not None]
    return [kernels for s in sides for p, kernels in s.kernels.items() if p is not Precision.CONVERSION]


def _ddr_bytes(graph: Graph, placements: Sequence[Placement], per_op: Mapping[str, float]) -> int:
    """Bytes of what each run of the accelerator's ops reads from outside of the run, what others read of it, constants.

    To these come, for each op with constants, the bytes that compiled models have shown to be moved beside these. Float
    constants count half, because the accelerator keeps them in 16 bits.
    """
    runs, run = list[int](), 0
    for placement in placements:
        run += placement.place is not Place.ACCELERATOR
        runs.append(run if placement.place is Place.ACCELERATOR else -1)
    writers = {t: runs[i] for i, op in enumerate(graph.ops) for t in op.outputs}
    read = {(runs[i], t) for i, op in enumerate(graph.ops) for t in op.inputs if runs[i] >= 0}
    read = {(run, t) for run, t in read if writers.get(t) != run}
    left = {t for t in graph.outputs if writers.get(t, -1) >= 0}
    left |= {t for i, op in enumerate(graph.ops) for t in op.inputs if -1 < writers.get(t, -1) != runs[i]}
    taken = [op for op, run in zip(graph.ops, runs, strict=True) if run >= 0]
    constants = sum(op.constant_bytes // (2 if op.kind is OpKind.FLOAT else 1) for op in taken)
    least = min(per_op.values(), default=0.0)
    beside = sum(per_op.get(op.kind.value, least) for op in taken if moves_beside(op))
    ends = sum(graph.tensors[t].size_bytes for _, t in read) + sum(graph.tensors[t].size_bytes for t in left)
    return ends + constants + round(beside)


def moves_beside(op: Op) -> bool:
    """Whether an op moves more than its constants: tables and padding come with constants; conversions have none."""
    return op.constant_bytes > 0 and op.kind in _PRECISIONS and op.kind is not OpKind.BOUNDARY


def may_spill(graph: Graph, chip: Target) -> bool:
    """Whether any mix of a float model may be too large for the chip's own memory; for sure none is if this is False.

    It is as if all values that are alive at once lay in that memory, each in two forms of 16 bits: a conversion holds
    both.
    """
    memory = chip.memory
    if memory is None:
        return True
    return peak_activation_bytes(graph, lambda tensor: 2 * 2 * memory.blocked(tensor.shape)) > memory.size_bytes


def _crossings(graph: Graph, placements: Sequence[Placement], *, with_interface: bool) -> tuple[int, ...]:
    """Tensors that one side writes and the other reads, ascending; those of an interface conversion only if asked."""
    producers, crossings = graph.producers(), set()
    for op, placement in zip(graph.ops, placements, strict=True):
        for tensor in op.inputs:
            writer = producers.get(tensor)
            if writer is None:
                continue
            if not with_interface and (is_interface(op, graph) or is_interface(graph.ops[writer], graph)):
                continue
            if {placement.place, placements[writer].place} == {Place.ACCELERATOR, Place.HOST}:
                crossings.add(tensor)
    return tuple(sorted(crossings))
