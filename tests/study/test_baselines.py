from __future__ import annotations

import pytest
from fakes import table

from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.study.setup.baselines import Baseline, baselines, heuristic_nodes, recipe_for

FREE = BoundSpace(dimensions=())

EIGHT = table(
    ("a", "CONV_2D", 0.3),
    ("b", "CONV_2D", 0.9),
    ("c", "ADD", 0.2),
    ("d", "CONV_2D", 0.7),
    ("e", "MEAN", None),
    ("f", "ADD", 2.0),
    ("g", "CONV_2D", 0.71),
    ("h", "SOFTMAX", 0.1),
)


def sets(found: list[Baseline]) -> dict[str, str]:
    return {b.name: "".join(sorted(b.nodes)) for b in found}


def test_the_heuristic_takes_the_first_five_and_what_is_above_0_7() -> None:
    """0.7 itself is not above 0.7, and a node without statistics is no suspect; both are here among the first five."""
    assert heuristic_nodes(EIGHT) == set("abcdefg")


HEURISTICS = {
    "exactly 0.7 is no suspect": ([0.1] * 5 + [0.7], "abcde"),
    "just above is": ([0.1] * 5 + [0.7001], "abcdef"),
    "no statistics": ([None] * 6, "abcde"),
    "fewer than five": ([0.1, 0.1], "ab"),
}


@pytest.mark.parametrize(("values", "expected"), HEURISTICS.values(), ids=HEURISTICS)
def test_heuristics_by_hand(values: list[float | None], expected: str) -> None:
    layers = table(*((name, "ADD", v) for name, v in zip("abcdef", values, strict=False)))
    assert heuristic_nodes(layers) == set(expected)


def test_all_baselines_by_hand() -> None:
    assert sets(baselines(EIGHT, FREE)) == {"fiq": "", "drq": "abcdefgh", "heuristic": "abcdefg"}


def test_with_repairs_the_all_integer_model_comes_without_and_with_them() -> None:
    found = baselines(EIGHT, FREE, ("bias",))
    assert [(b.name, b.repairs) for b in found] == [
        ("fiq", ()),
        ("fiq+repairs", None),
        ("drq", None),
        ("heuristic", None),
    ]
    template = Recipe(repairs=("bias",))
    recipes = [recipe_for(b.nodes, template, b.fallback, b.repairs) for b in found[:2]]
    assert [r.repairs for r in recipes] == [(), ("bias",)]


def test_equal_sets_of_unlike_fallback_are_both_there() -> None:
    """All nodes left out by the guide, in the search's fallback, are not all nodes made hybrid."""
    found = baselines(table(("a", "ADD", 0.1), ("b", "MEAN", 0.2)), FREE)
    assert [(b.name, b.fallback) for b in found] == [("fiq", None), ("drq", "drq"), ("heuristic", None)]


def test_repeated_sets_are_left_out() -> None:
    space = BoundSpace(dimensions=(), keep_int=frozenset("abcdefgh"))
    assert [(b.name, b.fallback) for b in baselines(EIGHT, space)] == [("fiq", None), ("drq_pinned", "drq")]


def test_only_the_dynamic_range_baseline_has_a_fallback_of_its_own() -> None:
    found = baselines(EIGHT, FREE)
    assert {b.name: b.fallback for b in found if b.fallback} == {"drq": "drq"}
    template = Recipe(fallback="float")
    assert recipe_for(found[1].nodes, template, found[1].fallback).fallback == "drq"
    assert recipe_for(found[2].nodes, template, found[2].fallback).fallback == "float"


def test_pins_hold_for_baselines() -> None:
    space = BoundSpace(dimensions=(), keep_float=frozenset("h"), keep_int=frozenset("ab"))
    found = baselines(EIGHT, space)
    assert all("h" in b.nodes and not b.nodes & {"a", "b"} for b in found)
    assert sets(found)["fiq_pinned"] == "h"
    assert sets(found)["drq_pinned"] == "cdefgh"
    assert not {"fiq", "drq"} & set(sets(found))


def test_a_recipe_is_the_template_with_other_nodes() -> None:
    template = Recipe(fallback="float", per_channel=False, io_type="int8")
    found = recipe_for(frozenset({"x"}), template)
    assert found == Recipe(denylisted_nodes=frozenset({"x"}), fallback="float", per_channel=False, io_type="int8")
