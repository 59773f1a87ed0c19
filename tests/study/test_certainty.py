"""What is expected of members on other samples, and how sure a recommendation is, by figures that are given."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoselect.cases import evidence_jobs
from autoselect.domain.objectives import Constraints, Objective
from autoselect.domain.recipe import Recipe
from autoselect.errors import TrialError
from autoselect.runs.records import Scores, TrialRecord
from autoselect.scoring.paired import PairedDrop
from autoselect.study.finishing import certainty, front_members, verdict
from autoselect.study.yardstick import Yardstick

YARDSTICK = Yardstick(
    float_score=0.9,
    float_size_bytes=1000,
    float_penalty=80.0,
    direction="maximize",
    constraints=Constraints(),
    allowed_drop=0.01,
)


def scored(name: str, drop: float, **known: Any) -> Scores:
    values: dict[str, Any] = dict.fromkeys(Scores.__dataclass_fields__, 0)
    usual = {"drop_noise": 0.004, "drop_bound": drop + 0.008, "divergence": 1e-3, "sqnr_db": 30.0, "samples": 500}
    usual |= {"off_chip": None}
    own = {"sha256": name * 10, "drop": drop, "metric": 0.9 - drop, "size_bytes": 300, "penalty": 10.0}
    maps = {"fallbacks": {}, "compiled": {}, "quantities": {}}
    return Scores(**{**values, **usual, **own, **maps, **known})


def record(scores: Scores) -> TrialRecord:
    return TrialRecord(number=0, origin="surrogate", recipe=Recipe(), scores=scores)


def rising(lucky: float) -> list[Scores]:
    """Losses that rise with the divergence, but for one lucky score."""
    known = [scored(f"{i:04d}", 0.02 * i, divergence=1e-3 * 2.0**i) for i in range(8)]
    return [*known, scored("9999", lucky, divergence=1e-3 * 2.0**6.5)]


def test_a_lucky_score_is_drawn_to_what_its_closeness_predicts() -> None:
    members = rising(lucky=-0.01)
    expected = certainty.expected_drops(members, certainty.link_of(members)).drops
    assert expected[-1] > -0.01
    assert np.all(np.abs(expected[:5] - [s.drop for s in members[:5]]) < 0.01)


def test_scores_without_noise_stay_as_they_are() -> None:
    members = [replace(s, drop_noise=0.0) for s in rising(lucky=-0.01)]
    assert certainty.expected_drops(members, certainty.link_of(members)).drops == pytest.approx(
        [s.drop for s in members]
    )
    unknown = [replace(s, drop_noise=math.nan) for s in rising(lucky=-0.01)]
    assert certainty.expected_drops(unknown, certainty.link_of(unknown)).drops == pytest.approx(
        [s.drop for s in unknown]
    )


def test_of_an_evaluators_scores_what_equally_close_ones_differ_by_is_the_noise() -> None:
    members = [replace(s, samples=0, drop_noise=0.0, drop_bound=math.nan) for s in rising(lucky=-0.01)]
    found = certainty.expected_drops(members, certainty.link_of(members))
    assert found.drops[-1] > 0.03
    assert found.beyond[-1] > found.beyond[1] > 0.0


@pytest.mark.parametrize("samples", [0, 500], ids=["an evaluator", "a metric"])
def test_a_bound_that_nobody_knows_is_no_proof(samples: int) -> None:
    """Neither is the guess from what equally close candidates lose, where there are enough of them."""
    members = [replace(s, samples=samples, drop_noise=math.nan, drop_bound=math.nan) for s in rising(lucky=-0.01)]
    few = certainty.expected_drops(members[:3], certainty.link_of(members[:3]))
    assert np.all(np.isinf(few.beyond))
    many = certainty.expected_drops(members, certainty.link_of(members))
    assert np.all(np.isfinite(many.beyond))
    assert np.all(many.beyond > 0.0)
    front = certainty.standings_of([record(s) for s in members], certainty.link_of(members))
    assert not any(m.is_bounded or YARDSTICK.rule.certifies(m) for m in front)


def test_a_member_that_is_proved_comes_before_one_whose_job_died() -> None:
    proved = scored("a" * 4, 0.0, drop_bound=0.008, penalty=40.0)
    unknown = scored("b" * 4, 0.0, drop_noise=math.nan, drop_bound=math.nan, penalty=5.0)
    assert confidence([proved, unknown], Pool(np.zeros((0, 2)))).id == proved.sha256[:10]
    found = certainty.confidence_of(
        [record(unknown)], [unknown], YARDSTICK, Path(), None, {unknown.sha256[:10]: certainty.Unknown.FAILED}
    )
    assert found is not None
    assert (found.certified, found.unknown) == (False, certainty.Unknown.FAILED)
    assert math.isnan(found.bound)
    assert math.isnan(found.least_bound)


REASONS = {
    "an evaluator's single number": ({"samples": 0, "drop_noise": 0.0}, (), True, "one number"),
    "an evaluator's parts, undefined without some": ({"samples": 0, "drop_noise": math.nan}, (), True, "undefined"),
    "the job died": ({}, {"a"}, True, "failed"),
    "no value without some samples": ({}, (), True, "undefined"),
    "stopped before": ({}, (), False, "not measured"),
    "known": ({"drop_bound": 0.01}, (), True, None),
}


@pytest.mark.parametrize(("known", "failed", "are_measured", "reason"), REASONS.values(), ids=REASONS)
def test_it_is_known_why_a_bound_is_unknown(
    known: dict[str, float], failed: Collection[str], are_measured: bool, reason: str | None
) -> None:
    one = record(scored("a" * 4, 0.0, **{"drop_noise": math.nan, "drop_bound": math.nan, **known}))
    failures = {one.id} if failed else set()
    assert certainty.unknown_bounds([one], failures, are_measured=are_measured).get(one.id) == reason


def test_of_three_candidates_nothing_is_learned() -> None:
    members = rising(lucky=-0.01)[-3:]
    assert certainty.expected_drops(members, certainty.link_of(members)).drops == pytest.approx(
        [s.drop for s in members]
    )


class Pool:
    """Answers without workers: what the drops of members are on resamples; all have one error and one width."""

    def __init__(self, drops: np.ndarray | None) -> None:
        self.drops = drops

    def call(self, job: Any, root: Path, *arguments: Any) -> Any:
        if self.drops is None:
            raise TrialError("The worker died.")
        if job is evidence_jobs.samples_needed:
            return 1234
        return np.stack([self.drops, np.full_like(self.drops, 0.004), self.drops + 0.008], axis=2)


def confidence(scores: list[Scores], pool: Pool, others: Sequence[Scores] = ()) -> certainty.Confidence:
    found = certainty.confidence_of([record(s) for s in scores], [*scores, *others], YARDSTICK, Path(), pool)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_recommendation_says_in_how_many_resamples_it_is_made() -> None:
    cheap, dear = scored("a" * 4, 0.0, penalty=5.0), scored("b" * 4, 0.0, penalty=50.0)
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.05, 0.0]])
    found = confidence([cheap, dear], Pool(rows))
    assert (found.id, found.certified, found.resampled) == (cheap.sha256[:10], True, 0.75)
    assert found.resampled_penalties == (5.0, 50.0)
    assert (found.bound, found.expected) == (pytest.approx(0.008), 0.0)
    assert found.chance_to_break == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize(("moves", "share"), [(True, 0.5), (False, 1.0)])
def test_what_is_learned_of_closeness_is_learned_again_on_each_resample(moves: bool, share: float) -> None:
    """All noise: scores are drawn all the way to what closeness says, which has it from these same samples."""
    line = [scored(f"{i:04d}", 0.001 * i, divergence=1e-3 * 2.0**i, penalty=50.0 - 2.5 * i) for i in range(8)]
    front, others = [line[0], line[2]], [line[1], *line[3:]]
    worse = np.array([0.0, 0.0, 1.0, 1.0]) * (0.004 if moves else 0.0)
    drops = np.array([s.drop for s in front]) + worse[:, None]
    assert confidence(front, Pool(drops), others).resampled == share


def test_a_bound_that_varies_counts_in_resamples() -> None:
    """The scores are the same in both halves; what differs is how many samples disagree with the cheap one."""

    class Wider(Pool):
        def call(self, job: Any, root: Path, *arguments: Any) -> Any:
            found = super().call(job, root, *arguments)
            if job is evidence_jobs.resampled_drops:
                found[::2, 0, 2] += 0.005
            return found

    cheap, dear = scored("a" * 4, 0.0, penalty=5.0), scored("b" * 4, -0.01, penalty=12.0)
    assert confidence([cheap, dear], Wider(np.array([[0.0, -0.01]] * 4))).resampled == 0.5


def test_a_recommendation_that_is_not_certified_says_what_could_be_and_what_it_takes() -> None:
    found = confidence([scored("a" * 4, 0.004), scored("b" * 4, 0.006)], Pool(np.zeros((0, 2))))
    assert not found.certified
    assert found.least_bound == pytest.approx(0.012)
    assert found.samples_needed == 1234
    assert math.isnan(found.resampled)


COUNTS = {
    "ops in float": ({"float_ops": 1}, {"float_ops": 4}),
    "ops that the compiler leaves": ({"float_ops": 6, "off_chip": 1}, {"float_ops": 0, "off_chip": 4}),
}
CHEAPER = {
    "expected to keep the limit": (0.009, 20.0, True),
    "expected to break it": (0.011, 20.0, False),
    "by less than a step of the penalty": (0.009, 49.6, False),
    "it costs more": (0.009, 60.0, False),
}


@pytest.mark.parametrize(("drop", "penalty", "told"), CHEAPER.values(), ids=CHEAPER)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("bound", [0.004, 0.012], ids=["certified", "not certified"])
def test_the_cheapest_that_is_expected_to_keep_the_limit_is_told(
    drop: float, penalty: float, told: bool, counts: Sequence[dict[str, int]], bound: float
) -> None:
    close = scored("a" * 4, 0.0, drop_bound=bound, penalty=50.0, **counts[1])
    other = scored("b" * 4, drop, penalty=penalty, drop_bound=drop + 0.02, **counts[0])
    found = confidence([close, other], Pool(np.zeros((0, 2))))
    assert found.id == close.sha256[:10]
    assert (found.cheaper is not None) == told
    if found.cheaper is not None:
        assert (found.cheaper.id, found.cheaper.left_ops) == (other.sha256[:10], 1)
        assert (found.cheaper.expected, found.cheaper.bound) == pytest.approx((drop, drop + 0.02))
        assert found.named == {close.sha256[:10], other.sha256[:10]}


def test_if_the_recommended_is_not_certified_the_cheapest_that_is_certified_is_told() -> None:
    """Certainty is worth less here than half of float's penalty."""
    unsure = scored("a" * 4, 0.002, penalty=5.0, drop_bound=0.011)
    sure, dearer = (
        scored(key * 4, 0.0, penalty=penalty, drop_bound=0.009, float_ops=3) for key, penalty in (("b", 60), ("c", 70))
    )
    found = confidence([dearer, sure, unsure], Pool(np.zeros((0, 3))))
    assert (found.id, found.certified) == (unsure.sha256[:10], False)
    assert found.surer is not None
    assert (found.surer.id, found.surer.left_ops, found.surer.penalty) == (sure.sha256[:10], 3, 60.0)
    assert confidence([unsure], Pool(np.zeros((0, 1)))).surer is None
    certified = confidence([replace(unsure, drop_bound=0.009), sure], Pool(np.zeros((0, 2))))
    assert (certified.certified, certified.surer) == (True, None)


