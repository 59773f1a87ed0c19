"""What a search is expected to take, by what its whole models take."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoselect.cases import build_jobs, chip_jobs
from autoselect.domain.recipe import Recipe
from autoselect.errors import ScoreError
from autoselect.study import outlook


class Pool:
    """Builds in 1 s in 8 bits and in 2 s in 16, and scores two samples in 3 and 9 s."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused

    def call(self, job: Any, _root: Any, what: str, *_how: Any, timeout_seconds: float) -> Any:
        assert timeout_seconds == 60.0
        if job is build_jobs.build:
            wide = bool(Recipe.from_json(what).int16_nodes)
            name = "wide" if wide else "narrow"
            return SimpleNamespace(sha256=name, seconds=1.0 + wide, size_bytes=10 + wide, compiled={})
        if what == self.refused:
            raise ScoreError(f"{what} cannot be run")
        return SimpleNamespace(seconds=9.0 if what == "wide" else 3.0, inference_seconds=2.0, samples=2)


@pytest.mark.parametrize(
    ("states", "refused", "expected"),
    [
        (("drq", "int16"), "", ([(1.0, 3.0, 1.0, 10), (2.0, 9.0, 1.0, 11)], "")),
        (("drq",), "", ([(1.0, 3.0, 1.0, 10)], "")),
        (("drq", "int16"), "wide", ([(1.0, 3.0, 1.0, 10)], "")),
        (
            ("drq", "int16"),
            "narrow",
            ([pytest.approx((math.nan, math.nan, math.nan, 0), nan_ok=True)], "narrow cannot be run"),
        ),
    ],
    ids=["8 and 16 bits", "8 bits", "16 bits cannot be run", "8 bits cannot be run"],
)
def test_candidates_lie_between_the_whole_models(states: Any, refused: str, expected: Any, tmp_path: Path) -> None:
    case: Any = SimpleNamespace(
        files=SimpleNamespace(root="case", candidate=lambda sha256: tmp_path / sha256),
        layers=SimpleNamespace(nodes=[SimpleNamespace(name="conv")]),
    )
    space: Any = SimpleNamespace(not_int16=frozenset(), keep_float=frozenset(), pin=lambda nodes, _=(): nodes)
    settings: Any = SimpleNamespace(template=Recipe(), states=states, trial_timeout=60.0)
    pool: Any = Pool(refused)
    wholes, why = outlook._measured(case, settings, pool, space)
    assert ([(*one.paces, one.size_bytes) for one in wholes], why) == expected


class Emulating:
    """Takes 1 s to emulate a model of 8 bits and 7 s one of 16, unless that cannot be run."""

    def __init__(self, refused: str) -> None:
        self.refused = refused

    def call(self, job: Any, _root: Any, what: str, _place: int, _most: Any, *, timeout_seconds: float) -> float:
        assert (job, timeout_seconds) == (chip_jobs.seconds_of_emulation, 60.0)
        if what == self.refused:
            raise ScoreError(f"{what} cannot be run")
        return 7.0 if what == "wide" else 1.0


@pytest.mark.parametrize(
    ("target", "refused", "expected"),
    [("qualcomm-sm8750", "", 4.0), ("qualcomm-sm8750", "wide", 1.0), ("ethos-u55-128", "", 0.0)],
)
def test_an_emulation_takes_the_mean_of_what_the_whole_models_take(target: str, refused: str, expected: float) -> None:
    case: Any = SimpleNamespace(files=SimpleNamespace(root="case"))
    wholes: Any = [SimpleNamespace(sha256=name) for name in ("narrow", "wide", "")]
    settings: Any = SimpleNamespace(target=target, emulation="front", emulation_samples=None, trial_timeout=60.0)
    pool: Any = Emulating(refused)
    assert outlook._emulating(wholes, case, settings, pool) == expected
