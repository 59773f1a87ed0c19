"""What a model costs on a target, as the figures that trials keep."""

from __future__ import annotations

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.targets import Target, Verdict, judge
from autoselect.errors import TargetRefusal
from autoselect.scoring.fragmentation import Fragmentation, float_share, fragmentation


def on_target(graph: Graph, target: Target, verdict: Verdict | None = None) -> Fragmentation:
    """Segments, crossings and penalty of a model on a target, whether it is refused or not.

    The penalty is the sum of points by share where the profile gives those, see
    :func:`autoselect.scoring.fragmentation.fragmentation`; else the cost of the verdict, in the target's unit.
    """
    if target.shares is not None:
        return fragmentation(graph, target.shares)
    found = verdict or judge(graph, target)
    return Fragmentation(
        segments=found.segments,
        float_ops=sum(op.kind in (OpKind.FLOAT, OpKind.HYBRID) for op in graph.ops),
        crossing_tensors=len(found.crossings),
        crossing_bytes=found.crossing_bytes,
        float_macs_share=float_share(graph),
        penalty=found.cost,
    )


def refusal(graph: Graph, target: Target, verdict: Verdict | None = None) -> str | None:
    """Why a target refuses a model: the rule, and the node that breaks it; None where it takes the model."""
    found = verdict or judge(graph, target)
    if not (refused := found.refused()):
        return None
    op, placement = graph.ops[refused[0]], found.placements[refused[0]]
    name = graph.tensors[op.outputs[0]].name if op.outputs else "?"
    more = f" ({len(refused) - 1} more such ops)" if len(refused) > 1 else ""
    precision = placement.precision.value if placement.precision else ""
    return f"{target.name} refuses the {precision} {op.op_type} {name!r}{more}: {placement.reason}"


def require_accepted(graph: Graph, target: Target) -> None:
    """Refuse what the target refuses.

    Raises:
        TargetRefusal: With the rule and the node.
    """
    if (reason := refusal(graph, target)) is not None:
        raise TargetRefusal(f"{reason}.")
