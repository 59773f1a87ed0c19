from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoselect.domain.picks import PICK_NAMES, WORTH, FrontMember, default_drop, named_picks, recommended

FLOAT_SIZE, FLOAT_PENALTY, ALLOWED = 1000.0, 100.0, 0.01


def member(
    name: str, drop: float, size: float, penalty: float, width: float = 0.004, fidelity: float = 0.0
) -> FrontMember:
    return FrontMember(
        id=name,
        drop=drop,
        bound=drop + width,
        fidelity=fidelity,
        size_bytes=size,
        penalty=penalty,
        left_ops=math.ceil(penalty / 10.0),
    )


def picks_of(members: list[FrontMember]) -> dict[str, str]:
    return dict(named_picks(members, allowed_drop=ALLOWED, float_size_bytes=FLOAT_SIZE, float_penalty=FLOAT_PENALTY))


INTEGER, MIXED, FLOAT = (
    member("integer", 0.05, 250, 0.0),
    member("mixed", 0.004, 300, 10.0),
    member("float", 0.0, 1000, 100.0),
)
BY_HAND = {
    "one member is every pick": ([INTEGER], ["integer"] * 5),
    "what keeps the drop for sure": ([INTEGER, MIXED, FLOAT], ["mixed", "float", "mixed", "mixed", "integer"]),
    "likely, but not proven": (
        [member("integer", 0.008, 250, 0.0), MIXED, FLOAT],
        ["mixed", "float", "mixed", "mixed", "integer"],
    ),
    "nothing proven: what may lose more costs less": (
        [
            member("far", 0.008, 250, 0.0, width=0.012),
            member("near", 0.004, 400, 30.0, width=0.012),
            member("nearest", 0.0, 410, 55.0, width=0.012),
        ],
        ["far", "nearest", "far", "far", "far"],
    ),
    "nothing proven: what costs less may lose far more": (
        [
            member("far", 0.008, 250, 0.0, width=0.02),
            member("near", 0.004, 400, 30.0, width=0.012),
            member("nearest", 0.0, 410, 55.0, width=0.012),
        ],
        ["near", "nearest", "near", "near", "far"],
    ),
    "nothing proven, and the cheaper one is expected to break the limit": (
        [member("far", 0.012, 250, 0.0), member("nearest", 0.0085, 410, 40.0)],
        ["nearest", "nearest", "nearest", "nearest", "far"],
    ),
    "none is expected to keep it: the closest": (
        [member("far", 0.09, 250, 0.0), member("near", 0.055, 400, 30.0), member("nearest", 0.05, 410, 40.0)],
        ["nearest", "nearest", "nearest", "nearest", "far"],
    ),
    "a smaller file is smaller, by one byte": (
        [member("small", 0.004, 299, 20.0), member("whole", 0.004, 300, 0.0)],
        ["whole", "whole", "whole", "small", "whole"],
    ),
    "of several without float ops that keep the drop for sure the cheapest": (
        [replace(member("wide", 0.001, 260, 8.0), left_ops=0), member("narrow", 0.004, 250, 0.0), MIXED],
        ["narrow", "wide", "wide", "narrow", "narrow"],
    ),
    "of several without float ops that lose more the best, not the cheapest": (
        [member("wide", 0.03, 260, 0.0), member("narrow", 0.05, 250, 0.0), MIXED],
        ["mixed", "mixed", "mixed", "mixed", "wide"],
    ),
    "proved of nothing but a model of float's penalty, and one without float ops is expected to do": (
        [member("like float", 0.0, 400, 100.0), replace(member("wide", 0.0, 390, 8.0, width=0.05), left_ops=0)],
        ["wide", "like float", "wide", "wide", "wide"],
    ),
    "proved of nothing but a model of float's penalty, and no other does without float ops": (
        [member("like float", 0.0, 400, 100.0), member("mixed", 0.0, 390, 8.0, width=0.05)],
        ["like float", "like float", "like float", "like float", "mixed"],
    ),
    "equal penalties: the closest to float": (
        [member("b", 0.0, 300, 5.0, fidelity=20.0), member("a", 0.0, 300, 5.0, fidelity=30.0)],
        ["a", "a", "a", "a", "a"],
    ),
    "equal penalties: half the error is worth no more than twice the bytes": (
        [member("close", 0.0, 390, 5.0, fidelity=26.0), member("small", 0.0, 300, 5.0, fidelity=24.0)],
        ["small", "close", "small", "small", "small"],
    ),
    "better than float counts as no drop for the knee": (
        [member("lucky", -0.5, 300, 11.0), member("level", 0.0, 300, 10.0)],
        ["level", "lucky", "level", "level", "level"],
    ),
}


