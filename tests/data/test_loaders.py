"""Samples from folders of images and from rows of data sets, as the rest of the package takes them."""

from __future__ import annotations

import doctest
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from autoselect.data.labelled import labelled_samples
from autoselect.data.representative import representative_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError
from autoselect.loaders import image_folder, rows


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for number, name in enumerate(["dog", "cat"]):
        (tmp_path / name / "more").mkdir(parents=True)
        for place in range(3):
            picture = Image.new("RGB", (20, 10), (10 * number, 20 * place, 255))
            picture.save(tmp_path / name / f"{place}.png")
        picture.save(tmp_path / name / "more" / "4.JPG")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    picture.save(tmp_path / ".ipynb_checkpoints" / "0.png")
    return tmp_path


def test_classes_are_numbered_by_name_and_paths_are_in_order(pets: Path) -> None:
    loader = image_folder(pets, size=(5, 8), preprocess=lambda x: x / 127.5 - 1)
    first, again = list(loader()), list(loader)
    assert [label for _, label in first] == [0] * 4 + [1] * 4
    assert {(image.shape, image.dtype) for image, _ in first} == {((5, 8, 3), np.dtype("float32"))}
    assert first[1][0][0, 0].tolist() == pytest.approx([10 / 127.5 - 1, 20 / 127.5 - 1, 1.0])
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, again, strict=True))


def test_images_without_labels_have_a_batch_axis(pets: Path) -> None:
    [image] = next(iter(image_folder(pets, size=(4, 4), labelled=False, mode="L")))
    assert image.shape == (1, 4, 4, 1)
    assert len(list(image_folder(pets / "dog", size=(4, 4), labelled=False))) == 4


def test_the_rest_of_the_package_takes_them(pets: Path) -> None:
    spec = TensorSpec(name="image", key="image", shape=(1, 4, 4, 3), dtype=np.dtype("float32"))
    pairs = list(labelled_samples(image_folder(pets, size=(4, 4)), [spec], targets_required=True))
    samples = list(representative_samples(image_folder(pets, size=(4, 4), labelled=False), [spec]))
    assert len(pairs) == len(samples) == 8


def test_images_are_of_the_dtype_that_the_model_takes(pets: Path) -> None:
    spec = TensorSpec(name="image", key="image", shape=(1, 4, 4, 3), dtype=np.dtype("uint8"))
    pairs = list(labelled_samples(image_folder(pets, size=(4, 4), dtype="uint8"), [spec], targets_required=True))
    assert pairs[1][0]["image"][0, 0, 0].tolist() == [10, 20, 255]
    with pytest.raises(DataError, match=r"uint8 can hold, got float64 from 0\.0 to 127\.5"):
        list(image_folder(pets, size=(4, 4), preprocess=lambda x: x / 2, dtype="uint8"))


@pytest.mark.parametrize(
    ("values", "mode"), [(np.full((4, 4), 900, np.uint16), "I;16"), (np.full((4, 4), 0.5, np.float32), "F")]
)
def test_images_of_more_than_8_bits_are_not_clipped(values: np.ndarray, mode: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    Image.fromarray(values).save(tmp_path / "deep" / "0.tiff")
    [(image, _)] = image_folder(tmp_path, size=(4, 4), mode="F")
    assert image[..., 0].tolist() == values.tolist()
    with pytest.raises(DataError, match=f"mode {mode}"):
        list(image_folder(tmp_path, size=(4, 4)))


@pytest.mark.parametrize("function", [image_folder, rows])
def test_the_example_runs(function: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(function.__doc__ or "", {}, "example", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
    assert len(test.examples) > 2


def test_what_is_no_folder_of_images_is_refused(pets: Path) -> None:
    with pytest.raises(DataError, match="is none"):
        image_folder(pets / "bird", size=(4, 4))
    with pytest.raises(DataError, match="subfolder"):
        image_folder(pets / "dog" / "more", size=(4, 4))
    (pets / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png"):
        list(image_folder(pets, size=(4, 4)))


@pytest.mark.parametrize("size", [24, (24, 24, 3), (24.0, 24.0), (0, 24)])
def test_what_is_no_size_is_refused(pets: Path, size: Any) -> None:
    with pytest.raises(DataError, match="width"):
        image_folder(pets, size=size)


@pytest.mark.parametrize(("option", "words"), [({"mode": "XYZ"}, "mode"), ({"dtype": "nope"}, "dtype")])
def test_what_is_no_mode_or_dtype_is_refused(pets: Path, option: dict[str, str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        image_folder(pets, size=(8, 8), **option)  # type: ignore[arg-type]


def test_a_class_may_be_a_link_but_none_to_what_it_lies_in(
    pets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = len(list(image_folder(pets, size=(8, 8))))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(next(pets.rglob("*.png")), elsewhere / "1.png")
    (pets / "zebra").symlink_to(elsewhere)
    (pets / "zebra" / "round").symlink_to(pets)
    os.mkfifo(elsewhere / "2.png")
    labels = [label for _, label in image_folder(pets, size=(8, 8))]
    assert len(labels) == before + 1
    assert labels[-1] == max(labels[:-1]) + 1


def test_an_image_that_unpacks_to_too_much_is_named(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(DataError, match=r"\.png"):
        list(image_folder(pets, size=(8, 8)))


def test_an_image_with_a_broken_part_is_named(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise SyntaxError("broken PNG file (chunk b'IDA?')")  # As Pillow says it.

    monkeypatch.setattr(Image.Image, "convert", broken)
    with pytest.raises(DataError, match=r"\.(png|JPG)"):
        list(image_folder(pets, size=(8, 8)))


def test_a_table_has_no_rows_to_go_through() -> None:
    table = pandas.DataFrame({"x": [1.0], "y": [0]})
    with pytest.raises(DataError, match=r"to_dict\('records'\)"):
        list(rows(table, inputs="x", label="y"))  # type: ignore[arg-type]
    assert list(rows(table.to_dict("records"), inputs="x", label="y")) == [(1.0, 0)]


def test_rows_give_pairs_or_inputs() -> None:
    data = [{"image": np.full((2, 2), i, np.uint8), "ids": np.array([i]), "label": i} for i in range(3)]
    pairs = list(rows(data, inputs="image", label="label", preprocess=lambda x: x * 2.0))
    assert [(image.max(), label) for image, label in pairs] == [(0, 0), (2, 1), (4, 2)]
    [several] = [dict(sample) for sample in rows(data[1:2], inputs={"x": "image", "tokens": "ids"})]
    assert several["x"].shape == (1, 2, 2)
    assert several["tokens"].dtype == np.int64
    with pytest.raises(DataError, match=r"column 'sound', got 'image', 'ids', 'label'"):
        list(rows(data, inputs="sound"))


def test_rows_are_of_the_dtypes_that_the_model_takes() -> None:
    data = [{"image": [1, 2], "mask": [True, False]}]
    [plain] = rows(data, inputs={"x": "image", "keep": "mask"})
    assert [value.dtype.name for value in plain.values()] == ["int64", "float32"]
    [chosen] = rows(data, inputs={"x": "image", "keep": "mask"}, dtype={"keep": "bool"})
    assert [value.dtype.name for value in chosen.values()] == ["int64", "bool"]
    [[levels]] = rows(data, inputs="image", dtype="int16")
    assert levels.dtype == np.int16
