from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.domain.graph import (
    Graph,
    Op,
    OpKind,
    Tensor,
    count_listed,
    count_segments,
    fewest_runs,
    partition,
    with_answers,
)


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
def graphs(draw: st.DrawFn, most: int = 10) -> Graph:
    count = draw(st.integers(1, most))
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


def test_what_a_compiler_says_is_kept_with_each_op() -> None:
    drawn = with_answers(graph(*CHAIN), {1: "no kernel", 3: "too wide"})
    assert [op.left_because for op in drawn.ops] == ["", "no kernel", "", "too wide"]
    assert {op.left_because for op in with_answers(drawn, {}).ops} == {""}
    assert {op.left_because for op in graph(*CHAIN).ops} == {None}


LISTED = {
    "nothing": ("", 0),
    "nothing on the accelerator": ("...", 0),
    "all of it": ("###", 1),
    "at both ends": ("#.#", 2),
    "in the middle": (".##.", 1),
    "each other one": (".#.#.#", 3),
}


@pytest.mark.parametrize(("sides", "runs"), LISTED.values(), ids=LISTED)
def test_runs_in_the_order_of_a_list(sides: str, runs: int) -> None:
    assert count_listed([side == "#" for side in sides]) == runs


ORDERS = {
    "a chain has one order": (CHAIN, "#.#.", [0, 1, 2, 3]),
    "independent ops": ((((0,), (1,)), ((0,), (2,)), ((0,), (3,)), ((0,), (4,))), "#.#.", [0, 2, 1, 3]),
    "the host may begin": ((((0,), (1,)), ((0,), (2,)), ((2,), (3,)), ((1, 3), (4,))), "#.##", [1, 0, 2, 3]),
    "as few as it has: its own order": ((((0,), (1,)), ((0,), (2,)), ((1,), (3,))), ".##", [0, 1, 2]),
    "two branches": (BRANCHES, "#.##.#", [0, 2, 1, 4, 3, 5]),
}


@pytest.mark.parametrize(("ops", "sides", "order"), ORDERS.values(), ids=ORDERS)
def test_an_order_of_the_fewest_runs_by_hand(ops: Sequence[object], sides: str, order: list[int]) -> None:
    assert fewest_runs(graph(*ops), [side == "#" for side in sides]) == order  # type: ignore[arg-type]


def runs_of(order: Sequence[int], sides: Sequence[bool]) -> int:
    return count_listed([sides[i] for i in order])


def is_in_order(drawn: Graph, order: Sequence[int]) -> bool:
    """Whether each op comes after what it reads."""
    written = set(drawn.inputs)
    for i in order:
        if not written.issuperset(drawn.ops[i].inputs):
            return False
        written.update(drawn.ops[i].outputs)
    return True


@given(graphs(most=24))
def test_an_order_of_the_fewest_runs_is_one(drawn: Graph) -> None:
    sides = [op.kind is OpKind.INTEGER for op in drawn.ops]
    order = fewest_runs(drawn, sides)
    natural = list(range(len(drawn.ops)))
    assert sorted(order) == natural
    assert is_in_order(drawn, order)
    assert runs_of(order, sides) <= runs_of(natural, sides)
    assert order == natural or runs_of(order, sides) < runs_of(natural, sides)
    # To order what is in order changes nothing.
    again = Graph(
        tensors=drawn.tensors, ops=tuple(drawn.ops[i] for i in order), inputs=drawn.inputs, outputs=drawn.outputs
    )
    assert fewest_runs(again, [sides[i] for i in order]) == natural


@settings(deadline=None)
@given(graphs(most=7))
def test_no_order_has_fewer_runs(drawn: Graph) -> None:
    sides = [op.kind is OpKind.INTEGER for op in drawn.ops]
    orders = (order for order in permutations(range(len(drawn.ops))) if is_in_order(drawn, order))
    assert runs_of(fewest_runs(drawn, sides), sides) == min(runs_of(order, sides) for order in orders)
