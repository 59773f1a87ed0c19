"""The models that candidates are compared with, and the yardstick that the float model gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from autoselect.cases import build_jobs, chip_jobs, clipping_jobs, evidence_jobs, score_jobs
from autoselect.cases.events import Listener, StageStarted
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.prepare import Case
from autoselect.cases.scoring_samples import warning_of_groups
from autoselect.cases.settled import Settled
from autoselect.domain.objectives import Constraints, Direction, drop_from
from autoselect.domain.picks import default_drop
from autoselect.domain.quantities import possible
from autoselect.domain.words import asked, between, listed, said
from autoselect.errors import MetricError, PreparationError, RunFolderError, TargetRefusal, TrialError, UsageError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.records import TrialRecord, with_float_known
from autoselect.scoring.target_file import read_target
from autoselect.study.yardstick import Yardstick


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A model that the front is compared with: float, all-integer or all-DRQ.

    Attributes:
        quantities: Values of further objectives by column, as far as they are known.
    """

    name: str
    sha256: str
    metric: float
    size_bytes: int
    penalty: float
    quantities: Mapping[str, float] = field(default_factory=dict)


def _constraints(settings: Settled, float_model: Reference, metric: str, direction: Direction) -> Constraints:
    """The user's limits; the least score is a largest drop from the float model's score.

    Raises:
        UsageError: If the float model itself falls short of it.
    """
    limits = settings.constraints
    if settings.min_score is None:
        return limits
    allowed = drop_from(float_model.metric, settings.min_score, direction)
    if allowed < 0.0:
        milder = "Lower" if direction == "maximize" else "Raise"
        raise UsageError(
            f"The float model itself scores {float_model.metric:.4g} {metric} on the search samples, and falls "
            f"short of the demanded {settings.min_score:.4g}. Do not expect a quantized model to reach it. "
            f"{milder} --min-score, or bring a better float model."
        )
    return replace(limits, max_drop=allowed if limits.max_drop is None else min(allowed, limits.max_drop))


def refuse_impossible_gain(float_model: Reference, metric: str, direction: Direction, max_drop: float | None) -> None:
    """Refuse an allowed drop below 0 that no score of the metric can keep.

    Raises:
        UsageError: If the best score that there is gains less on the float model's.
    """
    least, most = possible(metric)
    most_gained = most - float_model.metric if direction == "maximize" else float_model.metric - least
    if max_drop is None or max_drop >= 0.0 or -max_drop <= most_gained + 1e-9:
        return
    raise UsageError(
        f"max_drop (--max-drop): a drop of {max_drop:.4g} is a gain, and the float model scores "
        f"{float_model.metric:.4g} {metric}, so that at most {most_gained:.4g} can be gained. Give 0 or more."
    )


def warnings_of(float_model: Reference, metric: str, root: Path, pool: Workers) -> tuple[str, ...]:
    """Warnings of what the float model's score tells of the samples.

    They are told if they cannot tell the float model from one answer to all of them, since data seldom fit then; and
    if an evaluator says that they are of few groups.
    """
    try:
        blind, groups = pool.call(evidence_jobs.blind_score, root), pool.call(evidence_jobs.group_count, root)
    except TrialError:
        return ()
    few = warning_of_groups({} if groups is None else {"search": groups})
    if blind is None:
        return tuple(few)
    return (
        f"The float model scores {said(float_model.metric, metric)} on the search samples, and one answer to all of "
        f"them {said(blind, metric)}: these samples cannot tell the two apart. {_BLIND_ADVICE.get(metric, _PREPARE)}",
        *few,
    )


_PREPARE = "Prepare inputs and targets as in training."
_BLIND_ADVICE = {
    "accuracy": f"{_PREPARE} If one class is far commoner than the others, balanced_accuracy tells more.",
    "agreement": "Bring samples of several classes. If the outputs are no scores of classes, choose sqnr_db.",
}


