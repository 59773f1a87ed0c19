"""States of units: any number of them, each with a noise of its own, in one search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import table
from hypothesis import given
from hypothesis import strategies as st
from reviewing import Reviewed
from settling import settled

from autoselect.cases import prepare_jobs
from autoselect.cases.events import Event, Noted, StageStarted, StepFinished, ignore
from autoselect.cases.prepare_jobs import Int16Proof
from autoselect.domain.pareto import hypervolume
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.search_space import FREE, BoundSpace
from autoselect.domain.states import STATES, alone_in, fields_of, further_of, left_out_of, states_of
from autoselect.errors import WorkerDied
from autoselect.study.proposing import mutation
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import NO_RULE, Forecast, Problem, Unit
from autoselect.study.proposing.proposers import all_masks, random_masks
from autoselect.study.proposing.surrogate import Surrogate
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.setup.probing import probed
from autoselect.study.setup.problem import makes_int16

BYTES = {"integer": 10, "hybrid": 11, "sixteen": 20, "float": 40}
NAMES = [f"n{i}" for i in range(10)]


def made_up(
    states: tuple[str, ...],
    noise: Mapping[str, float],
    *,
    lacking: Mapping[str, frozenset[str]] | None = None,
    instead: Mapping[str, str] | None = None,
    space: BoundSpace = FREE,
) -> Problem:
    """Ten nodes in a row, each of which takes bytes by its state; some lack one, and have another instead."""
    lacks, others = lacking or {}, instead or {}

    def kind_of(name: str, left_out: frozenset[str], further: Mapping[str, frozenset[str]]) -> str:
        wanted = next((state for state, nodes in further.items() if name in nodes), states[0])
        if name in space.not_outside and wanted != "sixteen":
            return "integer"
        kind = wanted if name in left_out else "integer"
        return others.get(kind, "float") if name in lacks.get(kind, ()) else kind

    def forecast(left_out: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        kinds = tuple(kind_of(name, left_out, further) for name in NAMES)
        cut = sum(a != b for a, b in pairwise(kinds))
        return Forecast(sum(map(BYTES.__getitem__, kinds)), len(left_out) + 0.1 * cut, kinds, kinds=kinds)

    units = [
        Unit(nodes=frozenset({name}), op_type="ADD", position=i, sensitivity=0.1 * 0.5**i, noise=noise)
        for i, name in enumerate(NAMES)
    ]
    near = [frozenset(j for j in (i - 1, i + 1) if 0 <= j < len(NAMES)) for i in range(len(NAMES))]
    return Problem(units, near, forecast, states=states, order=NAMES, space=space)


FOUR = ("hybrid", "sixteen", "float")
NOISE = {"hybrid": 0.02, "sixteen": 1e-5}


def test_a_unit_without_a_form_of_its_own_in_a_state_has_no_double_of_another() -> None:
    """The first node has no hybrid kernel, so that left out it is float once; the second has no 16 bits."""
    problem = made_up(FOUR, NOISE, lacking={"hybrid": frozenset({"n0"}), "sixteen": frozenset({"n1"})})
    everything = (1 << 10) - 1
    assert problem.forms == (everything, everything, everything & ~0b11)
    assert problem.noisy == (everything & ~0b1, everything & ~0b10, 0)
    assert problem.noise[:, :3].tolist() == [[0.0, 0.02, 0.02], [1e-5, 0.0, 1e-5], [0.0, 0.0, 0.0]]
    keys = [problem.forecast(mask).key for mask in mutation.single_flips(Mask(), problem)]
    assert len(set(keys)) == len(keys) == 3 * 10 - 2
    assert set(problem.forecast(problem.in_state(everything, 2)).kinds) == {"float"}


def test_a_unit_that_stays_in_integers_in_a_state_does_not_have_it() -> None:
    """The builder leaves what has no 16-bit form in integers."""
    problem = made_up(FOUR, NOISE, lacking={"sixteen": frozenset({"n1"})}, instead={"sixteen": "integer"})
    assert [form >> 1 & 1 for form in problem.forms] == [1, 0, 1]
    assert problem.in_state(0b111, 1) == Mask(0b101).put(0b101, 1)
    assert problem.noise[1, :3].tolist() == [1e-5, 0.0, 1e-5]


def test_a_unit_that_a_target_takes_in_integers_alone_still_has_16_bits() -> None:
    """Two of ten nodes are in integers in each candidate, whoever proposes it."""
    problem = made_up(FOUR, NOISE, space=BoundSpace(dimensions=(), not_outside=frozenset({"n1", "n4"})))
    everything, never_out = (1 << 10) - 1, 0b10010
    assert problem.not_outside == never_out
    assert problem.forms == (everything & ~never_out, everything, everything & ~never_out)
    assert problem.in_state(everything, 2).left_out == everything & ~never_out
    assert problem.in_state(everything, 1).within(1) == everything
    assert problem.hold(Mask(everything)) == Mask(everything & ~never_out)
    assert problem.balanced(everything, problem.noise, problem.sensitivities).within(1) & never_out == never_out
    by_chance = random_masks(problem, 3)
    drawn = [by_chance.propose([], []) for _ in range(40)]
    masks = [mask for mask in drawn if mask is not None] + [s.mask for s in searched(problem, 40)]
    assert len(masks) == 80
    everywhere = made_up(FOUR, NOISE, space=BoundSpace(dimensions=(), not_outside=frozenset(NAMES)))
    by_chance = random_masks(everywhere, 3)
    assert len({by_chance.propose([], []) for _ in range(40)}) >= 20
    assert not any(mask.left_out & ~mask.within(1) & never_out for mask in masks)
    assert any(mask.left_out & never_out for mask in masks)


def test_a_unit_that_a_target_never_takes_in_8_bits_is_left_out_in_one_state_or_another() -> None:
    problem = made_up(("float", "sixteen"), NOISE, space=BoundSpace(dimensions=(), not_int8=frozenset(NAMES)))
    assert problem.not_int8 == problem.everything
    assert problem.hold(Mask()) == Mask(problem.everything)
    by_chance = random_masks(problem, 3)
    drawn = [by_chance.propose([], []) for _ in range(40)]
    masks = [mask for mask in drawn if mask is not None] + [s.mask for s in searched(problem, 20)]
    assert len(set(masks)) >= 50
    assert {mask.left_out for mask in masks} == {problem.everything}


def test_nodes_that_a_target_holds_do_not_hide_the_state_of_their_unit() -> None:
    """A block of a search space may have a node that is never out of integers, and one that is never in 8 bits."""
    space = BoundSpace(dimensions=(), further=("int16",), not_outside=frozenset("a"), not_int8=frozenset("f"))
    units = [Unit(nodes=frozenset(g), op_type="ADD", position=i, sensitivity=0.1) for i, g in enumerate(("ab", "cf"))]
    near = [frozenset({1}), frozenset({0})]

    def forecast(left_out: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        return Forecast(1, 1.0, (left_out, *further.values()))

    problem = Problem(units, near, forecast, states=("float", "int16"), space=space)
    for mask in (Mask(), Mask(1), Mask(2), Mask(3), Mask(1, (1,)), Mask(3, (2,)), Mask(3, (3,))):
        nodes, further = space.held(problem.nodes_of(mask), problem.further_of(mask))
        assert problem.mask_of(nodes, further) == mask
        assert problem.split_by(nodes, *further.values()) == 0


def test_what_units_become_takes_one_forecast_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = made_up(FOUR, NOISE)
    asked, forecast = [], problem.forecast_of

    def counted(left_out: frozenset[str], further: Mapping[str, frozenset[str]], repairs: Repairs) -> Forecast:
        asked.append(left_out)
        return forecast(left_out, further, repairs)

    monkeypatch.setattr(problem, "forecast_of", counted)
    everything = (1 << 10) - 1
    assert (problem.forms, problem.noisy) == ((everything,) * 3, (everything, everything, 0))
    assert len(asked) == 1 + len(FOUR)


def test_the_count_of_candidates_is_that_of_all_of_them() -> None:
    for problem in (
        made_up(("float",), {}),
        made_up(STATES["search"], NOISE, lacking={"hybrid": frozenset(NAMES[3:])}),
    ):
        masks = list(all_masks(problem))
        assert len({problem.forecast(mask).key for mask in masks}) == len(masks) == problem.count


PLACES = st.lists(st.integers(0, 3), min_size=10, max_size=10)


@given(places=PLACES)
def test_masks_of_many_states_are_what_their_nodes_say(places: list[int]) -> None:
    problem, mask = made_up(FOUR, NOISE), Mask()
    for i, place in enumerate(places):
        mask = mask.put(1 << i, place - 1) if place else mask
    assert problem.mask_of(problem.nodes_of(mask), problem.further_of(mask)) == mask
    assert list(problem.forecast(mask).kinds) == [("integer", *FOUR)[place] for place in places]


def test_each_state_adds_its_own_noise() -> None:
    problem = made_up(FOUR, NOISE)
    masks = [problem.in_state(problem.everything, place) for place in range(3)]
    believed = np.exp(Surrogate(problem).believe([Mask(), *masks]).mean)
    assert believed == pytest.approx([0.2 - 0.1 * 0.5**9, 0.2, 1e-4, 1e-9], rel=1e-3)


def test_a_balanced_mask_is_as_noisy_as_its_integer_units_and_no_more() -> None:
    """In integers units 1 to 9 make 0.0999, which leaves room for one hybrid unit; units 8 and 9 make 0.0006."""
    problem = made_up(FOUR, NOISE)
    balanced = [problem.balanced(units, problem.noise, problem.sensitivities) for units in (0b1, 0b11111111)]
    assert balanced == [Mask(0b1), Mask(0b11111111).put(0b11111111, 1)]


def seen(problem: Problem, mask: Mask) -> Seen:
    noise = {"integer": problem.sensitivities, **dict(zip(problem.states, problem.noise, strict=True))}
    found = problem.forecast(mask)
    divergence = sum(noise[kind][i] if kind in noise else 0.0 for i, kind in enumerate(found.kinds)) + 1e-9
    return Seen(
        mask=mask,
        loss=min(divergence, 0.1),
        log_divergence=math.log(divergence),
        share=1.0,
        size_bytes=found.size_bytes,
        penalty=found.penalty,
    )


def searched(problem: Problem, trials: int) -> list[Seen]:
    proposer, told = SurrogateProposer(problem, 0), list[Seen]()
    while len(told) < trials and (mask := proposer.propose(told, [])) is not None:
        told.append(seen(problem, mask))
    return told


def volume(told: list[Seen]) -> float:
    return hypervolume(np.array([[s.loss, s.size_bytes, s.penalty] for s in told]) / [0.11, 440.0, 12.0], np.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [{"hybrid": 0.02, "sixteen": 1e-5}, {"hybrid": 1e-6, "sixteen": 1e-7}],
    ids=["noisy hybrid", "quiet hybrid"],
)
def test_one_search_over_all_states_finds_what_those_over_one_find(noise: dict[str, float]) -> None:
    pure = [volume(searched(made_up((state,), noise), 30)) for state in ("hybrid", "float")]
    for together in (STATES["search"], FOUR):
        assert volume(searched(made_up(together, noise), 30)) > 0.99 * max(pure)


@pytest.mark.parametrize(("noise", "reached"), [(0.02, True), (1e-6, False)], ids=["noisy hybrid", "quiet hybrid"])
def test_float_units_are_tried_only_where_hybrid_ones_lose_too_much(noise: float, reached: bool) -> None:
    problem = made_up(STATES["search"], {"hybrid": noise})
    problem.rule = replace(NO_RULE, allowed_drop=1e-3)
    told = searched(problem, 25)
    assert min(s.loss for s in told if s.loss is not None) <= 1e-3
    assert (max(s.size_bytes for s in told) > 300) is reached


def test_the_same_seed_gives_the_same_proposals_in_many_states() -> None:
    first, again = ([s.mask for s in searched(made_up(FOUR, NOISE), 15)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 15


def test_recipes_say_the_further_states() -> None:
    further = {"float": frozenset("ab")}
    recipe = Recipe(**fields_of(frozenset("abc"), further))
    assert (recipe.denylisted_nodes, recipe.float_nodes) == (frozenset("abc"), frozenset("ab"))
    assert (left_out_of(recipe), further_of(recipe)) == (frozenset("abc"), {"int16": frozenset(), **further})


def test_recipes_do_not_denylist_what_has_16_bits() -> None:
    further = {"int16": frozenset("a"), "float": frozenset("b")}
    fields = fields_of(frozenset("abc"), further)
    assert fields == {
        "denylisted_nodes": frozenset("bc"),
        "int16_nodes": frozenset("a"),
        "float_nodes": frozenset("b"),
    }
    recipe = Recipe(**fields)
    assert (left_out_of(recipe), further_of(recipe)) == (frozenset("abc"), further)


@pytest.mark.parametrize(
    ("fallback", "found"),
    [("drq", ("hybrid",)), ("float", ("float", "int16")), ("search", ("hybrid", "int16", "float"))],
)
def test_16_bits_are_a_state_beside_an_exact_one(fallback: str, found: tuple[str, ...]) -> None:
    assert states_of(fallback, int16=True) == found
    assert states_of(fallback, int16=False) == tuple(state for state in found if state != "int16")


class OneAnswer:
    """A pool whose every call ends the same way."""

    def __init__(self, answer: Int16Proof | Exception) -> None:
        self.answer = answer

    def call(self, job: Any, _root: Path, _per_channel: bool, *, timeout_seconds: float) -> Int16Proof:
        assert job is prepare_jobs.int16_proof
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "kept", "told"),
    [
        (Int16Proof(is_possible=True, remarks=()), True, ()),
        (Int16Proof(is_possible=False, remarks=("none can",)), False, ("none can",)),
        (WorkerDied("It crashed."), False, ("No unit has 16-bit activations. It crashed.",)),
    ],
)
def test_a_model_that_cannot_have_16_bits_is_searched_without(
    answer: Int16Proof | Exception, kept: bool, told: tuple[str, ...]
) -> None:
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")))
    pool: Any = OneAnswer(answer)
    assert makes_int16(case, settled(fallback="search", int16=True), pool) == (kept, told)


def test_where_16_bits_are_not_tried_nothing_is_built() -> None:
    case: Any = None
    pool: Any = OneAnswer(AssertionError())
    settings = settled(fallback="search", int16=False)
    assert makes_int16(case, settings, pool) == (True, ())


def test_the_exact_state_is_weighed_last_and_the_others_by_what_they_cost() -> None:
    """Where what is left out is float that comes first in masks, and 16 bits are tried before it all the same."""
    problem = made_up(("float", "sixteen"), NOISE)
    assert problem.by_cost == (1, 0)
    assert made_up(FOUR, NOISE).by_cost == (0, 1, 2)
    integers = np.full(10, 1.0)
    mask = problem.balanced(0b11, problem.noise, integers)
    assert (mask.within(1), mask.within(0)) == (0b11, 0)
    noisy = made_up(("float", "sixteen"), {"sixteen": 100.0})
    assert noisy.balanced(0b11, noisy.noise, integers).within(0) == 0b11


def test_the_best_is_found_where_the_exact_state_comes_first() -> None:
    told = searched(made_up(("float", "sixteen"), NOISE), 25)
    assert min(s.loss for s in told if s.loss is not None) <= 1e-3
    assert max(s.size_bytes for s in told) <= 200  # 16 bits are good enough: nothing is spent on float.


def test_units_are_tried_alone_in_each_state_that_errs() -> None:
    """Six answers: two in integers, then one unit in each of two states, for which recipes are noted."""
    units = [Unit(nodes=frozenset({n}), op_type="ADD", position=i, sensitivity=7.0) for i, n in enumerate("ab")]
    answers, recipes = iter([[0.5], [0.25], [0.125], []]), []

    def submit(_job: Any, _root: Path, recipe: str, *_: Any, **__: Any) -> Future[list[float]]:
        recipes.append(Recipe.from_json(recipe))
        future: Future[list[float]] = Future()
        future.set_result(next(answers))
        return future

    layers = table(("a", "ADD", 0.3), ("b", "ADD", 0.3))
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")), layers=layers, counts={"calibration": 3})
    pool: Any = SimpleNamespace(submit=submit)
    others = [(units[1], "hybrid"), (units[0], "hybrid")]
    found, remarks = probed(units, case, settled(fallback="search"), pool, ignore, lambda: others)
    assert [(unit.sensitivity, unit.noise) for unit in found] == [(0.5, {"hybrid": 0.125}), (0.25, {})]
    assert [(r.denylisted_nodes, r.float_nodes, r.fallback) for r in recipes] == [
        (frozenset("b"), frozenset(), "float"),
        (frozenset("a"), frozenset(), "float"),
        (frozenset("ab"), frozenset("b"), "drq"),
        (frozenset("ab"), frozenset("a"), "drq"),
    ]
    assert "1 of 4" in remarks[0]


@pytest.mark.parametrize("ruinous", [False, True], ids=["", "one ruins the outputs alone"])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("joint", [0.005, 0.05])
def test_units_that_err_by_nothing_together_are_not_tried_one_by_one(
    reviewed: Reviewed, joint: float, uneven: bool, ruinous: bool
) -> None:
    """In 16 bits the first four of eight units err; the others by ``joint`` together, in integers all by 1 together.

    A unit that ruins the outputs in integers sets no scale for what counts as nothing.
    """
    units = [Unit(nodes=frozenset({n}), op_type="ADD", position=i, sensitivity=1.0) for i, n in enumerate("abcdefgh")]
    asked: list[str] = []
    heard: list[Event] = []

    def submit(_job: Any, _root: Path, recipe: str, *_: Any, **__: Any) -> Future[list[float]]:
        parsed, future = Recipe.from_json(recipe), Future[list[float]]()
        wide = parsed.int16_nodes - parsed.float_nodes
        tried = wide or frozenset("abcdefgh") - parsed.denylisted_nodes
        error = sum((0.1 if n in "abcd" else joint / 4) if wide else (0.2 if n in "abcd" else 0.05) for n in tried)
        asked.extend(["".join(sorted(tried))] if wide else [])
        error = 1e3 if ruinous and not wide and "a" in tried else error
        future.set_result([0.0, 2.0 * error] if uneven else [error, error])
        return future

    layers = table(*((n, "ADD", 0.3) for n in "abcdefgh"))
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")), layers=layers, counts={"calibration": 3})
    pool: Any = SimpleNamespace(submit=submit)
    settings = settled(fallback="search", int16=True)
    found, _ = probed(units, case, settings, pool, heard.append, lambda: [(unit, "int16") for unit in units])
    is_nothing = joint < 0.01 and not uneven
    rest = ["efgh"] if is_nothing else ["efgh", "e", "f", "g", "h"]
    assert asked == ["abcdefgh", *"abcd", *rest]
    assert [unit.noise["int16"] for unit in found] == pytest.approx([0.1] * 4 + [joint / 4] * 4)
    assert [event.total for event in heard if isinstance(event, StageStarted)] == [16]
    assert sum(isinstance(event, StepFinished) for event in heard) == 16
    notes = [event.message.split(":")[0] for event in heard if isinstance(event, Noted)]
    if is_nothing:
        reviewed("units that were tried together", notes)
    else:
        assert notes == []


def test_a_unit_alone_in_a_state_leaves_the_others_exact() -> None:
    assert alone_in("hybrid", frozenset("a"), frozenset("abc")) == {"float": frozenset("bc")}
    wide = alone_in("int16", frozenset("a"), frozenset("abc"))
    assert wide == {"float": frozenset("bc"), "int16": frozenset("a")}
    fields = fields_of(frozenset("abc"), wide)
    assert fields["denylisted_nodes"] == fields["float_nodes"] == frozenset("bc")
