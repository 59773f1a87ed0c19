"""Finds out before the first trial which sets of repairs a search should choose between for its candidates."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import numpy as np

from autoselect.cases import build_jobs, evidence_jobs, score_jobs
from autoselect.cases.divergence import Looked, log_prices, look_at_each, spread_rows
from autoselect.cases.events import Listener, StageStarted, StepFinished, Warned
from autoselect.cases.prepare import Case
from autoselect.cases.settled import RepairChoice, Settled
from autoselect.domain.layers import LayerTable
from autoselect.domain.objectives import Direction
from autoselect.domain.recipe import OF_NODES, Recipe, node_repairs, split_repair
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.rule import Rule
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN
from autoselect.errors import TrialError, WorkerDied
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.repairing import ranges, weight_rounding
from autoselect.study.proposing.problem import NO_RULE
from autoselect.study.setup.baselines import all_in_16_bits, recipe_for

K = TypeVar("K")
T = TypeVar("T")

_WEIGHTS: tuple[Repairs, ...] = (("bias",), ("equalization",), ("bias", "equalization"))
_ROUNDING: tuple[Repairs, ...] = ((weight_rounding.NAME,),)
_RANGES: tuple[Repairs, ...] = tuple((name,) for name in ranges.METHODS)
"""Narrower ranges cost a few samples much and give the others a little, and wider ones the other way around: a mean of
divergences does not say which counts. So where scores tell, they decide."""
TRIED = (_WEIGHTS, _ROUNDING, _RANGES, _WEIGHTS)
"""Steps of the choice, each with its alternatives. The first two take out the largest errors, behind which those of
the ranges are seen; the two repairs of the first may each do harm alone and help together. Rounding comes after them:
equalization changes the weights that are rounded, and what biases make good need not be made good by rounding. What did
not help at first is tried again with what was chosen."""

TRIED_IN_16_BITS = tuple(step for step in TRIED if step is not _RANGES)
"""Steps of the choice for 16-bit nodes, whose ranges no repair changes."""

DECIDING_SAMPLES = 16
_WORTH = 0.95
"""A repair must lower the price to this share of it at least: other samples may undo a smaller change."""

_SURE = 2.0
"""Standard errors of a paired difference by which a score must change for the change to be beyond doubt."""


_LEFT_OUT = (0.0, 0.5)
"""Repairs are judged on models that leave out these shares of the nodes, by rmse/scale. What ruins the all-integer
model may hide what a repair does for all others."""


class _StandIn(NamedTuple):
    """A model on which repairs are judged: the nodes that are not in 8 bits, and those of them in 16."""

    left_out: frozenset[str]
    in_16_bits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Score:
    """What a model scores, larger is better, its hash, and how close its outputs are to float's on all samples."""

    value: float
    sha256: str
    sqnr_db: float = math.nan


