"""Which mixes of a model are compiled to see whether it spills."""

from __future__ import annotations

import pytest

from autoselect.cases.chip_jobs import MIXES, mixes
from autoselect.domain.recipe import Recipe
from autoselect.domain.states import EXACT, SIXTEEN, further_of, left_out_of, states_of

NODES = [f"n{i}" for i in range(40)]


@pytest.mark.parametrize(
    ("left_of", "chosen"),
    [
        ({"integer": 0, "hybrid": 9, "int16": 3, "float": 1}, {"integer", "float"}),
        ({"integer": 2, "hybrid": 9, "int16": 0, "float": 1}, {"int16", "float"}),
        ({"integer": 0, "hybrid": 0, "int16": 3, "float": 8}, {"integer", "hybrid"}),
    ],
)
def test_nodes_are_in_the_two_forms_that_the_chip_leaves_least_of(left_of: dict[str, int], chosen: set[str]) -> None:
    drawn = list(mixes(Recipe(), left_of, states_of("search", int16=True), NODES, seed=0))
    assert len(drawn) == len(set(drawn)) == MIXES
    for recipe in drawn:
        further = further_of(recipe)
        of_form = {
            "integer": frozenset(NODES) - left_out_of(recipe),
            "int16": further[SIXTEEN],
            "float": further[EXACT],
            "hybrid": recipe.denylisted_nodes - further[EXACT],
        }
        assert {form for form, nodes in of_form.items() if nodes} == chosen
        assert frozenset().union(*of_form.values()) == frozenset(NODES)


def test_the_seed_decides_and_what_a_search_has_in_common_stays() -> None:
    plain, left_of = Recipe(fallback="float", per_channel=False, io_type="int8"), {"integer": 0, "float": 0}
    first, again, other = (list(mixes(plain, left_of, (EXACT,), NODES, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert {(r.fallback, r.per_channel, r.io_type, r.float_nodes) for r in first} == {
        ("float", False, "int8", frozenset())
    }
