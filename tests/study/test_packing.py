from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import chain_of
from test_optuna_study import OBJECTIVES

from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.recording.packing import MOST_PARAMETERS, Packing
from autoselect.study.recording.samplers import make_sampler
from autoselect.study.setup.baselines import Baseline

MANY = 2 * MOST_PARAMETERS + 7


def toggles(count: int, *further: str) -> BoundSpace:
    named = tuple(Toggle(name=f"node:n{i}", nodes=frozenset({f"n{i}"})) for i in range(count))
    return BoundSpace(dimensions=named, further=further)


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_a_setting_is_what_its_numbers_mean(values: list[bool]) -> None:
    setting = {f"choice {i}": value for i, value in enumerate(values)}
    packing = Packing([*setting])
    packed = packing.pack({**setting, "count": 3})
    assert len(packed) == 1 + -(-len(values) // 48)
    assert all(0 <= packed[name] <= most < 2**53 for name, most in packing.bounds.items())
    assert packing.unpack(packed) == {**setting, "count": 3}
    assert packing.unpack(setting) == setting


def test_few_choices_are_parameters_each() -> None:
    assert Packing.of(toggles(MOST_PARAMETERS)).names == frozenset()
    assert len(Packing.of(toggles(MOST_PARAMETERS // 2, "float", "int16")).names) == 3 * (MOST_PARAMETERS // 2)


@pytest.mark.parametrize(("sampler", "most"), [("random", -(-2 * MANY // 48)), ("tpe", 2 * MANY)])
def test_trials_of_many_nodes_mean_the_nodes_that_were_asked(tmp_path: Path, sampler: str, most: int) -> None:
    space = toggles(MANY, "float")
    problem = chain_of([0.01] * MANY, mixed=True)
    path = tmp_path / "study.journal"

    def opened() -> SearchStudy:
        chosen = make_sampler(sampler, seed=0, problem=problem, space=space, template=Recipe(), budget=9)
        return SearchStudy(path, OBJECTIVES, chosen)

    study = opened()
    baseline = study.open_baseline(space, Baseline(name="one", recipe=Recipe(denylisted_nodes=frozenset({"n1"}))))
    asked = [study.ask(space, Recipe(), origin=sampler) for _ in range(3)]
    packing = study._packing
    for one in [baseline, *asked]:
        assert one is not None
        setting = packing.unpack(one.trial.params)
        assert space.decode(setting) == one.recipe.denylisted_nodes
        assert space.decode_further(setting) == {"float": one.recipe.float_nodes}
        assert 0 < len(one.trial.params) <= most
    read = optuna.load_study(study_name="autoselect", storage=study._study._storage).trials
    assert [t.params for t in read] == [one.trial.params for one in [baseline, *asked] if one is not None]
