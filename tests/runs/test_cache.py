from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from autoselect.errors import StorageError
from autoselect.runs import cache


def folder_with(path: Path, **contents: str) -> Path:
    path.mkdir(parents=True)
    for name, text in contents.items():
        (path / name).write_text(text)
    return path


def texts(path: Path) -> dict[str, str]:
    return {str(p.relative_to(path)): p.read_text() for p in sorted(path.rglob("*")) if p.is_file()}


def test_what_is_kept_is_fetched(tmp_path: Path) -> None:
    made = folder_with(tmp_path / "made", table="1,2", model="bytes")
    folder_with(made / "inner", deep="x")
    entry = tmp_path / "cache" / "key"
    cache.keep(made, entry)
    shutil.rmtree(made)
    assert cache.fetch(entry, tmp_path / "run" / "prepared")
    assert texts(tmp_path / "run" / "prepared") == {"inner/deep": "x", "model": "bytes", "table": "1,2"}
    # Nothing unfinished stays behind.
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["key"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: None, id="no entry"),
        pytest.param(lambda path: path.mkdir(parents=True), id="an empty entry"),
        pytest.param(lambda path: folder_with(path, table="1"), id="an entry that was cut off"),
    ],
)
def test_an_incomplete_entry_is_not_served(make: object, tmp_path: Path) -> None:
    entry = tmp_path / "cache" / "key"
    make(entry)  # type: ignore[operator]
    assert not cache.fetch(entry, tmp_path / "target")
    assert not (tmp_path / "target").exists()


INGREDIENTS = {"model": "a1", "data": "b2", "versions": {"tensorflow": "2.21.0"}, "per_channel": True, "samples": 100}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"model": "a2"}, id="the model"),
        pytest.param({"versions": {"tensorflow": "2.21.1"}}, id="a version"),
        pytest.param({"per_channel": False}, id="a setting"),
        pytest.param({"samples": "100"}, id="a type"),
        pytest.param({"more": None}, id="a new ingredient"),
    ],
)
def test_a_changed_ingredient_is_another_key(change: dict[str, object]) -> None:
    assert cache.signature({**INGREDIENTS, **change}) != cache.signature(INGREDIENTS)


def test_the_order_of_ingredients_does_not_matter() -> None:
    key = cache.signature(INGREDIENTS)
    assert cache.signature(dict(reversed(INGREDIENTS.items()))) == key
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


def test_the_entries_unused_for_longest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 2)
    made = folder_with(tmp_path / "made", table="1")
    root = tmp_path / "cache"
    for age, name in ((30, "oldest"), (20, "older")):
        cache.keep(made, root / name)
        os.utime(root / name, (1e9 - age, 1e9 - age))
    # Fetching is using: the oldest entry is now the newest.
    assert cache.fetch(root / "oldest", tmp_path / "target")
    cache.keep(made, root / "new")
    assert sorted(p.name for p in root.iterdir()) == ["new", "oldest"]


def test_a_cache_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    made = folder_with(tmp_path / "made", table="1")
    (tmp_path / "file").touch()
    cache.keep(made, tmp_path / "file" / "key")
    assert not cache.fetch(tmp_path / "file" / "key", tmp_path / "target")


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder_with(tmp_path / "made", table="1")
    root = tmp_path / "cache"

    def half_a_copy(_: Path, target: Path, **__: object) -> None:
        (Path(target) / "table").write_text("")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(cache.shutil, "copytree", half_a_copy)
        cache.keep(made, root / "key")
    assert list(root.iterdir()) == []


def test_two_runs_may_keep_the_same_entry(tmp_path: Path) -> None:
    made = folder_with(tmp_path / "made", table="1")
    for _ in range(2):
        cache.keep(made, tmp_path / "cache" / "key")
    assert texts(tmp_path / "cache") == {"key/complete": "", "key/table": "1"}


def test_a_target_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    cache.keep(folder_with(tmp_path / "made", table="1"), tmp_path / "cache" / "key")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written"):
        cache.fetch(tmp_path / "cache" / "key", tmp_path / "file")


def test_the_folder_may_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", str(tmp_path))
    assert cache.cache_directory() == tmp_path
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", "")
    assert cache.cache_directory().name == "autoselect"