def unsteady(yardstick: Yardstick, metric: str, root: Path, pool: Workers, seconds: float) -> tuple[str, ...]:
    """Warn if a user's metric or evaluator gives different scores for the same outputs of the float model.

    Args:
        yardstick: With the allowed drop, in the metric's units.
        metric: Name of the metric or the evaluator.
        root: The case's folder.
        pool: A worker of it calls the metric or the evaluator.
        seconds: Time limit of the calls together. If they take longer, there is no warning.

    Returns:
        One warning, or none.

    Raises:
        MetricError: If the scores differ by more than the allowed drop, and by more than the drop that a search allows
            by default: no score says anything then.
    """
    try:
        scores = pool.call(evidence_jobs.scores_again, root, timeout_seconds=seconds)
    except TrialError:
        return ()
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if _is_same(low, high):
        return ()
    message = (
        f"{metric!r} gives {low:.6g} to {high:.6g} for the same outputs of the float model: it hangs on something "
        "else, such as what it was given before, a count of its calls, or random numbers."
    )
    allowed = max(yardstick.allowed_drop, default_drop(metric, yardstick.float_score))
    if high - low > max(allowed, 1e-6):  # A float score of 0 says nothing of what is much.
        raise MetricError(f"{message} Make it give the same model the same score each time.")
    return (f"{message} Bounds and intervals do not count that.",)


def _is_same(score: float, other: float) -> bool:
    """Whether two scores differ by at most a millionth of them, as they may on another kind of processor."""
    return math.isclose(score, other, rel_tol=1e-6)


def other_score(before: float, now: float, metric: str, settings: Settled) -> tuple[str, ...]:
    """A warning if the float model's score has changed since the run began; empty if it has not, or was NaN then.

    Raises:
        RunFolderError: If the score changed, up or down, by more than the allowed drop, or is NaN now.
    """
    if _is_same(before, now) or math.isnan(before):
        return ()
    limit = settings.constraints.max_drop
    texts = [said(score, metric) for score in (before, now)]
    if texts[0] == texts[1]:
        texts = [f"{score:.9g}" for score in (before, now)]
    message = (
        f"The float model scored {texts[0]} on the search samples when this run began, and scores {texts[1]} now: the "
        "metric or evaluator, a module that it imports or data that it reads have changed, or it gives other scores "
        "each time. Earlier and later scores do not compare."
    )
    if not abs(before - now) <= max(default_drop(metric, before) if limit is None else limit, 0.0):
        raise RunFolderError(f"{message} Bring back what was changed, or start a new run in another folder.")
    return (message,)


def float_known(records: Sequence[TrialRecord], nodes: Sequence[str], settings: Settled) -> list[TrialRecord]:
    """The records, in which an all-float candidate has the bound that :func:`with_float_known` gives it.

    If the target's compiler decides, records are as they were: such a chip may compute float ops in float16.

    Args:
        records: Of a search.
        nodes: Names of all nodes of the model; none if they are not known.
        settings: Of the search.
    """
    return [*records] if read_target(settings.target).asks_compiler else with_float_known(records, nodes)


def clipping_of(root: Path, pool: Workers, settings: Settled) -> tuple[str, ...]:
    """Warnings of inputs and outputs whose values and calibrated ranges are unlike, on search samples or evaluated."""
    try:
        ranges = pool.call(clipping_jobs.unlike_ranges, root)
    except TrialError:
        return ()
    warnings = []
    if ranges.clipped:
        remedy = (
            "Bring more calibration samples, from the same source as those that are scored, and prepare them alike."
        )
        whose = "calibration saw"
        if CaseFiles(root=root).integer_model.exists():
            whose, remedy = "the integer model has", "Quantize it anew, with ranges that hold all values."
        elif settings.has_evaluator and not settings.feedback:
            state = "If the model has a state, bring consecutive steps."
            remedy = f"{remedy} {state} If an output is fed back as an input, say so with --feedback."
        cut_off = f"Values leave the ranges that {whose}, and integers cut them off: {listed(ranges.clipped)}."
        warnings.append(f"{cut_off} {remedy}")
    if ranges.unfilled:
        warnings.append(
            "Values fill little of the ranges that calibration saw, so that integers are coarse: "
            f"{listed(ranges.unfilled)}. Prepare the calibration samples as those that are scored."
        )
    return tuple(warnings)


