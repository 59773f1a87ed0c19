from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from autoselect.data.fit import fit_sample
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError


def spec(key: str, shape: tuple[int, ...], dtype: str = "float32", name: str | None = None) -> TensorSpec:
    return TensorSpec(name=name or f"serving_{key}:0", key=key, shape=shape, dtype=np.dtype(dtype))


IMAGE = spec("image", (1, 2, 3))
FLAG = spec("flag", (1, 1))
TOKENS = spec("tokens", (1, 2), "int32")
LEVELS = replace(spec("levels", (1, 2), "int8"), is_quantized=True)
A = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
B = np.array([[5.0]], np.float32)

FORMS = {
    "list in input order": ([A, B], (IMAGE, FLAG)),
    "tuple in input order": ((A, B), (IMAGE, FLAG)),
    "dict by key": ({"flag": B, "image": A}, (IMAGE, FLAG)),
    "dict by tensor name": ({"serving_flag:0": B, "serving_image:0": A}, (IMAGE, FLAG)),
    "dict by bare tensor name": ({"serving_flag": B, "image": A}, (IMAGE, FLAG)),
    "signature and dict": (("serving_default", {"image": A, "flag": B}), (IMAGE, FLAG)),
    "no signature and dict": ((None, {"image": A, "flag": B}), (IMAGE, FLAG)),
    "no batch axes": ([A[0], B[0]], (IMAGE, FLAG)),
    "nested lists": ([A.tolist(), [5.0]], (IMAGE, FLAG)),
    "float64": ([A.astype(np.float64), B.astype(np.float16)], (IMAGE, FLAG)),
}


@pytest.mark.parametrize(("raw", "inputs"), FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_sample(raw: object, inputs: tuple[TensorSpec, ...]) -> None:
    (sample,) = fit_sample(raw, inputs, where="sample 0")
    assert list(sample) == ["image", "flag"]
    for key, expected in (("image", A), ("flag", B)):
        assert sample[key].dtype == np.float32
        np.testing.assert_array_equal(sample[key], expected, strict=True)


def test_a_single_array_serves_a_single_input() -> None:
    (sample,) = fit_sample(A, [IMAGE], where="sample 0")
    np.testing.assert_array_equal(sample["image"], A)


def test_a_batch_becomes_rows() -> None:
    batch = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    samples = list(fit_sample({"image": batch, "flag": batch[:, 0, :1]}, (IMAGE, FLAG), where="sample 0"))
    assert [sample["image"].shape for sample in samples] == [(1, 2, 3)] * 3
    assert [sample["flag"].item() for sample in samples] == [0.0, 6.0, 12.0]


def test_samples_own_their_memory() -> None:
    buffer = A.copy()
    (sample,) = fit_sample(buffer, [IMAGE], where="sample 0")
    buffer[:] = -1
    np.testing.assert_array_equal(sample["image"], A)


def test_integers_are_narrowed_where_they_survive() -> None:
    (sample,) = fit_sample([[3, 2**31 - 1]], [TOKENS], where="sample 0")
    assert sample["tokens"].dtype == np.int32
    assert sample["tokens"].tolist() == [[3, 2**31 - 1]]


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_an_input_without_elements_takes_a_sample_without(dtype: str) -> None:
    wanted = "int64" if dtype == "int32" else "float32"
    (sample,) = fit_sample(np.empty((1, 0), dtype), [spec("past", (1, 0), wanted)], where="sample 0")
    assert (sample["past"].shape, sample["past"].dtype) == ((1, 0), np.dtype(wanted))


class Unreadable:
    """As a tensor that keeps its gradient, or that lies on another device."""

    def __array__(self) -> np.ndarray:
        raise RuntimeError("call detach first\nand more")


def test_a_fixed_batch_is_one_sample() -> None:
    inputs = [spec("pair", (2, 3))]
    (sample,) = fit_sample(np.ones((2, 3)), inputs, where="sample 0")
    assert sample["pair"].shape == (2, 3)
    with pytest.raises(DataError, match=r"expected shape \(2, 3\), got \(4, 3\)"):
        list(fit_sample(np.ones((4, 3)), inputs, where="sample 0"))


NAN = A.copy()
NAN[0, 1, 2] = np.nan
REFUSED = {
    "too few": (
        [A],
        (IMAGE, FLAG),
        "expected 2 input(s), 'image' float32 (1, 2, 3), 'flag' float32 (1, 1), got 1",
    ),
    "one array for two inputs": (A, (IMAGE, FLAG), "expected 2 input(s)"),
    "unknown name": ({"picture": A}, [IMAGE], "got the names 'picture'"),
    "missing name": ({"image": A}, (IMAGE, FLAG), "'flag' float32 (1, 1), got the names 'image'"),
    "named twice": ({"image": A, "serving_image:0": A}, [IMAGE], "Name each input once"),
    "empty dict": ({}, [IMAGE], "(none)"),
    "shape": (A[:, :1], [IMAGE], "input 'image': expected shape (1, 2, 3), got (1, 1, 3)"),
    "empty batch": (A[:0], [IMAGE], "expected shape (1, 2, 3), got (0, 2, 3)"),
    "two batch sizes": ([np.tile(A, (2, 1, 1)), B], (IMAGE, FLAG), "got {'image': 2, 'flag': 1}"),
    "integers for floats": (A.astype(np.uint8), [IMAGE], "got uint8. Convert and normalise"),
    "bools for floats": (A > 1, [IMAGE], "got bool. Convert and normalise"),
    "floats for integers": ([[1.0, 2.0]], [TOKENS], "expected dtype int32, got float64"),
    "fractions for integers": ([[0.5, 1.0]], [TOKENS], "0.5 to 1:"),
    "floats for levels": ([[1.0, 2.0]], [LEVELS], "got float64. The input is quantized: pass the float model as ref"),
    "integers out of range": ([[1, 2**31]], [TOKENS], "got 1 to 2147483648"),
    "nan": (NAN, [IMAGE], "got 1 NaN or infinite of 6"),
    "infinite in a batch": (
        np.stack([A[0], np.full_like(A[0], np.inf)]),
        [IMAGE],
        "first in row 1 of the batch",
    ),
    "too large for float32": (np.full((2, 3), 1e300), [IMAGE], "values that float32 can hold, got 6 larger"),
    "masked": (np.ma.masked_less(A, A.mean()), [IMAGE], "masked values"),
    "ragged": ([[[1.0, 2.0], [3.0]]], [IMAGE], "expected an array of numbers"),
    "text": (np.array([["a", "b", "c"]] * 2), [IMAGE], "of dtype <U1"),
    "no array": (Unreadable(), [IMAGE], "got Unreadable that NumPy cannot convert (call detach first). Make it a"),
    "nothing": (None, [IMAGE], "got NoneType of dtype object"),
}


@pytest.mark.parametrize(("raw", "inputs", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(raw: object, inputs: list[TensorSpec], words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        list(fit_sample(raw, inputs, where="calibration sample 12"))
    assert str(caught.value).startswith("calibration sample 12")