def test_a_worker_that_dies_costs_the_share_of_resamples_alone() -> None:
    found = confidence([scored("a" * 4, 0.0)], Pool(None))
    assert (found.certified, found.samples_needed) == (True, None)
    assert math.isnan(found.resampled)
    assert found.not_resampled == "The worker died."


def test_bounds_are_measured_where_scoring_left_them() -> None:
    class Later:
        def submit(self, job: Any, root: Path, sha256: str) -> Any:
            from concurrent.futures import Future

            future: Future[PairedDrop] = Future()
            future.set_result(PairedDrop(drop=0.0, error=0.003, low=-0.01, high=0.01, bound=0.007))
            return future

    left = record(scored("a" * 4, 0.0, drop_noise=math.nan, drop_bound=math.nan))
    known = record(scored("b" * 4, 0.0))
    found, failures = certainty.with_bounds([left, known], Path(), Later())  # type: ignore[arg-type]
    assert not failures
    assert [(r.scores.drop_noise, r.scores.drop_bound) for r in found if r.scores] == [(0.003, 0.007), (0.004, 0.008)]


OBJECTIVES = (
    Objective(name="accuracy", direction="maximize"),
    Objective(name="size_bytes", direction="minimize"),
    Objective(name="penalty", direction="minimize"),
)
STEPS = {"accuracy": 0.004, "size_bytes": 10.0, "penalty": 0.5}


