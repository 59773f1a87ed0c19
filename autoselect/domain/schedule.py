"""The order in which Arm's Vela runs the ops of a model, and how many pieces of the NPU's work that makes.

The rules are those of Vela 5's ``ethosu/regor/compiler``, in ``graph.hpp`` and ``scheduler_packing.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoselect.domain.graph import Graph, Op

_JOINS = frozenset({"CONCATENATION", "PACK", "SQUARED_DIFFERENCE"})
"""Op types that take one input after the other; the last one scales each by an op of its own before it subtracts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """An op, or a part of it; ``side`` is True on the accelerator, None where the op cuts nothing."""

    op: Op
    side: bool | None


def count_runs(graph: Graph, sides: Sequence[bool | None]) -> int:
    """Runs of the accelerator's ops in the order in which Vela schedules them.

    Args:
        graph: Ops must be in execution order.
        sides: For each op whether the accelerator runs it; None for an op of the host that cuts nothing.
    """
    cutting = [step.side for step in _reordered(list(_depth_first(_steps(graph, sides), graph)), graph)]
    runs, running = 0, False
    for side in cutting:
        if side is not None:
            runs += side and not running
            running = side
    return runs


def _steps(graph: Graph, sides: Sequence[bool | None]) -> list[_Step]:
    """What is scheduled: what the accelerator joins is taken one by one, each as soon as it is there."""
    steps = []
    for op, side in zip(graph.ops, sides, strict=True):
        parts = [(t,) for t in op.inputs] if side and op.op_type in _JOINS else [op.inputs]
        steps += [_Step(op=replace(op, inputs=part), side=side) for part in parts]
    return steps


def _depth_first(steps: Sequence[_Step], graph: Graph) -> Iterator[_Step]:
    """Depth first from the outputs, the last input first (``TraverseGraphFromEnd``)."""
    writers: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        for tensor in step.op.outputs:
            writers.setdefault(tensor, []).append(i)
    seen = set[int]()
    stack = [(i, False) for tensor in graph.outputs for i in writers.get(tensor, ())]
    while stack:
        i, ready = stack.pop()
        if ready:
            yield steps[i]
        elif i not in seen:
            seen.add(i)
            stack.append((i, True))
            stack.extend((writer, False) for tensor in steps[i].op.inputs for writer in writers.get(tensor, ()))


def _reordered(steps: Sequence[_Step], graph: Graph) -> list[_Step]:
    """The host's ops moved (``ReorderOperations``).

    Those that need nothing of the accelerator come first, and those that write outputs of the model only come last.
    Any other one moves down, until it meets an op that reads it or another op of the host.
    """
    early, late, others = list[_Step](), list[_Step](), list[_Step]()
    ready = {*graph.inputs}
    for step in steps:
        if not step.side and ready.issuperset(step.op.inputs):
            early.append(step)
            ready.update(step.op.outputs)
        elif not step.side and set(step.op.outputs) <= set(graph.outputs):
            late.append(step)
        else:
            others.append(step)
    for start in reversed(range(len(others))):
        for place in range(start, len(others) - 1):
            this, following = others[place : place + 2]
            if this.side or not following.side or set(this.op.outputs) & set(following.op.inputs):
                break
            others[place : place + 2] = following, this
    return [*early, *others, *late]
