from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autoselect.cluster.travel import CHUNK_BYTES, Folder, Outcome, Parcel
from autoselect.errors import ScoreError, StorageError
from autoselect.runs.files import write_bytes

ONE, OTHER = "a" * 64, "b" * 64


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    for name in ("float.tflite", f"candidates/{ONE}.tflite", f"candidates/{OTHER}.tflite", f"plain_kernels/{ONE}"):
        write_bytes(tmp_path / name, name.encode())
    write_bytes(tmp_path / "rows" / ".half", b"being written")
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ((), set()),
        ((ONE, "search", False), {f"candidates/{ONE}.tflite", f"plain_kernels/{ONE}"}),
        ((OTHER, [ONE], 0.5), {f"candidates/{ONE}.tflite", f"candidates/{OTHER}.tflite", f"plain_kernels/{ONE}"}),
    ],
    ids=["no candidate", "one candidate", "a candidate and its rivals"],
)
def test_a_job_gets_the_files_of_its_candidates_and_all_that_is_of_none(
    folder: Folder, args: tuple[object, ...], names: set[str]
) -> None:
    assert folder.needed(args) == {name: sha(name.encode()) for name in {"float.tflite", *names}}


def test_a_file_that_is_written_anew_is_another_one(folder: Folder) -> None:
    before = folder.needed(())
    write_bytes(folder.root / "float.tflite", b"float.tflitE")
    assert folder.needed(())["float.tflite"] == sha(b"float.tflitE") != before["float.tflite"]
    assert b"".join(folder.chunks(sha(b"float.tflitE"))) == b"float.tflitE"


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_a_file_goes_in_pieces(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    write_bytes(tmp_path / "x", content)
    folder = Folder(tmp_path)
    pieces = list(folder.chunks(folder.needed(())["x"]))
    assert b"".join(pieces) == content
    assert len(pieces) == max(-(-size // CHUNK_BYTES), 1)


def test_what_a_job_wrote_lands_in_the_folder(folder: Folder) -> None:
    folder.take({"rows/search/x.npy": b"rows"})
    assert (folder.root / "rows" / "search" / "x.npy").read_bytes() == b"rows"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x", "a\\..\\x"])
def test_nothing_lands_outside(folder: Folder, name: str) -> None:
    with pytest.raises(StorageError, match="outside"):
        folder.take({name: b""})


def test_a_parcel_is_opened_whole_or_not_at_all() -> None:
    outcome = Outcome(value=(1, "two"), error=ScoreError("no score"), files={"x": b"1"})
    parcel = Parcel.of(outcome)
    opened = parcel.opened()
    assert (opened.value, repr(opened.error), opened.files) == ((1, "two"), repr(outcome.error), {"x": b"1"})
    with pytest.raises(StorageError, match="damaged"):
        replace(parcel, content=parcel.content[:-1]).opened()
