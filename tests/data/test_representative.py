from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from autoselect.data.representative import representative_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import AutoselectError, DataError, UsageError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
INPUTS = [TensorSpec(name="serving_wave:0", key="wave", shape=(1, 3), dtype=np.dtype("float32"))]
TWO = [
    TensorSpec(name="a:0", key="a", shape=(1, 3), dtype=np.dtype("float32")),
    TensorSpec(name="b:0", key="b", shape=(1,), dtype=np.dtype("float32")),
]


def as_converter_takes_it() -> Iterator[list[np.ndarray]]:
    for row in X:
        yield [row[np.newaxis]]


def by_name() -> Iterator[dict[str, np.ndarray]]:
    for row in X:
        yield {"wave": row}


def with_signature() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for row in X:
        yield "serving_default", {"wave": row[np.newaxis]}


def in_batches() -> Iterator[list[np.ndarray]]:
    yield [X[:3]]
    yield [X[3:]]


def forgets_to_yield() -> None:
    return None


def breaks_at_two() -> Iterator[list[np.ndarray]]:
    yield [X[:1]]
    yield [X[1:2]]
    raise KeyError("subject 7")


def needs_an_argument(folder: str) -> Iterator[list[np.ndarray]]:
    yield [X[:1]]


def nothing() -> Iterator[list[np.ndarray]]:
    yield from ()


def saved(tmp_path: Path, form: str) -> Path:
    path = tmp_path / ("calibration.npy" if form == "npy" else "calibration.npz")
    ys = np.arange(4)
    writers: dict[str, Callable[[], None]] = {
        "npy": lambda: np.save(path, X),
        "npz x": lambda: np.savez(path, x=X, y=ys),
        "npz key": lambda: np.savez(path, wave=X, y=ys),
        "npz tensor name": lambda: np.savez(path, **{"serving_wave:0": X}),  # type: ignore[arg-type]
        "npz of one array": lambda: np.savez(path, X),
        "npz compressed": lambda: np.savez_compressed(path, x=X),
        "npz float16": lambda: np.savez(path, x=X.astype(np.float16)),
        "npz fortran": lambda: np.savez(path, x=np.asfortranarray(X)),
        "npz with batch axis": lambda: np.savez(path, x=X[:, np.newaxis]),
        "npz beside objects": lambda: np.savez(path, x=X, y=np.array([{}, None], dtype=object)),
    }
    writers[form]()
    return path


IN_MEMORY = {
    "function of lists": as_converter_takes_it,
    "function of dicts": by_name,
    "function of signatures": with_signature,
    "function of batches": in_batches,
    "function of an array": lambda: X,
    "generator": as_converter_takes_it(),
    "RepresentativeDataset": SimpleNamespace(input_gen=as_converter_takes_it),
    "list of samples": [[row] for row in X],
    "list of arrays": list(X),
    "array": X,
    "array with batch axis": X[:, np.newaxis],
    "table": pandas.DataFrame(X),
    "dict of arrays": {"wave": X},
    "dict of x": {"x": X},
    "spec": f"{__name__}:as_converter_takes_it",
    "spec of an array": f"{__name__}:X",
}
IN_FILES = [
    "npy", "npz x", "npz key", "npz tensor name", "npz of one array", "npz compressed", "npz float16", "npz fortran",
    "npz with batch axis", "npz beside objects",
]  # fmt: skip


def check(source: object) -> None:
    samples = list(representative_samples(source, INPUTS))
    assert {key for sample in samples for key in sample} == {"wave"}
    got = np.stack([sample["wave"] for sample in samples])
    np.testing.assert_array_equal(got, X[:, np.newaxis], strict=True)


@pytest.mark.parametrize("source", IN_MEMORY.values(), ids=IN_MEMORY)
def test_every_form_gives_the_same_samples(source: object) -> None:
    check(source)


@pytest.mark.parametrize("form", IN_FILES)
@pytest.mark.parametrize("kind", [str, Path])
def test_every_file_gives_the_same_samples(form: str, kind: type, tmp_path: Path) -> None:
    check(kind(saved(tmp_path, form)))


def test_several_inputs_come_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", b=np.arange(4.0), a=X)
    samples = list(representative_samples(tmp_path / "two.npz", TWO))
    assert [sample["b"].tolist() for sample in samples] == [[0.0], [1.0], [2.0], [3.0]]
    np.testing.assert_array_equal(samples[3]["a"], X[3:])


