"""Which single step from a candidate is worth it."""

from __future__ import annotations

import pytest

from autoselect.errors import UsageError
from autoselect.study.what_if.moves import GOALS, Move, cheapest


def move(name: str, penalty: float, size: int, drop: float | None, told: float | None = None) -> Move:
    """A step; what answers tell it adds to the drop is by default what is guessed."""
    return Move(
        unit=0,
        nodes=(name,),
        state="int8",
        size_bytes=1000 + size,
        penalty=10.0 + penalty,
        drop=None if drop is None else 0.1 + drop,
        drop_low=None,
        drop_high=None,
        more_penalty=penalty,
        more_bytes=size,
        more_drop=drop if told is None else told,
        guessed_more=drop,
    )


MOVES = [
    move("cheap", -1.0, 0, 0.01),
    move("cheaper for its drop", -4.0, 0, 0.02),
    move("dear", 2.0, 0, -0.05),
    move("free", -0.5, -10, 0.0),
    move("free and better", -0.7, -10, -0.01),
    move("unknown", -9.0, -900, None),
    move("small", 0.0, -500, 0.05),
    move("nothing", 0.0, 0, 0.0),
    move("scored worse", 1.0, 0, -0.02, told=0.01),
    move("only the start was scored worse", 1.0, 0, 0.0, told=-0.01),
]

ORDERS = {
    "penalty": ["free and better", "free", "cheaper for its drop", "cheap", "unknown"],
    "size": ["free", "free and better", "small", "unknown"],
    "drop": ["free and better", "dear"],
}


@pytest.mark.parametrize("goal", GOALS)
def test_what_lowers_most_for_what_it_costs_is_first(goal: str) -> None:
    assert [move.nodes[0] for move in cheapest(MOVES, goal)] == ORDERS[goal]


def test_the_order_of_the_steps_does_not_matter_but_for_ties() -> None:
    for goal in GOALS:
        assert {m.nodes for m in cheapest(MOVES[::-1], goal)} == {m.nodes for m in cheapest(MOVES, goal)}


def test_a_goal_that_there_is_not_is_told() -> None:
    with pytest.raises(UsageError, match=r"goal: .*penalty, size, drop; got 'speed'"):
        cheapest(MOVES, "speed")


def test_where_nobody_knows_what_steps_lose_none_is_chosen_by_it() -> None:
    unknown = [move("a", -1.0, 0, None), move("b", 0.0, -5, None)]
    with pytest.raises(UsageError, match="Nobody knows what such candidates lose"):
        cheapest(unknown, "drop")
    assert [m.nodes[0] for m in cheapest(unknown, "penalty")] == ["a"]
