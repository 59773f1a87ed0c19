"""The loop: ask, build, race or score, tell. Each distinct candidate is built and scored once.

Trials are told in their order, and a race is against what had been told when its trial was asked for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.cases import build_jobs, race_jobs, score_jobs
from autoselect.cases.events import Listener, TrialFinished
from autoselect.cases.settled import Settled
from autoselect.domain.pareto import whole_steps
from autoselect.domain.quantities import stored_bytes
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import ErrorKind, ScoreError, TargetRefusal, TrialError, UsageError, ending_of, sentence
from autoselect.isolation.door import Workers
from autoselect.runs.records import BY_HAND, Partial, Scores, TrialRecord
from autoselect.study.pipeline import Candidate, Pipeline
from autoselect.study.proposing.forecast_check import ForecastCheck
from autoselect.study.proposing.hypervolume_gain import Weight, loss_worth, reference_corner
from autoselect.study.recording.optuna_study import Asked, SearchStudy
from autoselect.study.setup.baselines import Baseline
from autoselect.study.yardstick import Yardstick

Stop = Callable[[Sequence[Scores]], "str | None"]
"""Says why the search is at its end, given what is scored; else None."""


Failing = Callable[[Mapping[int, int], int], Sequence[str]]
"""The nodes behind an op that fails, by where the ops of the float model are in the file, and by that op's place."""


def no_node(_places: Mapping[int, int], _op: int) -> Sequence[str]:
    """Nothing is known of nodes."""
    return ()


def never(_scored: Sequence[Scores] = ()) -> None:
    """The search ends with its budget."""