def ids(front: list[TrialRecord]) -> set[str]:
    return {r.id[:1] for r in front}


def test_a_front_shows_one_member_for_each_step_the_closest_to_float_and_all_picks() -> None:
    front = [
        record(scored("a" * 4, 0.0010, size_bytes=301, penalty=10.1, sqnr_db=30.0)),
        record(scored("b" * 4, 0.0015, size_bytes=300, penalty=10.1, sqnr_db=35.0)),
        record(scored("c" * 4, 0.0020, size_bytes=300, penalty=10.0, sqnr_db=20.0)),
        record(scored("d" * 4, 0.0500, size_bytes=250, penalty=0.0, sqnr_db=10.0)),
    ]
    assert ids(front_members.worth_reading(front, OBJECTIVES, set(), STEPS, None)) == {"b", "d"}
    kept = front_members.worth_reading(front, OBJECTIVES, {front[2].id}, STEPS, None)
    assert ids(kept) == {"b", "c", "d"}
    assert front_members.worth_reading(front, OBJECTIVES, set(), dict.fromkeys(STEPS, 0.0), None) == front
    assert front_members.worth_reading([], OBJECTIVES, set(), STEPS, None) == []


def test_a_step_of_one_objective_thins_by_that_one_alone() -> None:
    """A member whose outputs nobody compared with float's is not the closest."""
    front = [
        record(scored("a" * 4, 0.001, size_bytes=305, penalty=10.2, sqnr_db=math.nan)),
        record(scored("b" * 4, 0.001, size_bytes=302, penalty=10.2, sqnr_db=20.0)),
        record(scored("c" * 4, 0.001, size_bytes=309, penalty=10.1, sqnr_db=30.0)),
    ]
    for others in ({}, {"accuracy": 0.0, "penalty": 0.0}):
        wide, narrow = ({**others, "size_bytes": step} for step in (10.0, 1.0))
        assert ids(front_members.worth_reading(front[:2], OBJECTIVES, set(), wide, None)) == {"b"}
        assert ids(front_members.worth_reading(front, OBJECTIVES, set(), wide, None)) == {"c"}
        assert ids(front_members.worth_reading(front, OBJECTIVES, set(), narrow, None)) == {"b", "c"}