def test_a_list_of_one_array_for_each_input_is_split_into_samples() -> None:
    got = list(representative_samples([X, X[:, 0]], TWO))
    np.testing.assert_array_equal(np.concatenate([sample["b"] for sample in got]), X[:, 0])
    assert len(got) == 4


def of_two_signatures() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """One data set for all signatures, as the converter takes it; they have inputs of one name, or of other names."""
    for row in X:
        yield "encode", {"wave": row}
        yield "decode", {"wave": -row}
        yield "embed", {"words": row}


def test_samples_of_other_signatures_are_left_out() -> None:
    got = list(representative_samples(of_two_signatures, INPUTS, signature="decode"))
    np.testing.assert_array_equal(np.concatenate([sample["wave"] for sample in got]), -X)


def test_samples_without_a_signature_are_of_any() -> None:
    assert len(list(representative_samples(by_name, INPUTS, signature="decode"))) == len(X)


def test_samples_of_other_signatures_alone_are_refused() -> None:
    with pytest.raises(DataError, match=r"'recode'.*'encode', 'decode', 'embed'"):
        list(representative_samples(of_two_signatures, INPUTS, signature="recode"))


def test_reading_is_lazy() -> None:
    samples = representative_samples(breaks_at_two, INPUTS)
    np.testing.assert_array_equal(next(samples)["wave"], X[:1])


REFUSED: dict[str, tuple[object, type[AutoselectError], str]] = {
    "no yield": (forgets_to_yield, DataError, "forgets_to_yield() to yield samples, got None"),
    "raises": (breaks_at_two, DataError, "making sample 2 (counted from 0) raised KeyError: 'subject 7'"),
    "needs an argument": (needs_an_argument, DataError, "called without arguments"),
    "empty function": (nothing, DataError, "expected at least one sample, got none"),
    "empty list": ([], DataError, "expected at least one sample, got none"),
    "empty array": (X[:0], DataError, "expected at least one sample, got none"),
    "missing file": ("nowhere.npz", DataError, "there is none here"),
    "other file": ("calibration.csv", DataError, "got 'calibration.csv'"),
    "bad spec": ("tests:no:such", UsageError, "package.module:name"),
    "number": (7, DataError, "got int"),
    "wrong shape": (X[:, :2], DataError, "expected shape (n_samples, 3) for input 'wave', got (4, 2)"),
    "one sample as array": (X[0], DataError, "got (3,)"),
    "wrong name": ({"signal": X, "more": X}, DataError, "got the names 'signal', 'more'"),
    "integers": (
        X.astype(int),
        DataError,
        "representative sample 0 (counted from 0), input 'wave': expected",
    ),
    "bad second sample": ([[X[0]], [X[0, :2]]], DataError, "representative sample 1 (counted from 0)"),
}


@pytest.mark.parametrize(("source", "kind", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(source: object, kind: type[AutoselectError], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        list(representative_samples(source, INPUTS))


def test_refuses_lengths_that_differ() -> None:
    with pytest.raises(DataError, match=r"array 'a': 4, .*array 'b': 3"):
        representative_samples({"a": X, "b": np.zeros(3)}, TWO)


def test_refuses_pickled_objects(tmp_path: Path) -> None:
    objects = np.array([{}, None], dtype=object)
    np.savez(tmp_path / "o.npz", x=objects)
    np.save(tmp_path / "o.npy", objects)
    for name in ("o.npz", "o.npy"):
        with pytest.raises(DataError, match="pickled"):
            representative_samples(tmp_path / name, INPUTS)


@pytest.mark.parametrize("name", ["damaged.npz", "damaged.npy"])
@pytest.mark.parametrize("kept", [0, 5, 200])
def test_refuses_damaged_files(tmp_path: Path, name: str, kept: int) -> None:
    path = tmp_path / name
    if name.endswith("npz"):
        np.savez(path, x=np.ones((100, 3), np.float32))
    else:
        np.save(path, np.ones((100, 3), np.float32))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match="cannot be"):
        list(representative_samples(path, INPUTS))


def test_refuses_a_member_that_ends_early(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with zipfile.ZipFile(tmp_path / "short.npz", "w") as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes()[:-5])
    with pytest.raises(DataError, match="row 3 of 4"):
        list(representative_samples(tmp_path / "short.npz", INPUTS))
