"""A model as a graph of ops: what runs in integers, what in float, and where one meets the other."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise


class OpKind(str, Enum):
    """How an op computes."""

    INTEGER = "integer"
    """Every activation it touches is quantized."""
    INT16 = "int16"
    """Likewise, and what it computes from or computes has 16 bits; the weights have 8."""
    HYBRID = "hybrid"
    """Float activations with int8 weights: dynamic-range quantization (DRQ)."""
    FLOAT = "float"
    """Float activations and no quantized weights."""
    BOUNDARY = "boundary"
    """QUANTIZE from float or DEQUANTIZE to float: where integer and float meet."""
    NEUTRAL = "neutral"
    """Neither: shapes, indices and booleans."""


HELPER = ";wide:"
"""Mark in the names of ops that help to compute a node in 16 bits. Ops that stand for one node count as one op."""

IN_INTEGERS = frozenset({OpKind.INTEGER, OpKind.INT16})
"""The kinds of ops that an integer-only accelerator runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of the graph.

    Attributes:
        name: Of the tensor.
        dtype: Of its values.
        shape: With batch 1.
        is_constant: Whether it has data.
        size_bytes: That of its values (batch 1).
        scales: How many scales its values have; 1 also where they are not quantized.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_constant: bool
    size_bytes: int
    scales: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op, in execution order.

    Attributes:
        op_type: Name of the builtin (``CONV_2D``) or of the custom op.
        kind: How it computes.
        inputs: Indices of its activation inputs (no constants), in the op's order.
        constants: Indices of its constant inputs.
        outputs: Indices of its outputs.
        macs: Multiply-accumulates per inference; 0 where the op has none.
        stride: Largest step of its kernel over height and width; 1 without a kernel.
        is_padded: Whether its kernel is dilated or may reach beyond the edges of the input.
        constant_bytes: Bytes of its constant inputs.
        left_because: Why the target's compiler leaves the op to the host; empty where it takes the op; None where no
            compiler was asked. Of several chips: why the first does that leaves it.
        answers: The same of each of several chips, in their order.
    """

    op_type: str
    kind: OpKind
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]
    macs: int
    stride: int = 1
    is_padded: bool = False
    constant_bytes: int = 0
    left_because: str | None = None
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The main subgraph of a model: tensors, ops in execution order, model inputs and outputs."""

    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def producers(self) -> dict[int, int]:
        """Map each tensor index to the index of the op that writes it."""
        return {tensor: i for i, op in enumerate(self.ops) for tensor in op.outputs}

    def consumers(self) -> dict[int, list[int]]:
        """Map each tensor index to the indices of the ops that read it, in order."""
        readers: dict[int, list[int]] = {}
        for i, op in enumerate(self.ops):
            for tensor in op.inputs:
                readers.setdefault(tensor, []).append(i)
        return readers

    def nearest(self, wanted: Container[int]) -> list[frozenset[int]]:
        """For each op the nearest of the wanted ops up every branch, by index; all others are looked through."""
        producers = self.producers()
        reached: list[frozenset[int]] = []
        for op in self.ops:
            before = [producers[tensor] for tensor in op.inputs if tensor in producers]
            reached.append(frozenset[int]().union(*({i} if i in wanted else reached[i] for i in before)))
        return reached


def with_answers(graph: Graph, *left: Mapping[int, str]) -> Graph:
    """The graph with what compilers said of its ops: for each compiler why it leaves ops to the host, by index."""
    answers = [tuple(reasons.get(i, "") for reasons in left) for i in range(len(graph.ops))]
    return replace(graph, ops=tuple(answered(op, said) for op, said in zip(graph.ops, answers, strict=True)))


def answered(op: Op, answers: tuple[str, ...]) -> Op:
    """The op with what each of the target's compilers said of it."""
    return replace(op, left_because=next(filter(None, answers), ""), answers=answers if len(answers) > 1 else ())


