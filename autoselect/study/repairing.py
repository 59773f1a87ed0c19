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

import numpy as np

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.divergence import error_shares
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.layers import LayerTable
from autoselect.domain.objectives import Direction
from autoselect.domain.recipe import node_ranges, split_repair
from autoselect.errors import TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.quantize import ranges
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

K = TypeVar("K")
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

_LEFT_OUT = (0.0, 0.25, 0.5)
"""Shares of the nodes, by rmse/scale, that the models leave out by which repairs are judged. What ruins the all-integer
model may hide what a repair does for all others."""

_NOTHING = 1e-12
"""A share of error below which a sample counts as right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trier:
    """Tries repairs on models that stand for all candidates."""

    case: Case
    settings: SearchSettings
    pool: WorkerPool
    direction: Direction
    stand_ins: Sequence[frozenset[str]]
    scores: dict[tuple[str, ...], float] = field(default_factory=dict)
    known: dict[tuple[str, ...], float] = field(default_factory=dict)

    def divergences(self, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Of the outputs from the float model's; infinite where a repair failed or nothing is known.

        The geometric mean over samples, as the search's SQNR in dB, and over models: one that is bad does not outvote
        the others.
        """
        samples, rows = _few_samples(self.case)
        futures = {
            repairs: [
                self._submit(error_shares, nodes, samples, rows, self.settings.per_channel, repairs)
                for nodes in self.stand_ins
            ]
            for repairs in candidates
            if repairs not in self.known
        }
        for repairs, own in futures.items():
            self.known[repairs] = math.prod(self._value(future) for future in own) ** (1 / len(own))
        return [self.known[repairs] for repairs in candidates]

    def score(self, repairs: tuple[str, ...]) -> float:
        """Mean over the models on all search samples, larger is better; minus infinite where one fails."""
        return self.all_scores([repairs])[0]

    def all_scores(self, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """The same of several, which workers score side by side."""
        new = [(repairs, nodes) for repairs in candidates if repairs not in self.scores for nodes in self.stand_ins]
        built = self._finished({one: self._submit_build(*one) for one in new})
        scored = self._finished({one: self._submit_scoring(reply.sha256) for one, reply in built.items()})
        sign = 1.0 if self.direction == "maximize" else -1.0
        for repairs in dict.fromkeys(repairs for repairs, _ in new):
            own = [scored.get((repairs, nodes)) for nodes in self.stand_ins]
            self.scores[repairs] = fmean(-math.inf if reply is None else sign * reply.value for reply in own)
        return [self.scores[repairs] for repairs in candidates]

    def _submit_build(self, repairs: tuple[str, ...], nodes: frozenset[str]) -> Future[build_jobs.BuildReply]:
        template = self.settings.template
        recipe = replace(template, repairs=repairs, denylisted_nodes=template.denylisted_nodes | nodes)
        return self._submit(build_jobs.build, recipe.to_json())

    def _submit_scoring(self, sha256: str) -> Future[score_jobs.ScoreReply]:
        return self._submit(score_jobs.score, sha256, "search", False)

    def _submit(self, job: Callable[..., T], *arguments: object) -> Future[T]:
        root, limit = self.case.files.root, self.settings.trial_timeout
        return self.pool.submit(job, root, *arguments, timeout_seconds=limit)

    def _finished(self, running: Mapping[K, Future[T]]) -> dict[K, T]:
        """Replies of those that did not fail."""
        found = {}
        for key, future in running.items():
            with contextlib.suppress(TrialError):
                found[key] = result_of(future)
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

    Where they are left to the search, three models stand for all candidates: the all-integer one, and those without
    the quarter and the half of the nodes with the largest rmse/scale. Each step keeps the alternative that lowers the
    divergence of their outputs on a few search samples most and does not lower their mean score on all of them:
    outputs may come nearer to float where the decision does not depend on them.

    Raises:
        RecipeError: If repairs are given by name, and name a node that the model does not have, or one twice.
    """
    if settings.repairs is not True:
        _check_nodes(case, settings.repairs or ())
        return settings.model_copy(update={"repairs": settings.repairs or ()})
    listener(StageStarted(stage="repairs", total=len(TRIED)))
    settings = settings.model_copy(update={"repairs": ()})
    trier = _Trier(case=case, settings=settings, pool=pool, direction=direction, stand_ins=_stand_ins(case.layers))
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


def _stand_ins(layers: LayerTable) -> list[frozenset[str]]:
    """What the models leave out by which repairs are judged."""
    ranked = np.argsort(-np.nan_to_num(layers.statistic("rmse_per_scale")), kind="stable").tolist()
    names = [layers.nodes[i].name for i in ranked]
    return list(dict.fromkeys(frozenset(names[: round(share * len(names))]) for share in _LEFT_OUT))


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
