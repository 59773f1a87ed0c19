"""What is said of the float model before the first trial."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reviewing import Reviewed
from settling import settled

from autoselect.cases import evidence_jobs
from autoselect.cases.files import CaseFiles
from autoselect.domain.recipe import Recipe
from autoselect.errors import TrialError
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.references import Reference, clipping_of, float_known, types_of, warnings_of, yardstick_of

FLOAT = Reference(name="float", sha256="float", metric=0.115, size_bytes=100, penalty=80.0)


class Pool:
    """Answers what float's answers tell, and how many groups an evaluator's samples have."""

    def __init__(self, found: object, groups: int | None = None) -> None:
        self._found, self._groups = found, groups

    def call(self, job: object, *_: object) -> object:
        if job is evidence_jobs.group_count:
            return self._groups
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_a_float_model_that_knows_nothing_is_warned_of(reviewed: Reviewed) -> None:
    [message] = warnings_of(FLOAT, "accuracy", Path(), cast("Any", Pool(0.125)))
    reviewed("a float model that knows nothing", message)
    [message] = warnings_of(FLOAT, "mae", Path(), cast("Any", Pool(0.125)))
    reviewed("a regression that knows nothing", message)
    sure = replace(FLOAT, metric=1.0)
    [message] = warnings_of(sure, "agreement", Path(), cast("Any", Pool(1.0)))
    reviewed("a model that answers alike to all samples", message)


def test_few_groups_of_an_evaluators_samples_are_told() -> None:
    [message] = warnings_of(FLOAT, "evaluator", Path(), cast("Any", Pool(None, groups=5)))
    assert re.search(r"\b5\b.*search", message)
    assert warnings_of(FLOAT, "evaluator", Path(), cast("Any", Pool(None, groups=20))) == ()
    assert len(warnings_of(FLOAT, "accuracy", Path(), cast("Any", Pool(0.125, groups=5)))) == 2


@pytest.mark.parametrize("found", [None, TrialError("killed")], ids=["it knows more", "nobody knows"])
def test_else_nothing_is_said(found: Exception | None) -> None:
    assert warnings_of(FLOAT, "accuracy", Path(), cast("Any", Pool(found))) == ()


def test_who_decided_the_ranges_that_values_leave_is_told(tmp_path: Path, reviewed: Reviewed) -> None:
    ranges = SimpleNamespace(clipped=["input 'x' is beyond on 3 of 9 search samples"], unfilled=[])
    [message] = clipping_of(tmp_path, cast("Any", Pool(ranges)), settled())
    reviewed("values leave calibrated ranges", message)
    CaseFiles(root=tmp_path).integer_model.write_bytes(b"integers")
    [message] = clipping_of(tmp_path, cast("Any", Pool(ranges)), settled())
    reviewed("values leave the ranges of a given integer model", message)


def test_a_worker_that_dies_says_nothing_of_clipped_outputs() -> None:
    assert clipping_of(Path(), cast("Any", Pool(TrialError("killed"))), settled()) == ()


TYPES = {
    "more than is allowed": ((0.6, (0.2, 0.4)), "a type of inputs and outputs that breaks the limit"),
    "perhaps more": ((0.86, (0.01, 0.07)), "a type of inputs and outputs that may break the limit"),
    "more, by one sample": (
        (0.6, (math.nan, math.nan)),
        "a type of inputs and outputs that breaks the limit on one sample",
    ),
    "less than is allowed, for all one sees": ((0.89, (-0.01, 0.03)), None),
    "nothing, and a gain is asked for": ((0.9, (-0.001, 0.001)), None),
    "one number": ((0.6, None), "a type of inputs and outputs that breaks the limit"),
    "one number that is good enough": ((0.89, None), None),
    "nobody knows": (TrialError("killed"), None),
}


@pytest.mark.parametrize(("found", "title"), TYPES.values(), ids=TYPES)
def test_types_that_alone_break_the_limit_are_warned_of(found: Any, title: str | None, reviewed: Reviewed) -> None:
    reference = Reference(name="float", sha256="float", metric=0.9, size_bytes=100, penalty=80.0)
    settings = settled(
        max_drop=-0.01 if found == TYPES["nothing, and a gain is asked for"][0] else 0.02, io_type="int8"
    )
    yardstick = yardstick_of(reference, "accuracy", "maximize", settings)
    warnings = types_of(Path(), cast("Any", Pool(found)), settings, yardstick, "accuracy")
    assert bool(warnings) == (title is not None)
    for warning in warnings:
        reviewed(str(title), warning)


@pytest.mark.parametrize(
    ("target", "penalty", "least"),
    [("integer-only", 80.0, 0.5), ("qualcomm-sm8750", 2.0, 2e-9), ("qualcomm-sm8750", 0.0, 0.5)],
)
def test_half_a_point_counts_where_penalties_are_points_and_every_difference_elsewhere(
    target: str, penalty: float, least: float
) -> None:
    """A float model that costs nothing gives no measure; no model is cheaper than itself."""
    reference = Reference(name="float", sha256="float", metric=0.9, size_bytes=100, penalty=penalty)
    yardstick = yardstick_of(reference, "accuracy", "maximize", settled(target=target))
    assert yardstick.steps(1.0)["penalty"] == least


@pytest.mark.parametrize(
    ("target", "bound"), [("integer-only", 0.0), ("qualcomm-sm8750", 0.05)], ids=["float32", "perhaps float16"]
)
def test_an_all_float_candidate_loses_nothing_where_float_ops_compute_in_float32(target: str, bound: float) -> None:
    known: dict[str, Any] = dict.fromkeys(Scores.__dataclass_fields__, 0)
    scores = Scores(**{**known, "fallbacks": {}, "sqnr_db": 200.0, "metric": 0.9, "drop": 0.0, "drop_bound": 0.05})
    nodes = ["conv", "dense"]
    recipes = [Recipe(denylisted_nodes=frozenset(kept), fallback="float") for kept in (nodes, nodes[:1])]
    records = [TrialRecord(number=i, origin="user", recipe=r, scores=scores) for i, r in enumerate(recipes)]
    found = float_known(records, nodes, settled(target=target))
    assert [r.scores.drop_bound for r in found if r.scores] == [bound, 0.05]
    assert float_known(records, [], settled(target=target)) == records
