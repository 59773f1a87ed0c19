from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewing import Reviewed

from autoselect.data.splits import refuse_overlap, split_by_content
from autoselect.errors import DataError, UsageError

digest_lists = st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=40).filter(lambda d: len(set(d)) > 1)
fractions = st.floats(0.01, 0.99)


@given(digest_lists, fractions, st.integers(0, 99))
def test_parts_are_whole_sorted_and_share_no_content(digests: list[str], fraction: float, seed: int) -> None:
    search, heldout = split_by_content(digests, fraction, seed)
    assert sorted([*search.tolist(), *heldout.tolist()]) == list(range(len(digests)))
    assert len(search) >= 1
    assert len(heldout) >= 1
    assert search.tolist() == sorted(search.tolist())
    assert heldout.tolist() == sorted(heldout.tolist())
    assert {digests[i] for i in search}.isdisjoint(digests[i] for i in heldout)


@given(digest_lists, fractions, st.integers(0, 99), st.randoms(use_true_random=False))
def test_order_does_not_matter(digests: list[str], fraction: float, seed: int, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = digests.copy()
    random.shuffle(shuffled)
    sides = []
    for given_order in (digests, shuffled):
        _, heldout = split_by_content(given_order, fraction, seed)
        sides.append({given_order[i] for i in heldout})
    assert sides[0] == sides[1]


@pytest.mark.parametrize(("fraction", "expected"), [(0.5, 50), (0.2, 20), (0.001, 1), (0.999, 99)])
def test_the_share_is_met_where_samples_differ(fraction: float, expected: int) -> None:
    search, heldout = split_by_content([str(i) for i in range(100)], fraction, 0)
    assert (len(heldout), len(search)) == (expected, 100 - expected)
    assert heldout.dtype == search.dtype == np.int64


def test_the_seed_chooses() -> None:
    digests = [str(i) for i in range(50)]
    first, again, other = (split_by_content(digests, 0.5, seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_one_common_content_stays_on_one_side() -> None:
    search, heldout = split_by_content(["a"] * 9 + ["b"], 0.5, 0)
    assert (search.tolist(), heldout.tolist()) == (list(range(9)), [9])


@pytest.mark.parametrize("digests", [[], ["a"], ["a", "a", "a"]], ids=["none", "one", "all equal"])
def test_refuses_too_little_content(digests: list[str]) -> None:
    with pytest.raises(DataError, match="two different"):
        split_by_content(digests, 0.5, 0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_refuses_a_fraction_that_is_none(fraction: float) -> None:
    with pytest.raises(UsageError, match="above 0 and below 1"):
        split_by_content(["a", "b"], fraction, 0)


def test_overlap_names_parts_count_and_samples(reviewed: Reviewed) -> None:
    parts = {"calibration": ["p", "q"], "search": ["x", "y"], "held-out": ["y", "z", "q", "y"]}
    with pytest.raises(DataError) as caught:
        refuse_overlap(parts, allow=False)
    reviewed("parts that overlap are refused", str(caught.value))
    reviewed("parts that may overlap", refuse_overlap(parts, allow=True))


def test_no_overlap_is_no_finding() -> None:
    assert refuse_overlap({"calibration": ["a", "a"], "search": ["b"], "held-out": []}, allow=False) == []


def test_only_the_first_samples_are_named() -> None:
    (sentence,) = refuse_overlap({"search": ["a"], "held-out": ["a"] * 30}, allow=True)
    assert sentence.startswith("30 of 30 held-out samples")
    assert sentence.count("search sample 0") == 5
    assert "…" in sentence


group_lists = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=2, max_size=40)


@given(group_lists, fractions, st.integers(0, 9))
def test_groups_and_contents_stay_whole(rows: list[tuple[int, int]], fraction: float, seed: int) -> None:
    groups, digests = [f"g{group}" for group, _ in rows], [f"d{digest}" for _, digest in rows]
    try:
        search, heldout = split_by_content(digests, fraction, seed, groups)
    except DataError:
        return
    assert sorted([*search.tolist(), *heldout.tolist()]) == list(range(len(rows)))
    for labels in (groups, digests):
        assert {labels[i] for i in search}.isdisjoint(labels[i] for i in heldout)


SIZES = {
    "one group fits": ([50, 30, 20], 0.5, 50),
    "two groups fit": ([47, 33, 20], 0.53, 53),
    "the nearest is more": ([10, 60, 30], 0.55, 60),
    "the nearest is less": ([40, 30, 30], 0.48, 40),
    "all but one group": ([90, 5, 5], 0.999, 95),
    "one group at least": ([90, 5, 5], 0.001, 5),
}


@pytest.mark.parametrize(("sizes", "fraction", "expected"), SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_the_share_is_met_as_nearly_as_groups_allow(
    sizes: list[int], fraction: float, expected: int, seed: int
) -> None:
    groups = [str(group) for group, size in enumerate(sizes) for _ in range(size)]
    _, heldout = split_by_content([f"d{i}" for i in range(100)], fraction, seed, groups)
    assert len(heldout) == expected


def test_groups_do_not_depend_on_the_order_and_the_seed_chooses() -> None:
    groups, digests = [f"g{i // 3}" for i in range(60)], [f"d{i}" for i in range(60)]
    held = {groups[i] for i in split_by_content(digests, 0.5, 0, groups)[1]}
    backwards = {groups[::-1][i] for i in split_by_content(digests[::-1], 0.5, 0, groups[::-1])[1]}
    assert len(held) == 10
    assert held == backwards
    assert held != {groups[i] for i in split_by_content(digests, 0.5, 1, groups)[1]}


def test_refuses_a_single_group() -> None:
    with pytest.raises(DataError, match=r"3 samples of 1 group\b"):
        split_by_content(["a", "b", "c"], 0.5, 0, ["g", "g", "g"])


def test_refuses_groups_that_share_their_samples() -> None:
    with pytest.raises(DataError, match="2 groups "):
        split_by_content(["a", "b", "a"], 0.5, 0, ["g", "g", "h"])
