"""What a resumed search refuses, by its manifest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoselect.cases.versions import versions
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import RunFolderError
from autoselect.runs.folder import RunFolder
from autoselect.study.recording.manifest import (
    contents_that_differ,
    refuse_lost_states,
    refuse_other_ingredients,
    refuse_other_space,
    space_hash,
)


def test_another_version_of_the_quantizer_that_made_the_integer_model_is_refused(tmp_path: Path) -> None:
    """Who does not use litert-quantizer may change it, or do without."""
    settings = {"seed": 1, "split_seed": 0, "quantizer": "litert"}
    made = {"settings": settings, "hashes": {}, "versions": versions("litert")}
    case: Any = SimpleNamespace(hashes={})
    refuse_other_ingredients(RunFolder(tmp_path), made, case)
    made["versions"] = {**versions("litert"), "litert-quantizer": "0.0.1"}
    with pytest.raises(RunFolderError, match=r"litert-quantizer 0\.0\.1, this is "):
        refuse_other_ingredients(RunFolder(tmp_path), made, case)
    assert "litert-quantizer" not in versions()


def test_another_model_is_told_before_samples_that_hold_the_names_of_its_inputs() -> None:
    before = {"calibration": "a", "evaluation": "b", "model": "c"}
    found = contents_that_differ(before, {"calibration": "d", "evaluation": "b", "model": "e"})
    assert found == ["model", "calibration"]
    assert contents_that_differ(before, before) == []


@pytest.mark.parametrize("build", ["tf-nightly", "ai-edge-litert-nightly", "tensorflow-cpu"])
def test_a_run_that_another_build_made_is_refused(build: str, tmp_path: Path) -> None:
    settings = {"seed": 1, "split_seed": 0}
    made = {"settings": settings, "hashes": {}, "versions": {**versions(), build: "0.0.1"}}
    with pytest.raises(RunFolderError, match=build):
        refuse_other_ingredients(RunFolder(tmp_path), made, SimpleNamespace(hashes={}))  # type: ignore[arg-type]


def test_candidates_in_16_bits_that_cannot_be_made_any_more_are_refused_with_the_reason(tmp_path: Path) -> None:
    why = ("No unit has 16-bit activations. It crashed.",)
    with pytest.raises(RunFolderError, match=r"int16 units\b.* It crashed\."):
        refuse_lost_states(RunFolder(tmp_path), ("hybrid", "int16", "float"), ("hybrid", "float"), why)
    refuse_lost_states(RunFolder(tmp_path), ("hybrid", "float"), ("hybrid", "float"), ())


def test_other_pins_are_refused_with_the_files_that_they_may_come_from(tmp_path: Path) -> None:
    space = BoundSpace(dimensions=())
    before = {"search_space": space_hash(space)}
    request: Any = SimpleNamespace(settings=SimpleNamespace(search_space="own.toml", target="board.toml"))
    refuse_other_space(RunFolder(tmp_path), before, request, space)
    other = BoundSpace(dimensions=(), keep_float=frozenset("a"))
    with pytest.raises(RunFolderError, match=r"'own\.toml' .*'board\.toml'"):
        refuse_other_space(RunFolder(tmp_path), before, request, other)