@pytest.mark.parametrize(("members", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_picks_by_hand(members: list[FrontMember], expected: list[str]) -> None:
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
def test_what_is_recommended_keeps_the_allowed_drop_for_sure(members: list[FrontMember]) -> None:
    by_id = {m.id: m for m in members}
    chosen = by_id[picks_of(members)["recommended"]]
    sure = [m for m in members if m.bound <= ALLOWED]
    if sure:
        assert chosen.bound <= ALLOWED
        assert chosen.penalty == min(m.penalty for m in sure)
    else:
        assert (
            chosen.bound
            <= min(m.bound for m in members if m.drop <= ALLOWED or chosen.drop > ALLOWED) + WORTH * ALLOWED
        )


@given(FRONTS, st.floats(0.0, 1.0))
def test_where_nothing_is_sure_a_penalty_is_worth_its_share_of_two_allowed_drops(
    members: list[FrontMember], share: float
) -> None:
    """Two that are expected to keep the limit: the dear one is taken as long as it may lose so much less."""
    hardly = 0.75 * ALLOWED
    cheap = member("cheap", hardly, 300, 0.0, width=4.0 * ALLOWED)
    dear = member("dear", hardly, 300, share * FLOAT_PENALTY, width=4.0 * ALLOWED - 2.0 * share * ALLOWED)
    surer, less_sure = (replace(dear, bound=dear.bound + step * ALLOWED) for step in (-0.01, 0.01))
    others = [m for m in members if m.drop > ALLOWED and m.bound > ALLOWED]
    assert recommended([cheap, surer, *others], ALLOWED, FLOAT_PENALTY).id == "dear"
    assert recommended([cheap, less_sure, *others], ALLOWED, FLOAT_PENALTY).id == "cheap"


@given(FRONTS, st.floats(0.0, 1.0))
def test_where_nothing_is_sure_16_bits_everywhere_are_worth_four_allowed_drops(
    members: list[FrontMember], share: float
) -> None:
    """Without float ops no model has more than a tenth of float's penalty: chance moves bounds by more than that."""
    cheap = member("cheap", 0.0, 300, 0.0, width=6.0 * ALLOWED)
    dear = replace(cheap, id="dear", penalty=0.1 * share * FLOAT_PENALTY, bound=(6.0 - 4.0 * share) * ALLOWED)
    surer, less_sure = (replace(dear, bound=dear.bound + step * ALLOWED) for step in (-0.01, 0.01))
    others = [m for m in members if m.left_ops and m.bound > ALLOWED]
    assert recommended([cheap, surer, *others], ALLOWED, FLOAT_PENALTY).id == "dear"
    assert recommended([cheap, less_sure, *others], ALLOWED, FLOAT_PENALTY).id == "cheap"


@given(FRONTS)
def test_where_nothing_is_sure_no_float_op_is_recommended_beside_integers_that_keep_the_limit_easily(
    members: list[FrontMember],
) -> None:
    """However little a model with float ops may lose: with so few samples all bounds are far."""
    near = member("near", 0.0, 300, 10.0, width=1.01 * ALLOWED)
    easily, hardly = (
        member(name, share * ALLOWED, 300, 0.0, width=9.0 * ALLOWED)
        for name, share in (("easily", 0.5), ("hardly", 0.51))
    )
    others = [m for m in members if m.left_ops and m.bound > ALLOWED]
    assert recommended([near, easily, *others], ALLOWED, FLOAT_PENALTY).id == "easily"
    assert recommended([near, hardly, *others], ALLOWED, FLOAT_PENALTY).left_ops


@given(FRONTS, st.data())
def test_no_pick_changes_with_a_member_that_is_none(members: list[FrontMember], data: st.DataObject) -> None:
    """Independence of irrelevant alternatives, with the sole exception of the member that says what can be shown."""
    picks = picks_of(members)
    others = [m for m in members if m.id not in picks.values()]
    assume(others)
    irrelevant = data.draw(st.sampled_from(others))
    rest = [m for m in members if m is not irrelevant]
    assert picks_of(rest) == picks


@given(FRONTS)
def test_no_pick_changes_with_a_member_that_is_worse_in_everything(members: list[FrontMember]) -> None:
    worst = max(members, key=lambda m: m.bound)
    useless = replace(
        worst,
        id="useless",
        drop=max(m.drop for m in members) + 1.0,
        bound=worst.bound + 2.0,
        size_bytes=max(m.size_bytes for m in members) + 1.0,
        penalty=max(m.penalty for m in members) + 1.0,
        left_ops=max(m.left_ops for m in members) + 1,
        fidelity=-1.0,
    )
    assert picks_of([*members, useless]) == picks_of(members)


UNKNOWN = {"bound": math.inf, "is_bounded": False}
GUESSED = {"is_bounded": False}


def test_a_member_of_which_nothing_is_known_comes_after_one_that_is_proved() -> None:
    proved, unknown = member("proved", 0.002, 300, 20.0), replace(member("unknown", 0.0, 250, 0.0), **UNKNOWN)
    guessed = replace(member("guessed", 0.0, 250, 0.0), **GUESSED)
    for other in (unknown, guessed):
        picks = picks_of([other, proved, FLOAT])
        assert {picks[name] for name in ("recommended", "balanced", "compact")} == {"proved"}
    likely, unknown = member("likely", 0.002, 300, 20.0, width=0.02), replace(unknown, penalty=10.0, left_ops=1)
    assert picks_of([unknown, likely])["recommended"] == "likely"


def test_if_nothing_is_known_of_any_member_losses_and_penalties_are_traded() -> None:
    """Of those that are expected to keep the limit the cheap one; of others not the one that is ruined."""
    near, far, ruined = (
        replace(member(name, drop, size, penalty), **UNKNOWN)
        for name, drop, size, penalty in (
            ("near", 0.0, 400, 60.0),
            ("far", 0.004, 300, 10.0),
            ("ruined", 0.6, 250, 0.0),
        )
    )
    assert picks_of([near, far, ruined]) == dict(zip(PICK_NAMES, ["far", "near", "far", "far", "ruined"], strict=True))
    assert recommended([replace(near, drop=0.02), ruined], ALLOWED, FLOAT_PENALTY).id == "near"


EQUALS = {
    "as good a score, and a difference within its noise": ({}, "cheap"),
    "a worse score": ({"scored_drop": 0.003}, "dear"),
    "a difference beyond its noise": ({"noise": 0.0005}, "dear"),
    "more ops off the accelerator": ({"left_ops": 40}, "dear"),
}


@pytest.mark.parametrize(("other", "expected"), EQUALS.values(), ids=EQUALS)
@pytest.mark.parametrize("width", [0.004, 0.012], ids=["the guess keeps the limit", "it does not"])
def test_of_two_equal_scores_without_proof_the_cheaper_is_taken(
    other: dict[str, float], expected: str, width: float
) -> None:
    """An evaluator's: what is expected of them is drawn to what their closeness predicts, which nobody measured."""
    dear = replace(member("dear", 0.002, 1100, 75.4, width=width), **GUESSED, noise=0.0, scored_drop=0.002, left_ops=25)
    cheap = replace(
        member("cheap", 0.011, 345, 23.3, width=width), **GUESSED, noise=0.01, scored_drop=0.002, left_ops=5
    )
    picks = picks_of([dear, replace(cheap, **other), replace(FLOAT, **UNKNOWN)])
    assert picks["recommended"] == expected


def test_of_two_equal_scores_with_bounds_of_their_own_the_wider_bound_counts() -> None:
    dear = replace(member("dear", 0.0, 300, 30.0, width=0.011), noise=0.004, scored_drop=0.0)
    cheap = replace(member("cheap", 0.003, 300, 20.0, width=0.011), noise=0.004, scored_drop=0.0)
    assert recommended([dear, cheap], ALLOWED, FLOAT_PENALTY).id == "cheap"
    assert recommended([dear, replace(cheap, bound=0.03)], ALLOWED, FLOAT_PENALTY).id == "dear"


def test_the_knee_weighs_the_costs_that_it_is_given() -> None:
    plain = [member("a", 0.0, 300, 9.0), member("b", 0.0, 300, 9.0)]
    for cheap in (0, 1):
        members = [replace(m, costs=(0.1 if i == cheap else 0.9,)) for i, m in enumerate(plain)]
        assert picks_of(members)["balanced"] == plain[cheap].id


@pytest.mark.parametrize(
    ("metric", "score", "expected"),
    [("accuracy", 0.9, 0.009), ("mse", 4.0, 0.04), ("gain", -8.0, 0.08), ("sqnr_db", 200.0, 180.0)],
)
def test_the_default_drop_is_a_hundredth_of_what_the_metric_measures(
    metric: str, score: float, expected: float
) -> None:
    assert default_drop(metric, score) == pytest.approx(expected)
    assert default_drop("kl_divergence", 0.0) > 0.0