class SearchLoop:
    """Runs trials until the budget is spent."""

    def __init__(
        self,
        study: SearchStudy,
        space: BoundSpace,
        settings: Settled,
        yardstick: Yardstick,
        *,
        pool: Workers,
        root: Path,
        slots: Callable[[], int],
        may_race: bool,
        listener: Listener,
        forecasts: ForecastCheck | None = None,
        failing: Failing = no_node,
    ) -> None:
        """Take up where the study is: what it has scored is known.

        Args:
            study: The record of what was tried.
            space: Its dimensions.
            settings: How to search.
            yardstick: What candidates are compared with.
            pool: Where they are built and scored.
            root: The case.
            slots: How many of them to keep under way, asked again and again.
            may_race: Whether a part of the samples says something of the whole.
            listener: Told of each trial.
            forecasts: What builds are checked against; None for no check.
            failing: Says which nodes fail where an op of a built file does.
        """
        self._forecasts, self._failing = forecasts, failing
        self._forecast_errors: dict[str, str] = {}  # by fingerprint
        self._may_race, self._races = may_race, False  # not before it is known which samples are hard
        self._study, self._space, self._settings, self._yardstick = study, space, settings, yardstick
        self._pool, self._root, self._listener, self._slots = pool, root, listener, slots
        self._pipeline = Pipeline(self._submit_build, self._submit_scoring)
        self._known: dict[str, Scores] = {}
        self._recipes: dict[str, Recipe] = {}  # of what is scored
        self._dropped: dict[str, Partial] = {}
        self._bytes_of: dict[str, str] = {}
        self._refused: set[str] = set()  # Fingerprints of what the target does not take, which it never will.
        self._done = self._failed = self._left = 0
        self._last_error = ""
        self._last_kind: ErrorKind | None = None
        for record in study.records():
            self._remember(record)

    def _remember(self, record: TrialRecord) -> None:
        self._done += record.origin != BY_HAND
        if record.forecast_error and record.recipe is not None and self._forecasts is not None:
            self._forecast_errors[record.recipe.fingerprint] = record.forecast_error
            self._forecasts.distrust(record.recipe)
        if record.partial is not None and record.recipe is not None:
            self._dropped[record.partial.sha256] = record.partial
            self._bytes_of[record.recipe.fingerprint] = record.partial.sha256
            return
        if record.scores is None or record.recipe is None:
            self._failed += 1
            self._last_error, self._last_kind = record.error or "", record.error_kind
            if record.recipe is not None and record.error_kind == TargetRefusal.kind:
                self._refused.add(record.recipe.fingerprint)
            return
        self._known[record.scores.sha256] = record.scores
        self._recipes.setdefault(record.scores.sha256, record.recipe)
        self._bytes_of[record.recipe.fingerprint] = record.scores.sha256

    def run(
        self,
        baselines: list[Baseline],
        trials: int,
        stop: Stop = never,
        late: Callable[[], str | None] = never,
    ) -> str | None:
        """Tell ``trials`` trials in all, those of earlier runs of the study included.

        Args:
            baselines: Told first, if they are not known: by their scores, since the target refused them, or by why
                others failed.
            trials: The budget.
            stop: Asked with what is scored, by hash, once the baselines are told: why the search is at its end.
            late: Asked before each further trial: why there is no time for it.

        Returns:
            Why the search ended before the budget was spent; None if it did not.

        Raises:
            PreparationError: If the first trials all fail.
            MetricError: If the metric has no value for the last of them.
            AutoselectError: What is wrong with more than one candidate, for example a metric that raises.
        """
        reason = self.tell_first(baselines, trials, stop)
        self._keep_schedule()
        while reason is None and self._left > 0 and (reason := late()) is None:
            if not self._begin(self._ask):
                self._finish_running()
                if self._left > 0 and not self._begin(self._ask):
                    reason = f"the sampler {self._study.sampler_name} has nothing left to try"
        self._finish_running()
        if not self._known:
            raise ending_of(self._last_kind)(
                f"All {self._failed} candidates failed. The last one: {_told(self._last_error, self._last_kind)}"
            )
        return reason

    def tell_first(self, baselines: list[Baseline], trials: int, stop: Stop = never) -> str | None:
        """Tell baselines that are not known yet, as far as the budget goes, and ask whether the search is at its end.

        Args, returns and raises are those of :meth:`run`, but that no candidate need run.
        """
        self._left = trials - self._done
        for baseline in baselines:
            own = baseline.recipe.fingerprint
            if own not in self._bytes_of and own not in self._refused:
                self._begin(partial(self._open_baseline, baseline))
        self._finish_running()
        return stop(list(self._known.values()))

    def tell_by_hand(self, recipes: Sequence[Recipe]) -> None:
        """Tell what a user made, each scored in full. What has its score already gets no second trial."""
        self._dropped.clear()  # A part of the samples was enough for the search.
        self._bytes_of = {own: sha256 for own, sha256 in self._bytes_of.items() if sha256 in self._known}
        self._left = len(recipes)
        for recipe in recipes:
            if recipe.fingerprint not in self._bytes_of:
                self._begin(partial(self._study.open_by_hand, recipe))
        self._finish_running()

    def _open_baseline(self, baseline: Baseline) -> Asked | None:
        return None if self._study.rules_out(baseline.recipe) else self._study.open_baseline(self._space, baseline)

    def _ask(self) -> Asked | None:
        return self._study.ask(self._space, self._settings.template)

    def _begin(self, ask: Callable[[], Asked | None]) -> bool:
        """Start one more trial as soon as a worker is free for it; False if no trial is left."""
        while len(self._pipeline) >= self._slots():
            self._tell_oldest()
        asked = ask() if self._left > 0 else None
        if asked is None:
            return False
        self._left -= 1
        self._start(asked)
        return True

    def _finish_running(self) -> None:
        while self._pipeline and self._slots():
            self._tell_oldest()

    def _keep_schedule(self) -> None:
        """Let workers know which samples are hard: those on which the all-integer model is far from float."""
        if not self._may_race or not self._known:
            return
        hardest = min(self._known.values(), key=lambda s: (s.penalty, s.sha256))
        # Without float outputs, or rows of an earlier process, every candidate is scored in full.
        with contextlib.suppress(UsageError, TrialError):
            self._pool.call(race_jobs.keep_schedule, self._root, hardest.sha256, self._settings.seed)
            self._races = True

    def _start(self, asked: Asked) -> None:
        if (sha256 := self._bytes_of.get(asked.recipe.fingerprint)) is not None:
            self._tell_known(asked, sha256)
        else:
            self._pipeline.add(asked, rivals=len(self._known))

    def _tell_oldest(self) -> None:
        # The loop looks each second how many slots there are: workers of a cluster come and go.
        done = self._pipeline.take(1.0)
        if done is None:
            return
        if done.built is not None:
            self._check_forecast(done.asked.recipe, done.built)
        if done.twin is not None:
            done.error, done.built = done.twin.error, done.built or done.twin.built
        if done.error is not None or done.built is None:
            assert done.error is not None
            self._fail(done.asked, done.error, done.built)
        elif isinstance(done.reply, score_jobs.ScoreReply):
            self._scored(done, done.built, done.reply)
        elif done.reply is not None:
            self._drop(done, done.built, done.reply)
        else:
            self._tell_known(done.asked, done.built.sha256)

    def _check_forecast(self, recipe: Recipe, built: build_jobs.BuildReply) -> None:
        if self._forecasts is not None and (error := self._forecasts.difference(recipe, built)):
            self._forecast_errors[recipe.fingerprint] = error

    def _submit_build(self, recipe: Recipe) -> Future[Any]:
        return self._submit(build_jobs.build, recipe.to_json())

    def _submit_scoring(self, recipe: Recipe, built: build_jobs.BuildReply, count: int) -> Future[Any] | None:
        """Score in full, or race for a place in the front that is worth it; None if the bytes have been told."""
        if built.sha256 in self._known or built.sha256 in self._dropped:
            return None
        if not self._races:
            return self._submit(score_jobs.score, built.sha256, "search", False)
        goal = self._goal(built, count)
        if goal is None:
            return self._submit(score_jobs.score, built.sha256, "search", False)
        return self._submit(race_jobs.race, built.sha256, self._rivals(recipe, count), goal, self._settings.confidence)

    def _submit(self, job: Callable[..., Any], *arguments: object) -> Future[Any]:
        return self._pool.submit(job, self._root, *arguments, timeout_seconds=self._settings.trial_timeout)

    def _rivals(self, recipe: Recipe, count: int) -> list[str]:
        """The candidates most like this one, among the first ``count`` scored; their errors are nearly its own."""
        unlike = {sha: len(recipe.nodes_unlike(other)) for sha, other in islice(self._recipes.items(), count)}
        # A new candidate is compared with three scored ones, sample by sample.
        return sorted(unlike, key=lambda sha: unlike[sha])[:3]

    def _goal(self, built: build_jobs.BuildReply, count: int) -> float | None:
        """The score this candidate needs to enlarge the hypervolume of the front by ``min_gain``.

        The front is that of the first ``count`` scored candidates that keep the user's limits.

        Returns:
            None if no candidate keeps the limits: then any candidate may be the one to ship.
        """
        scored = list(islice(self._known.values(), count))
        rivals = self._feasible(scored)
        if not rivals:
            return None
        weight = Weight(self._yardstick.allowed_drop)
        space, front = self._weighed(scored, weight), self._weighed(rivals, weight)
        own = self._stepped([built.costs])[0]
        # A candidate dearer than all that were scored adds nothing, unless none yet keeps the allowed drop.
        enough = any(s.drop <= self._yardstick.allowed_drop for s in rivals)
        corner = reference_corner(space if enough else np.vstack([space, [0.0, *own]]))
        loss = loss_worth(front / corner, self._settings.min_gain, own / corner[1:])
        lowering = self._loss_to_lower(built, rivals)
        worth = max(weight.loss(float(loss * corner[0])), lowering)
        limit = self._yardstick.constraints.max_drop
        keeps_it = limit is not None and any(s.drop <= limit for s in rivals)
        return self._yardstick.score(min(worth, limit) if limit is not None and keeps_it else worth)

    def _feasible(self, scored: Sequence[Scores]) -> list[Scores]:
        """The candidates that keep all limits; if none keeps the limit of the drop, those that keep the others."""
        passed = [self._yardstick.violations(s) for s in scored]
        within = [s for s, v in zip(scored, passed, strict=True) if max(v["max_size"], v["max_penalty"]) <= 0.0]
        feasible = [s for s, v in zip(scored, passed, strict=True) if max(v.values()) <= 0.0]
        return feasible or within

    def _weighed(self, scored: Sequence[Scores], weight: Weight) -> np.ndarray:
        """Weights of losses, and costs, shape (n, 1 + n_costs)."""
        losses = weight.of(np.array([s.drop for s in scored]))
        return np.column_stack([losses, self._stepped([s.costs for s in scored])])

    def _loss_to_lower(self, built: build_jobs.BuildReply, rivals: Sequence[Scores]) -> float:
        """The largest loss with which a candidate may still become the recommended one; minus infinity if none can.

        The hypervolume does not show this. If only nearly all-float models keep the allowed drop, a recommendation
        gains hardly any volume. The first candidate that keeps the drop need only cost less than float.
        """
        bounded = [s.standing for s in rivals if math.isfinite(s.drop_bound)]
        if not bounded:
            return -math.inf
        rule, penalty = self._yardstick.rule, float(built.fragmentation["penalty"]) + self._steps["penalty"]
        least = min([rule.price_of_float, *map(rule.cost, bounded)])
        size = stored_bytes(built.size_bytes, built.quantities)
        return rule.allowed_drop if rule.price(penalty=penalty, size_bytes=size) <= least else -math.inf

    def _stepped(self, costs: Sequence[Mapping[str, float]]) -> np.ndarray:
        """Costs in the order of the objectives, each down to a whole step of the front, shape (n, n_costs)."""
        table = np.array([[figures[column] for column in self._study.costs] for figures in costs], dtype=np.float64)
        return whole_steps(table, [self._steps.get(column, 0.0) for column in self._study.costs])

    @property
    def _steps(self) -> dict[str, float]:
        """How far apart the front's members are shown: within a step of a cost a candidate gains nothing."""
        return self._yardstick.steps(self._settings.front_spacing)

    def _drop(self, done: Candidate, built: build_jobs.BuildReply, reply: race_jobs.Dropped) -> None:
        partial = Partial(
            **_measured(built, reply),
            total=reply.total,
            estimate=reply.estimate,
            drop=self._yardstick.drop(reply.estimate),
            penalty=float(built.fragmentation["penalty"]),
        )
        self._tell(done.asked, partial)

    def _scored(self, done: Candidate, built: build_jobs.BuildReply, reply: score_jobs.ScoreReply) -> None:
        scores = Scores(
            **_measured(built, reply),
            metric=reply.value,
            drop=self._yardstick.drop(reply.value),
            drop_noise=reply.noise,
            drop_bound=reply.bound,
            fallbacks=built.fallbacks,
            compiled=built.compiled,
            needs=built.needs,
            **built.fragmentation,
        )
        self._tell(done.asked, scores)

    def _tell_known(self, asked: Asked, sha256: str) -> None:
        self._tell(asked, self._known.get(sha256) or self._dropped[sha256], reused=True)

    def _tell(self, asked: Asked, measurement: Scores | Partial, *, reused: bool = False) -> None:
        outcome: dict[str, Any] = {"partial": measurement}
        if isinstance(measurement, Scores):
            outcome = {"scores": measurement, "violations": self._yardstick.violations(measurement)}
        error = self._forecast_errors.get(asked.recipe.fingerprint, "")
        self._report(self._study.tell(asked, **outcome, reused=reused, forecast_error=error))

    def _fail(self, asked: Asked, error: TrialError, built: build_jobs.BuildReply | None) -> None:
        op = error.op if isinstance(error, ScoreError) else None
        nodes = () if op is None or built is None else self._failing(built.places, op)
        self._report(self._study.tell(asked, error=str(error), error_kind=error.kind, error_nodes=tuple(nodes)))
        # The search stops after five failures with nothing scored: something is wrong with the ingredients.
        if self._failed >= 5 and not self._known:
            raise ending_of(error.kind)(
                f"The first {self._failed} candidates all failed. The last one: {_told(str(error), error.kind)}"
            )

    def _report(self, record: TrialRecord) -> None:
        self._remember(record)
        scores = record.scores
        self._listener(
            TrialFinished(
                number=record.number,
                origin=record.origin,
                score=scores.metric if scores else None,
                size_bytes=scores.size_bytes if scores else None,
                penalty=scores.penalty if scores else None,
                reused=record.reused,
                error=record.error,
                dropped=record.partial is not None,
                drop=scores.drop if scores else None,
            )
        )

    def abandon(self) -> None:
        """Close what is still running, so that no trial stays open."""
        for asked in self._pipeline.abandon():
            self._study.drop(asked)
        self._study.close_abandoned()


def _told(error: str, kind: ErrorKind | None) -> str:
    """The last error of a search in which all candidates failed; of a compiler's refusal with what a user can do."""
    if kind != "compiler":
        return error
    return f"{sentence(error)} Search for another target, or by this one's rules alone (--no-compiling), if it has any."


def _measured(built: build_jobs.BuildReply, reply: score_jobs.ScoreReply | race_jobs.Dropped) -> dict[str, Any]:
    """What scores have in common with what is known of a dropped candidate."""
    return {
        "sha256": built.sha256,
        "size_bytes": built.size_bytes,
        "samples": reply.samples,
        "sqnr_db": reply.sqnr_db,
        "divergence": reply.divergence,
        "build_seconds": built.seconds,
        "score_seconds": reply.seconds,
        "inference_seconds": reply.inference_seconds,
        "quantities": built.quantities,
    }
