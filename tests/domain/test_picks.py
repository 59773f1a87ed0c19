from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoselect.domain.picks import PICK_NAMES, SURE, default_drop, named_picks
from autoselect.domain.rule import Rule, Standing

RULE = Rule(allowed_drop=0.01, float_penalty=100.0, float_size_bytes=1000.0)


def member(
    name: str, drop: float, size: float, penalty: float, width: float = 0.004, fidelity: float = 20.0
) -> Standing:
    return Standing(
        id=name,
        drop=drop,
        bound=drop + width,
        fidelity=fidelity,
        size_bytes=size,
        penalty=penalty,
        left_ops=math.ceil(penalty / 10.0),
    )


def picks_of(members: list[Standing]) -> dict[str, str]:
    return dict(named_picks(members, RULE))


INTEGER, MIXED, FLOAT = (
    member("integer", 0.05, 250, 0.0),
    member("mixed", 0.004, 300, 10.0),
    member("float", 0.0, 1000, 100.0),
)
BY_HAND = {
    "one member is every pick": ([INTEGER], ["integer"] * 4),
    "the cheap one that keeps the limit": ([INTEGER, MIXED, FLOAT], ["mixed", "float", "mixed", "integer"]),
    "what may lose more costs less": (
        [
            member("far", 0.004, 250, 0.0, width=0.012),
            member("near", 0.002, 400, 50.0, width=0.012),
            member("nearest", 0.0, 410, 55.0, width=0.012),
        ],
        ["far", "nearest", "far", "far"],
    ),
    "what costs less may lose far more": (
        [
            member("far", 0.008, 250, 0.0, width=0.02),
            member("near", 0.002, 400, 30.0, width=0.012),
            member("nearest", 0.0, 410, 55.0, width=0.012),
        ],
        ["near", "nearest", "near", "far"],
    ),
    "none is expected to keep it: the one that costs least": (
        [member("far", 0.09, 250, 0.0), member("near", 0.055, 400, 30.0), member("nearest", 0.05, 410, 40.0)],
        ["nearest", "nearest", "far", "far"],
    ),
    "a smaller file is smaller, by one byte": (
        [member("small", 0.004, 299, 20.0), member("whole", 0.004, 300, 0.0)],
        ["whole", "whole", "small", "whole"],
    ),
    "a smaller file that is likelier to break the limit is none": (
        [member("small", 0.009, 299, 20.0), member("whole", 0.004, 300, 0.0)],
        ["whole", "whole", "whole", "whole"],
    ),
    "of several without float ops the one that is expected to cost least": (
        [replace(member("wide", 0.03, 260, 8.0), left_ops=0), member("narrow", 0.05, 250, 0.0), MIXED],
        ["mixed", "mixed", "mixed", "wide"],
    ),
    "equal in all: the closest to float": (
        [member("b", 0.0, 300, 5.0, fidelity=20.0), member("a", 0.0, 300, 5.0, fidelity=30.0)],
        ["a", "a", "a", "a"],
    ),
    "better than float is as good as float": (
        [member("lucky", -0.5, 300, 11.0, width=0.5), member("level", 0.0, 300, 10.0, width=0.0)],
        ["level", "level", "level", "level"],
    ),
}


