"""Fragmentation: how badly float ops cut an integer-only accelerator's work into pieces."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from autoselect.domain.graph import HELPER, IN_INTEGERS, Graph, Op, OpKind, count_segments
from autoselect.domain.quantities import CountsLeft
from autoselect.domain.targets import PenaltyWeights

_ON_ACCELERATOR: dict[OpKind, bool | None] = {**dict.fromkeys(IN_INTEGERS, True), OpKind.NEUTRAL: None}
"""Integer ops run there, float ones and conversions do not; shapes and indices are computed on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation(CountsLeft):
    """What an integer-only accelerator meets in one model, per inference.

    Attributes:
        segments: Pieces of work for the accelerator; 1 for an all-integer model, 0 for an all-float one.
        float_ops: Ops that compute in float, hybrid ones included.
        crossing_tensors: Tensors converted between integer and float inside the model. The conversion
            of the model's own inputs and outputs is not counted: every float interface has it.
        crossing_bytes: Bytes of those tensors on their integer side.
        float_macs_share: Share of multiply-accumulates in float and hybrid ops, 0..1.
        penalty: The figures above in one number, see :func:`fragmentation`.
        off_chip: Ops that the target's compiler leaves to the host; None where no compiler decides.
    """

    segments: int
    float_ops: int
    crossing_tensors: int
    crossing_bytes: int
    float_macs_share: float
    penalty: float
    off_chip: int | None = None


def fragmentation(graph: Graph, weights: PenaltyWeights) -> Fragmentation:
    """Measure the fragmentation of a built model.

    The penalty is a weighted sum of shares, 0 for a model that is all 8-bit integers and strictly larger for each
    further float or 16-bit op, crossing or byte while the rest is equal::

        float_macs     x  MACs in float or hybrid ops / all MACs
      + float_ops      x  float or hybrid ops / ops
      + crossings      x  crossing tensors / ops
      + crossing_bytes x  crossing bytes / bytes of all activations
      + segments       x  segments beyond the first / ops
      + int16_macs     x  MACs with 16-bit activations / all MACs
      + int16_ops      x  ops with 16-bit activations / ops

    "Ops" leaves out ops on shapes and indices, those that help another to 16 bits, and QUANTIZE and DEQUANTIZE: with
    more of them all shares would be of more, and a node would cost less for what comes with it. A QUANTIZE to or from
    16 bits is an op with 16-bit activations.
    """
    ops, floats = _computing(graph)
    crossings = crossing_tensors(graph)
    crossing_bytes = sum(graph.tensors[t].size_bytes for t in crossings)
    segments = count_segments(graph, sides_of(graph))
    count = max(len(ops), 1)
    share = _share(ops, floats)
    penalty = (
        weights.float_macs * share
        + weights.float_ops * len(floats) / count
        + weights.crossings * len(crossings) / count
        + weights.crossing_bytes * crossing_bytes / max(_activation_bytes(graph, ops), 1)
        + weights.segments * max(segments - 1, 0) / count
    )
    wide = [op for op in ops if op.kind is OpKind.INT16]
    conversions = sum(op.kind is OpKind.INT16 and op.op_type == "QUANTIZE" for op in graph.ops)
    if wide or conversions:
        penalty += weights.int16_macs * _share(ops, wide) + weights.int16_ops * (len(wide) + conversions) / count
    return Fragmentation(
        segments=segments,
        float_ops=len(floats),
        crossing_tensors=len(crossings),
        crossing_bytes=crossing_bytes,
        float_macs_share=share,
        penalty=penalty,
    )


def sides_of(graph: Graph) -> list[bool | None]:
    """For each op whether an integer-only accelerator runs it; None where it is computed on either side."""
    return [_ON_ACCELERATOR.get(op.kind, False) for op in graph.ops]


def crossing_tensors(graph: Graph) -> list[int]:
    """Tensors that are converted between integer and float inside the model, each on its integer side."""
    boundaries = [op for op in graph.ops if op.kind is OpKind.BOUNDARY]
    return [_integer_side(op) for op in boundaries if _inside(graph, op)]


def float_share(graph: Graph) -> float:
    """Share of multiply-accumulates in float and hybrid ops; of ops where there are no multiply-accumulates; 0..1."""
    return _share(*_computing(graph))


def _computing(graph: Graph) -> tuple[list[Op], list[Op]]:
    """The ops that compute, and those of them that do so in float."""
    floats = [op for op in graph.ops if op.kind is OpKind.FLOAT or op.kind is OpKind.HYBRID]
    integers = [op for op in graph.ops if op.kind in IN_INTEGERS and not _comes_with_another(graph, op)]
    return integers + floats, floats


def _comes_with_another(graph: Graph, op: Op) -> bool:
    """Whether an integer op converts, or helps another to 16 bits."""
    if op.op_type == "QUANTIZE":
        return True
    return op.kind is OpKind.INT16 and bool(op.outputs) and HELPER in graph.tensors[op.outputs[0]].name


def _share(ops: list[Op], floats: list[Op]) -> float:
    macs = sum([op.macs for op in ops])
    return sum([op.macs for op in floats]) / macs if macs else len(floats) / max(len(ops), 1)


def _inside(graph: Graph, boundary: Op) -> bool:
    """True for a conversion between integer and float that is not the model's own interface."""
    return boundary.inputs[0] not in graph.inputs and boundary.outputs[0] not in graph.outputs


def _integer_side(op: Op) -> int:
    return op.outputs[0] if op.op_type == "QUANTIZE" else op.inputs[0]


def _activation_bytes(graph: Graph, ops: list[Op]) -> int:
    """Bytes of all activations as if they were int8, so that the share does not depend on the recipe."""
    return sum([prod(graph.tensors[index].shape) for op in ops for index in op.outputs])
