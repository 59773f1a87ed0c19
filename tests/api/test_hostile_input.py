"""Files that were made to harm: each is refused with a message, runs no code and takes little memory."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pump
import pytest

import autoselect
from autoselect.data.stacks import stacks_of_file
from autoselect.embedded import model_bytes
from autoselect.errors import DataError, ModelError, RecipeError, RunFolderError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.scoring.target_file import read_target
from autoselect.sources.keras_models import load_keras
from autoselect.study.recording.optuna_study import read_records
from autoselect.study.setup.space_file import read_space

DEEP = 200_000


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """None of these tests may take more than 3 GiB beyond what this process has by now."""
    _, hard = before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (3 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class Harm:
    """Pickled, it makes a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


# --------------------------------------------------------------------------------------------------- data


def header(shape: tuple[int, ...], order: bool = False, dtype: str = "<f4") -> bytes:
    text = repr({"descr": dtype, "fortran_order": order, "shape": shape}).ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def archived(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


ARRAYS = {
    "a row of 32 GB": (header((3, 1 << 33)) + bytes(1 << 20), r"rows of 34359738368 bytes"),
    "40 GB in Fortran order": (header((10_000_000, 1024), order=True), r"Fortran order.*ascontiguousarray"),
    "a negative shape": (header((-5, 4)), r"the shape \(-5, 4\)"),
    "less than it says": (header((1000, 64)) + bytes(64), r"the data end in row 0 of 1000"),
    "a header nested deep": (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, r"cannot be read"),
    "a dtype of code": (header((3,), dtype="__import__('os')"), r"cannot be read"),
}


@pytest.mark.parametrize(("content", "words"), ARRAYS.values(), ids=ARRAYS)
def test_an_array_that_is_not_what_it_says_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = archived(tmp_path / "x.npz", x=content)
    with pytest.raises(DataError, match=words):
        list(stacks_of_file(path)["x"]().rows())


def test_a_bomb_is_read_row_by_row(tmp_path: Path) -> None:
    """8 GB of zeros in 8 MB; the limit of the address space would not let it be read whole."""
    path, rows = tmp_path / "x.npz", 1 << 13
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(header((rows * 32, 1 << 13)))
        for _ in range(64):
            member.write(bytes(1 << 20))
    taken = [row for row, _ in zip(stacks_of_file(path)["x"]().rows(), range(2000), strict=False)]
    assert all(row.shape == (1 << 13,) for row in taken)


@pytest.mark.parametrize("where", ["calibration", "evaluation"])
def test_pickled_objects_are_not_read(where: str, tmp_path: Path) -> None:
    harm = np.array([Harm(tmp_path / "harmed")] * 3, dtype=object)
    np.savez(tmp_path / "data.npz", x=harm, y=harm)
    with pytest.raises(DataError, match="pickled"):
        pump.search(tmp_path / "run", **{where: tmp_path / "data.npz"})
    assert not (tmp_path / "harmed").exists()


def test_a_member_that_leaves_its_archive_is_written_nowhere(tmp_path: Path) -> None:
    path = archived(tmp_path / "data.npz", **{"../../escaped": header((3, 4)) + bytes(48), "\x1b[2J<b>": b""})
    with pytest.raises(DataError, match=r"'\.\./\.\./escaped', '\\x1b\[2J<b>'"):
        pump.search(tmp_path / "run", calibration=path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "run") == ["data.npz"]


# ------------------------------------------------------------------------------------------------- models


def keras_archive(path: Path, metadata: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", metadata)
    return path


METADATA = {
    "a bomb": b" " * (1 << 26),
    "nested deep": b"[" * DEEP,
    "a list": b"[]",
}


@pytest.mark.parametrize("metadata", METADATA.values(), ids=METADATA)
def test_a_keras_file_with_such_metadata_is_refused(metadata: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"whole \.keras file"):
        load_keras(keras_archive(tmp_path / "model.keras", metadata))


def test_an_old_keras_file_nested_deep_is_refused(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "model.h5", "w", libver="latest") as file:
        file.attrs["model_config"] = "[" * DEEP
        file.attrs["keras_version"] = "2.15.0"
    with pytest.raises(ModelError, match="no JSON"):
        load_keras(tmp_path / "model.h5")


# ------------------------------------------------------------------------------------------ recipes and settings

TEXTS = {
    "nested deep": "[" * DEEP,
    "100 MB": " " * 100_000_000,
    "no text": "\udcff\udcfe",
}


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_such_a_recipe_is_refused(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "own.recipe.json", text)
    with pytest.raises((RecipeError, UsageError), match=r"nested deeper|at most 16777216|no text"):
        autoselect.build(path, model=model_bytes(), calibration=pump.calibration, output=tmp_path / "out.tflite")
    assert not (tmp_path / "out.tflite").exists()


@pytest.mark.parametrize("read", [read_space, read_target], ids=["space", "target"])
@pytest.mark.parametrize("text", ["x = " + TEXTS["nested deep"], *list(TEXTS.values())[1:]], ids=TEXTS)
def test_such_a_toml_file_is_refused(read: Callable[[str], object], text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"TOML|16777216|cannot be"):
        read(str(written(tmp_path / "own.toml", text)))


# ---------------------------------------------------------------------------------------- a foreign run folder


@pytest.fixture
def foreign(finished: autoselect.Run, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(finished.directory, tmp_path / "foreign")))


USES: dict[str, Callable[[Path], object]] = {
    "load": autoselect.load_run,
    "pick": lambda folder: autoselect.pick(folder, output=folder.parent / "out.tflite"),
    "report": autoselect.write_report,
    "resume": lambda folder: autoselect.resume(folder, trials=21),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("name", ["front", "artifacts", "study.journal", ".autoselect-work", "report.html"])
def test_links_are_not_followed(name: str, use: Callable[[Path], object], foreign: RunFolder, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    path = foreign.root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(mine if "." not in name[1:] else mine / "thesis.tex")
    with pytest.raises(RunFolderError, match=r"is a link\b"):
        use(foreign.root)
    assert pump.tree(mine) == {"thesis.tex": pump.sha256(mine / "thesis.tex")}
    assert (mine / "thesis.tex").read_text() == "precious"


def test_a_link_that_a_killed_search_left_as_its_lock_is_removed_not_followed(
    foreign: RunFolder, tmp_path: Path
) -> None:
    mine, lock = tmp_path / "thesis.tex", foreign.root / "study.journal.lock"
    mine.write_text("precious")
    lock.symlink_to(mine)
    assert autoselect.load_run(foreign.root).status == "complete"
    assert autoselect.resume(foreign.root).status == "complete"
    assert not lock.is_symlink()
    assert mine.read_text() == "precious"


def with_last(entry: Callable[[list[dict[str, Any]]], str]) -> Callable[[Path], None]:
    def harm(journal: Path) -> None:
        entries = [json.loads(line) for line in journal.read_text().splitlines()]
        journal.write_text("".join(json.dumps(e) + "\n" for e in entries) + entry(entries) + "\n")

    return harm


def other_name(journal: Path) -> None:
    """The hash of a model, after which files are named, leads out of the folder."""
    text, subs = re.subn(r'("sha256": ?")[0-9a-f]{12}', r"\1../../../../", journal.read_text(), count=1)
    assert subs
    journal.write_text(text)


JOURNALS: dict[str, Callable[[Path], None]] = {
    "a model's name that leaves the folder": other_name,
    "an entry nested deep": with_last(lambda _: "[" * DEEP),
    "an entry that is a number": with_last(lambda _: "7"),
    "an entry of another kind": with_last(lambda _: '{"op_code": 99, "worker_id": "a"}'),
    "no objects at all": lambda path: path.write_text("null\n" * 3),
    "100 MB of nothing": lambda path: path.write_bytes(bytes(100_000_000) + b"\n"),
}


@pytest.mark.parametrize("harm", JOURNALS.values(), ids=JOURNALS)
def test_such_a_journal_is_refused(harm: Callable[[Path], None], foreign: RunFolder, tmp_path: Path) -> None:
    harm(foreign.study)
    before = pump.tree(tmp_path)
    with pytest.raises(RunFolderError, match=r"study\.journal"):
        read_records(foreign.study)
    with pytest.raises(RunFolderError, match=r"study\.journal"):
        autoselect.write_report(foreign.root)
    assert pump.tree(tmp_path) == before


@pytest.mark.parametrize("text", ["[" * DEEP, '{"manifest_version": 1}', '{"manifest_version": 1, "sources": 3}'])
def test_such_a_manifest_is_refused(text: str, foreign: RunFolder) -> None:
    foreign.manifest.write_text(text)
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        USES["resume"](foreign.root)
    foreign.summary.unlink()
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        USES["report"](foreign.root)


def test_the_objects_of_a_pickle_that_is_called_a_model_are_not_made(tmp_path: Path) -> None:
    for name in ("model.tflite", "model.keras", "model.h5"):
        (tmp_path / name).write_bytes(pickle.dumps(Harm(tmp_path / "harmed")))
        with pytest.raises(ModelError):
            autoselect.inspect(tmp_path / name)
    assert not (tmp_path / "harmed").exists()
