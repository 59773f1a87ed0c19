from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autoselect.errors import StorageError
from autoselect.runs import files


def fail_with(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


class FullDisk:
    """A file that takes half of what it is given."""

    def __init__(self, handle: int, mode: str) -> None:
        self._file = open(handle, mode, closefd=True)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        self._file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FAILURES = [
    pytest.param("replace", fail_with(errno.EACCES), "Permission denied", id="the rename is refused"),
    pytest.param("fdopen", FullDisk, "No space left", id="the disk fills up half way"),
]


@pytest.mark.parametrize(("function", "failure", "message"), FAILURES)
@pytest.mark.parametrize("old", [None, b"the old content"], ids=["new file", "old file"])
def test_a_failed_write_leaves_all_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    failure: Callable[..., Any],
    message: str,
    old: bytes | None,
) -> None:
    target = tmp_path / "file.bin"
    if old is not None:
        target.write_bytes(old)
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(files.os, function, failure)
        with pytest.raises(StorageError, match=message) as error:
            files.write_bytes(target, b"the new content")
    assert str(target) in str(error.value)
    assert sorted(tmp_path.iterdir()) == before
    assert (target.read_bytes() if old is not None else None) == old


def test_an_interrupt_leaves_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_bytes(tmp_path / "file.bin", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for target in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="could not"):
            files.write_bytes(target, b"content")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_write_replaces_and_makes_folders(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file.txt"
    files.write_text(target, "one")
    files.write_text(target, "größer")
    assert target.read_bytes() == "größer".encode()
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]


def test_json_is_sorted_and_reads_back(tmp_path: Path) -> None:
    files.write_json(tmp_path / "value.json", {"b": [1, 2.5], "a": None})
    text = (tmp_path / "value.json").read_text()
    assert text.index('"a"') < text.index('"b"')
    assert text.endswith("}\n")
    assert json.loads(text) == {"a": None, "b": [1, 2.5]}


def test_a_copy_of_a_folder_that_nobody_may_change_may_be_changed(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "inner").mkdir(parents=True)
    for path in (source / "a", source / "inner" / "b", source / "inner" / "done"):
        path.write_text(path.name)
    for path in (*source.rglob("*"), source):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        files.copy_folder(source, copy, leave_out="done")
    finally:
        for path in (source, source / "inner"):
            path.chmod(0o755)
    assert {str(p.relative_to(copy)): p.read_text() for p in copy.rglob("*") if p.is_file()} == {
        "a": "a",
        "inner/b": "b",
    }
    assert all(path.stat().st_mode & 0o200 for path in (copy, *copy.rglob("*")))
    with pytest.raises(FileNotFoundError):
        files.copy_folder(tmp_path / "nowhere", copy)


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", '"\r', "a,b", "ä"])
def test_a_cell_of_a_table_may_have_several_lines(text: str, tmp_path: Path) -> None:
    """As what a library printed before it raised, with a bar of its progress."""
    rows = [{"error": text, "n": 1}, {"error": "x", "n": 2}]
    files.write_table(tmp_path / "t.csv", ("error", "n"), rows)
    assert pd.read_csv(tmp_path / "t.csv").to_dict("records") == rows
    assert (tmp_path / "t.csv").read_bytes().endswith(b"\nx,2\n")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o002, 0o664)])
def test_a_file_has_the_permissions_that_the_user_gives_new_files(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        files.write_bytes(tmp_path / "model.tflite", b"secret")
    finally:
        os.umask(before)
    assert (tmp_path / "model.tflite").stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]
