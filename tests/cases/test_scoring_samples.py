"""Which samples are searched on and which are held out."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from settling import settled

from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.scoring_samples import PARTS, _silent_inputs, prepare_samples, refuse_untouched
from autoselect.data.samples import SampleStore
from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, UsageError
from autoselect.scoring.metrics import make_metric

COUNT = 60
RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(2, COUNT, 4)).astype(np.float32)
LABELS = np.arange(COUNT) % 3
OUTPUTS = (TensorSpec(name="out", key="out", shape=(1, 3), dtype=np.dtype("float32")),)


def inputs(*keys: str, width: int = 4) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=f"serving_{key}:0", key=key, shape=(1, width), dtype=np.dtype("float32")) for key in keys
    )


def prepared(
    root: Path,
    evaluation: object,
    keys: tuple[str, ...],
    *,
    calibrate_on: int | None = None,
    width: int = 4,
    outputs: tuple[TensorSpec, ...] = OUTPUTS,
    **settings: Any,
) -> tuple[dict[str, list[int]], list[str]]:
    """The numbers of the samples of each part, and the warnings."""
    files, specs = CaseFiles(root=root), inputs(*keys, width=width)
    other = {key: np.full((1, width), 9 + i, np.float32) for i, key in enumerate(keys)}
    if calibrate_on is not None:
        other = dict(zip(keys, (LEFT[[calibrate_on]], RIGHT[[calibrate_on]]), strict=True))
    calibration = SampleStore.write(files.samples("calibration"), [(other, None)], specs)
    ingredients = Ingredients(
        model=b"", calibration=None, evaluation=evaluation, heldout=None, metric=make_metric("accuracy"), evaluator=None
    )
    found = prepare_samples(ingredients, settled(**settings), files, specs, outputs, calibration)
    return {part: json.loads(files.split(part).read_text("utf-8"))["indices"] for part in PARTS}, found[2]


def two(first: str, second: str) -> dict[str, np.ndarray]:
    return {first: LEFT, second: RIGHT, "y": LABELS}


def test_another_seed_of_the_search_holds_out_the_same(tmp_path: Path) -> None:
    parts = [prepared(tmp_path / str(seed), two("a", "b"), ("a", "b"), seed=seed)[0] for seed in (0, 1)]
    assert parts[0] == parts[1]


def test_the_split_has_a_seed_of_its_own(tmp_path: Path) -> None:
    parts = [prepared(tmp_path / str(seed), two("a", "b"), ("a", "b"), split_seed=seed)[0] for seed in (0, 1)]
    assert parts[0] != parts[1]


@pytest.mark.parametrize(("copies", "told"), [(5, ["24", "24"]), (1, [])])
def test_copies_of_samples_are_told_if_they_are_many(tmp_path: Path, copies: int, told: list[str]) -> None:
    """Each counts as a sample of its own."""
    places = np.arange(COUNT) // copies
    _, warnings = prepared(tmp_path, {"a": LEFT[places], "b": RIGHT[places], "y": LABELS[places]}, ("a", "b"))
    assert [re.findall(r"\d+", warning)[0] for warning in warnings if "copies" in warning] == told


def test_names_and_order_of_the_inputs_do_not_split_otherwise(tmp_path: Path) -> None:
    of_tflite, _ = prepared(tmp_path / "tflite", two("left", "right"), ("left", "right"))
    of_saved, _ = prepared(tmp_path / "saved", two("input_2", "input_1"), ("input_1", "input_2"))
    assert of_tflite == of_saved


def test_a_calibration_sample_is_found_among_the_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="calibration samples"):
        prepared(tmp_path, two("a", "b"), ("a", "b"), calibrate_on=7)


def test_groups_stay_whole_and_few_of_them_are_told(tmp_path: Path) -> None:
    groups = np.arange(COUNT) // 6
    parts, warnings = prepared(tmp_path, two("a", "b") | {"groups": groups}, ("a", "b"))
    assert set(groups[parts["search"]]).isdisjoint(groups[parts["heldout"]])
    assert len(parts["heldout"]) == COUNT // 2
    assert [told for told in warnings if "5 groups" in told]


def test_arrays_that_nothing_reads_are_told(tmp_path: Path) -> None:
    subjects = two("a", "b") | {"group": np.arange(COUNT), "ids": np.arange(COUNT)}
    (unread,) = prepared(tmp_path / "dict", subjects, ("a", "b"))[1]
    assert "'group', 'ids'" in unread
    np.savez(tmp_path / "one.npz", a=LEFT, x=LEFT, y=LABELS)
    (unread,) = prepared(tmp_path / "file", str(tmp_path / "one.npz"), ("a",))[1]
    assert "'x'" in unread
    np.savez(tmp_path / "other.npz", other=LEFT, y=LABELS)
    assert prepared(tmp_path / "other", tmp_path / "other.npz", ("a",))[1] == []


def test_many_groups_are_not_told(tmp_path: Path) -> None:
    _, warnings = prepared(tmp_path, two("a", "b") | {"groups": np.arange(COUNT)}, ("a", "b"))
    assert warnings == []


def test_a_user_is_asked_whether_neighbours_are_of_one_recording(tmp_path: Path) -> None:
    drift = np.linspace(0.0, 50.0, COUNT, dtype=np.float32)[:, np.newaxis] + two("a", "b")["a"]
    (asked,) = prepared(tmp_path / "asked", {"a": drift, "y": LABELS}, ("a",))[1]
    assert "groups" in asked
    assert prepared(tmp_path / "told", {"a": drift, "y": LABELS, "groups": np.arange(COUNT)}, ("a",))[1] == []


def test_a_single_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two groups"):
        prepared(tmp_path, two("a", "b") | {"groups": ["ann"] * COUNT}, ("a", "b"))


def windows(step: int) -> dict[str, np.ndarray]:
    """Of two recordings, one after the other."""
    half = COUNT // 2
    recordings = np.random.default_rng(1).normal(size=(2, 64 + step * half)).astype(np.float32)
    cut = [recording[step * i : step * i + 64] for recording in recordings for i in range(half)]
    return {"a": np.stack(cut), "y": LABELS}


def test_windows_on_both_sides_are_told(tmp_path: Path) -> None:
    (told,) = prepared(tmp_path, windows(32), ("a",), width=64)[1]
    assert re.search(r"of the 30\b.* overlap", told)
    assert "share 50 % of input 'a'" in told
    assert " groups" in told


def test_windows_on_one_side_are_not_told(tmp_path: Path) -> None:
    assert prepared(tmp_path / "apart", windows(64), ("a",), width=64)[1] == []
    grouped = windows(32) | {"groups": np.arange(COUNT) // (COUNT // 2)}
    (few,) = prepared(tmp_path / "grouped", grouped, ("a",), width=64)[1]
    assert "1 group of " in few


def test_the_scored_one_of_several_outputs_is_told(tmp_path: Path) -> None:
    classes = TensorSpec(name="argmax", key="classes", shape=(1,), dtype=np.dtype("int64"))
    _, warnings = prepared(tmp_path, two("l", "r"), ("l", "r"), outputs=(classes, *OUTPUTS))
    told = "Of the model's 2 outputs, 'out' is scored. --output-name chooses another: classes."
    assert warnings == [told]
    with pytest.raises(DataError, match=f"^Sample 3: .*labels from 0 to 2, got 3.*{re.escape(told)}$"):
        prepared(tmp_path, {"l": LEFT, "y": np.arange(COUNT)}, ("l",), outputs=(classes, *OUTPUTS))


@pytest.mark.parametrize(
    ("chosen", "refused"),
    [(None, "'same'.* input .*: y"), ("same", "'same'"), ("fixed", "'fixed'.* constant"), ("y", "")],
)
def test_an_output_that_no_op_computes_is_not_scored(chosen: str | None, refused: str) -> None:
    """Its score is the same whatever is quantized."""
    names = ("same", "fixed", "y")
    tensors = tuple(
        Tensor(name=n, dtype="float32", shape=(1, 3), is_constant=n == "fixed", size_bytes=12) for n in names
    )
    op = Op(op_type="RELU", kind=OpKind.FLOAT, inputs=(0,), constants=(), outputs=(2,), macs=0)
    graph = Graph(tensors=tensors, ops=(op,), inputs=(0,), outputs=(0, 1, 2))
    outputs = tuple(TensorSpec(name=n, key=n, shape=(1, 3), dtype=np.dtype("float32")) for n in names)
    expected = pytest.raises(UsageError, match=refused) if refused else nullcontext()
    with expected:
        refuse_untouched(graph, outputs, make_metric("sqnr_db", output=chosen))


def test_an_input_that_was_always_zero_is_told(tmp_path: Path) -> None:
    still = np.zeros((1, 4), np.float32)
    rows = [({"l": LEFT[[i]], "r": RIGHT[[i]] if i else still, "s": still}, None) for i in range(2)]
    store = SampleStore.write(tmp_path, rows, inputs("l", "r", "s"))
    [warning] = _silent_inputs(store, inputs("l", "r", "s"))
    assert warning.startswith("Input 's' is 0 in all 2 calibration samples")
