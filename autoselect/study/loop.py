"""The loop: ask, build, score, tell. Each distinct candidate is built and scored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoselect.cases import jobs
from autoselect.cases.events import Listener, TrialFinished
from autoselect.domain.objectives import Constraints, Direction, drop_from
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import PreparationError, TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.baselines import Baseline, recipe_for
from autoselect.study.optuna_study import Asked, SearchStudy

_HOPELESS_AFTER = 5
"""So many failures with nothing scored stop the search: something is wrong with the ingredients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a candidate's score is compared with."""

    float_score: float
    float_size_bytes: int
    float_penalty: float
    direction: Direction
    constraints: Constraints

    def drop(self, score: float) -> float:
        """Loss against float, in the metric's units."""
        return drop_from(self.float_score, score, self.direction)

    def violations(self, scores: Scores) -> dict[str, float]:
        """How far each constraint is passed; at most 0 where it is met."""
        return self.constraints.violations(drop=scores.drop, size_bytes=scores.size_bytes, penalty=scores.penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ticket:
    """A trial on its way through the workers."""

    asked: Asked
    recipe: Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a worker is doing, for which trials; ``built`` is set while it scores."""

    tickets: list[_Ticket]
    built: jobs.BuildReply | None


class SearchLoop:
    """Runs trials until the budget is spent."""

    def __init__(
        self,
        study: SearchStudy,
        space: BoundSpace,
        template: Recipe,
        yardstick: Yardstick,
        *,
        pool: WorkerPool,
        root: Path,
        workers: int,
        sampler: str,
        timeout_seconds: float,
        listener: Listener,
    ) -> None:
        """Take up where the study is: what it has scored is known."""
        self._study, self._space, self._template, self._yardstick = study, space, template, yardstick
        self._pool, self._root, self._listener = pool, root, listener
        self._sampler, self._timeout = sampler, timeout_seconds
        self._slots = workers if workers == 1 else workers + 1
        self._running: dict[Future[Any], _Job] = {}
        self._known: dict[str, Scores] = {}
        self._bytes_of: dict[str, str] = {}
        self._done = self._failed = 0
        self._last_error = ""
        for record in study.records():
            self._remember(record)

    def _remember(self, record: TrialRecord) -> None:
        self._done += 1
        if record.scores is None or record.recipe is None:
            self._failed += 1
            self._last_error = record.error or ""
            return
        self._known[record.scores.sha256] = record.scores
        self._bytes_of[record.recipe.fingerprint] = record.scores.sha256

    def run(self, baselines: list[Baseline], trials: int) -> None:
        """Tell ``trials`` trials in all, those of earlier runs of the study included.

        Raises:
            PreparationError: If the first trials all fail.
            AutoselectError: What is wrong with more than one candidate, for example a metric that raises.
        """
        proposals = self._proposals(baselines)
        asked = self._done
        while asked < trials or self._running:
            while asked < trials and len(self._running) < self._slots:
                self._start(next(proposals)())
                asked += 1
            if self._running:
                finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._advance(self._running.pop(future), future)
        if not self._known:
            raise PreparationError(f"All {self._failed} candidates failed. The last one: {self._last_error}")

    def _proposals(self, baselines: list[Baseline]) -> Iterator[Callable[[], Asked]]:
        """Baselines that are not known yet, then the sampler for ever."""
        for baseline in baselines:
            if recipe_for(baseline.nodes, self._template, baseline.fallback).fingerprint not in self._bytes_of:
                yield lambda b=baseline: self._study.open_baseline(self._space, b)  # type: ignore[misc]
        while True:
            yield lambda: self._study.ask(self._space, origin=self._sampler)

    def _start(self, asked: Asked) -> None:
        ticket = _Ticket(asked=asked, recipe=recipe_for(asked.nodes, self._template, asked.fallback))
        fingerprint = ticket.recipe.fingerprint
        if fingerprint in self._bytes_of:
            self._tell(ticket, self._known[self._bytes_of[fingerprint]], reused=True)
            return
        for job in self._running.values():
            if job.tickets[0].recipe.fingerprint == fingerprint:
                job.tickets.append(ticket)
                return
        future = self._pool.submit(jobs.build, self._root, ticket.recipe.to_json(), timeout_seconds=self._timeout)
        self._running[future] = _Job(tickets=[ticket], built=None)

    def _advance(self, job: _Job, future: Future[Any]) -> None:
        try:
            reply = result_of(future)
        except TrialError as exc:
            self._fail(job, str(exc))
            return
        if isinstance(reply, jobs.BuildReply):
            self._built(job.tickets, reply)
        elif job.built is not None:
            self._scored(job.tickets, job.built, reply)

    def _built(self, tickets: list[_Ticket], built: jobs.BuildReply) -> None:
        if built.sha256 in self._known:
            for ticket in tickets:
                self._tell(ticket, self._known[built.sha256], reused=True)
            return
        for job in self._running.values():
            if job.built is not None and job.built.sha256 == built.sha256:
                job.tickets.extend(tickets)
                return
        future = self._pool.submit(jobs.score, self._root, built.sha256, "search", False, timeout_seconds=self._timeout)
        self._running[future] = _Job(tickets=tickets, built=built)

    def _scored(self, tickets: list[_Ticket], built: jobs.BuildReply, reply: jobs.ScoreReply) -> None:
        scores = Scores(
            sha256=built.sha256,
            metric=reply.value,
            drop=self._yardstick.drop(reply.value),
            drop_noise=reply.noise,
            sqnr_db=reply.sqnr_db,
            size_bytes=built.size_bytes,
            build_seconds=built.seconds,
            score_seconds=reply.seconds,
            inference_seconds=reply.inference_seconds,
            fallbacks=built.fallbacks,
            **built.fragmentation,
        )
        for place, ticket in enumerate(tickets):
            self._tell(ticket, scores, reused=place > 0)

    def _tell(self, ticket: _Ticket, scores: Scores, *, reused: bool) -> None:
        violations = self._yardstick.violations(scores)
        record = self._study.tell_scores(ticket.asked, ticket.recipe, scores, reused=reused, violations=violations)
        self._report(record)

    def _fail(self, job: _Job, reason: str) -> None:
        for ticket in job.tickets:
            self._report(self._study.tell_failure(ticket.asked, ticket.recipe, reason))
        if self._failed >= _HOPELESS_AFTER and not self._known:
            raise PreparationError(f"The first {self._failed} candidates all failed. The last one: {reason}")

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
            )
        )

    def abandon(self) -> None:
        """Close what is still running, so that no trial stays open."""
        for job in self._running.values():
            for ticket in job.tickets:
                self._study.drop(ticket.asked)
        self._running.clear()
        self._study.close_abandoned()
