"""Which candidates are the front, by scores that are given."""

from __future__ import annotations

import math
import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reviewing import Reviewed

from autoselect.cases import build_jobs
from autoselect.cases.files import CaseFiles
from autoselect.domain.objectives import Constraints
from autoselect.domain.quantities import DEFAULT_OBJECTIVES, chosen_objectives, objectives_of
from autoselect.domain.recipe import Recipe
from autoselect.errors import WorkerDied
from autoselect.runs.files import write_bytes
from autoselect.runs.records import Scores, TrialRecord, scores_of
from autoselect.scoring.paired import PairedDrop
from autoselect.study.finishing import front_files
from autoselect.study.finishing.certainty import Unknown, link_of
from autoselect.study.finishing.front_members import front_of, measured_front, worth_reading
from autoselect.study.yardstick import Yardstick

OBJECTIVES = objectives_of(chosen_objectives(DEFAULT_OBJECTIVES, set()), "gain", "maximize")
YARDSTICK = Yardstick(
    float_score=8.0,
    float_size_bytes=400,
    float_penalty=80.0,
    direction="maximize",
    constraints=Constraints(),
    allowed_drop=0.08,
)


def record(
    number: int,
    gain: float,
    sqnr_db: float,
    size_bytes: int,
    penalty: float,
    samples: int,
    float_ops: int = 0,
    *,
    off_chip: int | None = None,
) -> TrialRecord:
    values: dict[str, Any] = dict.fromkeys(Scores.__dataclass_fields__, 0)
    known = {"sha256": f"{number}" * 10, "fallbacks": {}, "compiled": {}, "quantities": {}, "samples": samples}
    own = {
        "float_ops": float_ops,
        "off_chip": off_chip,
        "metric": gain,
        "drop": 8.0 - gain,
        "sqnr_db": sqnr_db,
        "divergence": math.nan,
        "drop_bound": 8.0 - gain if samples else math.nan,
        "size_bytes": size_bytes,
        "penalty": penalty,
    }
    scores = Scores(**{**values, **known, **own})
    return TrialRecord(number=number, origin="surrogate", recipe=Recipe(), scores=scores)


CLOSE = (8.0, 40.0, 110, 30.0)
LUCKY = (8.5, 15.0, 100, 20.0)
SMALL = (6.0, 20.0, 90, 0.0)
WORSE = (5.0, 10.0, 105, 25.0)


@pytest.mark.parametrize(
    ("samples", "close_db", "expected"),
    [(120, 40.0, {1, 2}), (0, 40.0, {0, 1, 2}), (0, math.nan, {0, 1, 2})],
    ids=["a metric", "an evaluator", "an evaluator, and how close it is nobody knows"],
)
def test_luck_with_an_evaluator_does_not_hide_what_is_closer_to_float(
    samples: int, close_db: float, expected: set[int]
) -> None:
    """Float gains 8; the lucky one gains more with less size and penalty, and its outputs are far from float's."""
    rows = [(CLOSE[0], close_db, *CLOSE[2:]), LUCKY, SMALL, WORSE]
    records = [record(i, *row, samples) for i, row in enumerate(rows)]
    front, feasible = front_of(records, OBJECTIVES, YARDSTICK, link_of(scores_of(records)))
    assert feasible
    assert {r.number for r in front} == expected


class Measuring:
    """A worker that knows what scoring left for later: the noise of all drops is 3."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def submit(self, job: Any, root: Path, sha256: str) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append(sha256)
        drop = {"0" * 10: 0.0, "1" * 10: -0.5, "2" * 10: 2.0, "3" * 10: 3.0}[sha256]
        future.set_result(PairedDrop(drop=drop, error=3.0, low=drop - 6.0, high=drop + 6.0, bound=drop + 5.0))
        return future


def test_luck_with_a_metric_that_is_no_mean_does_not_hide_what_is_closer_to_float(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise and bounds are measured for members alone, and who is a member hangs on them."""
    monkeypatch.setattr(front_files, "restore", lambda *_: {})
    records = [record(i, *row, 120) for i, row in enumerate((CLOSE, LUCKY, SMALL, WORSE))]
    records = [
        replace(r, scores=replace(r.scores, drop_noise=math.nan, drop_bound=math.nan)) for r in records if r.scores
    ]
    pool, link = Measuring(), link_of(scores_of(records))
    assert {r.number for r in front_of(records, OBJECTIVES, YARDSTICK, link)[0]} >= {1, 2}
    found = measured_front(records, OBJECTIVES, YARDSTICK, link, Path(), pool)  # type: ignore[arg-type]
    front = found.members
    assert found.feasible
    assert not found.unknown
    assert [r.number for r in front] == [1, 0, 2]
    assert sorted(pool.asked) == ["0" * 10, "1" * 10, "2" * 10]
    assert [r.scores.drop_noise for r in front if r.scores] == [3.0] * 3


