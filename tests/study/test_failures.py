"""What is learned of candidates that fail, on a chain of atoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from synthetic import Synthetic, chain_of, synthetic

from autoselect.domain.recipe import Recipe
from autoselect.runs.records import TrialRecord
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Reader, Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

CHAIN = chain_of([0.1] * 4, mixed=True)


def failure(problem: Problem, mask: Mask) -> Seen:
    recipe = Recipe(
        denylisted_nodes=problem.nodes_of(mask), float_nodes=problem.further_of(mask).get("float", frozenset())
    )
    found = Reader(problem=problem).seen(TrialRecord(number=0, origin="", recipe=recipe, error="It died."))
    assert found is not None
    assert found.mask == mask
    return found


def success(mask: Mask) -> Seen:
    known = {"loss": 0.1, "log_divergence": -3.0, "share": 1.0, "size_bytes": 100.0, "penalty": 1.0}
    return Seen(mask=mask, **known)


def states(text: str) -> Mask:
    """``i``, ``h`` and ``f`` for each atom: integers, hybrid and float."""
    mask = Mask()
    for i, letter in enumerate(text):
        mask = mask if letter == "i" else mask.put(1 << i, "hf".index(letter))
    return mask


CASES = {
    "one failure may be of anything in it": (["ihii"], [], "ihii", "hifh"),
    "what two have in common": (["ihii", "ihhh"], [], "ihih", "hiff"),
    "what ran is no reason": (["ihii", "iiih"], ["ihff", "iffi", "iiff"], "ifii", "ihff"),
    "neighbours each of which ran with others": (["ihii", "ihhh"], ["iiii", "hhii", "hhhh", "iihh"], "ihff", "hhff"),
    "two that are far apart": (["iiii", "ihhi", "ihii"], ["hiii", "iiih", "hhhi", "ihhh"], "iffi", "hffi"),
    "two causes, each seen twice": (
        ["iiff", "iihh", "ffhi", "hhhi"],
        ["ihhh", "hihh", "hhhh", "hhih", "ihih"],
        "iifi",
        "hiih",
    ),
    "nothing in common": (["iiii", "hhhh"], ["hhii"], "iiii", "hhii"),
}


@pytest.mark.parametrize(("failed", "ran", "unlikely", "likely"), CASES.values(), ids=CASES)
def test_what_failures_share_and_nothing_that_ran_is_likely_to_fail_again(
    failed: Sequence[str], ran: Sequence[str], unlikely: str, likely: str
) -> None:
    seen = [*(failure(CHAIN, states(text)) for text in failed), *(success(states(text)) for text in ran)]
    fails, runs = Failures(CHAIN, seen).chances([states(unlikely), states(likely)])
    assert 0.0 <= fails < 0.4
    assert 0.8 < runs <= 1.0


def test_where_nothing_failed_all_is_likely_to_run() -> None:
    assert Failures(CHAIN, []).chances([states("iiii")]).tolist() == [1.0]
    assert Failures(CHAIN, [success(states("ihii"))]).chances([states("iiii")]).tolist() == [1.0]


def test_what_ran_with_a_part_of_an_atom_in_another_state_says_nothing_of_that_atom() -> None:
    failed, ran = [failure(CHAIN, states(text)) for text in ("ihii", "ihhh")], success(states("ihff"))
    of_whole, of_part = (
        Failures(CHAIN, [*failed, replace(ran, split=split)]).chances([states("ihih")]) for split in (0, 0b10)
    )
    assert of_part < of_whole


def test_a_recipe_of_single_nodes_splits_the_atoms_that_it_names_in_part() -> None:
    atoms = [replace(CHAIN.atoms[0], nodes=frozenset({"a", "b"})), *CHAIN.atoms[1:]]
    problem = Problem(atoms, CHAIN.neighbours, CHAIN.forecast_of, states=CHAIN.states)
    for nodes, expected in (({"a"}, 1), ({"a", "b"}, 0), (set(), 0)):
        assert problem.split_by(frozenset(nodes)) == expected
        found = Reader(problem=problem).seen(
            TrialRecord(number=0, origin="", recipe=Recipe(denylisted_nodes=frozenset(nodes)), error="It died.")
        )
        assert found is not None
        assert found.split == expected


@pytest.mark.parametrize(("seed", "apart"), [(1, 1), (2, 1), (1, 6), (3, 6)])
def test_a_search_leaves_a_pair_that_fails_together(seed: int, apart: int) -> None:
    """An atom in integers and another one in float: far from all that is good has it, but what looks best has."""
    made: Synthetic = synthetic(24, seed)
    proposer, seen = SurrogateProposer(made.problem, seed, 50), list[Seen]()
    for _ in range(50):
        mask = proposer.propose(seen, [])
        assert mask is not None
        dies = not mask.left_out >> 3 & 1 and mask.left_out >> (3 + apart) & 1
        seen.append(failure(made.problem, mask) if dies else made.seen(mask))
    assert 2 <= sum(s.failed for s in seen) <= 6
