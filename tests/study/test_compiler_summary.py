"""How well predictions agreed with a compiler, as a run's summary says it."""

from __future__ import annotations

from typing import get_args

from autoselect.domain.recipe import Recipe
from autoselect.errors import ErrorKind
from autoselect.runs.records import TrialRecord
from autoselect.scoring.target_file import read_target
from autoselect.study.setup.target_rules import compiler_summary


def test_refusals_are_counted_by_their_kind_whatever_they_say() -> None:
    records = [
        TrialRecord(
            number=number,
            origin="random",
            recipe=Recipe(denylisted_nodes=frozenset({str(number)})),
            error=f"Vela refuses nothing: {kind}.",
            error_kind=kind,
        )
        for number, kind in enumerate(get_args(ErrorKind))
    ]
    found = compiler_summary(records, read_target("ethos-u55-128"))
    assert found == {"compiled": 0, "refused": 1, "segments_agree": 0}
    assert compiler_summary(records, read_target("integer-only")) is None
