"""Whether a search has anything to do once its baselines are scored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from autoselect.cases import evidence_jobs
from autoselect.domain.picks import DEFAULT_DROPS
from autoselect.domain.quantities import BY_COLUMN
from autoselect.domain.recipe import ALL_BITS
from autoselect.domain.states import left_out_of
from autoselect.domain.targets import Target, spilled_bytes
from autoselect.domain.words import asked, lost_at_most, whole_model
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.runs.records import Scores, TrialRecord, distinct
from autoselect.scoring.target_file import read_target
from autoselect.study.finishing.certainty import expected_drops, link_of, standings_of
from autoselect.study.loop import Stop, never
from autoselect.study.proposing import mutation
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.problem import Problem
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.request import Request
from autoselect.study.yardstick import Yardstick


def stop_of(
    request: Request,
    yardstick: Yardstick,
    root: Path,
    pool: Workers,
    study: SearchStudy,
    problem: Problem | None,
    forecasts: Callable[[], Problem | None],
) -> Stop:
    """The search has nothing to do if the all-integer model of 8 bits is sure to be as good as is asked for.

    It must be so by its own score, and by what picks go by. Of what is scored it must be the recommended one. No unit
    that is left out may make it cheaper.

    Args:
        request: What the user asked for.
        yardstick: What candidates are compared with.
        root: Folder of the case.
        pool: Workers that measure how sure a score is.
        study: The trials so far.
        problem: What samplers know; None before units were tried.
        forecasts: Gives a problem that knows costs alone, for a search that has no other; None if no candidate can be
            planned.
    """
    if request.members:
        return lambda _: "nothing is proposed beside the members of other runs"
    if request.pins or not _may_end(request, yardstick):
        return never
    pinned = frozenset[str]() if problem is None else problem.pinned

    def reason(scored: Sequence[Scores]) -> str | None:
        records = distinct(study.records())
        whole = {r.scores.sha256 for r in records if r.scores and r.recipe and left_out_of(r.recipe) <= pinned}
        integers = (s for s in scored if s.sha256 in whole)
        integer = min(integers, key=lambda s: (s.drop, s.sha256), default=None)
        if integer is None or max(yardstick.violations(integer).values()) > 0.0:
            return None
        if spilled_bytes(integer.compiled):  # What does not spill may cost less.
            return None
        if integer.penalty > yardstick.float_penalty:  # The float model costs less than integers.
            return None
        integer = _with_bound(integer, root, pool)
        expected = expected_drops([integer], link_of(scored))
        bound = max(integer.drop_bound, float((expected.drops + expected.beyond)[0]))  # NaN, if nobody knows.
        if not bound <= yardstick.allowed_drop:
            return None
        good = (
            f"the {whole_model(integer.float_ops)} is good enough: with 95 % confidence it "
            f"{lost_at_most(bound, request.metric_name)}; {asked(yardstick.allowed_drop, request.metric_name)}"
        )
        steps = yardstick.steps(request.settings.front_spacing)
        cheapest = _is_cheapest(integer, problem, forecasts, steps, read_target(request.settings.target))
        if not (cheapest and _is_preferred(integer, whole, records, yardstick, root, pool)):
            return None
        return f"{good}; {_CHEAPEST}" if integer.float_ops else good

    return reason


_CHEAPEST = "by the forecasts, leaving out a unit, or all between two float ops, makes it no cheaper"


def _is_cheapest(
    integer: Scores,
    problem: Problem | None,
    forecasts: Callable[[], Problem | None],
    steps: Mapping[str, float],
    target: Target,
) -> bool:
    """Whether no candidate near the all-integer model costs less: with units in float, hybrid or 16 bits.

    Forecasts of a problem say so. Before there is a problem, the answer is no if an op of the model is float, or if the
    target has a float or hybrid kernel that costs less than its 8-bit kernel. The answer is yes without forecasts if
    every kernel of 8 bits costs least and one processor runs the whole model: the accelerator, if there is one. In all
    other cases costs are forecast now.
    """
    if problem is None:
        if integer.float_ops or target.is_cheaper_outside:
            return False
        is_on_one_side = not integer.crossing_tensors and (integer.segments > 0 or target.is_one_processor)
        if is_on_one_side and target.favours_int8:
            return True
        problem = forecasts()
        if problem is None:  # No other candidate can be made.
            return True
    return cheaper_than_integers(problem, steps) is None


def _is_preferred(
    integer: Scores,
    whole: Collection[str],
    records: Sequence[TrialRecord],
    yardstick: Yardstick,
    root: Path,
    pool: Workers,
) -> bool:
    """Whether the rule recommends an all-integer model, of all candidates that were scored and keep the limits.

    Another whole model may cost more, but be surer to keep the allowed drop.

    Args:
        integer: The all-integer model of least drop, with its bound.
        whole: Hashes of the all-integer models, with whatever repairs.
        records: The distinct candidates.
        yardstick: With the rule.
        root: Folder of the case.
        pool: Workers that measure how sure a score is.
    """
    scored = [(record, record.scores) for record in records if record.scores]
    within = [(record, scores) for record, scores in scored if max(yardstick.violations(scores).values()) <= 0.0]
    members = [
        replace(record, scores=integer if scores.sha256 == integer.sha256 else _with_bound(scores, root, pool))
        for record, scores in within
    ]
    chosen = yardstick.rule.recommended(standings_of(members, link_of([scores for _, scores in scored])))
    return any(sha256.startswith(chosen.id) for sha256 in whole)


def _may_end(request: Request, yardstick: Yardstick) -> bool:
    """Whether the user lets a search end early, said what is good enough, and asks for what integers do best."""
    settings = request.settings
    if not settings.early_exit or settings.keep_float:
        return False
    if request.metric_name in DEFAULT_DROPS and yardstick.constraints.max_drop is None:
        return False  # Float is perfect by such a metric, and nobody said how close is close enough.
    return settings.weights == ALL_BITS and all(BY_COLUMN[column].integers_are_best for column in settings.cost_columns)


def _with_bound(integer: Scores, root: Path, pool: Workers) -> Scores:
    """The model with noise and bound of its drop, as picks know them.

    NaN with an evaluator: of one number nobody knows how sure it is. For a function of the user's they are measured
    for this one model, unless it is of an earlier process, which found it not good enough.
    """
    if math.isnan(integer.drop_bound) and integer.samples:
        with contextlib.suppress(TrialError):
            paired = pool.call(evidence_jobs.paired, root, integer.sha256)
            if paired is not None:
                return replace(integer, drop_noise=paired.error, drop_bound=paired.bound)
    return integer


def cheaper_than_integers(problem: Problem, steps: Mapping[str, float]) -> Mask | None:
    """A candidate that costs less than the one with all units in integers, by more than a step of one of the costs.

    An op without an integer kernel cuts that one, and where its neighbours leave integers beside it there may be fewer
    pieces; a processor may run an op faster in float. So each unit by itself is asked for, and each stretch of units
    that lies between those that are never in integers, in each state.

    Returns:
        One that the target takes; None if there is none.
    """
    integers, units = Mask(), range(len(problem.units))
    never = sum(1 << i for i in units if problem.key(integers.put(1 << i, 0)) == problem.key(integers))
    never &= ~problem.not_outside
    stretches = problem.islands(problem.everything & ~never)
    whole = [problem.in_state(stretch, place) for stretch in stretches for place in range(len(problem.states))]
    model = CostModel(problem, [])

    def costs_of(mask: Mask) -> np.ndarray:
        return np.concatenate(model.expected([mask]))

    least = costs_of(integers) - [steps.get(column, 0.0) for column in problem.costs]
    near = filter(problem.accepts, (*whole, *mutation.single_flips(integers, problem)))
    return next((mask for mask in near if np.any(costs_of(mask) < least)), None)
