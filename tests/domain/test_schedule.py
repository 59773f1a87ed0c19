"""The order in which Vela runs ops, by hand: its rules are those of its own source."""

from __future__ import annotations

import pytest

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.schedule import count_runs

Row = tuple[str, str, str]
"""An op as the letters of the tensors that it reads, of those that it writes, and its side and type: ``N`` is an op on
the accelerator, ``J`` one there that joins values, ``h`` one of the host, ``-`` one that cuts nothing."""


def runs(rows: list[Row], outputs: str) -> int:
    """Of a model whose input is ``x``."""
    letters = sorted({letter for row in rows for letter in row[0] + row[1]})
    tensors = [Tensor(name=t, dtype="int8", shape=(1,), is_constant=False, size_bytes=1) for t in letters]
    ops = tuple(
        Op(
            op_type="PACK" if side == "J" else "ADD",
            kind=OpKind.INTEGER,
            inputs=tuple(map(letters.index, reads)),
            constants=(),
            outputs=tuple(map(letters.index, writes)),
            macs=0,
        )
        for reads, writes, side in rows
    )
    graph = Graph(
        tensors=tuple(tensors), ops=ops, inputs=(letters.index("x"),), outputs=tuple(map(letters.index, outputs))
    )
    return count_runs(graph, [{"N": True, "J": True, "h": False, "-": None}[side] for _, _, side in rows])


CASES = {
    "a chain": ([("x", "a", "N"), ("a", "b", "h"), ("b", "c", "N")], "c", 2),
    "nothing on the accelerator": ([("x", "a", "h")], "a", 0),
    "what cuts nothing": ([("x", "a", "N"), ("a", "b", "-"), ("b", "c", "N")], "c", 1),
    # Depth first it would stand between the two ops of the accelerator.
    "early: it needs the input only": ([("x", "a", "N"), ("x", "b", "h"), ("ab", "c", "N")], "c", 1),
    "early: it needs early ones only": ([("x", "a", "N"), ("x", "b", "-"), ("b", "d", "h"), ("da", "c", "N")], "c", 1),
    # The last output comes first: N, then the host's op, then the other N.
    "late: it writes outputs only": ([("x", "a", "N"), ("a", "b", "h"), ("a", "c", "N")], "cb", 1),
    # It moves down past the op that does not read it, to the next one of the host.
    "host's ops come together": (
        [("x", "a", "N"), ("a", "b", "h"), ("a", "c", "N"), ("c", "d", "h"), ("db", "e", "N")],
        "e",
        2,
    ),
    "it stays before what reads it": ([("x", "a", "N"), ("a", "b", "h"), ("b", "c", "N"), ("ca", "d", "N")], "d", 2),
    # The copy of `b` comes before what makes `g`; an op that needs both at once would come after it.
    "values are joined one by one": (
        [("x", "a", "N"), ("a", "b", "h"), ("a", "d", "h"), ("d", "f", "N"), ("f", "g", "h"), ("gb", "c", "J")],
        "c",
        4,
    ),
    "two joined at once": (
        [("x", "a", "N"), ("a", "b", "h"), ("a", "d", "h"), ("d", "f", "N"), ("f", "g", "h"), ("gb", "c", "N")],
        "c",
        3,
    ),
}


@pytest.mark.parametrize(("rows", "outputs", "found"), CASES.values(), ids=CASES)
def test_runs_by_hand(rows: list[Row], outputs: str, found: int) -> None:
    assert runs(rows, outputs) == found
