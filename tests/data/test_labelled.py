from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas
import pytest

from autoselect.data.labelled import labelled_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([2, 0, 1, 2], dtype=np.int32)
MASKS = np.arange(16, dtype=np.uint8).reshape(4, 2, 2)


def spec(key: str, shape: tuple[int, ...] = (1, 3)) -> TensorSpec:
    return TensorSpec(name=f"serving_{key}:0", key=key, shape=shape, dtype=np.dtype("float32"))


ONE = [spec("wave")]
TWO = [spec("a"), spec("b")]


def pairs() -> Iterator[tuple[np.ndarray, np.int32]]:
    yield from zip(X, Y, strict=True)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield X[:3], Y[:3]
    yield X[3:], Y[3:]


def breaks() -> Iterator[tuple[np.ndarray, int]]:
    yield X[0], 1
    raise OSError("disk gone")


LABELLED = {
    "function of pairs": pairs,
    "function of batches": batches,
    "function of lists": lambda: [[[row], label] for row, label in zip(X, Y, strict=True)],
    "function of named inputs": lambda: [({"wave": row}, label) for row, label in zip(X, Y, strict=True)],
    "function of signatures": lambda: [(("s", {"wave": row}), y) for row, y in zip(X, Y, strict=True)],
    "function of (x, y)": lambda: (X, Y),
    "list of pairs": list(zip(X, Y, strict=True)),
    "(x, y)": (X, Y),
    "(dict, y)": ({"wave": X}, Y),
    "dict with y": {"x": X, "y": Y},
    "spec": f"{__name__}:pairs",
}


def check(source: object) -> None:
    got = list(labelled_samples(source, ONE, targets_required=True))
    np.testing.assert_array_equal(np.stack([sample["wave"] for sample, _ in got]), X[:, np.newaxis], strict=True)
    targets = np.stack([np.asarray(target) for _, target in got])
    np.testing.assert_array_equal(targets, Y, strict=True)


@pytest.mark.parametrize("source", LABELLED.values(), ids=LABELLED)
def test_every_form_gives_the_same_pairs(source: object) -> None:
    check(source)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", ["x", "wave", "serving_wave", "arr_0"])
