"""Windows that overlap and neighbours that are alike are found; classes, silence and chance are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoselect.data import recordings
from autoselect.data.recordings import alike_neighbours, shared_windows
from autoselect.data.samples import SampleStore
from autoselect.domain.tensors import TensorSpec

RNG = np.random.default_rng(0)


def store(folder: Path, samples: np.ndarray) -> SampleStore:
    spec = TensorSpec(name="x", key="x", shape=(1, *samples.shape[1:]), dtype=samples.dtype)
    return SampleStore.write(folder, [({"x": row[np.newaxis]}, None) for row in samples], [spec])


def cut(length: int, step: int, *, channels: int = 2, count: int = 12) -> np.ndarray:
    recording = RNG.normal(size=(length + step * count, channels)).astype(np.float32)
    return np.stack([recording[step * i : step * i + length] for i in range(count)])


def found(tmp_path: Path, samples: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of even and odd samples that share a piece."""
    even, odd = store(tmp_path / "even", samples[::2]), store(tmp_path / "odd", samples[1::2])
    return [(shared.first, shared.second) for shared in shared_windows(even, odd)]


@pytest.mark.parametrize(("length", "step"), [(64, 32), (64, 16), (64, 48), (25, 12), (25, 13), (50, 25)])
def test_windows_that_overlap_are_found(tmp_path: Path, length: int, step: int) -> None:
    pairs = found(tmp_path, cut(length, step))
    assert [second for _, second in pairs] == list(range(6))
    assert all(abs(2 * first - (2 * second + 1)) * step < length for first, second in pairs)


def test_windows_along_a_later_axis_are_found(tmp_path: Path) -> None:
    assert len(found(tmp_path, np.ascontiguousarray(cut(64, 32, channels=12).transpose(0, 2, 1)))) == 6


def test_what_they_share_is_told(tmp_path: Path) -> None:
    parts = [store(tmp_path / str(i), one) for i, one in enumerate(np.split(cut(64, 16, count=2), 2))]
    (shared,) = shared_windows(*parts)
    assert (shared.first, shared.second, shared.key, shared.axis, shared.share) == (0, 0, "x", 1, 0.75)


OTHERS = {
    "windows side by side": cut(64, 64),
    "silence": np.zeros((12, 64, 2), np.float32),
    "silence around events": np.where(np.arange(64) == 32 + np.arange(12)[:, np.newaxis], 1, 0).astype(np.int8),
    "images": RNG.integers(0, 255, size=(12, 8, 8, 3), dtype=np.uint8),
    "two features": RNG.normal(size=(12, 2)).astype(np.float32),
    "one number": RNG.normal(size=(12, 1)).astype(np.float32),
}


@pytest.mark.parametrize("samples", OTHERS.values(), ids=OTHERS)
def test_other_samples_share_nothing(tmp_path: Path, samples: np.ndarray) -> None:
    assert found(tmp_path, samples) == []


def test_only_the_first_samples_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = cut(64, 32)
    monkeypatch.setattr(recordings, "_CHECKED_BYTES", 3 * samples[0].nbytes)
    assert {second for _, second in found(tmp_path, samples)} == {0, 1, 2}
    assert recordings.checked(store(tmp_path / "whole", samples)) == 3


COUNT = 400
INPUTS = (TensorSpec(name="x", key="x", shape=(1, 8), dtype=np.dtype("float32")),)


def store_of(folder: Path, values: np.ndarray, targets: np.ndarray | None) -> SampleStore:
    rows = zip(values.astype(np.float32), targets if targets is not None else [None] * COUNT, strict=True)
    return SampleStore.write(folder, (({"x": value[np.newaxis]}, target) for value, target in rows), INPUTS)


def noise(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(COUNT, 8))


@pytest.mark.parametrize("unit", [1.0, 1e30])
def test_samples_of_a_recording_follow_each_other(tmp_path: Path, unit: float) -> None:
    rng = np.random.default_rng(0)
    of_one = rng.normal(size=(COUNT // 10, 8))[np.arange(COUNT) // 10]
    found = alike_neighbours(store_of(tmp_path, unit * (of_one + 0.3 * noise(rng)), rng.integers(3, size=COUNT)))
    assert found is not None
    assert found.pairs == COUNT - 1
    assert found.nearer > 0.8 * found.pairs


def test_samples_that_are_sorted_by_class_are_no_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) // (COUNT // 4)
    values = 10.0 * labels[:, np.newaxis] + noise(rng)
    assert alike_neighbours(store_of(tmp_path / "classes", values, labels)) is None
    assert alike_neighbours(store_of(tmp_path / "column", values, labels[:, np.newaxis])) is None
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