def test_a_step_worse_in_all_for_one_byte_is_not_shown() -> None:
    front = [
        record(scored("a" * 4, 0.000, size_bytes=300, penalty=10.0)),
        record(scored("b" * 4, 0.100, size_bytes=299, penalty=10.0, divergence=0.1)),
    ]
    wide, tight = ({**STEPS, "size_bytes": step} for step in (100.0, 301.0))
    assert ids(front_members.worth_reading(front, OBJECTIVES, set(), wide, None)) == {"a", "b"}
    assert ids(front_members.worth_reading(front, OBJECTIVES, set(), tight, None)) == {"a"}


@pytest.mark.parametrize(("drop", "sqnr_db", "warned"), [(0.0, 12.0, True), (0.0, 30.0, False), (0.1, 12.0, False)])
def test_a_score_like_floats_with_outputs_unlike_floats_is_warned_of(drop: float, sqnr_db: float, warned: bool) -> None:
    assert bool(verdict.far_from_float(scored("a", drop, sqnr_db=sqnr_db))) == warned
    assert verdict.far_from_float(None) == []


OTHER_STATES = {
    "all lose too much as hybrid": ("drq", [0.2, 0.05], None, True, "float ops make none, and --fallback search"),
    "one does not": ("drq", [0.2, 0.01], None, True, None),
    "the search over all has nothing better to say": ("search", [0.2, 0.05], None, True, None),
    "too large in float": ("float", [0.2, 0.05], 400.0, True, "hybrid ones take one, and --fallback search"),
    "float has room": ("float", [0.2, 0.05], None, True, None),
    "no hybrid ops on the target": ("float", [0.2, 0.05], 400.0, False, None),
}


@pytest.mark.parametrize(
    ("fallback", "drops", "max_size", "runs_hybrid", "words"), OTHER_STATES.values(), ids=OTHER_STATES
)
def test_the_verdict_says_which_state_would_keep_the_allowed_drop(
    fallback: str, drops: list[float], max_size: float | None, runs_hybrid: bool, words: str | None
) -> None:
    """A model that is larger than allowed keeps the drop, and does not count where there is a limit."""
    yardstick = replace(YARDSTICK, constraints=Constraints(max_size_bytes=max_size))
    scores = [scored(f"{i:04d}", drop) for i, drop in enumerate(drops)]
    scores += [scored("9999", 0.0, size_bytes=900)] if max_size is not None else []
    said = verdict.other_state(scores, yardstick, fallback, runs_hybrid=runs_hybrid)
    assert words in said if words is not None else said == ""
