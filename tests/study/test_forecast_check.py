"""Builds against forecasts that are wrong, with a pool of known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakePool
from synthetic import chain_of
from test_loop import NODES, Search

from autoselect.cases.build_jobs import BuildReply
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs
from autoselect.study.proposing.forecast_check import ForecastCheck, unlike_forecasts, warnings_of
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.proposers import Seen
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer


def problem_of(wrong: frozenset[str] | None) -> Problem:
    """Forecasts what FakePool builds, but for one set of nodes 5 bytes too many."""
    units = [Unit(nodes=frozenset({n}), op_type="ADD", position=i, sensitivity=0.1) for i, n in enumerate(NODES)]

    def forecast(nodes: frozenset[str], float_nodes: frozenset[str], _repairs: Repairs) -> Forecast:
        active = nodes - {"idle"}
        size_bytes = 100 + 10 * len(active) + 5 * (nodes == wrong)
        return Forecast(size_bytes, float(len(active)), (active, size_bytes))

    return Problem(units, [frozenset()] * len(units), forecast)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def check_of(problem: Problem) -> ForecastCheck:
    return ForecastCheck(problem, Recipe())


def test_right_forecasts_are_passed_over(path: Path) -> None:
    records = Search(path, forecasts=check_of(problem_of(None))).run(20)
    assert {r.forecast_error for r in records} == {""}
    assert warnings_of(records) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_each_trial_of_a_recipe_that_was_built_otherwise_says_so(path: Path, workers: int) -> None:
    wrong = frozenset("b")
    records = Search(path, forecasts=check_of(problem_of(wrong)), workers=workers).run(80)
    unlike = [r for r in records if r.recipe and r.recipe.denylisted_nodes == wrong]
    assert len(unlike) > 1  # the second one is not built again
    assert {r.forecast_error for r in unlike} == {"it has 110 bytes, not 115"}
    assert {r.forecast_error for r in records if r not in unlike} == {""}
    assert [r.number for r in unlike_forecasts(records)] == [unlike[0].number]
    (warning,) = warnings_of(records)
    assert warning.startswith("1 of 8 candidates ")
    assert unlike[0].id in warning
    assert "it has 110 bytes, not 115" in warning


def reply(kinds: dict[str, str]) -> BuildReply:
    return BuildReply(sha256="0" * 64, size_bytes=100, fragmentation={}, kinds=kinds, fallbacks={}, seconds=0.0)


KINDS = {
    "alike": ({"a": "integer", "b": "float"}, ""),
    "one": ({"a": "hybrid", "b": "float"}, "'a' is hybrid, not integer"),
    "both": ({"a": "hybrid", "b": "integer"}, "'a' is hybrid, not integer, 'b' is integer, not float"),
}


@pytest.mark.parametrize(("kinds", "told"), KINDS.values(), ids=KINDS)
def test_kinds_are_compared_node_by_node(kinds: dict[str, str], told: str) -> None:
    units = [Unit(nodes=frozenset({n}), op_type="ADD", position=i, sensitivity=0.1) for i, n in enumerate("ab")]
    forecast = Forecast(100, 0.0, "key", kinds=("integer", "float"))
    problem = Problem(units, [frozenset()] * 2, lambda nodes, float_nodes, _repairs: forecast, order="ab")
    recipe = Recipe(denylisted_nodes=frozenset("b"))
    assert ForecastCheck(problem, Recipe()).difference(recipe, reply(kinds)) == told


def test_a_build_that_is_unlike_its_forecast_is_no_twin_of_others_from_then_on() -> None:
    problem = problem_of(None)
    recipe, twin = (Recipe(denylisted_nodes=frozenset(nodes)) for nodes in ({"b"}, {"b", "idle"}))
    keys = [problem.forecast(problem.mask_of(r.denylisted_nodes)).key for r in (recipe, twin)]
    assert keys[0] == keys[1]
    assert check_of(problem).difference(recipe, reply({})) == "it has 100 bytes, not 110"
    keys = [problem.forecast(problem.mask_of(r.denylisted_nodes)).key for r in (recipe, twin)]
    assert keys[0] != keys[1]


OTHERS = {
    "another fallback": Recipe(denylisted_nodes=frozenset("b"), fallback="float"),
    "other repairs": Recipe(denylisted_nodes=frozenset("b"), repairs=("bias",)),
}


@pytest.mark.parametrize("recipe", OTHERS.values(), ids=OTHERS)
def test_recipes_of_which_nothing_was_forecast_are_not_compared(recipe: Recipe) -> None:
    assert check_of(problem_of(frozenset("b"))).difference(recipe, reply({})) == ""


def seen(problem: Problem, mask: Mask) -> Seen:
    found = problem.forecast(mask)
    return Seen(
        mask=mask,
        loss=0.1,
        size_bytes=float(found.size_bytes),
        penalty=found.penalty,
        log_divergence=-3.0 - mask.left_out,
        share=1.0,
    )


def test_what_was_built_otherwise_has_no_twins_any_more() -> None:
    """The second unit is idle by the forecasts: each candidate seems to have a twin."""
    problem = chain_of([0.5, 0.1], idle=frozenset({1}))
    proposer = SurrogateProposer(problem, seed=0)
    known = [seen(problem, mask) for mask in (Mask(0b00), Mask(0b01))]
    assert proposer.propose(known, []) is None
    problem.distrust(Mask(0b00))
    assert proposer.propose(known, []) == Mask(0b10)


def test_a_resumed_search_distrusts_what_it_did(path: Path) -> None:
    wrong = frozenset("b")
    Search(path, forecasts=check_of(problem_of(wrong))).run(30)
    problem = problem_of(wrong)
    mask = problem.mask_of(wrong)
    before = problem.forecast(mask).key
    pool = FakePool()
    Search(path, pool, forecasts=check_of(problem))
    assert pool.built == []
    assert problem.forecast(mask).key != before
    assert problem.forecast(mask).size_bytes == 115
