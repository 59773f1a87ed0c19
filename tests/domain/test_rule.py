"""What the rule of the recommendation promises, whatever is known of candidates."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoselect.domain.rule import BREAK_PRICE, DETAIL, FAR_DB, Rule, Standing

ALLOWED = 0.01
RULE = Rule(allowed_drop=ALLOWED, float_penalty=100.0, float_size_bytes=1000.0)


def standing(name: str = "a", drop: float = 0.0, width: float = 0.004, penalty: float = 10.0, **known: Any) -> Standing:
    usual: dict[str, Any] = {"fidelity": 30.0, "size_bytes": 300.0}
    return Standing(id=name, drop=drop, bound=drop + width, penalty=penalty, **{**usual, **known})


UNKNOWN = {"bound": math.inf, "is_bounded": False}
STANDINGS = st.builds(
    standing,
    drop=st.floats(-0.05, 0.2),
    width=st.floats(1e-3, 0.1),
    penalty=st.floats(0.0, 500.0),
    fidelity=st.floats(-10.0, 80.0),
    size_bytes=st.floats(10.0, 4000.0),
)
FRONTS = st.lists(STANDINGS, min_size=2, max_size=7).map(
    lambda some: [replace(one, id=f"m{place}") for place, one in enumerate(some)]
)
RULES = st.builds(
    Rule,
    allowed_drop=st.sampled_from([0.0, 1e-3, 0.01, 0.05]),
    float_penalty=st.sampled_from([0.0, 1.0, 100.0]),
    float_size_bytes=st.just(1000.0),
    break_price=st.floats(1.0, 10.0),
)
MORE = st.floats(0.0, 0.1)


def wider(one: Standing, more: float) -> Standing:
    return replace(one, bound=one.bound + more)


def worse(one: Standing, more: float) -> Standing:
    return replace(one, drop=one.drop + more, bound=one.bound + more)


@given(RULES, STANDINGS, MORE)
def test_what_loses_more_never_costs_less(rule: Rule, one: Standing, more: float) -> None:
    assert rule.cost(worse(one, more)) >= rule.cost(one) - 1e-9


@given(RULES, STANDINGS, MORE)
def test_a_wider_bound_never_costs_less_as_long_as_the_limit_is_expected_to_be_kept(
    rule: Rule, one: Standing, more: float
) -> None:
    """Of what is expected to break the limit the opposite holds: who knows less of it has more hope."""
    assume(one.drop <= rule.allowed_drop)
    assert rule.cost(wider(one, more)) >= rule.cost(one) - 1e-9


@given(RULES, STANDINGS, MORE)
def test_more_penalty_or_bytes_or_error_never_cost_less(rule: Rule, one: Standing, more: float) -> None:
    dearer = replace(one, penalty=one.penalty + more), replace(one, size_bytes=one.size_bytes + more)
    for other in (*dearer, replace(one, fidelity=one.fidelity - more)):
        assert rule.cost(other) >= rule.cost(one) - 1e-9


@given(FRONTS, RULES, MORE, MORE, MORE)
def test_what_is_worse_in_everything_is_never_recommended(
    front: list[Standing], rule: Rule, drop: float, penalty: float, size: float
) -> None:
    for one in front:
        useless = replace(
            worse(one, drop), id="useless", penalty=one.penalty + penalty + 0.01, size_bytes=one.size_bytes + size
        )
        assert rule.recommended([*front, useless]).id != "useless"


@given(FRONTS, RULES, st.data())
def test_irrelevant_alternatives_do_not_matter(front: list[Standing], rule: Rule, data: st.DataObject) -> None:
    chosen = rule.recommended(front)
    left = data.draw(st.sampled_from([one for one in front if one is not chosen]))
    assert rule.recommended(one for one in front if one is not left) is chosen
    assert rule.recommended(reversed(front)).id == chosen.id


@given(STANDINGS, st.floats(-1e-3, 1e-3), st.floats(1.0, 10.0))
def test_there_is_no_cliff(one: Standing, step: float, break_price: float) -> None:
    """What moves by a thousandth of its spread moves the cost by less than a hundredth of breaking the limit."""
    rule = replace(RULE, break_price=break_price)
    width, most = one.bound - one.drop, 0.01 * max(break_price, rule.cost(one))
    moved = (
        worse(one, step * width),
        wider(one, step * width),
        replace(one, penalty=one.penalty * (1.0 + step)),
        replace(one, size_bytes=one.size_bytes * (1.0 + step)),
    )
    for other in moved:
        assert abs(rule.cost(other) - rule.cost(one)) <= most


def test_neither_a_certificate_nor_the_expected_keeping_of_the_limit_is_a_cliff() -> None:
    """Where tiers once changed, a hair of bound or drop bought tens of points of penalty."""
    tiny = 1e-6
    certified, expected = standing(drop=0.004, width=0.006), standing(drop=ALLOWED, width=0.01)
    assert RULE.certifies(certified)
    assert not RULE.certifies(wider(certified, tiny))
    assert RULE.cost(wider(certified, tiny)) == pytest.approx(RULE.cost(certified), abs=1e-3)
    assert RULE.cost(worse(expected, tiny)) == pytest.approx(RULE.cost(expected), abs=1e-3)


def test_the_chance_is_that_of_the_bound() -> None:
    assert RULE.chance_to_break(standing(drop=0.004, width=0.006)) == pytest.approx(0.05)
    assert RULE.chance_to_break(standing(drop=ALLOWED)) == pytest.approx(0.5)
    assert RULE.chance_to_break(standing(drop=-0.01, width=0.01)) == pytest.approx(0.05)


def test_a_bound_that_nobody_knows_counts_as_a_half_of_what_may_keep_the_limit() -> None:
    unknown = replace(standing(drop=0.002), **UNKNOWN)
    assert not RULE.certifies(unknown)
    assert RULE.chance_to_break(unknown) == 0.5
    assert RULE.cost(unknown) == pytest.approx(0.5 * _price(unknown) + 0.5 * BREAK_PRICE)
    proved = standing("proved", drop=0.002, penalty=60.0)
    assert RULE.recommended([replace(unknown, penalty=0.0), proved]) is proved
    assert not RULE.certifies(replace(standing(), is_bounded=False))


def test_of_unknown_bounds_what_is_seen_to_be_ruined_is_not_recommended() -> None:
    """An evaluator's model that scored a fifth of float's, beside one that lost nothing for more than half of it."""
    near, ruined = (
        replace(standing(name, drop, penalty=penalty), **UNKNOWN)
        for name, drop, penalty in (("near", 0.0, 60.0), ("ruined", 0.6, 0.0))
    )
    assert RULE.recommended([near, ruined]) is near
    assert RULE.recommended([replace(near, drop=0.02), ruined]).id == "near"
    zero = replace(RULE, allowed_drop=0.0)
    assert [zero.chance_to_break(replace(near, drop=drop)) for drop in (-0.1, 0.0, 0.5)] == pytest.approx([0.5, 0.5, 1])


@given(st.floats(0.1, 0.5), st.floats(0.01, 1.0))
def test_of_what_is_sure_to_break_the_limit_the_one_that_breaks_it_least_comes_first(drop: float, more: float) -> None:
    least, most = standing("z", drop), worse(standing("a", drop), more)
    assert RULE.recommended([most, least]) is least


FAR = {"fidelity": 12.0, "is_bounded": False}


def test_on_the_word_of_a_number_nothing_is_recommended_that_is_far_from_float() -> None:
    """Whatever the number says, and however little the candidate costs."""
    near = standing("near", drop=0.002, penalty=70.0, fidelity=27.0, is_bounded=False)
    far = standing("far", drop=-0.02, penalty=0.0, **FAR)
    assert RULE.is_far(far)
    assert not RULE.is_far(near)
    assert RULE.chance_to_break(far) == 1.0
    assert RULE.recommended([near, far]) is near
    assert RULE.cost(far) > RULE.price_of_float
    bounded = replace(far, is_bounded=True)
    assert RULE.recommended([near, bounded]) is bounded


def test_of_far_ones_the_closest_is_recommended_whatever_their_numbers_say() -> None:
    far = [standing(f"{db}", drop=0.1 - db / 100, penalty=db, **{**FAR, "fidelity": db}) for db in (15.0, 12.0, 3.0)]
    assert [one.id for one in sorted(far, key=RULE.order)] == ["15.0", "12.0", "3.0"]
    worse = replace(far[0], drop=0.5)
    assert RULE.cost(worse) > RULE.cost(far[0])


def test_unknown_closeness_is_not_far() -> None:
    assert not RULE.is_far(standing(fidelity=math.inf, is_bounded=False))


@pytest.mark.parametrize(("allowed", "far_db"), [(0.001, 20.0), (0.01, 20.0), (0.02, 13.98), (0.1, 0.0)])
def test_what_is_far_grows_with_a_limit_that_is_wider_than_usual(allowed: float, far_db: float) -> None:
    rule = replace(RULE, allowed_drop=allowed, usual_drop=0.01)
    assert rule.far_db == pytest.approx(far_db, abs=0.01)
    assert rule.is_far(standing(fidelity=far_db - 0.1, is_bounded=False))
    assert not rule.is_far(standing(fidelity=far_db + 0.1, is_bounded=False))
    assert replace(rule, usual_drop=0.0).far_db == FAR_DB


def test_what_far_is_was_measured_on_all_open_cases() -> None:
    """No candidate of theirs that is far keeps the limit, whatever the limit is."""
    path = Path(__file__).parents[2] / "experiments" / "one_number" / "results" / "candidates.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["case"] for row in rows}) == 8
    for times in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0):
        rule = replace(RULE, allowed_drop=times, usual_drop=1.0)
        far = [row for row in rows if rule.is_far(standing(fidelity=float(row["sqnr_db"]), is_bounded=False))]
        assert far
        assert all(float(row["drop"]) > times * float(row["allowed"]) for row in far)
    assert sum(float(row["sqnr_db"]) < FAR_DB for row in rows) == 112


def test_a_limit_of_0_is_kept_by_what_is_equal_to_float_alone() -> None:
    rule = replace(RULE, allowed_drop=0.0)
    exact, near = standing("exact", width=0.0, penalty=90.0), standing("near", drop=0.002, penalty=0.0)
    assert rule.certifies(exact)
    assert rule.recommended([exact, near]) is exact


def test_where_float_has_no_penalty_nothing_that_breaks_the_limit_is_cheap() -> None:
    """Penalties are then in a unit of their own, and may be far beyond the price of breaking the limit."""
    rule = replace(RULE, float_penalty=0.0)
    keeps, breaks = (standing(str(drop), drop, penalty=80.0) for drop in (0.0, 0.5))
    assert rule.recommended([breaks, keeps]) is keeps
    free = standing("free", penalty=0.0)
    assert rule.recommended([keeps, free]) is free


def test_the_dearer_a_broken_limit_the_surer_what_is_recommended() -> None:
    unsure, sure = standing("unsure", drop=0.005, width=0.01, penalty=0.0), standing("sure", penalty=50.0)
    chosen = [replace(RULE, break_price=price).recommended([unsure, sure]).id for price in (1.0, 2.0, 4.0, 100.0)]
    assert chosen == ["unsure", "unsure", "sure", "sure"]
    assert RULE.break_price == BREAK_PRICE


def test_equal_penalties_are_parted_by_bytes_and_error() -> None:
    small, close = standing("small", size_bytes=300.0), standing("close", size_bytes=400.0)
    assert RULE.recommended([small, close]) is small
    closer = replace(close, fidelity=60.0)
    assert RULE.recommended([replace(small, fidelity=10.0), closer]) is closer
    assert RULE.price_of_float == 1.0 + DETAIL


def test_of_equal_costs_the_choice_does_not_hang_on_the_order() -> None:
    assert RULE.recommended([standing("b"), standing("a")]).id == "a"


def test_the_example_of_the_documentation_is_worked_by_the_rule() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explanation.md").read_text(encoding="utf-8")
    rule = Rule(allowed_drop=1.0, float_penalty=80.0, float_size_bytes=100.0)
    cells = " [|] ".join(rf"(-?[\d.]+){unit}" for unit in (" points", " points", "", " kB", " dB", "", " %", ""))
    rows = re.findall(rf"^\| ([\w -]+) \| {cells} \|$", text, flags=re.MULTILINE)
    found = []
    for name, *figures in rows:
        drop, bound, penalty, size, error, price, chance, cost = map(float, figures)
        one = Standing(id=name, drop=drop, bound=bound, fidelity=-error, size_bytes=size, penalty=penalty)
        own = rule.price(penalty=penalty, size_bytes=size, fidelity=-error)
        assert (own, rule.cost(one)) == pytest.approx((price, cost), abs=5e-4)
        assert 100 * rule.chance_to_break(one) == pytest.approx(chance, abs=0.5)
        found.append(one)
    every = [*found, Standing(id="float", drop=0.0, bound=0.0, fidelity=200.0, size_bytes=100.0, penalty=80.0)]
    chosen = [replace(rule, break_price=price).recommended(every).id for price in (2.0, 8.0, 100.0)]
    assert chosen == [every[1].id, every[2].id, "float"]
    assert [rule.certifies(one) for one in found] == [False, False, True]


def _price(one: Standing) -> float:
    return RULE.price(penalty=one.penalty, size_bytes=one.size_bytes, fidelity=one.fidelity)


@pytest.mark.parametrize(
    ("drop", "low", "is_contradicted"),
    [(0.05, 0.011, True), (0.05, 0.01, False), (0.05, -0.1, False), (0.021, None, True), (0.02, None, False)],
)
def test_held_out_samples_contradict_by_their_interval_or_by_more_than_the_limit(
    drop: float, low: float | None, is_contradicted: bool
) -> None:
    rule = Rule(allowed_drop=0.01, float_penalty=100.0, float_size_bytes=1000.0)
    assert rule.is_contradicted(drop, low) == is_contradicted
