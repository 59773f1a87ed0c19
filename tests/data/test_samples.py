from __future__ import annotations

import multiprocessing
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.data.fit import Sample
from autoselect.data.samples import SampleStore, content_digest
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, StorageError

INPUTS = [
    TensorSpec(name="a:0", key="a", shape=(1, 2), dtype=np.dtype("float32")),
    TensorSpec(name="b:0", key="b", shape=(1,), dtype=np.dtype("int32")),
]


def sample(number: int) -> Sample:
    return {"a": np.array([[number, 0.5]], np.float32), "b": np.array([-number], np.int32)}


def labelled(count: int) -> list[tuple[Sample, object | None]]:
    return [(sample(i), i % 3) for i in range(count)]


def write(folder: Path, pairs: list[tuple[Sample, object | None]]) -> SampleStore:
    return SampleStore.write(folder, iter(pairs), INPUTS)


def test_gives_back_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "s", labelled(5))
    store = SampleStore.open(tmp_path / "s")
    assert len(store) == 5
    for i in range(5):
        got = store.inputs(i)
        assert list(got) == ["a", "b"]
        for key, expected in sample(i).items():
            np.testing.assert_array_equal(got[key], expected, strict=True)
        assert store.target(i) == i % 3


def test_files_are_ordinary_npy_and_nothing_else_is_left(tmp_path: Path) -> None:
    write(tmp_path, labelled(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "input_000.npy", "input_001.npy", "samples.json", "targets.npy",
    ]  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "input_001.npy"), [[0], [-1], [-2]])


def test_arrays_are_shared_and_read_only(tmp_path: Path) -> None:
    array = write(tmp_path, labelled(2)).inputs(0)["a"]
    assert not array.flags.writeable
    assert not array.flags.owndata


def test_a_pickled_store_carries_no_data(tmp_path: Path) -> None:
    big = TensorSpec(name="a", key="a", shape=(1, 100_000), dtype=np.dtype("float32"))
    store = SampleStore.write(tmp_path, [({"a": np.ones(big.shape, np.float32)}, None)] * 3, [big])
    store.inputs(2)
    assert len(pickle.dumps(store)) < 1000


def _second_input(store: SampleStore) -> float:
    return float(store.inputs(1)["a"][0, 0])


def test_views_travel_to_other_processes(tmp_path: Path) -> None:
    view = write(tmp_path, labelled(5)).subset([4, 3, 0])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_second_input, (view,)) == 3.0


def test_subset_of_a_subset(tmp_path: Path) -> None:
    store = write(tmp_path, labelled(6))
    view = store.subset(np.array([5, 3, 1])).subset([2, 0, 0])
    assert len(view) == 3
    assert [int(view.inputs(i)["b"][0]) for i in range(3)] == [-1, -5, -5]
    assert [int(view.target(i)) for i in range(3)] == [1, 2, 2]
    assert view.digests == (store.digests[1], store.digests[5], store.digests[5])


def test_signature_tells_order_content_and_targets(tmp_path: Path) -> None:
    pairs = labelled(3)
    variants = {
        "as is": pairs,
        "reversed": pairs[::-1],
        "one less": pairs[:2],
        "no targets": [(inputs, None) for inputs, _ in pairs],
        "another target": [*pairs[:2], (pairs[2][0], 9)],
        "float targets": [(inputs, float(i % 3)) for i, (inputs, _) in enumerate(pairs)],
    }
    signatures = {name: write(tmp_path / name, rows).signature for name, rows in variants.items()}
    assert len(set(signatures.values())) == len(variants)
    assert write(tmp_path / "again", labelled(3)).signature == signatures["as is"]


def test_digest_ignores_the_target_and_the_order_of_keys(tmp_path: Path) -> None:
    store = write(tmp_path, [(sample(1), 0), (sample(1), 1), (sample(2), 1)])
    assert store.digests[0] == store.digests[1] != store.digests[2]
    assert len(store.digests[0]) == 32
    assert content_digest(dict(reversed(sample(1).items()))) == store.digests[0]


@given(st.lists(st.binary(min_size=4, max_size=4), min_size=2, max_size=6))
def test_digests_are_equal_exactly_where_bytes_are(rows: list[bytes]) -> None:
    digests = [content_digest({"a": np.frombuffer(row, np.uint8)}) for row in rows]
    assert len(set(digests)) == len(set(rows))


def test_digest_tells_dtype_and_shape() -> None:
    zeros = np.zeros((1, 4), np.int32)
    variants = [{"a": zeros}, {"a": zeros.view(np.float32)}, {"a": zeros.reshape(4, 1)}, {"a": zeros, "b": zeros}]
    assert len({content_digest(variant) for variant in variants}) == 4


def test_digest_knows_no_names_and_the_signature_does(tmp_path: Path) -> None:
    """The formats of one model name and order its inputs differently; kept float outputs are those of one of them."""
    keys = {"a": "2", "b": "1"}
    renamed = [TensorSpec(name=f"z{one.key}", key=keys[one.key], shape=one.shape, dtype=one.dtype) for one in INPUTS]
    pairs = [({"2": inputs["a"], "1": inputs["b"]}, target) for inputs, target in labelled(3)]
    ours, theirs = write(tmp_path / "ours", labelled(3)), SampleStore.write(tmp_path / "theirs", pairs, renamed)
    assert ours.digests == theirs.digests
    assert ours.signature != theirs.signature


