"""The loop against a pool with known answers; see ``fakes``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import FakePool, dropped, sha_of
from settling import settled
from test_optuna_study import OBJECTIVES, open_study

from autoselect.cases import race_jobs, score_jobs
from autoselect.cases.events import Event, TrialFinished
from autoselect.domain.objectives import Constraints, Objective
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.errors import (
    AutoselectError,
    BuildError,
    CompilerRefusal,
    MetricError,
    NoScore,
    PreparationError,
    ScoreError,
    TrialError,
    WorkerDied,
)
from autoselect.isolation.door import busy_with
from autoselect.runs.records import TrialRecord
from autoselect.study.loop import SearchLoop, Stop, never
from autoselect.study.proposing.forecast_check import ForecastCheck
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.proposers import Listed, all_masks
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.recording.samplers import ProposerSampler
from autoselect.study.setup.baselines import Baseline
from autoselect.study.yardstick import Yardstick

NODES = ("a", "b", "idle")
SPACE = BoundSpace(dimensions=tuple(Toggle(name=f"node:{n}", nodes=frozenset({n})) for n in NODES))
"""Eight recipes, but four distinct candidates: ``idle`` does not change the bytes."""


def baseline(name: str, *nodes: str) -> Baseline:
    return Baseline(name=name, recipe=Recipe(denylisted_nodes=frozenset(nodes)))


BASELINES = [baseline("fiq"), baseline("drq", *NODES), baseline("same_bytes_as_fiq", "idle")]


class Search:
    """One loop and what came of it."""

    def __init__(
        self,
        path: Path,
        pool: FakePool | None = None,
        *,
        workers: int = 1,
        constraints: Constraints | None = None,
        min_gain: float | None = None,
        space: BoundSpace = SPACE,
        costs: Sequence[str] = ("size_bytes", "penalty"),
        forecasts: ForecastCheck | None = None,
    ) -> None:
        self.pool = pool or FakePool()
        self.events: list[Event] = []
        objectives = (OBJECTIVES[0], *(Objective(name=column, direction="minimize") for column in costs))
        before = len(open_study(path, objectives).records())
        self.study: SearchStudy = open_study(path, objectives, seed=before)
        self.loop = SearchLoop(
            self.study,
            space,
            settled(sampler="random", trial_timeout=1.0, min_gain=min_gain or 0.0, front_spacing=0.0),
            Yardstick(
                float_score=0.2,
                float_size_bytes=400,
                float_penalty=80.0,
                direction="maximize",
                constraints=constraints or Constraints(),
                allowed_drop=10.0,
            ),
            pool=self.pool,  # type: ignore[arg-type]
            root=path.parent,
            slots=lambda: busy_with(workers),
            may_race=min_gain is not None,
            listener=self.events.append,
            forecasts=forecasts,
        )

    def run(
        self,
        trials: int,
        baselines: list[Baseline] = BASELINES,
        stop: Stop = never,
        late: Callable[[], str | None] = never,
    ) -> list[TrialRecord]:
        self.reason = self.loop.run(baselines, trials, stop, late)
        return self.study.records()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def active(record: TrialRecord) -> frozenset[str]:
    assert record.recipe is not None
    return record.recipe.denylisted_nodes - {"idle"}


@pytest.mark.parametrize("workers", [1, 3])
def test_every_trial_is_told_and_nothing_is_done_twice(path: Path, workers: int) -> None:
    search = Search(path, workers=workers)
    records = search.run(30)
    assert [r.number for r in records] == list(range(30))
    assert [r.origin for r in records[:4]] == [f"baseline:{b.name}" for b in BASELINES] + ["random"]
    assert set(Counter(search.pool.built).values()) == {1}
    assert set(Counter(search.pool.scored).values()) == {1}
    assert len(search.pool.scored) == 4  # All of {a, b}: thirty random draws of eight recipes miss none.
    assert sum(not r.reused for r in records) == 4
    assert search.study.close_abandoned() == 0


def test_scores_by_hand(path: Path) -> None:
    for record in Search(path).run(20):
        count = len(active(record))
        assert record.scores is not None
        assert record.scores.sha256 == sha_of(" ".join(sorted(active(record))))
        assert record.scores.metric == pytest.approx(0.1 * count)
        assert record.scores.drop == pytest.approx(0.2 - 0.1 * count)
        assert (record.scores.size_bytes, record.scores.penalty) == (100 + 10 * count, count)
        assert (record.scores.build_seconds, record.scores.score_seconds) == (0.5, 0.25)
        assert (record.scores.inference_seconds, record.scores.sqnr_db) == (0.125, 30.0)


def test_feasible_is_what_meets_every_limit(path: Path) -> None:
    records = Search(path, constraints=Constraints(max_drop=0.15, max_size_bytes=110)).run(30)
    assert {len(active(r)): r.feasible for r in records} == {0: False, 1: True, 2: False}


def test_events_tell_what_the_records_tell(path: Path) -> None:
    search = Search(path)
    records = search.run(12)
    events = [e for e in search.events if isinstance(e, TrialFinished)]
    assert [e.number for e in events] == list(range(12))
    for event, record in zip(events, records, strict=True):
        assert record.scores is not None
        assert (event.score, event.size_bytes, event.penalty) == (
            record.scores.metric,
            record.scores.size_bytes,
            record.scores.penalty,
        )
        assert (event.origin, event.reused, event.error) == (record.origin, record.reused, None)


class StepwisePool(FakePool):
    """Ends jobs only when the loop waits, so that several are under way at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(held_back=True, **options)
        self.most_under_way = 0

    def pump(self, futures: Any, **_: Any) -> tuple[set[Any], set[Any]]:
        self.most_under_way = max(self.most_under_way, len(self._waiting))
        self.release()
        return {f for f in futures if f.done()}, set()


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> StepwisePool:
    pool = StepwisePool()
    monkeypatch.setattr("autoselect.study.pipeline.wait", lambda futures, **_: pool.pump(futures))
    return pool


