from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from settling import settled

from autoselect.cases.declared import declared
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import Facts, RepairChoice, Settled, kept_of, kept_search, settle, settled_of
from autoselect.domain.objectives import Constraints
from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.study.recording.samplers import SAMPLERS, check_sampler


def test_constraints_and_template() -> None:
    found = settled(max_drop=0.1, max_size=5000, fallback="float", per_channel=False, io_type="int8")
    assert found.constraints == Constraints(max_drop=0.1, max_size_bytes=5000)
    assert found.template == Recipe(fallback="float", per_channel=False, io_type="int8")


SAID = {
    "nothing": {},
    "all of it": {
        "trials": 7,
        "keep_float": ("a", "b"),
        "max_penalty": 0,
        "fallback": "search",
        "int16": True,
        "io_type": "uint8",
        "workers": 3,
        "repairs": ("bias",),
    },
    "no repairs": {"repairs": False},
}
TRIED = RepairChoice(
    common=("bias",), sets={"none": (), "weights 1": ("bias", "levels-4:n")}, added_noise={"weights 1": 0.5}
)
KNOWN = {
    "nothing": Facts(),
    "target and machine": Facts(fallback="search", int16=True, io_type="int8", workers=5),
    "another quantizer's file": Facts(per_channel=False, takes_repairs=False),
    "no 16-bit form": Facts(fallback="float", int16=True, makes_int16=False),
    "repairs were tried": Facts(repairs=TRIED),
    "none helped": Facts(repairs=RepairChoice()),
    "members of other runs": Facts(models=12),
}


@pytest.mark.parametrize("facts", KNOWN.values(), ids=KNOWN)
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_manifest_gives_the_same_search_again(said: dict[str, object], facts: Facts) -> None:
    settings = make_settings(**said)
    kept = {"settings": json.loads(json.dumps(kept_of(settings, facts)))}
    assert settled_of(kept) == settle(settings, facts)
    assert kept_of(*kept_search(kept)) == kept_of(settings, facts)


DECIDED: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object]]] = {
    "the user's word comes first": (
        {"fallback": "float", "int16": False, "io_type": "int8", "workers": 2},
        {"fallback": "search", "int16": True, "io_type": "uint8", "workers": 8},
        {"fallback": "float", "int16": False, "io_type": "int8", "processes": 2, "states": ("float",)},
    ),
    "else it is as the target and the machine have it": (
        {},
        {"fallback": "search", "int16": True, "io_type": "uint8", "workers": 8},
        {"fallback": "search", "int16": True, "io_type": "uint8", "processes": 8},
    ),
    "hybrid ops alone leave no room for 16 bits": ({"fallback": "drq"}, {"int16": True}, {"int16": False}),
    "no word makes 16-bit ops": ({"fallback": "float", "int16": True}, {"makes_int16": False}, {"states": ("float",)}),
    "a file of integers decides its scales": ({"per_channel": True}, {"per_channel": False}, {"per_channel": False}),
    "and takes no repairs": (
        {"repairs": ("bias",)},
        {"takes_repairs": False},
        {"repairs": RepairChoice(), "tries_repairs": False},
    ),
    "repairs are tried once": ({}, {"repairs": TRIED}, {"repairs": TRIED, "tries_repairs": False}),
    "or not at all": ({"repairs": False}, {}, {"repairs": RepairChoice(), "tries_repairs": False}),
    "members of other runs are all scored": ({"trials": 3}, {"models": 12}, {"trials": 12}),
}


@pytest.mark.parametrize(("said", "facts", "decided"), DECIDED.values(), ids=DECIDED)
def test_what_was_said_and_what_is_known_are_settled(said: Any, facts: Any, decided: dict[str, object]) -> None:
    found = settle(make_settings(**said), Facts(**facts))
    assert {name: getattr(found, name) for name in decided} == decided


def test_nothing_that_is_said_is_lost() -> None:
    """Beside the data, how it is read, and what is decided under another name."""
    elsewhere = {"metric", "direction", "output_name", "ignore_label", "signature", "shapes", "converter_python"}
    renamed = {"workers", "max_drop", "max_size", "max_penalty"}
    kept = {name for name, option in declared().items() if option.kept}
    assert kept - elsewhere - renamed <= {field.name for field in fields(Settled)}


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
    kept = {"settings": kept_of(make_settings(trials=7, workers=1, max_drop=0.2), Facts())}
    said, _ = kept_search(kept, trials=9)
    assert (said.trials, said.workers, said.max_drop) == (9, 1, 0.2)
    for name in ("trials", "workers"):
        with pytest.raises(UsageError, match=f"^{name}: "):
            kept_search(kept, **{name: 0})


def test_samplers() -> None:
    for name in SAMPLERS:
        check_sampler(name)
    with pytest.raises(UsageError, match=r"'tpr'.*surrogate.*tpe, nsga2"):
        check_sampler("tpr")
