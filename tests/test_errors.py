"""The error tree: exit codes, the built-in errors that some of them are too, and how they travel between processes."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import pytest
from settling import settled

from autoselect import errors
from autoselect.cases.settings import make_settings
from autoselect.errors import AutoselectError
from autoselect.runs.files import storage_errors

LINES = re.findall(r"[├└]── (\w+)(?: \((\w+)\))? +(\d|–) ", errors.__doc__ or "")
"""Of the tree in the module's docstring: the class, the built-in error that it is too, its exit code."""


def test_the_tree_has_every_class() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and value is not AutoselectError]
    assert {cls.__name__ for cls in classes} == {name for name, _, _ in LINES}


@pytest.mark.parametrize(("name", "also", "code"), LINES)
def test_an_error_is_what_the_tree_says(name: str, also: str, code: str) -> None:
    cls = getattr(errors, name)
    builtin = [base.__name__ for base in cls.__bases__ if base.__module__ == "builtins"]
    assert builtin == ([also] if also else [])
    if code != "–":
        assert cls.exit_code == int(code)
    copy = pickle.loads(pickle.dumps(cls("what happened")))
    assert (type(copy), str(copy)) == (cls, "what happened")


def test_a_wrong_setting_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="trials: "):
        make_settings(trials=0)


def test_no_room_is_an_os_error_told_once(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OSError, match=r"inner .*No space") as caught:  # noqa: SIM117
        with storage_errors(tmp_path / "outer"), storage_errors(tmp_path / "inner"):
            raise OSError(28, "No space left")
    assert caught.value.exit_code == 8  # type: ignore[attr-defined]


def test_no_room_for_a_folder_is_told_by_its_first_file(tmp_path: Path) -> None:
    rows = [("from/a", "to/a", "[Errno 28] No space left on device: 'to/a'"), ("from/b", "to/b", "another")]
    with pytest.raises(OSError, match=r"folder .*'to/a'\. Free") as caught, storage_errors(tmp_path / "folder"):
        raise shutil.Error(rows)
    assert "from/b" not in str(caught.value)
    with pytest.raises(OSError, match="the same"), storage_errors(tmp_path):
        raise shutil.SameFileError("they are the same")


@pytest.mark.parametrize(("told", "expected"), [("48kB", 48_000), ("1.5 MB", 1_500_000), ("64KiB", 65_536), (7, 7)])
def test_a_size_may_be_a_text(told: str | float, expected: float) -> None:
    assert settled(max_size=told).constraints.max_size_bytes == expected


@pytest.mark.parametrize("told", ["4 parsecs", "", 0, "0"])
def test_what_is_no_size_is_refused(told: str | float) -> None:
    with pytest.raises(ValueError, match="max_size: "):
        make_settings(max_size=told)
