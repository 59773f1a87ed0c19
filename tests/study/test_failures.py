"""What is learned of candidates that fail, on a chain of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from synthetic import Synthetic, chain_of, synthetic

from autoselect.domain.recipe import Recipe
from autoselect.runs.records import Partial, TrialRecord
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Reader, Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

CHAIN = chain_of([0.1] * 4, mixed=True)


def failure(problem: Problem, mask: Mask, *nodes: str) -> Seen:
    recipe = Recipe(
        denylisted_nodes=problem.nodes_of(mask), float_nodes=problem.further_of(mask).get("float", frozenset())
    )
    record = TrialRecord(number=0, origin="", recipe=recipe, error="It died.", error_nodes=nodes)
    found = Reader(problem=problem).seen(record)
    assert found is not None
    assert found.mask == mask
    return found


def success(mask: Mask) -> Seen:
    known = {"loss": 0.1, "log_divergence": -3.0, "share": 1.0, "size_bytes": 100.0, "penalty": 1.0}
    return Seen(mask=mask, **known)


def states(text: str) -> Mask:
    """``i``, ``h`` and ``f`` for each unit: integers, hybrid and float."""
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


def test_what_ran_with_a_part_of_an_unit_in_another_state_says_nothing_of_that_unit() -> None:
    failed, ran = [failure(CHAIN, states(text)) for text in ("ihii", "ihhh")], success(states("ihff"))
    of_whole, of_part = (
        Failures(CHAIN, [*failed, replace(ran, split=split)]).chances([states("ihih")]) for split in (0, 0b10)
    )
    assert of_part < of_whole


def test_a_recipe_of_single_nodes_splits_the_units_that_it_names_in_part() -> None:
    units = [replace(CHAIN.units[0], nodes=frozenset({"a", "b"})), *CHAIN.units[1:]]
    problem = Problem(units, CHAIN.neighbours, CHAIN.forecast_of, states=CHAIN.states)
    for nodes, expected in (({"a"}, 1), ({"a", "b"}, 0), (set(), 0)):
        assert problem.split_by(frozenset(nodes)) == expected
        found = Reader(problem=problem).seen(
            TrialRecord(number=0, origin="", recipe=Recipe(denylisted_nodes=frozenset(nodes)), error="It died.")
        )
        assert found is not None
        assert found.split == expected


NAMED = {
    "the failing unit in its state": (["ihii"], [], "ifff iihf", "hhii fhii"),
    "in each state by itself": (["ihii", "hhii"], [], "iiii hfff", "fhii"),
    "one that ran in that state, with its divisor in the state of then": (["ihii"], ["iihi"], "ihii ifif", "iihh ihhi"),
    "one that ran with that divisor, too": (["ihii"], ["ifii"], "", "ihii iiii"),
    "float, which ran with all in float": (["fihi"], [], "fihi fihf", "ffii fifi"),
}
"""Node 0 fails at what node 2 computes: candidates that failed, that ran, that are known to fail, that are not."""


@pytest.mark.parametrize(("failed", "ran", "known", "others"), NAMED.values(), ids=NAMED)
def test_where_the_failing_node_is_known_nothing_has_it_in_that_state_again(
    failed: Sequence[str], ran: Sequence[str], known: str, others: str
) -> None:
    nodes = [name for place in (0, 2) for name in CHAIN.units[place].nodes]
    seen = [*(failure(CHAIN, states(text), *nodes) for text in failed), *(success(states(text)) for text in ran)]
    found = Failures(CHAIN, seen)
    assert [text for text in (*known.split(), *others.split()) if found.is_known(states(text))] == known.split()
    assert not found.chances([states(text) for text in known.split()]).any()


def test_a_failure_that_only_other_repairs_can_explain_is_known_of_these_alone() -> None:
    sets, repaired = ((), ("bias",)), Mask(repairs=1)
    problem = Problem(CHAIN.units, CHAIN.neighbours, CHAIN.forecast_of, states=CHAIN.states, repair_sets=sets)
    [node] = CHAIN.units[0].nodes
    failed = replace(failure(problem, Mask(), node), mask=repaired)
    found = Failures(problem, [success(Mask()), failed])
    assert [found.is_known(mask) for mask in (Mask(), repaired)] == [False, True]


def test_nothing_is_known_of_an_unit_that_is_in_two_states_or_of_nodes_in_no_unit() -> None:
    [node] = CHAIN.units[0].nodes
    split = replace(failure(CHAIN, states("iiii"), node), split=1)
    for failed in (split, failure(CHAIN, states("iiii"), "pinned")):
        assert not Failures(CHAIN, [failed]).is_known(states("iiii"))


def test_a_search_tries_no_state_again_whose_node_failed() -> None:
    made: Synthetic = synthetic(24, 1)
    proposer, seen = SurrogateProposer(made.problem, 1, 50), list[Seen]()
    for _ in range(50):
        mask = proposer.propose(seen, [])
        assert mask is not None
        [node] = made.problem.units[3].nodes
        seen.append(made.seen(mask) if mask.left_out >> 3 & 1 else failure(made.problem, mask, node))
    assert sum(s.failed for s in seen) == 1


@pytest.mark.parametrize(("seed", "apart"), [(1, 1), (2, 1), (1, 6), (3, 6)])
def test_a_search_leaves_a_pair_that_fails_together(seed: int, apart: int) -> None:
    """A unit in integers and another one in float: far from all that is good has it, but what looks best has."""
    made: Synthetic = synthetic(24, seed)
    proposer, seen = SurrogateProposer(made.problem, seed, 50), list[Seen]()
    for _ in range(50):
        mask = proposer.propose(seen, [])
        assert mask is not None
        dies = not mask.left_out >> 3 & 1 and mask.left_out >> (3 + apart) & 1
        seen.append(failure(made.problem, mask) if dies else made.seen(mask))
    assert 2 <= sum(s.failed for s in seen) <= 6


@pytest.mark.parametrize("other", [{"io_type": "int8"}, {"per_channel": False}], ids=str)
@pytest.mark.parametrize("error", ["", "It died."])
def test_a_recipe_of_another_form_says_nothing_of_the_search(other: dict[str, Any], error: str) -> None:
    """As one that a user brings: what its inputs lose in 8 bits is no node's fault."""
    template = Recipe(io_type="float32")
    measured = {"sha256": "", "samples": 5, "sqnr_db": 9.0, "size_bytes": 100, "penalty": 1.0, "drop": 0.3}
    seconds = dict.fromkeys(("build_seconds", "score_seconds", "inference_seconds"), 0.0)
    partial = None if error else Partial(**measured, **seconds, total=10, estimate=0.5)
    ours = TrialRecord(number=0, origin="", recipe=template, partial=partial, error=error)
    reader = Reader(problem=CHAIN, template=template)
    assert reader.seen(ours) is not None
    theirs = replace(ours, recipe=replace(template, **other))
    assert reader.seen(theirs) is None
    assert not reader.is_ours(replace(template, **other))
