"""Candidates on their way through the workers: built, then scored, and handed back in the order of their trials.

Who asks sees the same results at each question, however fast each worker is. So a search depends on its seed and on how
many candidates are on their way, and on nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

from autoselect.cases.build_jobs import BuildReply
from autoselect.cases.race_jobs import Dropped
from autoselect.cases.score_jobs import ScoreReply
from autoselect.domain.recipe import Recipe
from autoselect.errors import TrialError
from autoselect.isolation.pool import result_of
from autoselect.study.recording.optuna_study import Asked

Building = Callable[[Recipe], Future[BuildReply]]
Scoring = Callable[[Recipe, BuildReply, int], "Future[Any] | None"]


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """A trial on its way.

    Attributes:
        asked: The trial, with what is built for it.
        rivals: How many candidates had been scored when it was asked for: its race is against these.
        future: What a worker does for it now; None if nothing is left to do.
        built: Once it is built.
        twin: An earlier one that is the same candidate, and is built and scored for both.
        reply: How it scored; None if its bytes had been told before, or the twin's reply counts.
        error: Why it failed.
    """

    asked: Asked
    rivals: int
    future: Future[Any] | None = None
    built: BuildReply | None = None
    twin: Candidate | None = None
    reply: ScoreReply | Dropped | None = None
    error: TrialError | None = None


class Pipeline:
    """What is on its way, in the order of the trials."""

    def __init__(self, build: Building, score: Scoring) -> None:
        """Start with nothing.

        Args:
            build: Submits the build of a recipe.
            score: Submits the score of a built recipe, given how many candidates it may know of; None if its bytes
                have been told.
        """
        self._build, self._score = build, score
        self._line: deque[Candidate] = deque()

    def __len__(self) -> int:
        """How many are on their way."""
        return len(self._line)

    def add(self, asked: Asked, rivals: int) -> None:
        """Start a candidate."""
        twin = next((c for c in self._line if c.asked.recipe.fingerprint == asked.recipe.fingerprint), None)
        future = self._build(asked.recipe) if twin is None else None
        self._line.append(Candidate(asked=asked, rivals=rivals, twin=twin, future=future))

    def take(self, patience_seconds: float) -> Candidate | None:
        """Take the oldest one out; None if it is not done. Waits until any is done, for so long at most."""
        self._advance()
        if self._line[0].future is not None:
            under_way = [c.future for c in self._line if c.future is not None and not c.future.done()]
            wait(under_way, timeout=patience_seconds, return_when=FIRST_COMPLETED)
            self._advance()
        return self._line.popleft() if self._line[0].future is None else None

    def abandon(self) -> list[Asked]:
        """Let go of everything, and return the trials that stay open."""
        left = [c.asked for c in self._line]
        self._line.clear()
        return left

    def _advance(self) -> None:
        """Take what workers have done. Builds are taken in the order of their trials: the first of equals is scored."""
        for place, candidate in enumerate(self._line):
            future = candidate.future
            if future is None or not future.done():
                if future is not None and candidate.built is None:
                    return
                continue
            candidate.future = None
            try:
                reply = result_of(future)
            except TrialError as exc:
                candidate.error = exc
                continue
            if candidate.built is not None:
                candidate.reply = reply
                continue
            candidate.built = reply
            alike = (c for c in islice(self._line, place) if c.built is not None and c.built.sha256 == reply.sha256)
            candidate.twin = next((c.twin or c for c in alike), None)
            if candidate.twin is None:
                candidate.future = self._score(candidate.asked.recipe, reply, candidate.rivals)