def test_files_give_the_same_pairs(save, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save(tmp_path / "data.npz", **{name: X.astype(np.float16), "y": Y})
    check(tmp_path / "data.npz")
    check(str(tmp_path / "data.npz"))


def test_masks_keep_shape_and_dtype() -> None:
    for source in ((X, MASKS), lambda: zip(X[:, np.newaxis], MASKS[:, np.newaxis], strict=True)):
        got = list(labelled_samples(source, ONE, targets_required=True))
        np.testing.assert_array_equal(np.stack([np.asarray(y) for _, y in got]), MASKS, strict=True)


INPUTS_ONLY = {
    "array": X,
    "(x, None)": (X, None),
    "dict": {"wave": X},
    "function": lambda: ([row] for row in X),
    "function of signatures": lambda: (("s", {"wave": row}) for row in X),
}


@pytest.mark.parametrize("source", INPUTS_ONLY.values(), ids=INPUTS_ONLY)
def test_inputs_alone_will_do_where_no_targets_are_needed(source: object) -> None:
    got = list(labelled_samples(source, ONE, targets_required=False))
    assert [target for _, target in got] == [None] * 4
    np.testing.assert_array_equal(np.concatenate([sample["wave"] for sample, _ in got]), X)


@pytest.mark.parametrize("is_labelled", [True, False])
def test_samples_of_other_signatures_are_left_out(is_labelled: bool) -> None:
    def both() -> Iterator[object]:
        for row, label in zip(X, Y, strict=True):
            for sample in (("encode", {"wave": row}), ("decode", {"wave": -row})):
                yield (sample, label) if is_labelled else sample

    got = list(labelled_samples(both, ONE, targets_required=is_labelled, signature="decode"))
    np.testing.assert_array_equal(np.concatenate([sample["wave"] for sample, _ in got]), -X)


@pytest.mark.parametrize("source", INPUTS_ONLY.values(), ids=INPUTS_ONLY)
def test_inputs_alone_are_refused_where_targets_are_needed(source: object) -> None:
    with pytest.raises(DataError, match="label-free metric"):
        list(labelled_samples(source, ONE, targets_required=True))


def test_a_pair_of_arrays_is_one_sample_of_two_inputs() -> None:
    (bare,) = labelled_samples([(X[0], X[1])], TWO, targets_required=False)
    (paired,) = labelled_samples([([X[0], X[1]], 5)], TWO, targets_required=True)
    np.testing.assert_array_equal(bare[0]["b"], X[1:2])
    np.testing.assert_array_equal(paired[0]["b"], X[1:2])
    assert (bare[1], paired[1]) == (None, 5)


def test_a_list_of_one_array_for_each_input_is_split_into_samples() -> None:
    stacks = [X, X + 1]
    for source in ((stacks, Y), (tuple(stacks), Y), (stacks, [*Y], ["ann"] * 4)):
        got = [*labelled_samples(source, TWO, targets_required=True)]
        np.testing.assert_array_equal(np.concatenate([row[0]["b"] for row in got]), X + 1)
        assert [row[1] for row in got] == [*Y]
    assert [row[1] for row in labelled_samples(stacks, TWO, targets_required=False)] == [None] * 4
    with pytest.raises(DataError, match=r"b.: 3"):
        [*labelled_samples(([X, X[:3]], Y), TWO, targets_required=True)]


def test_batches_in_a_tuple_are_no_targets_of_each_other() -> None:
    got = [*labelled_samples(((X[:2], X[2:]), (X[:2], X[2:])), TWO, targets_required=False)]
    assert [row[1] for row in got] == [None] * 4


def test_an_input_called_y_is_no_target() -> None:
    data = {"x": X, "y": X}
    (first, *_) = labelled_samples(data, [spec("x"), spec("y")], targets_required=False)
    assert first[1] is None
    with pytest.raises(DataError, match="itself called 'y'"):
        labelled_samples(data, [spec("x"), spec("y")], targets_required=True)


REFUSED = {
    "fewer targets": ((X, Y[:3]), "'wave'|array: 4, scoring data, targets: 3"),
    "text targets": ((X, np.array(["a"] * 4)), "expected an array of numbers"),
    "ragged targets": ((X, [[1], [1, 2], [1], [1]]), "expected an array of numbers"),
    "object targets": ((X, np.array([None] * 4)), "expected an array of numbers"),
    "one target for all": ((X, 3), "got a single number"),
    "batch with one target": ([(X, 3)], "expected 4 targets for a batch of 4 samples"),
    "raises": (breaks, re.escape("making sample 1 (counted from 0) raised OSError: disk gone")),
    "empty": ([], "at least one sample"),
    "nan": ((np.full((2, 3), np.nan), [1, 2]), re.escape("scoring sample 0 (counted from 0), input 'wave'")),
    "missing file": ("nothing.npz", "there is none here"),
}


@pytest.mark.parametrize(("source", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(source: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        list(labelled_samples(source, ONE, targets_required=True))


def test_refuses_pickled_targets(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=np.array([None] * 4))
    with pytest.raises(DataError, match=r"array 'y' .*pickled"):
        labelled_samples(tmp_path / "data.npz", ONE, targets_required=True)


def test_pickled_groups_are_told_to_become_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y, groups=np.array(["a", "a", "b", "b"], dtype=object))
    with pytest.raises(DataError, match=r"array 'groups' .*groups\.astype\(str\)"):
        list(labelled_samples(tmp_path / "data.npz", ONE, targets_required=True))


WHO = ["ann", "ann", "bob", "bob"]
GROUPED = {
    "(x, y, groups)": ((X, Y, WHO), WHO),
    "a table": ((pandas.DataFrame(X), pandas.Series(Y), WHO), WHO),
    "numbers": ((X, Y, np.array([3, 3, 5, 5])), ["3", "3", "5", "5"]),
    "objects": ((X, Y, np.array(WHO, dtype=object)), WHO),
    "dict of arrays": ({"x": X, "y": Y, "groups": WHO}, WHO),
    "inputs by name": (({"wave": X}, Y, WHO), WHO),
    "triples": (list(zip(X, Y, WHO, strict=True)), WHO),
    "batches of one group": ([(X[:2], Y[:2], "ann"), (X[2:], Y[2:], "bob")], WHO),
    "batches of several": ([(X[:3], Y[:3], WHO[:3]), (X[3:], Y[3:], WHO[3:])], WHO),
}


@pytest.mark.parametrize(("source", "expected"), GROUPED.values(), ids=GROUPED)
def test_groups_come_with_the_samples(source: object, expected: list[str]) -> None:
    got = list(labelled_samples(source, ONE, targets_required=True))
    assert [group for _, _, group in got] == expected
    assert [int(target) for _, target, _ in got] == Y.tolist()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("groups", [WHO, [3, 3, 5, 5]], ids=["text", "numbers"])
def test_files_hold_groups(save, groups: list[object], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save(tmp_path / "data.npz", x=X, y=Y, groups=groups)
    got = list(labelled_samples(tmp_path / "data.npz", ONE, targets_required=True))
    assert [group for _, _, group in got] == [str(group) for group in groups]


def test_groups_need_no_targets() -> None:
    got = list(labelled_samples({"x": X, "groups": WHO}, ONE, targets_required=False))
    assert [row[1:] for row in got] == [(None, group) for group in WHO]


def test_three_arrays_are_one_sample_of_three_inputs() -> None:
    three = [*TWO, spec("c")]
    (bare,) = labelled_samples([(X[0], X[1], X[2])], three, targets_required=False)
    (grouped,) = labelled_samples([([X[0], X[1], X[2]], 5, "ann")], three, targets_required=True)
    assert bare[1:] == (None,)
    assert grouped[1:] == (5, "ann")


def test_an_input_called_groups_holds_no_groups() -> None:
    data = {"x": X, "groups": X, "y": Y}
    (first, *_) = labelled_samples(data, [spec("x"), spec("groups")], targets_required=True)
    assert first[1:] == (2,)


class Unreadable:
    """As a tensor that keeps its gradient."""

    def __array__(self) -> np.ndarray:
        raise RuntimeError("call detach first\nand more")


REFUSED_GROUPS = {
    "fewer groups": ((X, Y, WHO[:3]), "expected equally many samples in each array"),
    "fractions": ((X, Y, [0.5, 0.5, 1.5, 1.5]), "a whole number or a text for each sample, got float64"),
    "one-hot": ((X, Y, np.eye(4, dtype=int)), "a whole number or a text for each sample, got int64 of shape (4,)"),
    "ragged": (
        (X, Y, ["a", ["b"], "c", "d"]),
        "expected one label for each sample, got list that NumPy",
    ),
    "no array": ((X, Y, Unreadable()), "got Unreadable that NumPy cannot convert (call detach first)"),
    "a missing label": ((X, Y, ["ann", None, "bob", "bob"]), "sample 1 (counted from 0)"),
    "an empty cell": ((X, Y, pandas.Series(["ann", None, "bob", "bob"])), "sample 1 (counted from 0)"),
    "an empty cell among texts": ((X, Y, ["ann", "ann", float("nan"), "bob"]), "sample 2 (counted from 0)"),
    "batch with too few": ([(X, Y, WHO[:3])], "expected 4 groups for a batch of 4 samples, got 3"),
}


@pytest.mark.parametrize(("source", "words"), REFUSED_GROUPS.values(), ids=REFUSED_GROUPS)
def test_refuses_groups(source: object, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        list(labelled_samples(source, ONE, targets_required=True))


def test_refuses_a_file_with_fewer_groups(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y, groups=WHO[:3])
    with pytest.raises(DataError, match="equally many"):
        list(labelled_samples(tmp_path / "data.npz", ONE, targets_required=True))


def test_a_source_without_arrays_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz")
    with pytest.raises(DataError, match=r"no array.* array 'y'"):
        labelled_samples(tmp_path / "data.npz", ONE, targets_required=True)


def test_targets_of_another_name_are_told_with_all_names_found() -> None:
    arrays = {"x": np.zeros((2, 3), np.float32), "labels": np.zeros(2, np.int64)}
    with pytest.raises(DataError, match=r"'y'.*'x', 'labels'.* 'labels' to 'y'"):
        labelled_samples(arrays, [spec("x")], targets_required=True)


def test_a_data_set_that_repeats_for_ever_is_refused_before_it_is_read() -> None:
    import tensorflow as tf

    finite = tf.data.Dataset.from_tensor_slices((X, Y))
    with pytest.raises(DataError, match=r"\.take\(n\)"):
        list(labelled_samples(finite.repeat(), ONE, targets_required=True))
    assert len(list(labelled_samples(finite.repeat().take(9), ONE, targets_required=True))) == 9


@pytest.mark.parametrize("names", [["cat", "dog", "cat", "dog"], np.array(["cat"] * 4, object)], ids=["str", "objects"])
def test_names_of_classes_are_told_to_become_numbers(names: object) -> None:
    with pytest.raises(DataError, match="from 0 on"):
        list(labelled_samples((X, names), ONE, targets_required=True))


def test_weights_of_samples_are_told_to_be_no_groups() -> None:
    with pytest.raises(DataError, match="weights of"):
        list(labelled_samples((X, Y, np.array([0.5, 1.0, 1.0, 2.0])), ONE, targets_required=True))
