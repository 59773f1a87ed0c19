"""What is said of the float model before the first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from reviewing import Reviewed
from settling import settled

from autoselect.errors import TrialError
from autoselect.study.references import Reference, clipping_of, warnings_of

FLOAT = Reference(name="float", sha256="float", metric=0.115, size_bytes=100, penalty=80.0)


class Pool:
    def __init__(self, found: float | Exception | None) -> None:
        self._found = found

    def call(self, *_: object) -> float | None:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_a_float_model_that_knows_nothing_is_warned_of(reviewed: Reviewed) -> None:
    [message] = warnings_of(FLOAT, "accuracy", Path(), cast("Any", Pool(0.125)))
    reviewed("a float model that knows nothing", message)


@pytest.mark.parametrize("found", [None, TrialError("killed")], ids=["it knows more", "nobody knows"])
def test_else_nothing_is_said(found: Exception | None) -> None:
    assert warnings_of(FLOAT, "accuracy", Path(), cast("Any", Pool(found))) == ()


def test_a_worker_that_dies_says_nothing_of_clipped_outputs() -> None:
    assert clipping_of(Path(), cast("Any", Pool(TrialError("killed"))), settled()) == ()
