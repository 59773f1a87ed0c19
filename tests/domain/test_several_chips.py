"""Targets that stand for several chips; what their compilers say is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import test_plugin_targets as made

from autoselect.domain.graph import with_answers
from autoselect.domain.targets import PenaltyWeights, Place, Seen, as_seen, together
from autoselect.domain.verdicts import judge, pins, views

FIRST = replace(made.CHIP, name="first")
SECOND = replace(made.CHIP, name="second", crossing_fixed=0.0)
BOTH = together([FIRST, SECOND])
TWO_OPS = made.graph([("i", (0,), (1,)), ("i", (1,), (2,))], (2,))


def test_an_op_is_on_the_accelerator_where_every_chip_takes_it() -> None:
    found = judge(with_answers(TWO_OPS, {1: made.WHY}, {}), BOTH)
    assert [p.place for p in found.placements] == [Place.ACCELERATOR, Place.HOST]
    assert found.left_ops == 1


def test_the_worst_chip_counts_in_units_of_its_own_best() -> None:
    graph = with_answers(TWO_OPS, {1: made.WHY}, {})
    costs = [verdict.cost for _, verdict in views(graph, BOTH)]
    assert costs[0] > costs[1]
    assert judge(graph, BOTH).cost == costs[0]
    scaled = as_seen(BOTH, [Seen(best=costs[0]), Seen(best=costs[1] / 4)])
    assert judge(graph, scaled).cost == pytest.approx(4.0)


def test_each_chip_sees_its_own_answers() -> None:
    pieces = [verdict.segments for _, verdict in views(with_answers(TWO_OPS, {0: made.WHY, 1: made.WHY}, {}), BOTH)]
    assert pieces == [0, 1]


@pytest.mark.parametrize(("constants", "beside"), [((0, 0), 0), ((8, 0), 100), ((8, 8), 200)])
def test_bytes_that_compiled_models_showed_count_for_each_op_with_constants(
    constants: tuple[int, int], beside: int
) -> None:
    ops = [replace(op, constant_bytes=size) for op, size in zip(TWO_OPS.ops, constants, strict=True)]
    graph = with_answers(replace(TWO_OPS, ops=tuple(ops)), {})
    shown = as_seen(made.CHIP, [Seen(ddr_per_op={"integer": 100.0})])
    assert judge(graph, shown).ddr_bytes == judge(graph, made.CHIP).ddr_bytes + beside


def test_what_one_chip_refuses_is_refused_by_all() -> None:
    rule = made.Rule(ops=None, precisions=frozenset({made.Precision.FLOAT}), by="runtime", why="no floats")
    found = pins(
        made.graph([("f", (0,), (1,))], (1,)), [0], together([FIRST, replace(SECOND, rules=(rule,))]), hybrid=False
    )
    assert dict(found.keep_int) == {0: "no floats"}


WEIGHTS = PenaltyWeights(float_macs=1.0, float_ops=1.0, crossings=1.0, crossing_bytes=1.0, segments=1.0)
REFUSED = {
    "other types of inputs": (replace(FIRST, io_type="int8"), replace(SECOND, io_type="uint8"), "int8 and uint8"),
    "one name": (FIRST, replace(SECOND, name="first"), "two are called 'first'"),
    "points in place of costs": (replace(FIRST, shares=WEIGHTS), SECOND, "first has points"),
}


@pytest.mark.parametrize(("one", "other", "words"), REFUSED.values(), ids=REFUSED)
def test_some_chips_do_not_go_together(one: made.Target, other: made.Target, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        together([one, other])
