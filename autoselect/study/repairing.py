"""Decides before the first trial which repairs the candidates of a search carry."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.divergence import error_shares
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.objectives import Direction
from autoselect.domain.recipe import node_ranges, split_repair
from autoselect.errors import TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.quantize import ranges
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

T = TypeVar("T")

_WEIGHTS: tuple[tuple[str, ...], ...] = (("bias",), ("equalization",), ("bias", "equalization"))
_RANGES: tuple[tuple[str, ...], ...] = tuple((name,) for name in ranges.METHODS)
TRIED = (_WEIGHTS, _RANGES, _WEIGHTS)
"""Steps of the decision, each with its alternatives. The first takes out the largest errors, behind which those of the
ranges are seen; its two repairs may each do harm alone and help together. What did not help then is tried again with
the ranges that were chosen."""

DECIDING_SAMPLES = 16
_WORTH = 0.95
"""A repair must leave no more than this share of the divergence: less is within what other samples would say."""

_NOTHING = 1e-12
"""A share of error below which a sample counts as right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trier:
    """Tries repairs on the all-integer model."""

    case: Case
    settings: SearchSettings
    pool: WorkerPool
    direction: Direction
    scores: dict[tuple[str, ...], float] = field(default_factory=dict)
    known: dict[tuple[str, ...], float] = field(default_factory=dict)

    def divergences(self, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Of the outputs from the float model's; infinite where a repair failed or nothing is known.

        The geometric mean over samples, as the search's SQNR in dB: one bad sample does not outvote the others.
        """
        samples, rows = _few_samples(self.case)
        futures = {
            repairs: self._submit(error_shares, frozenset(), samples, rows, self.settings.per_channel, repairs)
            for repairs in candidates
            if repairs not in self.known
        }
        self.known.update({repairs: self._value(future) for repairs, future in futures.items()})
        return [self.known[repairs] for repairs in candidates]

    def score(self, repairs: tuple[str, ...]) -> float:
        """Of all search samples, larger is better; minus infinite where the candidate fails."""
        return self.all_scores([repairs])[0]

    def all_scores(self, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """The same of several, which workers score side by side."""
        new = [repairs for repairs in candidates if repairs not in self.scores]
        built = self._finished({repairs: self._submit_build(repairs) for repairs in new})
        scored = self._finished({repairs: self._submit_scoring(reply.sha256) for repairs, reply in built.items()})
        sign = 1.0 if self.direction == "maximize" else -1.0
        for repairs in new:
            self.scores[repairs] = sign * scored[repairs].value if repairs in scored else -math.inf
        return [self.scores[repairs] for repairs in candidates]

    def _submit_build(self, repairs: tuple[str, ...]) -> Future[build_jobs.BuildReply]:
        recipe = replace(self.settings.template, repairs=repairs)
        return self._submit(build_jobs.build, recipe.to_json())

    def _submit_scoring(self, sha256: str) -> Future[score_jobs.ScoreReply]:
        return self._submit(score_jobs.score, sha256, "search", False)

    def _submit(self, job: Callable[..., T], *arguments: object) -> Future[T]:
        root, limit = self.case.files.root, self.settings.trial_timeout
        return self.pool.submit(job, root, *arguments, timeout_seconds=limit)

    def _finished(self, running: Mapping[tuple[str, ...], Future[T]]) -> dict[tuple[str, ...], T]:
        """Replies of those that did not fail."""
        found = {}
        for repairs, future in running.items():
            with contextlib.suppress(TrialError):
                found[repairs] = result_of(future)
        return found

    def _value(self, future: Future[list[float]]) -> float:
        try:
            shares = result_of(future)
        except TrialError:
            return math.inf
        return math.exp(fmean(math.log(max(share, _NOTHING)) for share in shares)) if shares else math.inf


def with_repairs(
    case: Case, settings: SearchSettings, direction: Direction, pool: WorkerPool, listener: Listener
) -> SearchSettings:
    """The settings with the repairs of all candidates by name, so that the manifest holds what was decided.

    Where they are left to the search, each step keeps the alternative that lowers the divergence of the all-integer
    model's outputs on a few search samples most and does not lower its score on all of them: outputs may come nearer to
    float where the decision does not depend on them.

    Raises:
        RecipeError: If repairs are given by name, and name a node that the model does not have, or one twice.
    """
    if settings.repairs is not True:
        _check_nodes(case, settings.repairs or ())
        return settings.model_copy(update={"repairs": settings.repairs or ()})
    listener(StageStarted(stage="repairs", total=len(TRIED)))
    settings = settings.model_copy(update={"repairs": ()})
    trier = _Trier(case=case, settings=settings, pool=pool, direction=direction)
    chosen: tuple[str, ...] = ()
    [least] = trier.divergences([chosen])
    for step in TRIED:
        candidates = list(dict.fromkeys(tuple(sorted({*chosen, *names})) for names in step))
        found = zip(trier.divergences(candidates), candidates, strict=True)
        better = sorted(pair for pair in found if pair[0] < _WORTH * least)
        if better:
            trier.all_scores([chosen, better[0][1]])
        harmless = (pair for pair in better if trier.score(pair[1]) >= trier.score(chosen))
        least, chosen = next(harmless, (least, chosen))
        listener(StepFinished(stage="repairs"))
    return settings.model_copy(update={"repairs": chosen, "refining": "bias" in chosen})


def _check_nodes(case: Case, repairs: Sequence[str]) -> None:
    """Refuse names of nodes that the model does not have, before the first trial."""
    if any(split_repair(name)[1] is not None for name in repairs):
        inputs = reader.input_specs(fb.parse(case.files.float_model.read_bytes()))
        node_ranges(repairs, [*(spec.name for spec in inputs), *case.layers.op_types])


def _few_samples(case: Case) -> tuple[str, list[int]]:
    """A folder of samples and the first few of the search part in it; of calibration where there is no such part."""
    path = case.files.split("search")
    if not path.exists():
        return "calibration", list(range(min(DECIDING_SAMPLES, case.counts["calibration"])))
    split = json.loads(path.read_text(encoding="utf-8"))
    indices = range(case.counts["search"]) if split["indices"] is None else split["indices"]
    return str(split["samples"]), list(indices[:DECIDING_SAMPLES])
