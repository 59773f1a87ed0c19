"""What of a model the accelerator of a chip leaves to its host, by a table of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.domain.graph import Graph
from autoselect.domain.targets import Place, Target
from autoselect.domain.verdicts import Verdict, is_interface, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """The ops of a model that run on a chip's host.

    Attributes:
        chip: Name of the chip.
        ops: How many they are.
        all_ops: How many ops the model has.
        share: Their share of the model's cost, 0 to 1.
        named: ``first`` or ``dearest``: where the accelerator takes what comes first alone, the first of them is to
            blame for all that follow; else the one that costs most.
        op_type: Type of that op.
        reason: Why the accelerator does not run it.
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
    """What each chip with an accelerator leaves to its host; chips that leave nothing are out.

    So are chips whose compiler says of each op whether it takes it, and targets that count points by share of the work.
    """
    works = []
    for chip in filter(_is_judged_by_table, target.chips):
        verdict = judge(graph, chip)
        if _left(graph, verdict) and verdict.cost > 0.0:
            works.append(_work(graph, chip, verdict))
    return works


def _is_judged_by_table(chip: Target) -> bool:
    return chip.accelerator is not None and chip.shares is None and not chip.asks_compiler


def _left(graph: Graph, verdict: Verdict) -> list[int]:
    """Indices of the ops on the host; conversions of the model's own inputs and outputs cut nothing, and are none."""
    hosted = [i for i, p in enumerate(verdict.placements) if p.place in (Place.HOST, Place.NOWHERE)]
    return [i for i in hosted if not is_interface(graph.ops[i], graph)]


def _work(graph: Graph, chip: Target, verdict: Verdict) -> HostWork:
    left = _left(graph, verdict)
    is_leading = chip.segments == "leading"
    blamed = left[0] if is_leading else max(left, key=lambda i: verdict.placements[i].cost)
    return HostWork(
        chip=chip.name,
        ops=len(left),
        all_ops=len(graph.ops),
        share=verdict.host_cost / verdict.cost,
        named="first" if is_leading else "dearest",
        op_type=graph.ops[blamed].op_type,
        reason=verdict.placements[blamed].reason,
    )