def types_of(root: Path, pool: Workers, settings: Settled, yardstick: Yardstick, metric: str) -> tuple[str, ...]:
    """A warning if the type of inputs and outputs alone loses more than the limit, or may; empty if it does not."""
    try:
        value, ends = pool.call(evidence_jobs.score_types, root, settings.template.to_json(), yardstick.float_score)
    except TrialError:
        return ()
    limit = max(yardstick.allowed_drop, 0.0)
    if not drop_from(yardstick.float_score, value, yardstick.direction) > limit:
        return ()
    breaks, interval, hope = "break", "", "Candidates"
    if ends is not None and not ends[0] > limit:
        breaks, hope = "may break", "If they do, candidates"
        interval = "" if math.isnan(ends[0]) else f" (95 % interval: {between(*ends, metric)})"
    return (
        f"Inputs and outputs of the type {settings.io_type} alone {breaks} the limit: with them the float model scores "
        f"{said(value, metric)} on the search samples, without them {said(yardstick.float_score, metric)}{interval}, "
        f"and {asked(yardstick.allowed_drop, metric)}. {hope} can hardly keep it. "
        "Search with --io-type float32, or scale inputs and outputs so that each value uses the whole range.",
    )


def yardstick_of(
    float_model: Reference, metric: str, direction: Direction, settings: Settled, *, in_points: bool | None = None
) -> Yardstick:
    """What the candidates of a run are compared with.

    Args:
        float_model: The float model.
        metric: Name of the metric.
        direction: Of the metric.
        settings: Of the run.
        in_points: Whether penalties are points; None asks the run's target.

    Raises:
        UsageError: If the float model itself falls short of the least score that the user asks for.
    """
    if in_points is None:
        in_points = read_target(settings.target).shares is not None
    limits, usual = _constraints(settings, float_model, metric, direction), default_drop(metric, float_model.metric)
    return Yardstick(
        float_score=float_model.metric,
        float_size_bytes=float_model.size_bytes,
        float_penalty=float_model.penalty,
        direction=direction,
        constraints=limits,
        allowed_drop=usual if limits.max_drop is None else limits.max_drop,
        break_price=settings.break_price,
        usual_drop=usual,
        # Points are rough. How large a chip's own unit is, nobody knows, so there only rounding does not count.
        least_penalty=0.5 if in_points or not float_model.penalty else 1e-9 * float_model.penalty,
    )


def float_reference(case: Case, pool: Workers, settings: Settled, listener: Listener) -> Reference:
    """Score, size and costs of the float model. While it is scored, the target's compilers look at the whole models.

    Raises:
        PreparationError: If it cannot be scored, or no form of it runs on the target.
    """
    listener(StageStarted(stage="float"))
    try:
        looking = _looking(case, pool, settings)
        scored = pool.call(score_jobs.score_float, case.files.root, timeout_seconds=settings.trial_timeout)
        if looking is not None:
            result_of(looking)
        described = pool.call(partial(build_jobs.describe_float, is_prepared=True), case.files.root)
    except TargetRefusal as exc:
        raise PreparationError(f"No form of this model runs on the target. {exc}") from exc
    except TrialError as exc:
        raise PreparationError(f"The float model itself could not be scored. {exc}") from exc
    return Reference(
        name="float",
        sha256=FLOAT,
        metric=scored.value,
        size_bytes=described.size_bytes,
        penalty=float(described.fragmentation["penalty"]),
        quantities=described.costs,
    )


def _looking(case: Case, pool: Workers, settings: Settled) -> Future[None] | None:
    """Ask the target's compilers about the whole models while the float model is scored; None without compilers."""
    target = read_target(settings.target)
    if not (target.parts or target.asks_compiler):
        return None
    arguments = (case.files.root, settings.template.to_json(), settings.states)
    return pool.submit(chip_jobs.look, *arguments, timeout_seconds=settings.trial_timeout)