_FAILED = _Score(-math.inf, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trier:
    """Tries repairs on models that stand for candidates of one width.

    What the models of one choice of repairs share, their whole builds, takes longer than all else: they are one job.
    """

    case: Case
    settings: Settled
    pool: Workers
    direction: Direction
    stand_ins: Sequence[_StandIn]
    whole: _StandIn
    rule: Rule
    died: list[str] = field(default_factory=list)
    scores: dict[Repairs, list[_Score]] = field(default_factory=dict)
    known: dict[Repairs, Sequence[Looked]] = field(default_factory=dict)

    def price(self, repairs: Repairs) -> float:
        """The price of a choice of repairs, see :meth:`prices`, on all samples."""
        return self.prices([repairs])[0]

    def prices(self, candidates: Sequence[Repairs], instead_of: Repairs | None = None) -> list[float]:
        """The price of each choice of repairs, see :func:`log_prices`, less is better.

        It is the geometric mean over samples, as the search's SQNR in dB, and over the models that stand for
        candidates: a bad one weighs less than in an arithmetic mean. It is infinite if a model could not be measured,
        or soon showed that it is not worth the price of what it is tried instead of.
        """
        samples, rows = _few_samples(self.case)
        common, others = Recipe(fallback="float", per_channel=self.settings.per_channel), self._others(instead_of, rows)
        futures = {
            repairs: self._submit_for_each(look_at_each, self._recipes(common, repairs), samples, rows, others)
            for repairs in candidates
            if repairs not in self.known
        }
        replies = self._finished(futures)
        looked = {repairs: replies.get(repairs, ()) for repairs in futures}
        self.known.update({repairs: looks for repairs, looks in looked.items() if all(look.is_whole for look in looks)})
        return [_price(looked[repairs] if repairs in looked else self.known[repairs]) for repairs in candidates]

    def _others(self, repairs: Repairs | None, rows: Sequence[int]) -> list[Any] | None:
        """Shares of error and sizes of the models with repairs, and what others must be worth; None if unknown."""
        looked = () if repairs is None else self.known.get(repairs, ())
        if not looked or any(len(look.shares) < len(rows) for look in looked):
            return None
        return [[look.shares for look in looked], [look.size_bytes for look in looked], _WORTH]

    def is_worth_its_bytes(self, repairs: Repairs, instead_of: Repairs) -> bool:
        """Whether the stand-in models cost no more by :meth:`Rule.price` than with the repairs ``instead_of``.

        :meth:`Rule.price` adds bytes and error. :meth:`prices` multiplies them, and so pays for bytes that halve an
        error too small to matter.

        Returns:
            True, too, if the models with either choice of repairs were not measured.
        """
        before, after = (self._cost(choice) for choice in (instead_of, repairs))
        return not after > before

    def _cost(self, repairs: Repairs) -> float:
        """What bytes and error cost by the rule, the mean over the models; NaN where they were not measured."""
        looked = self.known.get(repairs, ())
        return fmean(look.cost(self.rule) for look in looked) if looked else math.nan

    def harms_none(self, repairs: Repairs, instead_of: Repairs) -> bool:
        """Whether scores on all search samples are no worse than with other repairs, as far as that can be told.

        Each model stands for candidates of its own, so none may lose beyond doubt; only the whole one may, which a
        search tries without repairs too. What is lost in all beyond the noise must not exceed what is gained beyond
        doubt: of a dozen repairs judged on three models, some fall by more than their noise by chance. Of scores of one
        number nobody knows the noise: a fall within the limit counts as noise, and closeness decides.
        """
        self._score_all([instead_of, repairs])
        lost = 0.0
        for model, after, before in zip(self.stand_ins, self.scores[repairs], self.scores[instead_of], strict=True):
            noise, fall = self._noise(after, before), before.value - after.value
            noise = self.rule.allowed_drop if math.isnan(noise) else noise
            # A score may fall by so much of the allowed drop, however sure that is: hardly a candidate breaks the
            # limit for less. With many samples, or a metric of little noise, any fall is sure.
            if after.value >= before.value - max(noise, 0.1 * self.rule.allowed_drop):
                continue
            if fall > _SURE * noise and model != self.whole:
                return False
            lost += fall
        return lost <= self._gain(repairs, instead_of)

    def is_harmless(self, repairs: Repairs, instead_of: Repairs) -> bool:
        """Whether no score is worse, and outputs are as near to float."""
        return self.harms_none(repairs, instead_of) and self.keeps_near(repairs, instead_of)

    def keeps_near(self, repairs: Repairs, instead_of: Repairs) -> bool:
        """Whether outputs come no further from float on all search samples, where that is known."""
        self._score_all([instead_of, repairs])
        pairs = zip(self.scores[repairs], self.scores[instead_of], strict=True)
        rises = [after.sqnr_db - before.sqnr_db for after, before in pairs]
        return not fmean(rises) < 0.0

    def raising_most(self, candidates: Sequence[Repairs], instead_of: Repairs) -> Repairs | None:
        """The repairs that raise the scores most, beyond doubt, and harm none; None if there are none."""
        self._score_all([instead_of, *candidates])
        gains = {repairs: self._gain(repairs, instead_of) for repairs in candidates}
        raising = [repairs for repairs in candidates if gains[repairs] > 0.0 and self.harms_none(repairs, instead_of)]
        return max(raising, key=gains.__getitem__, default=None)

    def _gain(self, repairs: Repairs, instead_of: Repairs) -> float:
        """The sum of the rises in score that are beyond doubt; unknown noise leaves doubt."""
        gain = 0.0
        for after, before in zip(self.scores[repairs], self.scores[instead_of], strict=True):
            rise, noise = after.value - before.value, self._noise(after, before)
            if 0.0 < noise * _SURE < rise:
                gain += rise
        return gain

    def _score_all(self, candidates: Sequence[Repairs]) -> None:
        """Score all models of several, side by side."""
        new = [repairs for repairs in dict.fromkeys(candidates) if repairs not in self.scores]
        recipes = {repairs: self._recipes(self.settings.template, repairs) for repairs in new}
        replies = self._finished({r: self._submit_for_each(build_jobs.build_each, of) for r, of in recipes.items()})
        built = {
            (repairs, place): reply for repairs in replies for place, reply in enumerate(replies[repairs]) if reply
        }
        scored = self._finished(
            {at: self._submit(score_jobs.score, reply.sha256, "search", False) for at, reply in built.items()}
        )
        sign = 1.0 if self.direction == "maximize" else -1.0
        scores = {at: _Score(sign * r.value, built[at].sha256, r.sqnr_db) for at, r in scored.items()}
        for repairs in new:
            self.scores[repairs] = [scores.get((repairs, place), _FAILED) for place in range(len(self.stand_ins))]

    def _noise(self, after: _Score, before: _Score) -> float:
        """Standard error of the difference of two models' scores; NaN if the samples' own scores are not known."""
        if after.value == before.value or not math.isfinite(before.value - after.value):
            return 0.0
        try:
            return result_of(self._submit(evidence_jobs.paired_noise, after.sha256, before.sha256))
        except TrialError:
            return math.nan

    def _recipes(self, common: Recipe, repairs: Repairs) -> list[str]:
        repaired = replace(common, repairs=repairs)
        return [recipe_for(model.left_out, repaired, {SIXTEEN: model.in_16_bits}).to_json() for model in self.stand_ins]

    def _submit_for_each(self, job: Callable[..., T], *arguments: object) -> Future[T]:
        """Submit one job for all models, with as much time as if each had a job of its own."""
        return self._submit(job, *arguments, models=len(self.stand_ins))

    def _submit(self, job: Callable[..., T], *arguments: object, models: int = 1) -> Future[T]:
        root, limit = self.case.files.root, models * self.settings.trial_timeout
        return self.pool.submit(job, root, *arguments, timeout_seconds=limit)

    def _finished(self, running: Mapping[K, Future[T]]) -> dict[K, T]:
        """Replies of the jobs that did not fail; of workers that died is told later."""
        replies = {}
        for key, future in running.items():
            try:
                replies[key] = result_of(future)
            except WorkerDied as exc:
                self.died.append(str(exc))
            except TrialError:
                continue
        return replies


def _price(looked: Sequence[Looked]) -> float:
    """See :meth:`_Trier.prices`."""
    if not looked or not all(look.shares and look.is_whole for look in looked):
        return math.inf
    return math.exp(float(log_prices(looked).mean()))


def with_repairs(
    case: Case,
    settings: Settled,
    direction: Direction,
    pool: Workers,
    listener: Listener,
    *,
    space: BoundSpace,
    rule: Rule,
) -> RepairChoice:
    """The sets of repairs that candidates may have.

    If they are left to the search, there are up to four: none, those that help in 8 bits, those that help in 16,
    and the union of these, which is ``repairs``. Three models stand for candidates of 8 bits: the all-integer one, that
    without the half of the nodes with the largest rmse/scale, and one with only the quarter of the nodes with the best
    SQNR in integers. The all-16-bit model stands for those of 16. Each step keeps the alternative that lowers the
    divergence of their outputs most on a few search samples, by more than it enlarges the files and as far as the
    recommendation counts it. All that is kept must not raise it on all search samples, and harm no score there: outputs
    may come nearer to float where the decision does not depend on them. If it fails that, each step must pass the same.
    Other ranges are first judged by the scores alone.

    Args:
        case: What is searched.
        settings: How.
        direction: Of the metric.
        pool: Where the models are built and run.
        listener: Is told of each step.
        space: Decides some nodes, and which have no 16-bit form.
        rule: What a chosen model may lose, and what bytes and error cost.
    """
    if not settings.tries_repairs:
        return settings.repairs
    kinds = _kinds(case, settings, direction, pool, space, rule)
    listener(StageStarted(stage="repairs", total=sum(len(steps) for _, steps in kinds.values())))
    sets: dict[str, Repairs] = {"none": ()}
    sets |= {kind: _that_help(trier, steps, listener) for kind, (trier, steps) in kinds.items()}
    if died := [why for trier, _ in kinds.values() for why in trier.died]:
        message = f"Workers died while repairs were tried ({len(died)}), so repairs that help may be missing. {died[0]}"
        listener(Warned(message=message))
    union = tuple(sorted({name for repairs in sets.values() for name in repairs}))
    return RepairChoice(common=union, sets=sets if union else {})


_Steps = Sequence[Sequence[Repairs]]


def _kinds(
    case: Case, settings: Settled, direction: Direction, pool: Workers, space: BoundSpace, rule: Rule
) -> dict[str, tuple[_Trier, _Steps]]:
    """Who tries repairs for candidates of each width, and in which steps."""
    eight = [_StandIn(space.pin(nodes)) for nodes in _stand_ins(case.layers)]
    judged: dict[str, tuple[list[_StandIn], _Steps]] = {"integer": (eight, TRIED)}
    if SIXTEEN in settings.states:
        judged[SIXTEEN] = ([_StandIn(*all_in_16_bits(case.layers, space))], TRIED_IN_16_BITS)
    return {
        kind: (
            _Trier(
                case=case,
                settings=settings,
                pool=pool,
                direction=direction,
                stand_ins=list(dict.fromkeys(stand_ins)),
                whole=stand_ins[0],
                rule=rule,
            ),
            steps,
        )
        for kind, (stand_ins, steps) in judged.items()
    }


def seconds_expected(case: Case, settings: Settled, pool: Workers, space: BoundSpace) -> float:
    """About how long :func:`with_repairs` takes; one choice of each width is tried, with rounding and without.

    Every choice is judged by its price, at most on all samples. Full scores have no repairs and all that is kept; where
    ranges are tried, also these and what they come on top of.
    """
    if not settings.tries_repairs:
        return 0.0
    total = 0.0

    def timed(do: Callable[[Sequence[Repairs]], object], repairs: Repairs) -> float:
        begun = time.perf_counter()
        do([repairs])
        return time.perf_counter() - begun

    for trier, steps in _kinds(case, settings, "maximize", pool, space, NO_RULE).values():
        trier.prices([()])  # It reads what all choices share.
        once, scored = timed(trier.prices, ("bias",)), timed(trier._score_all, ("bias",))
        rounded = timed(trier.prices, ("bias", weight_rounding.NAME))
        choices = 1 + sum(map(len, steps))
        total += choices * once + max(rounded - once, 0.0)
        total += scored * (2 + sum(1 + len(step) for step in steps if step is _RANGES))
    return total


def _that_help(trier: _Trier, steps: Sequence[Sequence[Repairs]], listener: Listener) -> Repairs:
    """The repairs that help: in each step the one that lowers the price most.

    If these together lower a score or take outputs further from float, the steps are taken once more, and only repairs
    that do neither, beside those kept before them, are kept.
    """
    chosen = _kept_by(trier, steps, lambda _repairs, _instead_of: True, lambda: listener(StepFinished(stage="repairs")))
    return chosen if not chosen or trier.is_harmless(chosen, ()) else _kept_by(trier, steps, trier.is_harmless)


def _kept_by(
    trier: _Trier,
    steps: Sequence[Sequence[Repairs]],
    is_harmless: Callable[[Repairs, Repairs], bool],
    done: Callable[[], None] = lambda: None,
) -> Repairs:
    """The repairs that are kept, step by step, given whether one choice may come instead of another.

    ``done`` is called at the end of each step.
    """
    chosen: Repairs = ()
    least = trier.price(chosen)
    for step in steps:
        candidates = list(dict.fromkeys(tuple(sorted({*chosen, *names})) for names in step))
        priced = zip(trier.prices(candidates, chosen), candidates, strict=True)
        better = sorted(
            (price, repairs)
            for price, repairs in priced
            if price < _WORTH * least and trier.is_worth_its_bytes(repairs, chosen)
        )
        raising = trier.raising_most(candidates, chosen) if step is _RANGES else None
        chosen = raising or next((repairs for _, repairs in better if is_harmless(repairs, chosen)), chosen)
        least = trier.price(chosen)
        done()
    return chosen


def _stand_ins(layers: LayerTable) -> list[frozenset[str]]:
    """The nodes that each model leaves out on which repairs are judged."""
    everything = {node.name for node in layers.nodes}

    def worst(statistic: str, share: float, sign: float) -> frozenset[str]:
        ranked = np.argsort(-sign * np.nan_to_num(layers.statistic(statistic)), kind="stable").tolist()
        names = [layers.nodes[i].name for i in ranked]
        return frozenset(names[: round(share * len(names))])

    by_error = [worst("rmse_per_scale", share, 1.0) for share in _LEFT_OUT]
    # Share of the nodes, by SQNR, that the model for candidates near float leaves out. If several nodes each ruin the
    # answer alone, all models with many integer nodes are wrong, and they show nothing.
    distinct = dict.fromkeys([*by_error, worst("sqnr_db", 0.75, -1.0)])
    return [nodes for nodes in distinct if not nodes or nodes < everything]


def refuse_unknown_nodes(case: Case, settings: Settled) -> None:
    """Refuse repairs by name of nodes that the model does not have.

    Raises:
        RecipeError: If there are such nodes, or a node is named twice.
    """
    repairs = settings.template.repairs
    if any(split_repair(name)[1] is not None for name in repairs):
        inputs = [case.graph.tensors[i].name for i in case.graph.inputs]
        for kind in OF_NODES:
            node_repairs(repairs, [*(inputs if kind == "ranges" else ()), *case.layers.op_types], kind)


def _few_samples(case: Case) -> tuple[str, list[int]]:
    """A folder and a few of its samples: of the search part, or of calibration if there is no such part."""
    path = case.files.split("search")
    if not path.exists():
        return "calibration", spread_rows(case.counts["calibration"], DECIDING_SAMPLES)
    split = json.loads(path.read_text(encoding="utf-8"))
    indices = range(case.counts["search"]) if split["indices"] is None else split["indices"]
    return str(split["samples"]), [indices[i] for i in spread_rows(len(indices), DECIDING_SAMPLES)]