def test_equal_recipes_and_equal_bytes_under_way_wait_for_each_other(path: Path, stepwise: StepwisePool) -> None:
    """Four at once: all-integer, an equal recipe, one of equal bytes, and another."""
    twins = [
        BASELINES[0],
        baseline("again"),
        BASELINES[2],
        baseline("other", "a"),
    ]
    records = Search(path, stepwise, workers=3).run(4, twins)
    assert sorted(r.reused for r in records[:3]) == [False, True, True]
    assert not records[3].reused
    assert stepwise.built.count(frozenset()) == 1
    assert len(stepwise.built) == 3
    assert sorted(stepwise.scored) == sorted([sha_of(""), sha_of("a")])
    assert records[0].scores == records[1].scores == records[2].scores


def test_no_more_is_under_way_than_keeps_the_workers_busy(path: Path, stepwise: StepwisePool) -> None:
    many = [baseline(str(i), f"n{i}") for i in range(12)]
    Search(path, stepwise, workers=2).run(12, many)
    assert stepwise.most_under_way == 4


WIDE = BoundSpace(dimensions=tuple(Toggle(name=f"node:{n}", nodes=frozenset({n})) for n in (*NODES, *"cdefgh")))


class UnevenPool(FakePool):
    """Ends one job at a time, whichever a seed says."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(held_back=True, **options)
        self._rng = np.random.default_rng(seed)

    def pump(self) -> None:
        chosen = self._waiting.pop(self._rng.integers(len(self._waiting)))
        rest, self._waiting = self._waiting, [chosen]
        self.release()
        self._waiting = rest


@pytest.mark.parametrize("min_gain", [None, 0.001], ids=["in full", "racing"])
@pytest.mark.parametrize("failing_node", [None, "b"], ids=["all well", "some fail"])
def test_a_search_does_not_hang_on_how_fast_each_worker_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_gain: float | None, failing_node: str | None
) -> None:
    def fails(job: str, what: Any) -> Exception | None:
        return ScoreError("no value") if job == "score" and failing_node in what else None

    found = []
    for seed in range(5):
        pool = UnevenPool(seed, fails=fails)
        monkeypatch.setattr("autoselect.study.pipeline.wait", lambda *_, pool=pool, **__: pool.pump())
        records = Search(tmp_path / str(seed), pool, workers=3, min_gain=min_gain, space=WIDE).run(30)
        found.append((records, sorted(pool.raced), sorted(pool.scored), sorted(map(sorted, pool.built))))
    assert [r.number for r in found[0][0]] == list(range(30))
    assert all(other == found[0] for other in found[1:])
    if min_gain is not None:
        assert found[0][1]


def failing(job: str, node: str, error: Exception) -> FakePool:
    return FakePool(fails=lambda j, nodes: error if j == job and node in nodes else None)


FAILURES = {
    "build refused": ("build", BuildError("the quantizer refuses")),
    "score refused": ("score", ScoreError("not a number")),
    "worker killed": ("score", WorkerDied("it was killed")),
}


@pytest.mark.parametrize(("job", "error"), FAILURES.values(), ids=FAILURES)
def test_a_failed_candidate_fails_its_trial_only(path: Path, job: str, error: TrialError) -> None:
    search = Search(path, failing(job, "a", error))
    records = search.run(20)
    assert len(records) == 20
    for record in records:
        broken = "a" in active(record)
        assert (record.scores is None, record.error) == (broken, str(error) if broken else None)
        assert record.error_kind == (error.kind if broken else None)
    told = [e.error for e in search.events if isinstance(e, TrialFinished)]
    assert told == [r.error for r in records]
    assert search.study.close_abandoned() == 0


ALL_FAIL = {"build": (BuildError("no_such_kernel"), PreparationError), "metric": (NoScore("no number"), MetricError)}


@pytest.mark.parametrize(("error", "ending"), ALL_FAIL.values(), ids=ALL_FAIL)
def test_where_all_fail_the_search_stops_with_the_reason(
    path: Path, error: TrialError, ending: type[AutoselectError]
) -> None:
    """Five of many trials, all of fewer, or all that a killed search has told."""
    search = Search(path, FakePool(fails=lambda job, nodes: error))
    with pytest.raises(ending, match=f"All 3 .*{error}"):
        search.run(3)
    with pytest.raises(ending, match=f"first 5 .*{error}"):
        search.run(50)
    assert [r.error for r in search.study.records()] == [str(error)] * 5
    with pytest.raises(ending, match=f"All 5 .*{error}"):
        Search(path).run(5)  # a resumed one, which knows the kind out of the journal


@pytest.mark.parametrize("reason", ["too wide", "too wide."])
def test_where_a_compiler_refuses_all_candidates_the_search_says_what_to_do(path: Path, reason: str) -> None:
    search = Search(path, FakePool(fails=lambda job, nodes: CompilerRefusal(reason)))
    for trials in (3, 50):
        with pytest.raises(PreparationError, match=r"wide\. .*--no-compiling"):
            search.run(trials)


def test_failures_do_not_stop_a_search_that_has_scored(path: Path) -> None:
    search = Search(path, FakePool(fails=lambda job, nodes: BuildError("no") if nodes else None))
    assert len(search.run(30)) == 30


def test_what_concerns_every_candidate_stops_the_search(path: Path) -> None:
    search = Search(path, failing("score", "a", MetricError("the metric raised")))
    with pytest.raises(MetricError, match="metric raised"):
        search.run(30)
    search.loop.abandon()
    assert search.study.close_abandoned() == 0


def test_abandoned_trials_are_closed_and_made_up_for(path: Path) -> None:
    pool = FakePool(held_back=True)
    search = Search(path, pool, workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoselect.study.pipeline.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search.run(10)
    search.loop.abandon()
    assert search.study.records() == []
    assert search.study.close_abandoned() == 0
    records = Search(path).run(4)
    assert [r.origin for r in records[:3]] == [f"baseline:{b.name}" for b in BASELINES]
    assert len(records) == 4


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_resumed_loop_does_nothing_twice(path: Path) -> None:
    first = Search(path)
    before = first.run(8)
    second = Search(path)
    after = second.run(20)
    assert after[:8] == before
    assert [r.number for r in after] == list(range(20))
    assert not set(first.pool.built) & set(second.pool.built)
    assert not set(first.pool.scored) & set(second.pool.scored)
    assert all(not r.origin.startswith("baseline") for r in after[8:])


def test_a_resumed_loop_has_nothing_left_to_do(path: Path) -> None:
    before = Search(path).run(8)
    again = Search(path)
    assert again.run(8) == again.run(5) == before
    assert again.pool.built == []
    assert again.events == []


class WorsePool(FakePool):
    """Here every left-out node costs score as well, so that nothing beats the all-integer model."""

    def _score(self, root: Path, sha256: str, part: str, interval: bool) -> score_jobs.ScoreReply:
        return replace(super()._score(root, sha256, part, interval), value=-0.1 * len(self._nodes[sha256]))

    def _race(
        self, root: Path, sha256: str, rivals: Sequence[str], goal: float, confidence: float
    ) -> race_jobs.Dropped:
        found = super()._race(root, sha256, rivals, goal, confidence)
        return found if isinstance(found, race_jobs.Dropped) else dropped(found)


def test_a_dropped_candidate_has_no_score_and_is_known(path: Path) -> None:
    search = Search(path, WorsePool(), min_gain=0.0)
    records = search.run(30)
    assert search.pool.schedule_of == sha_of("")
    baselines, raced = records[:3], [r for r in records[3:] if active(r) not in (frozenset(), frozenset("ab"))]
    assert all(r.scores is not None and r.partial is None for r in baselines)
    assert {active(r) for r in raced} == {frozenset("a"), frozenset("b")}
    for record in raced:
        assert record.scores is None
        assert record.error is None
        assert record.partial is not None
        assert (record.partial.samples, record.partial.total, record.partial.size_bytes) == (1, 3, 110)
        assert (record.partial.estimate, record.partial.drop) == pytest.approx((-0.1, 0.3))  # float: 0.2
        assert not record.feasible
    assert len(search.pool.raced) == 2
    for _, rivals, goal in search.pool.raced:
        assert set(rivals) == {sha_of(""), sha_of("a b")}  # what is dropped has not seen all samples
        assert goal == pytest.approx(0.0)  # of the all-integer model, which is as small
    assert sum(not r.reused for r in raced) == 2
    assert search.study.records() == records


def test_dropped_candidates_are_known_to_a_resumed_loop(path: Path) -> None:
    before = Search(path, WorsePool(), min_gain=0.0).run(20)
    again = Search(path, WorsePool(), min_gain=0.0)
    assert again.run(30)[:20] == before
    assert again.pool.raced == []


def test_the_goal_is_the_score_of_the_best_that_is_as_small_and_a_tie_is_dropped(path: Path) -> None:
    search = Search(path, min_gain=0.0)
    records = search.run(30)
    (first, _, its_goal), (second, _, their_goal) = search.pool.raced
    assert {first, second} == {sha_of("a"), sha_of("b")}
    assert its_goal == pytest.approx(0.0)
    assert their_goal == pytest.approx(0.1)  # ``first`` is as small, and better than the all-integer model
    scored = {r.scores.sha256 for r in records if r.scores}
    assert first in scored
    assert second not in scored


def test_a_goal_asks_for_more_where_more_must_be_gained(path: Path, tmp_path: Path) -> None:
    goals = []
    for number, share in enumerate((0.0, 0.1, 0.5)):
        search = Search(tmp_path / f"{number}.journal", min_gain=share)
        search.run(30)
        goals.append(search.pool.raced[0][2])
    assert goals == sorted(goals)
    assert goals[0] < goals[1] < goals[2]


BROKEN_LIMITS = {
    "a file that is too large": Constraints(max_size_bytes=115),
    "a penalty that is too high": Constraints(max_penalty=1.5),
}


@pytest.mark.parametrize("limits", BROKEN_LIMITS.values(), ids=BROKEN_LIMITS)
def test_a_rival_that_breaks_a_limit_never_sets_the_goal(tmp_path: Path, limits: Constraints) -> None:
    """The all-DRQ baseline has the best score and a penalty that matters; without it the goal is all-integer's."""
    goals = {}
    for name, constraints in {"free": Constraints(), "limited": limits}.items():
        search = Search(tmp_path / f"{name}.journal", min_gain=0.5, constraints=constraints)
        search.run(30)
        goals[name] = [goal for _, _, goal in search.pool.raced]
    assert max(goals["limited"]) < max(goals["free"])


