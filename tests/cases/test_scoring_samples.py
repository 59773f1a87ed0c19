"""Which samples are searched on and which are held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.scoring_samples import PARTS, prepare_samples
from autoselect.cases.settings import make_settings
from autoselect.data.samples import SampleStore
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError
from autoselect.scoring.metrics import make_metric

COUNT = 60
RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(2, COUNT, 4)).astype(np.float32)
LABELS = np.arange(COUNT) % 3
OUTPUTS = (TensorSpec(name="out", key="out", shape=(1, 3), dtype=np.dtype("float32")),)


def inputs(*keys: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=f"serving_{key}:0", key=key, shape=(1, 4), dtype=np.dtype("float32")) for key in keys)


def prepared(
    root: Path, evaluation: object, keys: tuple[str, ...], *, calibrate_on: int | None = None, **settings: Any
) -> tuple[dict[str, list[int]], list[str]]:
    """The numbers of the samples of each part, and the warnings."""
    files = CaseFiles(root=root)
    other = {key: np.full((1, 4), 9 + i, np.float32) for i, key in enumerate(keys)}
    if calibrate_on is not None:
        other = dict(zip(keys, (LEFT[[calibrate_on]], RIGHT[[calibrate_on]]), strict=True))
    calibration = SampleStore.write(files.samples("calibration"), [(other, None)], inputs(*keys))
    ingredients = Ingredients(
        model=b"", calibration=None, evaluation=evaluation, heldout=None, metric=make_metric("accuracy"), evaluator=None
    )
    found = prepare_samples(ingredients, make_settings(**settings), files, inputs(*keys), OUTPUTS, calibration)
    return {part: json.loads(files.split(part).read_text("utf-8"))["indices"] for part in PARTS}, found[2]


def two(first: str, second: str) -> dict[str, np.ndarray]:
    return {first: LEFT, second: RIGHT, "y": LABELS}


def test_another_seed_of_the_search_holds_out_the_same(tmp_path: Path) -> None:
    parts = [prepared(tmp_path / str(seed), two("a", "b"), ("a", "b"), seed=seed)[0] for seed in (0, 1)]
    assert parts[0] == parts[1]


def test_the_split_has_a_seed_of_its_own(tmp_path: Path) -> None:
    parts = [prepared(tmp_path / str(seed), two("a", "b"), ("a", "b"), split_seed=seed)[0] for seed in (0, 1)]
    assert parts[0] != parts[1]


def test_names_and_order_of_the_inputs_do_not_split_otherwise(tmp_path: Path) -> None:
    of_tflite, _ = prepared(tmp_path / "tflite", two("left", "right"), ("left", "right"))
    of_saved, _ = prepared(tmp_path / "saved", two("input_2", "input_1"), ("input_1", "input_2"))
    assert of_tflite == of_saved


def test_a_calibration_sample_is_found_among_the_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are also calibration samples"):
        prepared(tmp_path, two("a", "b"), ("a", "b"), calibrate_on=7)


def test_groups_stay_whole_and_few_of_them_are_told(tmp_path: Path) -> None:
    groups = np.arange(COUNT) // 6
    parts, warnings = prepared(tmp_path, two("a", "b") | {"groups": groups}, ("a", "b"))
    assert set(groups[parts["search"]]).isdisjoint(groups[parts["heldout"]])
    assert len(parts["heldout"]) == COUNT // 2
    assert [told for told in warnings if "5 groups of search samples and 5 groups of held-out samples" in told]


def test_many_groups_are_not_told(tmp_path: Path) -> None:
    _, warnings = prepared(tmp_path, two("a", "b") | {"groups": np.arange(COUNT)}, ("a", "b"))
    assert warnings == []


def test_a_single_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least two groups"):
        prepared(tmp_path, two("a", "b") | {"groups": ["ann"] * COUNT}, ("a", "b"))
