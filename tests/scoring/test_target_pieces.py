"""The pieces that a drawing shows are the segments that a target counts, and its crossings those that it prices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_fragmentation import chain

from autoselect.domain.graph import IN_INTEGERS, OpKind
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target
from autoselect.scoring.target_pieces import pieces_of

KINDS = st.text("ifhw", min_size=1, max_size=9)


@pytest.mark.parametrize("target", ["integer-only", "litert-cpu", "edgetpu", "tflm"])
@given(kinds=KINDS)
def test_there_are_as_many_pieces_as_segments(target: str, kinds: str) -> None:
    graph, profile = chain(kinds), read_target(target)
    found, cut = pieces_of(graph, profile), on_target(graph, profile)
    assert {*found.piece_of} - {0} == {*range(1, cut.segments + 1)}
    assert len(found.piece_of) == len(found.reasons) == len(graph.ops)


@given(kinds=KINDS)
def test_pieces_are_runs_of_integers_in_a_chain(kinds: str) -> None:
    graph = chain(kinds)
    found = pieces_of(graph, read_target("integer-only"))
    for op, piece in zip(graph.ops, found.piece_of, strict=True):
        assert (piece > 0) == (op.kind in IN_INTEGERS)
    taken = [piece for piece in found.piece_of if piece]
    assert taken == sorted(taken)


@given(kinds=KINDS)
def test_crossings_are_edges_between_both_sides(kinds: str) -> None:
    graph, target = chain(kinds), read_target("integer-only")
    found = pieces_of(graph, target)
    assert len(found.crossings) == on_target(graph, target).crossing_tensors
    for writer, reader in found.crossings:
        assert set(graph.ops[writer].outputs) & set(graph.ops[reader].inputs)
        assert OpKind.BOUNDARY in (graph.ops[writer].kind, graph.ops[reader].kind)
        assert (found.piece_of[writer] > 0) != (found.piece_of[reader] > 0)


@given(kinds=KINDS)
def test_what_is_left_has_a_reason_where_the_target_has_rules(kinds: str) -> None:
    graph = chain(kinds)
    found = pieces_of(graph, read_target("edgetpu"))
    for op, piece, reason in zip(graph.ops, found.piece_of, found.reasons, strict=True):
        assert piece == 0 or reason == ""
        if op.kind in (OpKind.FLOAT, OpKind.HYBRID):
            assert reason


@given(kinds=KINDS)
def test_where_a_compiler_orders_the_ops_there_is_no_piece_less(kinds: str) -> None:
    graph, profile = chain(kinds), read_target("ethos-u55-128")
    assert max(pieces_of(graph, profile).piece_of, default=0) >= on_target(graph, profile).segments
