"""What a model costs on a target, as the figures that trials keep."""

from __future__ import annotations

from typing import Any

from autoselect.domain.graph import Graph, OpKind, peak_activation_bytes
from autoselect.domain.target_islands import islands
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import Verdict, judge
from autoselect.errors import TargetRefusal
from autoselect.scoring.fragmentation import Fragmentation, float_share, fragmentation


def on_target(graph: Graph, target: Target, verdict: Verdict | None = None) -> Fragmentation:
    """Segments, crossings and penalty of a model on a target, whether it is refused or not.

    The penalty is the sum of points by share where the profile gives those, see
    :func:`autoselect.scoring.fragmentation.fragmentation`; else the cost of the verdict, in the target's unit.
    """
    if target.shares is not None:
        return fragmentation(graph, target.shares)
    judgement = verdict or judge(graph, target)
    return Fragmentation(
        segments=judgement.segments,
        float_ops=sum(op.kind in (OpKind.FLOAT, OpKind.HYBRID) for op in graph.ops),
        crossing_tensors=len(judgement.crossings),
        crossing_bytes=judgement.crossing_bytes,
        float_macs_share=float_share(graph),
        penalty=judgement.cost,
        off_chip=judgement.left_ops if target.asks_compiler else None,
    )


def refusal(graph: Graph, target: Target, verdict: Verdict | None = None) -> str | None:
    """Why a target refuses a model: the rule, and the node that breaks it; None where it takes the model."""
    judgement = verdict or judge(graph, target)
    if not (refused := judgement.refused()):
        return None
    op, placement = graph.ops[refused[0]], judgement.placements[refused[0]]
    name = graph.tensors[op.outputs[0]].name if op.outputs else "?"
    more = f" ({len(refused) - 1} more such ops)" if len(refused) > 1 else ""
    what = f"{placement.precision.value} {op.op_type}" if placement.precision else op.op_type
    return f"{target.name} refuses the {what} {name!r}{more}: {placement.reason}"


def require_accepted(graph: Graph, target: Target, verdict: Verdict | None = None) -> None:
    """Refuse what the target refuses.

    Raises:
        TargetRefusal: With the rule and the node.
    """
    if (reason := refusal(graph, target, verdict)) is not None:
        raise TargetRefusal(f"{reason}.")


def island_table(graph: Graph, target: Target) -> dict[str, Any]:
    """Where each op of a model runs on a target and why, its segments, and what each island costs, as plain values.

    Returns:
        ``name``, ``unit``, ``refusal`` (None where the target takes the model), ``segments``, ``crossing_tensors``,
        ``crossing_bytes``, ``arena_bytes`` (peak activation memory), ``penalty``, ``accelerator_cost``,
        ``host_cost``, ``crossing_cost``, ``placements`` (of each op ``place``, ``precision``, ``reason``, ``cost``),
        ``islands`` (``ops`` by index, ``gain``) and ``best_island``: the place in ``islands`` of the one whose removal
        would lower the penalty most, or None.
    """
    verdict = judge(graph, target)
    cut = on_target(graph, target, verdict)
    all_islands = islands(graph, target, lambda other: on_target(other, target).penalty)
    gains = [island.gain for island in all_islands]
    return {
        "name": target.name,
        "unit": target.unit,
        "refusal": refusal(graph, target, verdict),
        "segments": cut.segments,
        "crossing_tensors": cut.crossing_tensors,
        "crossing_bytes": cut.crossing_bytes,
        "arena_bytes": peak_activation_bytes(graph),
        "penalty": cut.penalty,
        "accelerator_cost": verdict.accelerator_cost,
        "host_cost": verdict.host_cost,
        "crossing_cost": verdict.crossing_cost,
        "placements": [
            {
                "place": p.place.value,
                "precision": p.precision.value if p.precision else None,
                "reason": p.reason,
                "cost": p.cost,
            }
            for p in verdict.placements
        ],
        "islands": [{"ops": list(island.ops), "gain": island.gain} for island in all_islands],
        "best_island": gains.index(max(gains)) if gains and max(gains) > 0.0 else None,
    }
