from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import chain_of

from autoselect.study.proposing import mutation
from autoselect.study.proposing.mask import Mask, Units, bits

SIX = chain_of([0.1] * 6)
NONE = np.zeros((1, 6))
SETS = st.integers(0, SIX.everything)
MASKS = SETS.map(Mask)
SEEDS = st.integers(0, 2**32 - 1)


@given(parents=st.lists(MASKS, min_size=1, max_size=4), seed=SEEDS)
def test_children_stay_within_the_units(parents: list[Mask], seed: int) -> None:
    found = mutation.child(parents, SIX, NONE, np.random.default_rng(seed))
    assert found == Mask(found.left_out & SIX.everything)


@given(parent=st.integers(0, 1).map(Mask), seed=SEEDS)
def test_children_of_a_single_unit_are_one_of_two(parent: Mask, seed: int) -> None:
    found = mutation.child([parent], chain_of([0.1]), np.zeros((1, 1)), np.random.default_rng(seed))
    assert found in (Mask(0), Mask(1))


@pytest.mark.parametrize("parent", [Mask(), Mask(0b111111), Mask(0b010110)], ids=str)
def test_children_reach_far_and_repeat_with_the_seed(parent: Mask) -> None:
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    found = [mutation.child([parent], SIX, NONE, rng) for _ in range(300)]
    assert found == [mutation.child([parent], SIX, NONE, again) for _ in range(300)]
    assert len(set(found)) > 20
    assert set(mutation.single_flips(parent, SIX)) <= set(found)


def test_a_crossing_is_the_first_up_to_some_place_and_then_the_second() -> None:
    """The first takes at least one unit, and all of them at most."""
    found = {
        mutation._crossed(Mask(0b111111), Mask(), SIX, np.random.default_rng(seed)).left_out for seed in range(100)
    }
    assert found == {0b1, 0b11, 0b111, 0b1111, 0b11111, 0b111111}


@given(MASKS)
def test_single_flips_differ_in_one_unit(mask: Mask) -> None:
    found = mutation.single_flips(mask, SIX)
    assert [bits(m.left_out ^ mask.left_out) for m in found] == [[i] for i in range(6)]


Move = Callable[..., Units]
BY_HAND: dict[str, tuple[Move, Units, set[Units]]] = {
    "drop an island": (mutation._drop_island, 0b110010, {0b110000, 0b000010}),
    "drop an island: none": (mutation._drop_island, 0, {0}),
    "close a gap": (mutation._close_gap, 0b010100, {0b011100}),
    "close a gap: one of two": (mutation._close_gap, 0b010101, {0b010111, 0b011101}),
    "close a gap: too wide": (mutation._close_gap, 0b001001, {0b001001}),
    "swap": (mutation._swap, 0b111110, {0b111111 & ~(1 << i) for i in range(1, 6)}),
    "swap: all for one of all": (mutation._swap, 0b111111, {0b111111 & ~(1 << i) for i in range(6)}),
    "flip any": (mutation._flip_any, 0, {1 << i for i in range(6)}),
}


@pytest.mark.parametrize(("move", "units", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_moves_by_hand(move: Move, units: Units, expected: set[Units]) -> None:
    """Of a hundred seeds each outcome is met at least once, and no other."""
    assert {move(units, SIX, np.random.default_rng(seed)) for seed in range(100)} == expected


@given(parents=st.lists(st.builds(Mask, SETS, st.tuples(SETS), st.integers(0, 2)), min_size=1, max_size=4), seed=SEEDS)
def test_children_of_a_mixed_search_mean_something(parents: list[Mask], seed: int) -> None:
    problem = chain_of([1.0] * 6, hybrid=True, mixed=True, repair_sets=(("bias",), (), ("bias-sequential",)))
    rng = np.random.default_rng(seed)
    children = [mutation.child(parents, problem, problem.noise, rng) for _ in range(20)]
    assert all(not mask.within(1) & ~mask.left_out and mask.repairs in (0, 1) for mask in children)


def test_children_of_a_mixed_search_change_between_float_and_hybrid() -> None:
    problem, rng = chain_of([1.0] * 6, hybrid=True, mixed=True), np.random.default_rng(0)
    children = [mutation.child([Mask(0b011110)], problem, problem.noise, rng) for _ in range(200)]
    assert any(mask.within(1) for mask in children)
    assert any(mask.within(0) for mask in children)


def test_single_flips_of_a_mixed_search_by_hand() -> None:
    problem = chain_of([1.0] * 3, hybrid=True, mixed=True)
    # The second and third unit are left out, the third in float.
    found = mutation.single_flips(Mask(0b110, [0b100]), problem)
    expected = {(0b111, 0b100), (0b111, 0b101), (0b100, 0b100), (0b010, 0), (0b110, 0b110), (0b110, 0)}
    assert set(found) == {Mask(left_out, [in_float]) for left_out, in_float in expected}
