from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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


def shown(root: Path) -> list[str]:
    """What lies in a cache, its lock aside."""
    return sorted(p.name for p in root.iterdir() if p.name != ".lock")


def test_what_is_kept_is_fetched(tmp_path: Path) -> None:
    made = folder_with(tmp_path / "made", table="1,2", model="bytes")
    folder_with(made / "inner", deep="x")
    entry = tmp_path / "cache" / "key"
    cache.keep(made, entry)
    shutil.rmtree(made)
    assert cache.fetch(entry, tmp_path / "run" / "prepared")
    assert texts(tmp_path / "run" / "prepared") == {"inner/deep": "x", "model": "bytes", "table": "1,2"}
    # Nothing unfinished stays behind.
    assert shown(tmp_path / "cache") == ["key"]


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
    assert shown(root) == ["new", "oldest"]


def test_what_killed_processes_left_under_way_goes_in_time(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    for name, age in ((".new-old", 2 * 86_400), (".new-of-another", 60), ("of-the-user", 9 * 86_400)):
        folder = folder_with(root / name, table="1")
        os.utime(folder, (time.time() - age,) * 2)
    cache.keep(folder_with(tmp_path / "made", table="1"), root / "key")
    assert shown(root) == [".new-of-another", "key", "of-the-user"]


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
        patch.setattr(cache, "copy_folder", half_a_copy)
        cache.keep(made, root / "key")
    assert shown(root) == []


def test_two_runs_may_keep_the_same_entry(tmp_path: Path) -> None:
    made = folder_with(tmp_path / "made", table="1")
    for _ in range(2):
        cache.keep(made, tmp_path / "cache" / "key")
    assert set(texts(tmp_path / "cache" / "key")) == {"complete", "table"}
    assert shown(tmp_path / "cache") == ["key"]


def test_a_target_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    cache.keep(folder_with(tmp_path / "made", table="1"), tmp_path / "cache" / "key")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not"):
        cache.fetch(tmp_path / "cache" / "key", tmp_path / "file")


def test_the_folder_may_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", str(tmp_path))
    assert cache.cache_directory() == tmp_path
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", "")
    assert cache.cache_directory().name == "autoselect"


def test_a_user_without_a_home_is_told_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("AUTOSELECT_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache.platformdirs, "user_cache_dir", homeless)
    with pytest.raises(StorageError, match="--no-cache"):
        cache.cache_directory()


def test_an_entry_is_not_evicted_while_it_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes room just while this one copies: it waits, and the entry then is the one used last."""
    monkeypatch.setattr(cache, "MAX_ENTRIES", 1)
    made, root = folder_with(tmp_path / "made", model="1", table="2"), tmp_path / "cache"
    cache.keep(made, root / "used")
    os.utime(root / "used", (1e9, 1e9))
    begun, copy, others = threading.Event(), cache.copy_folder, []

    def slow_copy(source: Path, target: Path, **options: object) -> None:
        if Path(source) == root / "used":
            begun.set()
            others[0].join(timeout=1.0)  # It would be done by then, if it did not wait.
        copy(source, target, **options)

    monkeypatch.setattr(cache, "copy_folder", slow_copy)
    others.append(threading.Thread(target=lambda: (begun.wait(), cache.keep(made, root / "new"))))
    others[0].start()
    assert cache.fetch(root / "used", tmp_path / "target")
    others[0].join()
    assert texts(tmp_path / "target") == {"model": "1", "table": "2"}


def test_an_entry_that_vanishes_while_it_is_fetched_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a user empties the cache."""
    entry = tmp_path / "cache" / "key"
    cache.keep(folder_with(tmp_path / "made", table="1"), entry)
    copy = cache.copy_folder

    def copy_too_late(source: Path, target: Path, **options: object) -> None:
        shutil.rmtree(source)
        copy(source, target, **options)

    monkeypatch.setattr(cache, "copy_folder", copy_too_late)
    assert not cache.fetch(entry, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("file", ["table", "complete"])
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda content: content[:-1], id="cut off"),
        pytest.param(lambda content: bytes([content[0] ^ 4]) + content[1:], id="a bit flipped"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_an_entry_whose_bytes_have_changed_is_none_and_goes(
    file: str, harm: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    entry = tmp_path / "cache" / "key"
    cache.keep(folder_with(tmp_path / "made", table="1,2", model="bytes"), entry)
    (entry / file).write_bytes(harm((entry / file).read_bytes()))
    assert not cache.fetch(entry, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    cache.keep(tmp_path / "made", entry)
    assert cache.fetch(entry, tmp_path / "target")


def test_half_an_entry_that_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    entry = folder_with(tmp_path / "cache" / "key", half="1")
    cache.keep(folder_with(tmp_path / "made", table="1"), entry)
    assert cache.fetch(entry, tmp_path / "target")
    assert texts(tmp_path / "target") == {"table": "1"}


RACE = """
import sys, random, shutil
from pathlib import Path
from autoselect.runs import cache

root, own = Path(sys.argv[1]), Path(sys.argv[2])
cache.MAX_ENTRIES = 2
made = own / "made"
made.mkdir(parents=True)
for name in "abcdefgh":
    (made / name).write_text(name)
draw = random.Random(sys.argv[2])
for _ in range(150):
    entry = root / str(draw.randrange(5))
    if cache.fetch(entry, own / "target"):
        assert sorted(p.name for p in (own / "target").iterdir()) == list("abcdefgh")
        shutil.rmtree(own / "target")
    else:
        cache.keep(made, entry)
"""


def test_processes_that_share_a_cache_do_not_trip_over_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACE, str(tmp_path / "cache")]
    running = [
        subprocess.Popen([*command, str(tmp_path / str(i))], stderr=subprocess.PIPE, text=True) for i in range(3)
    ]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [(process.returncode, text) for process, text in zip(running, said, strict=True)] == [(0, "")] * 3
    assert len(shown(tmp_path / "cache")) <= 2


@pytest.mark.parametrize("closed", ["complete", "table"])
def test_an_entry_that_this_user_may_not_read_is_none(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, target = tmp_path / "cache" / "key", tmp_path / "target"
    cache.keep(folder_with(tmp_path / "made", table="1,2", model="bytes"), entry)
    copied, may = shutil.copyfile, os.access

    def copy(source: str | Path, copy: str | Path) -> object:
        if Path(source).name == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(source))
        return copied(source, copy)

    monkeypatch.setattr(shutil, "copyfile", copy)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != closed and may(path, mode))
    assert not cache.fetch(entry, target)
    assert not target.exists()
    assert shown(tmp_path / "cache") == ["key"]


def test_entries_may_be_read_by_whoever_may_read_what_they_are_of(tmp_path: Path) -> None:
    made, entry = folder_with(tmp_path / "made", table="1,2"), tmp_path / "cache" / "key"
    made.chmod(0o755)
    cache.keep(made, entry)
    assert entry.stat().st_mode & 0o777 == 0o755