def test_what_comes_out_different_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    """As on another kind of processor; one comes out as it was, and the job of another dies."""
    records = [record(i, *row, 120) for i, row in enumerate((CLOSE, LUCKY, SMALL))]

    class Building:
        def submit(self, job: Any, root: Path, recipe: str) -> Future[Any]:
            future: Future[Any] = Future()
            numbers.append(len(numbers))
            if numbers[-1] == 2:
                future.set_exception(killed)
            else:
                future.set_result(SimpleNamespace(sha256="0" * 10))
            return future

    numbers, killed = list[int](), WorkerDied("Killed.")
    failures = front_files.restore(records, tmp_path, Building())  # type: ignore[arg-type]
    assert [*failures] == [records[1].id, records[2].id]
    assert [*failures.values()] == [front_files.DIFFERENT, str(killed)]


class Dying(Measuring):
    """One member's job dies."""

    def submit(self, job: Any, root: Path, sha256: str) -> Future[Any]:
        if sha256 != "1" * 10:
            return super().submit(job, root, sha256)
        future: Future[Any] = Future()
        future.set_exception(WorkerDied("The worker was killed."))
        return future


def test_a_bound_that_is_not_measured_is_unknown_and_says_why(
    reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_files, "restore", lambda *_: {})
    records = [record(i, *row, 120) for i, row in enumerate((CLOSE, LUCKY, SMALL, WORSE))]
    records = [
        replace(r, scores=replace(r.scores, drop_noise=math.nan, drop_bound=math.nan)) for r in records if r.scores
    ]
    link, asked = link_of(scores_of(records)), (OBJECTIVES, YARDSTICK)
    stopped = measured_front(records, *asked, link, Path(), None)
    assert set(stopped.unknown.values()) == {Unknown.NOT_MEASURED}
    died = measured_front(records, *asked, link, Path(), Dying())  # type: ignore[arg-type]
    assert died.unknown == {"1" * 10: Unknown.FAILED}
    reviewed("a bound that is not measured", died.messages)
    of_catalogue = objectives_of(chosen_objectives(DEFAULT_OBJECTIVES, set()), "cohen_kappa", "maximize")
    assert set(measured_front(records, of_catalogue, YARDSTICK, link, Path(), None).unknown.values()) == {
        Unknown.UNDEFINED
    }


def test_a_member_that_cannot_be_built_again_costs_its_place_and_not_the_run(tmp_path: Path) -> None:
    """After a resume files are built again, which may take longer than a trial may."""

    class Slow(Measuring):
        def submit(self, job: Any, root: Path, *arguments: Any) -> Future[Any]:
            if job is not build_jobs.build:
                return super().submit(job, root, *arguments)
            future: Future[Any] = Future()
            future.set_exception(WorkerDied("It took longer than --trial-timeout."))
            return future

    records = [record(i, *row, 120) for i, row in enumerate((CLOSE, LUCKY, SMALL, WORSE))]
    files = CaseFiles(root=tmp_path)
    for r in records[2:]:
        assert r.scores is not None
        write_bytes(files.candidate(r.scores.sha256), b"")
    found = measured_front(records, OBJECTIVES, YARDSTICK, link_of(scores_of(records)), tmp_path, Slow())  # type: ignore[arg-type]
    assert {r.number for r in found.members} == {2}
    assert re.match("1111111111 .* It took", found.messages[0])


def numbers(records: list[TrialRecord], limits: Constraints | None = None) -> tuple[set[int], bool]:
    """Which are the front, and whether anything is feasible."""
    front, feasible = front_of(records, OBJECTIVES, replace(YARDSTICK, constraints=limits or Constraints()), None)
    return {r.number for r in front}, feasible


def limited(records: list[TrialRecord], limits: Constraints) -> list[TrialRecord]:
    """The records as a search with these limits has them."""
    yardstick = replace(YARDSTICK, constraints=limits)
    return [replace(r, violations=yardstick.violations(r.scores)) for r in records if r.scores]


def test_only_limits_can_make_a_search_without_candidates_infeasible() -> None:
    assert numbers([]) == (set(), True)
    assert numbers([], Constraints(max_drop=0.1)) == (set(), False)