def test_signature_tells_which_input_has_what(tmp_path: Path) -> None:
    two = [TensorSpec(name=key, key=key, shape=(1,), dtype=np.dtype("float32")) for key in "ab"]
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    stores = [
        SampleStore.write(tmp_path / str(i), [({"a": first, "b": second}, 0)], two)
        for i, (first, second) in enumerate([(zero, one), (one, zero)])
    ]
    assert stores[0].signature != stores[1].signature


@settings(max_examples=25)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    scalar = [TensorSpec(name="v", key="v", shape=(1,), dtype=np.dtype("float32"))]
    pairs = [({"v": np.array([value], np.float32)}, np.array([value, 1.0])) for value in values]
    store = SampleStore.write(tmp_path_factory.mktemp("round"), pairs, scalar)
    assert [float(store.inputs(i)["v"][0]) for i in range(len(store))] == values
    assert [store.target(i)[0] for i in range(len(store))] == values


TARGETS = {
    "labels": ([0, 2, 1], (3,), "int64"),
    "small labels": ([np.uint8(0), np.uint8(2), np.uint8(1)], (3,), "uint8"),
    "floats": ([0.5, 1.0, 2], (3,), "float64"),
    "masks": ([np.zeros((2, 2), np.uint8)] * 3, (3, 2, 2), "uint8"),
    "lists": ([[1.0, 2.0]] * 3, (3, 2), "float64"),
    "bools": ([True, False, True], (3,), "bool"),
}


@pytest.mark.parametrize(("targets", "shape", "dtype"), TARGETS.values(), ids=TARGETS)
def test_targets_keep_shape_and_dtype(
    tmp_path: Path, targets: list[object], shape: tuple[int, ...], dtype: str
) -> None:
    store = write(tmp_path, [(sample(i), target) for i, target in enumerate(targets)])
    kept = np.array([store.target(i) for i in range(len(store))])
    assert (kept.shape, str(kept.dtype)) == (shape, dtype)
    np.testing.assert_array_equal(kept, np.array(targets))


def test_no_targets(tmp_path: Path) -> None:
    store = write(tmp_path, [(sample(0), None)])
    assert store.target(0) is None
    assert store.subset([0]).target(0) is None


REFUSED: dict[str, tuple[list[tuple[Sample, object | None]], str]] = {
    "no samples": ([], "at least one sample"),
    "missing input": ([({"a": sample(0)["a"]}, 0)], "for input 'b', got nothing"),
    "shape": ([({**sample(0), "a": np.zeros((2, 2), np.float32)}, 0)], "got float32 (2, 2)"),
    "dtype": ([({**sample(0), "b": np.zeros(1, np.int64)}, 0)], "got int64 (1,)"),
    "some targets, first without": ([(sample(0), None), (sample(1), 1)], "for all samples or for none"),
    "some targets, first with": ([(sample(0), 1), (sample(1), None)], "for all samples or for none"),
    "ragged targets": ([(sample(0), [1]), (sample(1), [1, 2])], "expected shape (1,) as in the first"),
    "text targets": ([(sample(0), "cat")], "expected an array of numbers"),
    "fractions after integers": ([(sample(0), 1), (sample(1), 0.5)], "expected dtype int64"),
    "nan after integers": ([(sample(0), 1), (sample(1), np.nan)], "expected dtype int64"),
    "numbers after bools": ([(sample(0), True), (sample(1), 1)], "expected dtype bool"),
}


@pytest.mark.parametrize(("pairs", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses_and_leaves_nothing(tmp_path: Path, pairs: list[tuple[Sample, object | None]], words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        write(tmp_path, pairs)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_store(tmp_path: Path) -> None:
    old = write(tmp_path, labelled(2))

    def broken() -> Iterator[tuple[Sample, object | None]]:
        yield sample(7), 7
        raise OSError("camera unplugged")

    with pytest.raises(OSError, match="camera unplugged"):
        SampleStore.write(tmp_path, broken(), INPUTS)
    assert SampleStore.open(tmp_path).signature == old.signature


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="write samples"):
        write(tmp_path / "file" / "store", labelled(1))


def test_open_refuses_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"samples\.json"):
        SampleStore.open(tmp_path)
    (tmp_path / "samples.json").write_text("{")
    with pytest.raises(DataError, match="Prepare"):
        SampleStore.open(tmp_path)
    (tmp_path / "samples.json").write_text('{"format": 99}')
    with pytest.raises(DataError, match="of format"):
        SampleStore.open(tmp_path)


def test_open_refuses_a_file_cut_short(tmp_path: Path) -> None:
    write(tmp_path, labelled(3))
    path = tmp_path / "input_000.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"input_000\.npy"):
        SampleStore.open(tmp_path)


def test_subset_refuses_numbers_out_of_range(tmp_path: Path) -> None:
    store = write(tmp_path, labelled(3))
    for indices in ([3], [-1]):
        with pytest.raises(IndexError, match="from 0 to 2"):
            store.subset(indices)
    with pytest.raises(DataError, match="one sample"):
        store.subset([])


def test_groups_are_kept_with_their_samples(tmp_path: Path) -> None:
    triples = [(*pair, group) for pair, group in zip(labelled(3), "abb", strict=True)]
    store = SampleStore.write(tmp_path / "grouped", triples, INPUTS)
    assert store.groups == ("a", "b", "b")
    assert store.subset([2, 0]).groups == ("b", "a")
    plain = write(tmp_path / "plain", labelled(3))
    assert plain.groups is None
    assert plain.digests == store.digests
    assert plain.signature != store.signature


def test_refuses_samples_of_which_some_have_a_group(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="groups for"):
        SampleStore.write(tmp_path, [(sample(0), 0, "a"), (sample(1), 1)], INPUTS)