def test_where_no_rival_keeps_the_limits_all_are_scored_in_full(path: Path) -> None:
    search = Search(path, min_gain=0.5, constraints=Constraints(max_size_bytes=50))
    search.run(30)
    assert search.pool.raced == []
    assert len(search.pool.scored) == 4


def test_a_candidate_must_keep_the_largest_drop_if_a_rival_does(path: Path) -> None:
    """Float scores 0.2, and the limit is a drop of 0.15: whatever scores less than 0.05 is of no use."""
    search = Search(path, min_gain=0.0, constraints=Constraints(max_drop=0.15))
    search.run(30, [baseline("drq", *NODES)])
    assert search.pool.raced
    assert all(goal >= 0.05 - 1e-9 for _, _, goal in search.pool.raced)


class BoundedPool(FakePool):
    """All drops have one bound."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self._bound = bound

    def _score(self, *args: Any) -> score_jobs.ScoreReply:
        return replace(super()._score(*args), bound=self._bound)


@pytest.mark.parametrize("sure", [True, False])
def test_what_may_be_recommended_for_less_need_not_widen_the_front(tmp_path: Path, sure: bool) -> None:
    """The allowed drop is 10: if all may break it, float is as good, and each candidate is expected to cost less."""
    told, plain = (
        Search(tmp_path / f"{name}.journal", pool, min_gain=0.5)
        for name, pool in {"told": BoundedPool(1.0 if sure else 40.0), "plain": FakePool()}.items()
    )
    for search in (told, plain):
        search.run(30)
    goals = [goal for _, _, goal in told.pool.raced]
    assert goals == ([goal for _, _, goal in plain.pool.raced] if sure else [pytest.approx(0.2 - 10.0)] * len(goals))
    assert goals


def test_rivals_are_those_that_are_most_alike(path: Path) -> None:
    nodes = "abcde"
    space = BoundSpace(dimensions=tuple(Toggle(name=f"node:{n}", nodes=frozenset({n})) for n in nodes))
    baselines = [baseline(n or "none", *n) for n in ("", "a", "ab", "abc", "abcd")]
    search = Search(path, space=space, min_gain=0.0)
    search.run(60, baselines)
    known = [b.recipe.denylisted_nodes for b in baselines]
    sets = dict(search.pool._nodes)
    sha, rivals, _ = search.pool.raced[0]
    nearest = sorted(len(other ^ sets[sha]) for other in known)[:3]
    assert [len(sets[rival] ^ sets[sha]) for rival in rivals] == nearest


def test_a_search_ends_where_it_is_told_to(path: Path) -> None:
    search = Search(path)
    records = search.run(30, stop=lambda scored: f"{len(scored)} are enough")
    assert search.reason == "2 are enough"
    assert len(records) == len(BASELINES)


def test_no_trial_begins_when_it_is_late(path: Path) -> None:
    """The clock strikes after two further trials; the baselines come whatever it says."""
    told = iter([None, None, "late"])
    search = Search(path)
    assert [r.origin for r in search.run(8, late=lambda: next(told))][3:] == ["random", "random"]
    assert search.reason == "late"
    assert len(Search(path).run(8, late=lambda: "late")) == 5
    assert len(Search(path).run(8)) == 8


def test_a_sampler_with_nothing_left_ends_the_search(path: Path) -> None:
    space = BoundSpace(dimensions=SPACE.dimensions[:2])
    units = [Unit(nodes=frozenset(n), op_type="ADD", position=i, sensitivity=1.0) for i, n in enumerate("ab")]
    problem = Problem(units, [frozenset(), frozenset()], lambda nodes, float_nodes, _repairs: Forecast(1, 1.0, nodes))
    search = Search(path, space=space)
    search.study.sample_by("surrogate", ProposerSampler(Listed(all_masks(problem)), problem, space), ())
    records = search.run(30, BASELINES[:1])
    assert {active(r) for r in records} == {frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")}
    assert len(records) == 4
    assert search.reason is not None
    assert "nothing left" in search.reason
    assert search.study.close_abandoned() == 0


def test_the_goal_is_one_of_the_objectives_of_the_run(path: Path) -> None:
    """All candidates have one segment, so all must beat the best one, though it is the largest file."""
    search = Search(path, min_gain=0.0, costs=("segments",))
    search.run(20, [baseline("both", *"ab")])
    assert {sha for sha, _, _ in search.pool.raced} == {sha_of(one) for one in ("", "a", "b")}
    assert [goal for _, _, goal in search.pool.raced] == [pytest.approx(0.2)] * 3


def test_the_study_is_told_the_objectives_of_the_run(path: Path) -> None:
    search = Search(path, costs=("float_ops", "size_bytes", "segments"))
    for record in search.run(6):
        trial = search.study._study.trials[record.number]
        count = len(active(record))
        assert trial.values == pytest.approx([0.1 * count, count, 100 + 10 * count, 1])
