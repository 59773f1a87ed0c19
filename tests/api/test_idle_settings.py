"""Settings that nothing reads are told, each with the reason; those that have an effect are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pump import MODEL_PATH, calibration, heldout_pairs, search_pairs

import autoselect
from autoselect.api import idle_settings as module
from autoselect.api.idle_settings import idle_settings
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.scoring.target_file import read_target


def names_told(target: str = "integer-only", **said: Any) -> list[str]:
    settings = make_settings(model="m.tflite", calibration="c.npz", **said)
    notes = idle_settings(settings, tuple(settings.objectives), read_target(target))
    return [name for name in SearchSettings.model_fields if any(name in words_of(note) for note in notes)]


def words_of(note: str) -> set[str]:
    """The names that a note ends with."""
    return set(note.rpartition("reads ")[2].partition(":")[0].rstrip(".").split(", "))


@pytest.mark.parametrize(
    ("said", "idle"),
    [
        ({}, []),
        ({"evaluation": "e.npz", "heldout_fraction": 0.3, "split_seed": 2}, []),
        (
            {"evaluation": "e.npz", "heldout": "h.npz", "heldout_fraction": 0.3, "split_seed": 2},
            ["heldout_fraction", "split_seed"],
        ),
        ({"evaluation": np.zeros((4, 2), np.float32), "heldout": np.ones((4, 2), np.float32)}, []),
        ({"evaluator": "m:f", "heldout_fraction": 0.3}, ["heldout_fraction"]),
        ({"evaluator": "m:f", "evaluation": "e.npz", "metric": "mse"}, ["evaluation", "metric"]),
        ({"latency_threads": 2}, ["latency_threads"]),
        ({"latency_threads": 2, "objectives": ("accuracy", "latency")}, []),
        ({"latency_threads": 1}, []),
        ({"racing": False, "confidence": 0.8, "min_gain": 0.01}, ["confidence", "min_gain"]),
        ({"confidence": 0.8}, []),
        ({"compiling": False, "emulation": "none"}, ["compiling", "emulation"]),
        ({"int16": True, "fallback": "drq"}, ["int16"]),
        ({"int16": True}, []),
        ({"insecure": True}, ["insecure"]),
        ({"insecure": True, "scheduler": "tcp://a:1"}, []),
    ],
)
def test_settings_that_nothing_reads_are_told(said: dict[str, Any], idle: list[str]) -> None:
    assert names_told(**said) == sorted(idle, key=list(SearchSettings.model_fields).index)


@pytest.mark.parametrize(
    ("target", "idle"),
    [
        ("ethos-u55-128", ["emulation", "emulation_samples"]),
        ("qualcomm-sm8750", []),
        ("integer-only", ["compiling", "emulation", "emulation_samples"]),
    ],
)
def test_a_target_reads_what_its_compilers_and_emulations_do(target: str, idle: list[str]) -> None:
    said = {"compiling": False, "emulation": "all", "emulation_samples": 20}
    assert sorted(names_told(target, **said)) == idle


def test_each_setting_that_may_be_idle_exists() -> None:
    names = {*module._BESIDE_EVALUATOR, *(name for reader in module._READERS for name in reader.names)}
    assert names <= set(SearchSettings.model_fields)


def test_a_run_keeps_what_was_told(tmp_path: Path) -> None:
    run = autoselect.search(
        MODEL_PATH,
        calibration=calibration,
        evaluation=search_pairs,
        heldout=heldout_pairs,
        heldout_fraction=0.25,
        trials=1,
        repairs=False,
        output=tmp_path / "run",
        workers=1,
    )
    assert [names for note in run.summary["warnings"] if (names := words_of(note)) == {"heldout_fraction"}]
