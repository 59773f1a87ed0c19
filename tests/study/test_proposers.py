from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
from synthetic import chain_of

from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Listed, Proposer, all_masks, by_sensitivity, prefixes
from autoselect.study.proposing.proposers import random_masks as random_proposer

THREE = chain_of([0.2, 0.5, 0.1])
FOUR = chain_of([0.1, 0.4, 0.4, 0.0])


def prefix(problem: Problem, seed: int) -> Proposer:
    return Listed(map(Mask, prefixes(by_sensitivity(problem))))


def exhaustive(problem: Problem, seed: int) -> Proposer:
    return Listed(all_masks(problem))


FACTORIES: dict[str, Callable[[Problem, int], Proposer]] = {
    "prefix": prefix,
    "exhaustive": exhaustive,
    "random": random_proposer,
}


def scored(left_out: Units, loss: float | None = 0.5) -> Seen:
    return Seen(mask=Mask(left_out), loss=loss, log_divergence=0.0, share=1.0, size_bytes=100, penalty=1.0)


def told(proposer: Proposer, losses: Mapping[Units, float | None], known: tuple[Units, ...] = ()) -> list[Units]:
    """What it proposes one after the other until it ends, told the losses; others lose 0.5."""
    seen = [scored(left_out, losses.get(left_out, 0.5)) for left_out in known]
    found = []
    for _ in range(100):
        mask = proposer.propose(seen, [])
        if mask is None:
            return found
        assert mask == Mask(mask.left_out)
        found.append(mask.left_out)
        seen.append(scored(mask.left_out, losses.get(mask.left_out, 0.5)))
    raise AssertionError("no end")


def test_the_most_sensitive_comes_first_and_ties_keep_the_order_of_the_graph() -> None:
    assert by_sensitivity(FOUR) == [1, 2, 0, 3]


SEQUENCES = {
    "prefix of three": (prefix, THREE, (), [0b000, 0b010, 0b011, 0b111]),
    "prefix of four": (prefix, FOUR, (), [0b0000, 0b0010, 0b0110, 0b0111, 0b1111]),
    "prefix, some known": (prefix, THREE, (0b000, 0b011), [0b010, 0b111]),
    "exhaustive": (exhaustive, THREE, (), [0b000, 0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111]),
    "exhaustive, some known": (exhaustive, THREE, (0b000, 0b010, 0b111), [0b001, 0b100, 0b011, 0b101, 0b110]),
    "exhaustive without units": (exhaustive, chain_of([]), (), [0]),
}


@pytest.mark.parametrize(("make", "problem", "known", "expected"), SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_by_hand(
    make: Callable[[Problem, int], Proposer], problem: Problem, known: tuple[Units, ...], expected: list[Units]
) -> None:
    assert told(make(problem, 0), {}, known) == expected


def test_random_masks_follow_from_the_seed() -> None:
    many = chain_of([0.1] * 20)
    first, again, other = (told_some(random_proposer(many, seed), 30) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    sizes = [left_out.bit_count() for left_out in first]
    assert min(sizes) < 5 < 15 < max(sizes)


def told_some(proposer: Proposer, count: int) -> list[Units]:
    seen: list[Seen] = []
    for _ in range(count):
        mask = proposer.propose(seen, [])
        assert mask is not None
        seen.append(scored(mask.left_out))
    return [s.mask.left_out for s in seen]


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
@pytest.mark.parametrize("ahead", [0, 3])
def test_nothing_known_or_under_way_is_proposed_and_there_is_an_end(
    make: Callable[[Problem, int], Proposer], ahead: int
) -> None:
    """Two candidates are known beforehand, and up to three are under way while one is asked for."""
    proposer = make(FOUR, 0)
    seen, pending = [scored(0b0000, 0.4), scored(0b1010, 0.3)], []
    found = []
    for step in itertools.count():
        assert step < 50, "no end"
        mask = proposer.propose(seen, pending)
        if mask is None and not pending:
            break
        if mask is not None:
            assert mask not in {s.mask for s in seen} | set(pending)
            assert mask == Mask(mask.left_out & FOUR.everything)
            pending.append(mask)
            found.append(mask)
        if mask is None or len(pending) > ahead:
            done = pending.pop(0).left_out
            seen.append(scored(done, 0.1 * (done % 7)))
    assert len(found) == len(set(found))
    assert proposer.propose(seen, []) is None


EVERY = {"exhaustive": exhaustive, "random": random_proposer}


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_in_the_end_every_mask_was_proposed(make: Callable[[Problem, int], Proposer]) -> None:
    assert sorted(told(make(FOUR, 5), {})) == list(range(16))
