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
    return {b.name: "".join(sorted(b.recipe.denylisted_nodes)) for b in found}


def fallbacks(found: list[Baseline]) -> list[tuple[str, str, bool]]:
    return [(b.name, b.recipe.fallback, b.is_like_others) for b in found]


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
    assert sets(baselines(EIGHT, FREE, Recipe())) == {"fiq": "", "drq": "abcdefgh", "heuristic": "abcdefg"}


def test_with_repairs_whole_models_come_without_and_with_them() -> None:
    found = baselines(EIGHT, FREE, Recipe(repairs=("bias",)))
    assert [(b.name, b.recipe.repairs, b.is_like_others) for b in found] == [
        ("fiq", (), False),
        ("fiq+repairs", ("bias",), True),
        ("drq", (), False),
        ("drq+repairs", ("bias",), False),
        ("heuristic", ("bias",), True),
    ]


def test_each_whole_model_comes_with_what_helped_it() -> None:
    space = BoundSpace(dimensions=(), further=("int16", "float"))
    sets = {"none": (), "integer": ("ranges-mse",), "int16": ("bias",)}
    found = baselines(EIGHT, space, Recipe(repairs=("bias", "ranges-mse")), helpful=sets)
    assert {b.name: (b.recipe.repairs, b.is_like_others) for b in found} == {
        "fiq": ((), True),
        "fiq+repairs": (("ranges-mse",), True),
        "int16": ((), True),
        "int16+repairs": (("bias",), True),
        "drq": ((), False),
        "drq+repairs": (("bias", "ranges-mse"), False),
        "heuristic": (("bias", "ranges-mse"), True),
    }


def test_equal_sets_of_unlike_fallback_are_both_there() -> None:
    """All nodes left out by the guide, in the search's fallback, are not all nodes made hybrid."""
    found = baselines(table(("a", "ADD", 0.1), ("b", "MEAN", 0.2)), FREE, Recipe())
    assert fallbacks(found) == [("fiq", "drq", True), ("drq", "drq", False), ("heuristic", "drq", True)]


def test_repeated_sets_are_left_out() -> None:
    space = BoundSpace(dimensions=(), keep_int=frozenset("abcdefgh"))
    found = baselines(EIGHT, space, Recipe())
    assert fallbacks(found) == [("fiq", "drq", True), ("drq_pinned", "drq", False)]


def test_only_the_dynamic_range_baseline_has_a_fallback_of_its_own() -> None:
    found = baselines(EIGHT, FREE, Recipe(fallback="float"))
    assert fallbacks(found) == [("fiq", "float", True), ("drq", "drq", False), ("heuristic", "float", True)]


def test_pins_hold_for_baselines() -> None:
    space = BoundSpace(dimensions=(), keep_float=frozenset("h"), keep_int=frozenset("ab"))
    found = baselines(EIGHT, space, Recipe())
    assert all("h" in nodes and not set(nodes) & {"a", "b"} for nodes in sets(found).values())
    assert sets(found)["fiq_pinned"] == "h"
    assert sets(found)["drq_pinned"] == "cdefgh"
    assert not {"fiq", "drq"} & set(sets(found))


def test_nodes_that_are_never_outside_of_integers_are_in_the_model_of_16_bits() -> None:
    space = BoundSpace(dimensions=(), further=("int16", "float"), not_outside=frozenset("ab"), not_int16=frozenset("h"))
    found = {baseline.name: baseline.recipe for baseline in baselines(EIGHT, space, Recipe(fallback="float"))}
    assert found["int16"].int16_nodes == frozenset("abcdefg")
    assert found["drq_pinned"].denylisted_nodes == frozenset("cdefgh")


def test_a_recipe_is_the_template_with_other_nodes() -> None:
    template = Recipe(fallback="float", per_channel=False, io_type="int8")
    found = recipe_for(frozenset({"x"}), template, {})
    assert found == Recipe(denylisted_nodes=frozenset({"x"}), fallback="float", per_channel=False, io_type="int8")
