"""Peak activation memory, by hand on small graphs."""

from __future__ import annotations

import pytest

from autoselect.domain.graph import Graph, Op, OpKind, Tensor, peak_activation_bytes


def graph_of(sizes: list[int], ops: list[tuple[list[int], list[int]]], inputs: list[int], outputs: list[int]) -> Graph:
    """Tensors of so many bytes, and ops of (inputs, outputs)."""
    return Graph(
        tensors=tuple(
            Tensor(name=str(i), dtype="int8", shape=(size,), is_constant=False, size_bytes=size)
            for i, size in enumerate(sizes)
        ),
        ops=tuple(
            Op(op_type="ADD", kind=OpKind.INTEGER, inputs=tuple(i), constants=(), outputs=tuple(o), macs=0)
            for i, o in ops
        ),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


GRAPHS = {
    # 100+60, then 60+30, then 30+10.
    "a chain: two tensors at once": (graph_of([100, 60, 30, 10], [([0], [1]), ([1], [2]), ([2], [3])], [0], [3]), 160),
    # While op 1 writes 2, its input 1 and the shortcut 0 live: 40+50+70.
    "a shortcut lives until it is added": (
        graph_of([40, 50, 70, 20], [([0], [1]), ([1], [2]), ([0, 2], [3])], [0], [3]),
        160,
    ),
    # Input 1 waits from the start for op 2: 10+90 | 10+20+90 | 20+30+90 | 30+90+5.
    "an input waits from the start": (
        graph_of([10, 90, 20, 30, 5], [([0], [2]), ([2], [3]), ([1, 3], [4])], [0, 1], [4]),
        140,
    ),
    # Output 1 stays to the end: 5+50 | 50+20 | 50+20+80.
    "an output stays to the end": (graph_of([5, 50, 20, 80], [([0], [1]), ([1], [2]), ([2], [3])], [0], [1, 3]), 150),
    # Output 2 that nobody reads is alive while its op runs, then is free: 10+20+99 | 20+1.
    "what nobody reads is freed": (graph_of([10, 20, 99, 1], [([0], [1, 2]), ([1], [3])], [0], [3]), 129),
    "no ops": (graph_of([7], [], [0], [0]), 7),
}


@pytest.mark.parametrize(("graph", "expected"), GRAPHS.values(), ids=GRAPHS)
def test_the_peak_is_the_most_that_is_alive_at_once(graph: Graph, expected: int) -> None:
    assert peak_activation_bytes(graph) == expected