@pytest.mark.parametrize(("members", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_picks_by_hand(members: list[Standing], expected: list[str]) -> None:
    assert picks_of(members) == dict(zip(PICK_NAMES, expected, strict=True))


def test_an_empty_front_has_no_picks() -> None:
    assert picks_of([]) == {}


FRONTS = st.lists(
    st.tuples(st.integers(-3, 9), st.integers(0, 9), st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)),
    min_size=1,
    max_size=7,
).map(
    lambda rows: [
        member(f"m{i}", drop / 200, size * 100, 10.0 * penalty, width=width / 1000, fidelity=fidelity)
        for i, (drop, width, size, penalty, fidelity) in enumerate(rows)
    ]
)


@given(FRONTS)
def test_each_pick_is_what_it_is_called(members: list[Standing]) -> None:
    by_id, picks = {m.id: m for m in members}, picks_of(members)
    chosen, accurate, compact, integer = (by_id[picks[name]] for name in PICK_NAMES)
    assert RULE.cost(chosen) == min(map(RULE.cost, members))
    assert accurate.risk == min(m.risk for m in members)
    likely = max(SURE, RULE.chance_to_break(chosen))
    assert RULE.chance_to_break(compact) <= likely
    assert compact.size_bytes == min(m.size_bytes for m in members if RULE.chance_to_break(m) <= likely)
    assert integer.left_ops == min(m.left_ops for m in members)


@given(FRONTS, st.data())
def test_no_pick_changes_with_a_member_that_is_none(members: list[Standing], data: st.DataObject) -> None:
    """Independence of irrelevant alternatives."""
    picks = picks_of(members)
    others = [m for m in members if m.id not in picks.values()]
    assume(others)
    irrelevant = data.draw(st.sampled_from(others))
    assert picks_of([m for m in members if m is not irrelevant]) == picks


@given(FRONTS)
def test_no_pick_changes_with_a_member_that_is_worse_in_everything(members: list[Standing]) -> None:
    worst = max(members, key=lambda m: m.drop)
    useless = replace(
        worst,
        id="useless",
        drop=worst.drop + 1.0,
        bound=max(m.bound for m in members) + 1.0,
        size_bytes=max(m.size_bytes for m in members) + 1.0,
        penalty=max(m.penalty for m in members) + 1.0,
        left_ops=max(m.left_ops for m in members) + 1,
        fidelity=-1.0,
    )
    assert picks_of([*members, useless]) == picks_of(members)


def test_a_member_of_which_nothing_is_known_comes_after_one_that_is_proved() -> None:
    proved = member("proved", 0.002, 300, 20.0)
    unknown = replace(member("unknown", 0.0, 250, 0.0), bound=math.inf, is_bounded=False)
    picks = picks_of([unknown, proved, FLOAT])
    assert {picks[name] for name in ("recommended", "compact")} == {"proved"}
    assert picks["accurate"] == "float"


@pytest.mark.parametrize(
    ("metric", "score", "expected"),
    [("accuracy", 0.9, 0.009), ("mse", 4.0, 0.04), ("gain", -8.0, 0.08), ("sqnr_db", 200.0, 180.0)],
)
def test_the_default_drop_is_a_hundredth_of_what_the_metric_measures(
    metric: str, score: float, expected: float
) -> None:
    assert default_drop(metric, score) == pytest.approx(expected)
    assert default_drop("kl_divergence", 0.0) > 0.0


def test_only_the_integer_pick_may_be_contradicted() -> None:
    members = [INTEGER, MIXED, FLOAT]
    assert dict(named_picks(members, RULE, {"mixed"})) == {
        "recommended": "float",
        "accurate": "float",
        "compact": "float",
        "integer": "integer",
    }
    assert named_picks(members, RULE, {"integer", "mixed"})["integer"] == "integer"
    assert named_picks(members, RULE, {m.id for m in members}) == named_picks(members, RULE)


def test_only_the_integer_pick_rests_on_a_number_far_from_float() -> None:
    """``accurate`` is no member that loses least by a number alone; where all are far, the closest is recommended."""
    far = replace(INTEGER, drop=-0.01, bound=-0.005, fidelity=12.0, is_bounded=False)
    assert picks_of([far, MIXED, FLOAT]) == {
        "recommended": "mixed",
        "accurate": "float",
        "compact": "mixed",
        "integer": "integer",
    }
    further = replace(far, id="further", fidelity=3.0)
    assert picks_of([further, far])["recommended"] == "integer"
    assert picks_of([further, far])["accurate"] == "integer"
