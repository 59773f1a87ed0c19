from __future__ import annotations

import pytest

from autoselect.cases.prepare import with_limits
from autoselect.cases.settings import make_settings
from autoselect.domain.objectives import Constraints
from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.study.recording.samplers import SAMPLERS, check_sampler


def test_constraints_and_template() -> None:
    found = make_settings(max_drop=0.1, max_size=5000, fallback="float", per_channel=False, io_type="int8")
    assert found.constraints == Constraints(max_drop=0.1, max_size_bytes=5000)
    assert found.template == Recipe(fallback="float", per_channel=False, io_type="int8")


def test_settings_survive_a_manifest() -> None:
    found = make_settings(trials=7, keep_float=("a", "b"), max_penalty=0)
    assert make_settings(**found.model_dump()) == found
    assert found.constraints.max_penalty == 0


WRONG = {
    "no trials": {"trials": 0},
    "half a trial": {"trials": 1.5},
    "negative seed": {"seed": -1},
    "everything held out": {"heldout_fraction": 1.0},
    "nothing held out": {"heldout_fraction": 0.0},
    "fallback": {"fallback": "drp"},
    "io_type": {"io_type": "int16"},
    "direction": {"direction": "up"},
    "no workers": {"workers": 0},
    "too many workers": {"workers": 65},
    "size": {"max_size": 0},
    "penalty": {"max_penalty": -1},
    "no time": {"trial_timeout": 0},
    "no time at all": {"timeout": 0},
    "no debug samples": {"debug_samples": 0},
    "unknown": {"colour": "red"},
}


@pytest.mark.parametrize("values", WRONG.values(), ids=WRONG)
def test_wrong_settings_are_named(values: dict[str, object]) -> None:
    ((name, value),) = values.items()
    with pytest.raises(UsageError, match=rf"^{name}: .*got {value!r}") as caught:
        make_settings(**values)
    assert caught.value.exit_code == 2


def test_limits_of_a_resumed_run_are_checked_too() -> None:
    settings = make_settings(trials=7, workers=1, max_drop=0.2)
    assert with_limits(settings, trials=None, workers=None) == settings
    assert with_limits(settings, trials=9, workers=None) == make_settings(trials=9, workers=1, max_drop=0.2)
    for name in ("trials", "workers"):
        with pytest.raises(UsageError, match=f"^{name}: "):
            with_limits(settings, **{name: 0})


def test_samplers() -> None:
    for name in SAMPLERS:
        check_sampler(name)
    with pytest.raises(UsageError, match=r"'tpr'.*surrogate.*tpe, nsga2"):
        check_sampler("tpr")
