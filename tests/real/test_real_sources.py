"""Published files as they are: float16 and sparse weights, free sizes, free batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from reviewing import Reviewed

from autoselect.sources import loading, sample_sizes, shapes
from autoselect.sources.wishes import NO_WISHES, FreeSizes, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

pytestmark = pytest.mark.real


@pytest.fixture
def zoo_files(real_data: Path) -> Path:
    folder = real_data / "zoo"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


def test_a_face_detector_with_float16_weights(reviewed: Reviewed, zoo_files: Path) -> None:
    content = (zoo_files / "face_detection_short_range.tflite").read_bytes()
    found = loading.float_model(content)
    reviewed("float16 weights", found.notes)
    rng = np.random.default_rng(0)
    for delegates in (False, True):
        before, after = (Runner(one, delegates=delegates) for one in (content, found.content))
        for _ in range(3):
            image = rng.uniform(-1.0, 1.0, (1, 128, 128, 3)).astype(np.float32)
            expected, got = before(image), after(image)
            assert list(got) == list(expected)
            assert [v.tobytes() for v in got.values()] == [v.tobytes() for v in expected.values()]


def test_a_face_detector_with_sparse_weights(reviewed: Reviewed, zoo_files: Path) -> None:
    path = zoo_files / "face_detection_full_range_sparse.tflite"
    if not path.is_file():
        pytest.skip(f"no {path}")
    found = loading.float_model(path)
    reviewed("sparse weights", found.notes)
    model = fb.parse(found.content)
    assert {fb.op_type(model, op) for op in model.subgraphs[0].operators}.isdisjoint({"DENSIFY", "DEQUANTIZE"})
    rng = np.random.default_rng(0)
    for delegates in (False, True):
        before, after = (Runner(one, delegates=delegates) for one in (path.read_bytes(), found.content))
        for _ in range(3):
            image = rng.uniform(-1.0, 1.0, (1, 192, 192, 3)).astype(np.float32)
            expected, got = before(image), after(image)
            assert [v.tobytes() for v in got.values()] == [v.tobytes() for v in expected.values()]


def test_a_spectrogram_of_free_length(zoo_files: Path) -> None:
    content = (zoo_files / "melspectrogram.tflite").read_bytes()
    with pytest.raises(FreeSizes, match=r"input=\?x\?\. .*--shape"):
        loading.float_model(content)
    clips = np.load(zoo_files / "dtln" / "clips.npz")["speech"][:4].astype(np.float32) / 32768.0
    found = sample_sizes.with_sample_sizes(partial(loading.float_model, content), NO_WISHES, clips)
    length = clips.shape[1]
    assert f"input=1x{length}." in found.notes[0]
    assert found.content == loading.float_model(content, wishes_of(None, {"input": (1, length)})).content
    assert shapes.is_settled(fb.parse(found.content))
    kernels = [shapes.Kernels(one, [(1, length)]) for one in (content, found.content)]
    for clip in clips:
        expected, got = (one.run([clip[None]]) for one in kernels)
        assert [v.tobytes() for v in got] == [v.tobytes() for v in expected]
        assert got[0].shape == (1, 1, (length - 512) // 160 + 1, 32)


@pytest.mark.parametrize("name", ["embedding_model", "face_landmark", "dtln/dtln_core1_float"])
def test_files_that_need_nothing_said(name: str, zoo_files: Path) -> None:
    found = loading.float_model(zoo_files / f"{name}.tflite")
    assert found.notes == ()
    assert shapes.is_settled(fb.parse(found.content))