def test_where_nothing_keeps_the_limits_the_least_excess_counts_and_no_slack_elsewhere() -> None:
    limits = Constraints(max_size_bytes=100, max_penalty=50.0)
    far, near = record(0, 7.0, 30.0, 120, 0.0, 9), record(1, 7.0, 30.0, 110, 50.0, 9)
    better = record(2, 7.5, 30.0, 110, 50.0, 9)
    assert numbers(limited([far, near], limits), limits) == ({1}, False)
    assert numbers(limited([far, near, better], limits), limits) == ({2}, False)


def test_where_something_keeps_the_limits_nothing_else_is_a_member() -> None:
    limits = Constraints(max_size_bytes=100)
    beyond, within = record(0, 8.0, 40.0, 101, 0.0, 9), record(1, 6.0, 20.0, 100, 0.0, 9)
    assert numbers(limited([beyond, within], limits), limits) == ({1}, True)


def test_what_costs_as_much_as_float_is_a_member_only_where_there_is_nothing_else() -> None:
    """A hundredth of float's size is the least difference that counts."""
    whole = record(1, 6.0, 20.0, 100, 0.0, 9)
    for float_again in (record(0, 8.0, 99.0, 400, 80.0, 9), record(0, 8.0, 99.0, 396, 80.0, 9)):
        assert numbers([float_again, whole]) == ({1}, True)
        assert numbers([float_again]) == ({0}, True)
    for cheaper in (record(0, 8.0, 99.0, 395, 80.0, 9), record(0, 8.0, 99.0, 400, 79.0, 9)):
        assert numbers([cheaper, whole]) == ({0, 1}, True)


def test_of_two_that_score_alike_the_cheaper_does_not_hide_the_surer() -> None:
    cheap, wide = record(0, 8.0, 30.0, 100, 0.0, 9), record(1, 8.0, 40.0, 101, 4.0, 9)
    assert numbers([cheap, wide]) == ({0}, True)
    assert cheap.scores is not None
    unsure = replace(cheap, scores=replace(cheap.scores, drop_bound=0.1))
    assert numbers([unsure, wide]) == ({0, 1}, True)


@pytest.mark.parametrize(
    ("whole", "cut", "cut_more"),
    [
        pytest.param({}, {"float_ops": 1}, {"float_ops": 2}, id="ops in float"),
        pytest.param(
            {"float_ops": 3, "off_chip": 0}, {"off_chip": 1}, {"off_chip": 2}, id="ops that the compiler leaves"
        ),
    ],
)
def test_a_model_with_ops_off_the_accelerator_hides_none_without(
    whole: dict[str, int], cut: dict[str, int], cut_more: dict[str, int]
) -> None:
    integer, island = record(0, 6.0, 20.0, 100, 8.0, 9, **whole), record(1, 7.0, 30.0, 90, 4.0, 9, **cut)
    worse_island, worse = record(2, 6.5, 25.0, 95, 5.0, 9, **cut_more), record(3, 5.0, 10.0, 110, 8.0, 9, **whole)
    assert numbers([integer, island, worse_island, worse]) == ({0, 1}, True)
    front, _ = front_of([integer, island], OBJECTIVES, YARDSTICK, None)
    steps = {"gain": 5.0, "size_bytes": 100.0, "penalty": 10.0}
    assert {r.number for r in worth_reading(front, OBJECTIVES, (), steps, None)} == {0, 1}


def test_a_float_model_that_the_chip_runs_as_a_whole_is_a_member() -> None:
    own = record(1, 8.0, 200.0, size_bytes=400, penalty=80.0, samples=100, float_ops=9, off_chip=0)
    left = record(2, 8.0, 200.0, size_bytes=400, penalty=80.0, samples=100, float_ops=9, off_chip=1)
    cheaper = record(3, 6.0, 20.0, size_bytes=90, penalty=1.0, samples=100, off_chip=0)
    assert numbers([own, cheaper])[0] == {1, 3}
    assert numbers([left, cheaper])[0] == {3}


def test_the_float_model_again_is_a_member_if_nothing_costs_less() -> None:
    """Some processors run float as fast as integers, and every conversion costs them more."""
    again = record(1, 8.0, 200.0, size_bytes=400, penalty=80.0, samples=100, float_ops=9)
    dearer, cheaper = (record(2, 7.0, 30.0, 90, penalty, samples=100) for penalty in (80.0, 79.9))
    assert numbers([again, dearer])[0] == {1, 2}
    assert numbers([again, cheaper])[0] == {2}
