from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.layers import Node
from autoselect.domain.units import CLAMPS, MOVERS, moving_with, nodes_behind, units

Row = tuple[str, tuple[int, ...], tuple[int, ...]]
"""An op's type, the tensors that it reads and those that it writes; tensor 0 is the model's input."""


def made(rows: list[Row], outputs: tuple[int, ...], skipped: tuple[int, ...]) -> tuple[Graph, list[Node]]:
    """A graph and its nodes, called a, b, c..."""
    count = 1 + max(t for _, reads, writes in rows for t in (*reads, *writes))
    tensors = [Tensor(name=str(i), dtype="float32", shape=(1,), is_constant=False, size_bytes=4) for i in range(count)]
    ops = [
        Op(op_type=name, kind=OpKind.FLOAT, inputs=reads, constants=(), outputs=writes, macs=0)
        for name, reads, writes in rows
    ]
    nodes = [Node(index=i, name="abcdefghijkl"[i], op_type=row[0]) for i, row in enumerate(rows) if i not in skipped]
    return Graph(tensors=tuple(tensors), ops=tuple(ops), inputs=(0,), outputs=outputs), nodes


def unit_letters(rows: list[Row], outputs: tuple[int, ...], skipped: tuple[int, ...]) -> str:
    """The units of a graph: ``ab c`` are two units."""
    return " ".join("".join(unit) for unit in units(*made(rows, outputs, skipped)))


def chain(*op_types: str) -> list[Row]:
    return [(name, (i,), (i + 1,)) for i, name in enumerate(op_types)]


CONV = "CONV_2D"
SPLIT_AND_JOIN: list[Row] = [
    (CONV, (0,), (1,)),
    ("SPLIT", (1,), (2, 3)),
    ("TANH", (2,), (4,)),
    ("CONCATENATION", (4, 3), (5,)),
    ("RESHAPE", (5,), (6,)),
]


@pytest.mark.parametrize(
    ("rows", "outputs", "skipped", "expected"),
    [
        pytest.param(chain(CONV, CONV), (2,), (), "a b", id="convolutions"),
        pytest.param(chain(CONV, "RESHAPE", CONV), (3,), (), "ab c", id="a mover joins the op before"),
        pytest.param(chain(CONV, "RESHAPE", "TRANSPOSE", "PAD", CONV), (5,), (), "abcd e", id="a chain of movers"),
        pytest.param(chain("PAD", "RESHAPE", CONV), (3,), (), "abc", id="movers at the input join the op after"),
        pytest.param(chain("RESHAPE"), (1,), (), "a", id="a mover alone"),
        pytest.param(chain(CONV, "RELU", CONV), (3,), (), "ab c", id="a clamp"),
        pytest.param(
            [(CONV, (0,), (1,)), ("RELU", (1,), (2,)), ("ADD", (2, 1), (3,))],
            (3,),
            (),
            "a b c",
            id="a clamp of two",
        ),
        pytest.param(chain(CONV, "RELU"), (1, 2), (), "a b", id="a clamp of an output"),
        pytest.param(chain(CONV, "HARD_SWISH", CONV), (3,), (), "a b c", id="an activation with a scale"),
        pytest.param(
            [(CONV, (0,), (1,)), ("HARD_SWISH", (1,), (2,)), ("MUL", (1, 2), (3,))], (3,), (), "a b c", id="swish"
        ),
        pytest.param(SPLIT_AND_JOIN, (6,), (), "ab c de", id="split and join"),
        pytest.param(chain(CONV, "AVERAGE_POOL_2D", CONV), (3,), (), "a b c", id="pooling that makes an error"),
        pytest.param(
            [("PAD", (0,), (1,)), (CONV, (1,), (2,)), (CONV, (1,), (3,))], (2, 3), (), "a b c", id="read by two"
        ),
        pytest.param(chain("CAST", "RESHAPE", CONV), (3,), (0,), "bc", id="after an op that is no node"),
    ],
)
def test_units(rows: list[Row], outputs: tuple[int, ...], skipped: tuple[int, ...], expected: str) -> None:
    assert unit_letters(rows, outputs, skipped) == expected


DIVIDED: list[Row] = [
    ("TANH", (0,), (1,)),
    ("ADD", (0,), (2,)),
    ("RESHAPE", (2,), (3,)),
    ("DIV", (1, 3), (4,)),
    ("DIV", (4,), (5,)),
    ("GATHER_ND", (5, 1), (6,)),
]


@pytest.mark.parametrize(
    ("op", "skipped", "expected"),
    [
        pytest.param(3, (), "dbc", id="a division and the unit of its divisor"),
        pytest.param(3, (1, 2), "d", id="a divisor that no node computes"),
        pytest.param(4, (), "e", id="a division by a constant"),
        pytest.param(5, (), "f", id="another op"),
        pytest.param(3, (3,), "", id="an op that is no node"),
        pytest.param(9, (), "", id="an op of the candidate alone"),
    ],
)
def test_nodes_behind_an_op_that_fails(op: int, skipped: tuple[int, ...], expected: str) -> None:
    graph, nodes = made(DIVIDED, (6,), skipped)
    places = {index: index + 10 for index in range(len(DIVIDED))}
    assert "".join(nodes_behind(graph, nodes, places, op + 10)) == expected


@st.composite
def graphs(draw: st.DrawFn) -> list[Row]:
    types = st.sampled_from([*sorted(MOVERS)[:6], *sorted(CLAMPS), CONV, "ADD", "CONCATENATION"])
    rows: list[Row] = []
    for i in range(draw(st.integers(1, 10))):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=2, unique=True))
        rows.append((draw(types), tuple(reads), (i + 1,)))
    return rows


@given(graphs())
def test_every_node_is_in_one_unit_and_in_order(rows: list[Row]) -> None:
    found = unit_letters(rows, (len(rows),), ()).split(" ")
    assert sorted("".join(found)) == list("abcdefghijkl"[: len(rows)])
    assert all(list(unit) == sorted(unit) for unit in found)
    assert [unit[0] for unit in found] == sorted(unit[0] for unit in found)


def test_what_moves_with_a_node_is_its_whole_unit() -> None:
    parts = [("a", "b"), ("c",), ("d", "e")]
    assert moving_with(frozenset("bc"), parts) == frozenset("abc")
    assert moving_with(frozenset("x"), parts) == frozenset()
