"""What became of each node is told without building; what is built says whether that is so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.left_out import left_out

MODELS = [
    pytest.param(lambda: zoo.cnn().prepared, {"integer", "hybrid", "float"}, id="CNN"),
    pytest.param(lambda: zoo.lstm().prepared, {"integer", "float"}, id="recurrent, too small for hybrid kernels"),
    pytest.param(lambda: zoo.two_inputs().prepared, {"integer", "float"}, id="several inputs, too small likewise"),
]


@pytest.mark.parametrize(("make", "with_drq"), MODELS)
@pytest.mark.parametrize("fallback", ["drq", "float", "some of each"])
def test_kinds_are_those_of_the_built_model(
    make: Callable[[], zoo.Prepared], with_drq: set[str], fallback: str
) -> None:
    prepared = make()
    names = [node.name for node in prepared.nodes]
    rng = np.random.default_rng(5)
    seen = set()
    for share in (0.0, 0.3, 0.6, 0.8, 1.0):
        # Drawn in the order of the graph: that of a set changes from process to process.
        chosen = [name for name in names if rng.random() < share]
        some = [name for name in chosen if rng.random() < 0.5] if fallback == "some of each" else []
        recipe = Recipe(
            denylisted_nodes=frozenset(chosen),
            float_nodes=frozenset(some),
            fallback="float" if fallback == "float" else "drq",
        )
        built = prepared.builder.build(recipe)
        assert left_out(recipe, prepared.nodes).kinds(prepared.nodes, built.fallbacks) == built.kinds
        seen |= set(built.kinds.values())
    assert seen == ({"integer", "float"} if fallback == "float" else with_drq)