def seen_by(graph: Graph, chip: int) -> Graph:
    """The graph as one of several chips sees it: with what its compiler said of each op, as far as that is known."""
    ops = (replace(op, left_because=op.answers[chip], answers=()) if op.answers else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def partition(graph: Graph, on_accelerator: Sequence[bool | None]) -> list[tuple[bool, list[int]]]:
    """Cut the graph into the pieces that a delegate would run, alternating between two devices.

    All ops that are ready and belong to the device in turn run in one piece; then the other
    device takes what has become ready. Parallel branches on one device so share a piece. The rule is that
    of LiteRT's delegate partitioning (``PartitionGraphIntoIndependentNodeSubsets`` in TensorFlow's
    ``lite/graph_info.cc``).

    Args:
        graph: Ops must be in execution order.
        on_accelerator: For each op whether the accelerator runs it; None for an op that fits either side and makes no
            piece of its own.

    Returns:
        Pieces in order of execution, each with True for the accelerator and its op indices in order.
    """
    turns, worked = _turns(graph, on_accelerator)
    pieces: dict[int, list[int]] = {}
    for i, turn in enumerate(turns):
        pieces.setdefault(turn, []).append(i)
    return [(turn % 2 == 0, pieces[turn]) for turn in sorted(worked)]


def count_segments(graph: Graph, on_accelerator: Sequence[bool | None]) -> int:
    """How many pieces of :func:`partition` the accelerator runs, without making them."""
    _, worked = _turns(graph, on_accelerator)
    return sum(turn % 2 == 0 for turn in worked)


def fewest_runs(graph: Graph, on_accelerator: Sequence[bool]) -> list[int]:
    """An order of the ops in which those of the accelerator stand in as few runs as any order allows.

    Both devices take turns, and each runs all that is ready; the better of the two that may begin does. The order is
    the graph's own where that has as few runs.

    Args:
        graph: Ops must be in execution order.
        on_accelerator: For each op whether the accelerator runs it.
    """
    by_host = partition(graph, [not side for side in on_accelerator])
    orders = [list(range(len(graph.ops)))]
    orders += [[i for _, piece in pieces for i in piece] for pieces in (partition(graph, on_accelerator), by_host)]
    return min(orders, key=lambda order: count_listed([on_accelerator[i] for i in order]))


def count_listed(on_accelerator: Sequence[bool]) -> int:
    """How many runs the ops of the accelerator make in the order in which they are listed."""
    return sum(this and not before for before, this in pairwise([False, *on_accelerator]))


def _turns(graph: Graph, on_accelerator: Sequence[bool | None]) -> tuple[list[int], set[int]]:
    """The turn in which each op runs, and the turns in which an op of a device runs; the accelerator has the even ones.

    An op runs in the first turn of its device in which all is ready. Forecasts of large graphs spend their time here.
    """
    turns: list[int] = []
    worked: set[int] = set()
    turn_of: dict[int, int] = {}  # of the op that writes a tensor
    for op, side in zip(graph.ops, on_accelerator, strict=True):
        turn = 0
        for tensor in op.inputs:
            ready = turn_of.get(tensor, 0)
            if ready > turn:
                turn = ready
        if side is not None:
            turn += side is not (turn % 2 == 0)
            worked.add(turn)
        turns.append(turn)
        for tensor in op.outputs:
            turn_of[tensor] = turn
    return turns, worked


def peak_activation_bytes(graph: Graph, size_of: Callable[[Tensor], int] | None = None) -> int:
    """Most bytes of activations that are alive at once; ``size_of`` says what each takes if not its own bytes.

    A tensor lives from the op that writes it to the last that reads it, model inputs from the start and outputs to the
    end. An op's inputs and outputs are alive together: nothing is computed in place. This is the least arena that any
    allocation can reach, not what one allocator reaches.
    """
    last = {t: len(graph.ops) for t in graph.outputs}
    for i, op in enumerate(graph.ops):
        for tensor in op.inputs:
            last[tensor] = max(last.get(tensor, i), i)
    sizes = [tensor.size_bytes if size_of is None else size_of(tensor) for tensor in graph.tensors]
    alive = set(graph.inputs)
    size = sum(sizes[t] for t in alive)
    peak = size
    for i, op in enumerate(graph.ops):
        born = set(op.outputs) - alive
        alive |= born
        size += sum(sizes[t] for t in born)
        peak = max(peak, size)
        dead = {t for t in alive if last.get(t, i) <= i}
        alive -= dead
        size -= sum(sizes[t] for t in dead)
    return peak
