from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import Graph, Op, OpKind, Tensor, count_segments, partition


def graph(*ops: tuple[tuple[int, ...], tuple[int, ...]], kinds: str = "") -> Graph:
    """Ops as (tensors read, tensors written); kinds as one letter each, ``i`` or ``f``."""
    count = 1 + max((t for op in ops for row in op for t in row), default=0)
    tensors = [Tensor(name=f"t{i}", dtype="int8", shape=(1,), is_constant=False, size_bytes=1) for i in range(count)]
    letters = {"i": OpKind.INTEGER, "f": OpKind.FLOAT}
    made = [
        Op(op_type="ADD", kind=letters[kind], inputs=reads, constants=(), outputs=writes, macs=0)
        for (reads, writes), kind in zip(ops, kinds or "i" * len(ops), strict=True)
    ]
    return Graph(tensors=tuple(tensors), ops=tuple(made), inputs=(0,), outputs=(count - 1,))


CHAIN = (((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((3,), (4,)))
# 0 splits into two chains of two ops, which the last op joins; branches take turns in execution order.
BRANCHES = (((0,), (1,)), ((1,), (2,)), ((1,), (3,)), ((2,), (4,)), ((3,), (5,)), ((4, 5), (6,)))


def pieces_of(drawn: Graph) -> list[tuple[bool, list[int]]]:
    sides = [op.kind is OpKind.INTEGER for op in drawn.ops]
    found = partition(drawn, sides)
    assert count_segments(drawn, sides) == sum(on_accelerator for on_accelerator, _ in found)
    return found


@pytest.mark.parametrize(
    ("drawn", "pieces"),
    [
        pytest.param(graph(), [], id="no ops"),
        pytest.param(graph(*CHAIN), [(True, [0, 1, 2, 3])], id="all integer"),
        pytest.param(
            graph(*CHAIN, kinds="ffff"), [(False, [0, 1, 2, 3])], id="all float: no piece for the accelerator"
        ),
        pytest.param(
            graph(*CHAIN, kinds="iffi"), [(True, [0]), (False, [1, 2]), (True, [3])], id="float in the middle"
        ),
        pytest.param(graph(*CHAIN, kinds="fiii"), [(False, [0]), (True, [1, 2, 3])], id="float first"),
        pytest.param(graph(*CHAIN, kinds="iiif"), [(True, [0, 1, 2]), (False, [3])], id="float last"),
        pytest.param(
            graph(*CHAIN, kinds="ifif"), [(True, [0]), (False, [1]), (True, [2]), (False, [3])], id="in turns"
        ),
        pytest.param(graph(*BRANCHES), [(True, [0, 1, 2, 3, 4, 5])], id="branches, all integer"),
        pytest.param(
            graph(*BRANCHES, kinds="iffiii"),
            [(True, [0]), (False, [1, 2]), (True, [3, 4, 5])],
            id="both branches begin in float: one float piece",
        ),
        pytest.param(
            graph(*BRANCHES, kinds="ifiiii"),
            [(True, [0, 2, 4]), (False, [1]), (True, [3, 5])],
            id="one branch begins in float: the other does not wait",
        ),
        pytest.param(
            graph(*BRANCHES, kinds="iiffii"),
            [(True, [0, 1]), (False, [2, 3]), (True, [4, 5])],
            id="float at different depths of the branches: one float piece",
        ),
        pytest.param(
            graph(((0,), (1,)), ((0,), (2,)), kinds="fi"),
            [(True, [1]), (False, [0])],
            id="independent: accelerator first",
        ),
    ],
)
def test_pieces_by_hand(drawn: Graph, pieces: list[tuple[bool, list[int]]]) -> None:
    assert pieces_of(drawn) == pieces


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 10))
    ops = []
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=3, unique=True))
        ops.append((tuple(reads), (i + 1,)))
    return graph(*ops, kinds=draw(st.text("if", min_size=count, max_size=count)))


@given(graphs())
def test_pieces_can_run_one_after_the_other(drawn: Graph) -> None:
    pieces = pieces_of(drawn)
    written = {0}
    for on_accelerator, piece in pieces:
        for i in piece:
            assert (drawn.ops[i].kind is OpKind.INTEGER) is on_accelerator
            assert set(drawn.ops[i].inputs) <= written
            written.update(drawn.ops[i].outputs)
    assert sorted(i for _, piece in pieces for i in piece) == list(range(len(drawn.ops)))
    sides = np.array([side for side, _ in pieces])
    assert (sides[1:] != sides[:-1]).all()


def test_producers_and_consumers() -> None:
    drawn = graph(*BRANCHES)
    assert drawn.producers() == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}
    assert drawn.consumers() == {0: [0], 1: [1, 2], 2: [3], 3: [4], 4: [5], 5: [5]}
