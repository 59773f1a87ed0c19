"""What of a model the accelerator of a chip leaves to its host, by a table of kernels, and by a compiler against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.domain.graph import Graph
from autoselect.domain.targets import Place, Target
from autoselect.domain.verdicts import Verdict, is_interface, judge
from autoselect.domain.words import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """The ops of a model that run on a chip's host.

    Attributes:
        chip: Name of the chip.
        ops: Number of ops on the host, without conversions of the model's own inputs and outputs.
        all_ops: Number of ops of the model.
        share: Share of these host ops in the model's cost on the chip, 0 to 1; the cost is in the chip's unit.
        named: ``first`` or ``dearest``: which of the host ops ``op_type`` and ``reason`` are about. It is the first one
            if the accelerator runs only what comes before the first op that it lacks; else the one that costs most.
        op_type: Type of the named op.
        reason: Why the accelerator does not run the named op.
    """

    chip: str
    ops: int
    all_ops: int
    share: float
    named: str
    op_type: str
    reason: str

    @property
    def is_most(self) -> bool:
        """Whether the host does more than half of the work."""
        return self.share > 0.5

    def told_of(self, model: str) -> str:
        """A sentence on it.

        Args:
            model: What to call the model.
        """
        return (
            f"On {self.chip} {self.ops} of the {self.all_ops} ops of {model} run on the host, with "
            f"{100.0 * self.share:.0f} % of its cost. The {self.named} is {self.op_type}: {self.reason}."
        )


def host_works(graph: Graph, target: Target) -> list[HostWork]:
    """The ops of a model that run on the host, for each chip of a target; the list lacks chips without such ops.

    It also lacks chips without an accelerator, and chips whose compiler decides about each op, since that has its own
    report. A target that counts points, such as ``integer-only``, is no chip.

    Args:
        graph: The model as built.
        target: One chip, or several.
    """
    works = []
    for chip in filter(_is_judged_by_table, target.chips):
        verdict = judge(graph, chip)
        if (left := _left(graph, verdict)) and verdict.cost > 0.0:
            works.append(_work(graph, chip, verdict, left))
    return works


def left_against_table(graph: Graph, compiled: Mapping[str, Any], target: Target, model: str) -> list[str]:
    """A sentence on ops that a compiler leaves to the host though the table of kernels gives them to the accelerator.

    The list is empty if there are no such ops, for several chips, and for a chip whose compiler decides about each op,
    since that has its own report.

    Args:
        graph: The model as built.
        compiled: The fields of :class:`autoselect.domain.targets.Compiled` that the compiler filled in for the model,
            and what was predicted; empty if it was not compiled.
        target: With the table.
        model: What to call the model.
    """
    if not compiled or target.parts or target.asks_compiler:
        return []
    hosted = (
        op.op_type
        for op, placement in zip(graph.ops, judge(graph, target).placements, strict=True)
        if placement.place in (Place.HOST, Place.NOWHERE) or is_interface(op, graph)
    )
    against = Counter(compiled["host_ops"]) - Counter(hosted)
    if not against:
        return []
    left = listed([f"{count} {op_type}" for op_type, count in against.items()])
    pieces, forecast = counted(compiled["segments"], "piece"), compiled["predicted_segments"]
    return [
        f"The compiler of {target.name} leaves {left} of {model} to the CPU, which the profile gives to the "
        f"accelerator. It makes {pieces} of the rest, where the profile forecasts {forecast}. The penalty is that of "
        f"the compiler, and `autoselect inspect --target {target.name}` tells why."
    ]


def _is_judged_by_table(chip: Target) -> bool:
    return chip.accelerator is not None and chip.shares is None and not chip.asks_compiler


def _left(graph: Graph, verdict: Verdict) -> list[int]:
    """Indices of the ops on the host; conversions of the model's own inputs and outputs cut nothing, and are none."""
    hosted = [i for i, p in enumerate(verdict.placements) if p.place in (Place.HOST, Place.NOWHERE)]
    return [i for i in hosted if not is_interface(graph.ops[i], graph)]


def _work(graph: Graph, chip: Target, verdict: Verdict, left: Sequence[int]) -> HostWork:
    is_leading = chip.segments == "leading"
    blamed = left[0] if is_leading else max(left, key=lambda i: verdict.placements[i].cost)
    return HostWork(
        chip=chip.name,
        ops=len(left),
        all_ops=len(graph.ops),
        share=sum(verdict.placements[i].cost for i in left) / verdict.cost,
        named="first" if is_leading else "dearest",
        op_type=graph.ops[blamed].op_type,
        reason=verdict.placements[blamed].reason,
    )
