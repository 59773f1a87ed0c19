"""The examples in the docstrings of all public functions run, in a folder where the one of ``search`` has been run."""

from __future__ import annotations

import doctest
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_adb import FakeAdb

import autoselect

FIRST = ("search", "diagnose")
"""Others go on with the files of these."""
FUNCTIONS = [name for name in autoselect.__all__ if inspect.isfunction(getattr(autoselect, name))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_ONLY_FIRST_FAILURE


def run_examples(function: Callable[..., Any]) -> tuple[int, str]:
    """How many there are, and what went wrong."""
    name, told = function.__name__, list[str]()
    test = doctest.DocTestParser().get_doctest(function.__doc__ or "", {}, name, name, 0)
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    return len(test.examples), "".join(told)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, share_workers: None) -> Iterator[dict[str, tuple[int, str]]]:
    """A new folder to work in; gives what the first examples came to."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("examples"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(FakeAdb(tmp_path_factory.mktemp("device") / "adb").folder), prepend=os.pathsep)
        yield {name: run_examples(getattr(autoselect, name)) for name in FIRST}
    os.chdir(before)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_runs(name: str, folder: dict[str, tuple[int, str]]) -> None:
    count, told = folder.get(name) or run_examples(getattr(autoselect, name))
    assert count > 1
    assert told == ""
