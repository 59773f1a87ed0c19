"""When a search ends after its baselines, by figures that are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pytest
from reviewing import Reviewed
from test_certainty import YARDSTICK, rising, scored

from autoselect.cases.settings import make_settings
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs
from autoselect.runs.records import Scores, TrialRecord
from autoselect.scoring.paired import PairedDrop
from autoselect.study.early_exit import stop_of
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.request import Request


def chain(never: str, *, piece: float = 0.1, size: int = 0) -> Problem:
    """Nodes ``a`` to ``f`` in a row; those in ``never`` have no integer form.

    The penalty is 1 for each float node and so much for each piece of integer ones; a node that is left out adds to the
    size of 300 bytes.
    """

    def forecast(nodes: frozenset[str], _further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        floats = [name in nodes or name in never for name in "abcdef"]
        pieces = sum(not is_float for is_float, _ in groupby(floats))
        return Forecast(300 + size * (sum(floats) - len(never)), sum(floats) + piece * pieces, tuple(floats))

    units = [Unit(nodes=frozenset(name), op_type="ADD", position=i, sensitivity=0.1) for i, name in enumerate("abcdef")]
    return Problem(units, [frozenset({i - 1, i + 1}) & frozenset(range(6)) for i in range(6)], forecast)


class Study:
    def __init__(self, recipe: Recipe, scores: Scores, others: Mapping[Recipe, Scores] | None = None) -> None:
        known = {recipe: scores, **(others or {})}
        self._records = [TrialRecord(number=0, origin="baseline:fiq", recipe=r, scores=s) for r, s in known.items()]

    def records(self) -> list[TrialRecord]:
        return self._records


def reason(
    problem: Problem | None, recipe: Recipe | None = None, target: str = "integer-only", **figures: Any
) -> str | None:
    return reason_of(scored("1", -0.005, **figures), [], problem, recipe, target)


def reason_of(
    scores: Scores,
    others: list[Scores],
    problem: Problem | None,
    recipe: Recipe | None = None,
    target: str = "integer-only",
    forecasts: Problem | None = None,
    mixed: Mapping[Recipe, Scores] | None = None,
) -> str | None:
    request = Request(
        ingredients=cast("Any", None),
        said=make_settings(target=target),
        sources={},
        metric_name="accuracy",
        direction="maximize",
    )
    study = cast("Any", Study(recipe or Recipe(), scores, mixed))
    workers = cast("Any", Measuring())
    return stop_of(request, YARDSTICK, Path(), workers, study, problem, lambda: forecasts)([*others, scores])


CASES = {
    "all ops are integer ones": (chain(""), {"float_ops": 0}, "the all-integer model is good enough"),
    "no op is float, but a float one saves bytes": (chain("", size=-20), {"float_ops": 0}, None),
    "no op is float, but all in float cost less": (chain("", piece=8.0), {"float_ops": 0}, None),
    "nobody can forecast, and none is float": (
        None,
        {"float_ops": 0, "segments": 1},
        "the all-integer model is good enough",
    ),
    "one op can be no integer one": (chain("c"), {"float_ops": 1}, "the integer model with 1 float op is good enough"),
    "two of them": (chain("be"), {"float_ops": 2}, "the integer model with 2 float ops is good enough"),
    "all of them": (chain("abcdef"), {"float_ops": 6}, "the integer model with 6 float ops is good enough"),
    "the node between them cuts more than it computes": (chain("ac", piece=2.0), {"float_ops": 2}, None),
    "the nodes between them cut more than they compute": (chain("ad", piece=3.0), {"float_ops": 2}, None),
    "a larger piece is less than a step of penalty": (chain("ac", piece=1.4), {"float_ops": 2}, "2 float ops"),
    "a node left out saves bytes": (chain("c", size=-20), {"float_ops": 1}, None),
    "of a node left out nobody notices the bytes": (chain("c", size=-3), {"float_ops": 1}, "1 float op"),
    "nobody can forecast": (None, {"float_ops": 1}, None),
    "not surely good enough": (chain("c"), {"float_ops": 1, "drop_bound": 0.02}, None),
}


@pytest.mark.parametrize(("problem", "figures", "expected"), CASES.values(), ids=CASES)
def test_a_search_ends_where_nothing_is_cheaper_than_a_good_integer_model(
    problem: Problem | None, figures: dict[str, Any], expected: str | None
) -> None:
    found = reason(problem, **figures)
    assert (found is None) == (expected is None)
    assert (expected or "") in (found or "")


def test_what_a_node_without_an_integer_form_costs_is_said(reviewed: Reviewed) -> None:
    reviewed("an integer model with a float op ends the trials", str(reason(chain("c"), float_ops=1)))


class Measuring:
    """Workers that know of each model what is to be measured."""

    def call(self, *_: object) -> PairedDrop:
        return PairedDrop(drop=0.001, error=0.02, low=-0.009, high=0.011, bound=0.009)


@pytest.mark.parametrize("known", [(0.02, 0.009), (math.nan, math.nan)], ids=["scored with its bound", "measured now"])
def test_a_search_goes_on_where_the_integer_model_would_not_be_recommended(known: tuple[float, float]) -> None:
    """Picks go by what closeness to float predicts as well, and one score that is lucky proves less."""
    *others, lucky = rising(lucky=0.001)
    lucky = replace(lucky, drop_noise=known[0], drop_bound=known[1])
    assert reason_of(lucky, [], chain("")) is not None
    assert reason_of(lucky, others, chain("")) is None


@pytest.mark.parametrize(("bound", "ends"), [(0.0095, True), (0.0005, False)])
def test_a_search_goes_on_where_a_dearer_model_is_so_much_surer_that_it_would_be_recommended(
    bound: float, ends: bool
) -> None:
    integer, surer = scored("1", 0.0, drop_bound=0.0095), scored("2", 0.0, drop_bound=bound, penalty=11.0)
    found = reason_of(integer, [surer], chain(""), mixed={Recipe(int16_nodes=frozenset("a")): surer})
    assert (found is not None) == ends


def test_candidates_that_leave_units_out_are_no_integer_model() -> None:
    recipes = [Recipe(int16_nodes=frozenset("a")), Recipe(denylisted_nodes=frozenset("a"))]
    assert [reason(chain(""), recipe, float_ops=0) for recipe in recipes] == [None, None]


@pytest.mark.parametrize(
    ("int8", "int16", "ends"), [(1.0, 3.0, True), (9.0, 10.0, False), (2.0, 1.0, False)], ids=["8 bits", "float", "16"]
)
def test_without_forecasts_a_search_ends_only_if_8_bits_cost_least(
    int8: float, int16: float, ends: bool, tmp_path: Path
) -> None:
    costs = {"int8": int8, "int16": int16, "float": 2.0}
    kinds = [f'{kind} = {{ ops = "all", per_mac = 1.0, per_element = {cost} }}' for kind, cost in costs.items()]
    head = 'schema_version = 1\nname = "x"\nwhy = "A test."\nunit = "cycles"\nsegments = "none"\n'
    path = tmp_path / "own.toml"
    path.write_text("\n".join([f'{head}[crossing]\nfixed = 0.0\nper_byte = 0.0\n[host]\nname = "h"', *kinds]))
    others = chain("", piece=8.0)
    found = reason_of(scored("1", -0.005, float_ops=0), [], None, target=str(path), forecasts=others)
    assert (found is not None) is ends


@pytest.mark.parametrize(
    ("crossing_tensors", "forecasts", "ends"),
    [(0, None, True), (5, None, True), (5, chain("", piece=0.1), True), (5, chain("", piece=8.0), False)],
    ids=["none", "no other can be planned", "others cost more", "another has fewer pieces"],
)
def test_if_tensors_go_between_accelerator_and_host_what_others_cost_is_forecast_first(
    crossing_tensors: int, forecasts: Problem | None, ends: bool
) -> None:
    """An integer op without a kernel on the accelerator cuts the model; nothing was tried of any unit yet."""
    scores = scored("1", -0.005, float_ops=0, segments=1, crossing_tensors=crossing_tensors)
    assert (reason_of(scores, [], None, forecasts=forecasts) is not None) is ends


@pytest.mark.parametrize(("penalty", "ends"), [(80.0, True), (80.1, False)])
def test_if_float_costs_less_than_integers_a_search_goes_on(penalty: float, ends: bool) -> None:
    """A CPU runs small layers of a net faster in float than with conversions between them."""
    assert YARDSTICK.float_penalty == 80.0
    assert (reason(chain(""), float_ops=0, penalty=penalty) is not None) is ends


@pytest.mark.parametrize(("spilled", "ends"), [(0, True), (700, False)])
def test_if_the_integer_model_spills_another_may_cost_less(spilled: int, ends: bool) -> None:
    compiled = {"moved": {"spill": spilled, "fill": spilled}}
    assert (reason(chain(""), float_ops=0, compiled=compiled) is not None) is ends
