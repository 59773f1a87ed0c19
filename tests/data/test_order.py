"""The order of samples tells of groups: neighbours that are alike are found, classes and chance are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoselect.data.order import alike_neighbours
from autoselect.data.samples import SampleStore
from autoselect.domain.tensors import TensorSpec

COUNT = 400
INPUTS = (TensorSpec(name="x", key="x", shape=(1, 8), dtype=np.dtype("float32")),)


def store_of(folder: Path, values: np.ndarray, targets: np.ndarray | None) -> SampleStore:
    rows = zip(values.astype(np.float32), targets if targets is not None else [None] * COUNT, strict=True)
    return SampleStore.write(folder, (({"x": value[np.newaxis]}, target) for value, target in rows), INPUTS)


def noise(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(COUNT, 8))


def test_samples_of_a_recording_follow_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    recordings = rng.normal(size=(COUNT // 10, 8))[np.arange(COUNT) // 10]
    found = alike_neighbours(store_of(tmp_path, recordings + 0.3 * noise(rng), rng.integers(3, size=COUNT)))
    assert found is not None
    assert found.pairs == COUNT - 1
    assert found.nearer > 0.8 * found.pairs


def test_samples_that_are_sorted_by_class_are_no_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) // (COUNT // 4)
    values = 10.0 * labels[:, np.newaxis] + noise(rng)
    assert alike_neighbours(store_of(tmp_path / "classes", values, labels)) is None
    assert alike_neighbours(store_of(tmp_path / "unlabelled", values, None)) is not None


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_group(tmp_path: Path, seed: int) -> None:
    assert alike_neighbours(store_of(tmp_path, noise(np.random.default_rng(seed)), None)) is None


def test_samples_that_are_all_equal_are_no_groups(tmp_path: Path) -> None:
    assert alike_neighbours(store_of(tmp_path, np.ones((COUNT, 8)), None)) is None


def test_samples_without_elements_are_no_groups(tmp_path: Path) -> None:
    empty = (TensorSpec(name="x", key="x", shape=(1, 0), dtype=np.dtype("float32")),)
    rows = (({"x": np.empty((1, 0), np.float32)}, None) for _ in range(3))
    assert alike_neighbours(SampleStore.write(tmp_path, rows, empty)) is None
