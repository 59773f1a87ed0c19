"""What workers do to say how sure a score is: paired differences to float, sample by sample.

Everything is read from kept rows of evidence; a candidate whose rows are too wide to be kept runs once more. What the
types of inputs and outputs alone lose is scored anew.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.cases.score_jobs import ScoreReply, score, score_errors
from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import CLOSENESS
from autoselect.errors import MetricError, ScoreError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate
from autoselect.scoring import paired as pairs
from autoselect.scoring.class_metrics import Agreement
from autoselect.scoring.paired import PairedDrop
from autoselect.scoring.user_metric import UserMetric
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Outputs, Running


def paired(root: Path, sha256: str, part: str = "search", comparisons: int = 1) -> PairedDrop | None:
    """What a scored candidate loses against float on a part; None with an evaluator that returns one number.

    Args:
        root: A case.
        sha256: A candidate that was scored on the part.
        part: Of the samples.
        comparisons: How many candidates' intervals shall hold together.
    """
    case = open_case(root)
    ours, theirs = (_rows(case, key, part) for key in (sha256, FLOAT))
    if case.scoring.metric is None and len(ours) < 2:
        return None
    metric = case.pairs(part)
    pair = pairs.paired_drop(metric, ours, theirs, comparisons=comparisons, groups=case.groups(part))
    if _is_float(case, sha256):
        return replace(pair, low=pair.drop, high=pair.drop, bound=pair.drop)
    # Nothing is closer to float than float itself.
    return replace(pair, low=max(pair.low, 0.0)) if metric.needs_reference else pair


def drop_interval(root: Path, sha256: str, scored: ScoreReply, float_score: float) -> tuple[float, float] | None:
    """The 95 % confidence interval (low, high) of a candidate's drop below the float model's score.

    If the metric is closeness, the float model has the highest score on every sample. So the drop's interval is as wide
    as the interval of the candidate's own score. All other metrics compare both models sample by sample.

    Args:
        root: A case.
        sha256: The candidate.
        scored: The candidate's score on the search samples, with an interval.
        float_score: The float model's score on the same samples.

    Returns:
        Both ends in the metric's units, positive if the candidate is worse; None with an evaluator that returns one
        number.
    """
    metric = open_case(root).scoring.metric
    if metric is not None and metric.name == CLOSENESS:
        return float_score - scored.high, float_score - scored.low
    pair = paired(root, sha256)
    return None if pair is None else (pair.low, pair.high)


def _is_float(case: OpenCase, sha256: str) -> bool:
    """Whether all ops of a candidate's file are float, so that it differs from the float model by rounding at most.

    False if the file is not here, and if the target's compiler decides: such a chip may compute float ops in float16.
    Of a trial :meth:`autoselect.runs.records.TrialRecord.known_scores` finds out the same from recipe and outputs.
    """
    if sha256 == FLOAT:
        return True
    path = case.files.candidate(sha256)
    if case.target.asks_compiler or not path.exists():  # A worker elsewhere may have the file.
        return False
    graph = reader.read_graph(fb.parse(path.read_bytes()))
    return all(op.kind in (OpKind.FLOAT, OpKind.NEUTRAL) for op in graph.ops)


def paired_noise(root: Path, sha256: str, other: str) -> float:
    """Standard error of what the scores of two candidates differ by on the search samples, sample by sample.

    Returns:
        NaN where it is not known: with an evaluator that returns one number, and where rows of one were not kept.
    """
    case = open_case(root)
    ours, theirs = (case.rows(key) for key in (sha256, other))
    if ours is None or theirs is None:
        return math.nan
    return pairs.paired_drop(case.pairs(), ours, theirs, groups=case.groups("search")).error


def resampled_drops(root: Path, candidates: Sequence[str]) -> np.ndarray:
    """Drops of candidates on resamples of the search samples, the same resamples for all.

    Returns:
        Drop, error and bound of each, shape (n_resamples, n_candidates, 3), in the metric's units; no rows with an
        evaluator that returns one number, with a function of the user's whose evidence is too wide to be kept, and
        where the metric is not defined without some samples.
    """
    case = open_case(root)
    metric = case.pairs()
    drops: list[np.ndarray] = []
    if not metric.is_costly or all(case.rows(key) is not None for key in (*candidates, FLOAT)):
        theirs = _rows(case, FLOAT, "search")
        drops = [
            pairs.resampled_drops(
                metric, _rows(case, key, "search"), theirs, resamples=100, groups=case.groups("search")
            )
            for key in candidates
        ]
        for key, drawn in zip(candidates, drops, strict=True):
            if _is_float(case, key):
                drawn[:, 2] = drawn[:, 0]
    return np.stack(drops, axis=1) if all(map(len, drops)) and drops else np.zeros((0, len(candidates), 3))


def samples_needed(root: Path, sha256: str, allowed_drop: float, expected_drop: float) -> int | None:
    """How many samples would show that a candidate keeps a drop: :func:`autoselect.scoring.paired.samples_needed`.

    One that is expected to lose more will never show that. Then the answer is for a model that differs from float as
    much as this one, but loses nothing.

    Args:
        root: A case.
        sha256: The candidate.
        allowed_drop: In the metric's units.
        expected_drop: What the candidate loses on other samples, which is not what it lost on these.
    """
    case = open_case(root)
    metric, groups = case.pairs(), case.groups("search")
    ours, theirs = (_rows(case, key, "search") for key in (sha256, FLOAT))
    luck = expected_drop - pairs.paired_drop(metric, ours, theirs, groups=groups).drop
    for allowed, balanced in ((allowed_drop - luck, False), (allowed_drop, True)):
        needed = pairs.samples_needed(metric, ours, theirs, allowed=allowed, balanced=balanced, groups=groups)
        if math.isfinite(needed):
            return math.ceil(needed)
    return None


def blind_score(root: Path) -> float | None:
    """What one answer to all search samples scores, where they cannot tell the float model from it; else None.

    None with an evaluator, too, and with a metric that knows no such answer. Of ``agreement`` it is the float model's
    own answer to the first sample, if it gives all others the same.

    Raises:
        DataError: If the float model's score tells that targets and outputs are not what the metric takes.
    """
    case = open_case(root)
    metric = case.scoring.metric
    reference = None if metric is None else case.reference("search")
    if metric is None or reference is None:
        return None
    part = case.part("search")
    if isinstance(metric, Agreement):
        return _blind_agreement(metric, reference, len(part))
    if not metric.needs_targets:
        return None
    targets = [part.target(number) for number in range(len(part))]
    theirs = _rows(case, FLOAT, "search")
    metric.check_float_score(metric.summarise(theirs), targets)
    outputs = {key: values[0] for key, values in reference([0]).items()}
    answer = metric.blind(targets, metric.scored(outputs).shape)
    if answer is None:
        return None
    rows = np.stack([metric.observe(dict.fromkeys(outputs, answer), target, None) for target in targets])
    behind = pairs.paired_drop(metric, rows, theirs, groups=case.groups("search"))
    # Two standard errors. The interval's end allows for what no sample shows, so that few samples never tell.
    # NaN where the metric has no value for such rows.
    return metric.summarise(rows) if behind.drop <= 2.0 * behind.error else None


def _blind_agreement(metric: Agreement, reference: evaluate.ReferenceOutputs, count: int) -> float | None:
    def answers(number: int) -> Outputs:
        return {key: values[0] for key, values in reference([number]).items()}

    first = answers(0)
    are_same = all(metric.observe(first, None, answers(number)).min() == 1.0 for number in range(count))
    return 1.0 if are_same else None


def group_count(root: Path) -> int | None:
    """How many groups the evaluator's search samples have; None without an evaluator or without groups."""
    case = open_case(root)
    groups = case.groups("search") if case.scoring.evaluator is not None else None
    return None if groups is None else len(set(groups))


def scores_again(root: Path) -> tuple[float, ...]:
    """Repeated scores of the float model, which differ if the user's metric or evaluator has a state or is random.

    All are of the same outputs, on all search samples. Before the last one the metric or evaluator is called with
    other outputs, and that score is dropped. The tuple is empty for a metric of the catalogue, and for an evaluator
    with a parameter ``samples``: its scores of some samples are compared with those of all samples whenever the float
    model is scored.

    Raises:
        ScoreError: If the interpreter refuses the float model.
        MetricError: If an evaluator gives rows of another shape the second time.
    """
    case = open_case(root)
    if case.scoring.evaluator is not None:
        replies = _replies_of(case, case.scoring.evaluator)
        return tuple(float(case.pairs("search").summarise(rows)) for rows in replies)
    metric = case.scoring.metric
    if not isinstance(metric, UserMetric):
        return ()
    rows = _rows(case, FLOAT, "search")
    before = float(metric.summarise(rows))
    with contextlib.suppress(MetricError):  # It need not have a value for what no model answers.
        metric.summarise(metric.mismatched(rows))
    return before, float(metric.summarise(rows))


class _Counting:
    """A runner that counts its runs."""

    def __init__(self, runner: Running) -> None:
        self._runner: Any = runner
        self.runs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def __call__(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        return self._counted(self._runner(inputs))

    def step(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        return self._counted(self._runner.step(inputs))

    def _counted(self, outputs: Outputs) -> Outputs:
        self.runs += 1
        return outputs


class _Silenced(_Counting):
    """A runner that gives zeros in place of all outputs.

    It raises ScoreError after ``most`` runs, since an evaluator may run the model until an output is not zero.
    """

    def __init__(self, runner: Running, most: int) -> None:
        super().__init__(runner)
        self._most = most

    def _counted(self, outputs: Outputs) -> Outputs:
        if self.runs == self._most:
            raise ScoreError(f"{self._most} runs are enough.")
        return _zeros(super()._counted(outputs))


def _zeros(outputs: Outputs) -> Outputs:
    return {key: np.zeros_like(values) for key, values in outputs.items()}


def _replies_of(case: OpenCase, evaluator: evaluate.Evaluator) -> list[np.ndarray]:
    """Rows of the float model by an evaluator: those that are kept from its first call, and those of calls made here.

    There are two calls here if one takes less than 10 s, and between them one with outputs of zeros: the first call was
    perhaps made in another process, where a count of calls or a seed began anew. Rows that are too wide are not kept;
    then both calls are made here.
    """
    kept = case.rows(FLOAT, "search")
    if kept is not None and len(kept) > 1 and evaluate.takes(evaluator, "samples"):
        return []
    replies = [] if kept is None else [kept]
    runner, begun = _Counting(case.runner(FLOAT)), time.perf_counter()
    replies.append(evaluate.call_evaluator(evaluator, cast("Running", runner), split="search").rows)
    if kept is None or time.perf_counter() - begun < 10.0:  # Seconds: slow evaluators are not paid for a third time.
        with contextlib.suppress(MetricError):  # It need not have a value for what no model answers.
            silenced = _Silenced(cast("Running", runner), most=runner.runs)
            evaluate.call_evaluator(evaluator, cast("Running", silenced), split="search")
        replies.append(evaluate.call_evaluator(evaluator, cast("Running", runner), split="search").rows)
    for rows in replies:
        if rows.shape != replies[0].shape:
            raise MetricError(
                f"The evaluator gave rows of the shape {replies[0].shape} for the float model, and {rows.shape} when "
                "it was asked again. Let it score the same samples each time."
            )
    return replies


def score_types(root: Path, recipe_json: str, float_score: float) -> tuple[float, tuple[float, float] | None]:
    """Score the float model on the search samples with the types of inputs and outputs that a recipe has.

    The nodes and repairs of the recipe do not count.

    Args:
        root: A case.
        recipe_json: The recipe.
        float_score: Score of the float model without these types.

    Returns:
        The score, and the 95 % interval of what these types lose, see :func:`drop_interval`.

    Raises:
        BuildError: If it cannot be built.
        ScoreError: If it cannot be run, or has no score.
    """
    case = open_case(root)
    nodes = frozenset(node.name for node in case.prepared.layers.nodes)
    recipe = Recipe.from_json(recipe_json)
    candidate = case.builder.build(
        Recipe(denylisted_nodes=nodes, fallback="float", per_channel=recipe.per_channel, io_type=recipe.io_type)
    )
    write_bytes(case.files.candidate(candidate.sha256), candidate.content)
    reply = score(root, candidate.sha256, "search", True)
    with score_errors(candidate.sha256):
        return reply.value, drop_interval(root, candidate.sha256, reply, float_score)


def _rows(case: OpenCase, sha256: str, part: str) -> np.ndarray:
    if (rows := case.rows(sha256, part)) is not None:
        return rows
    runner = case.runner(sha256)
    if case.scoring.evaluator is not None:
        return evaluate.call_evaluator(case.scoring.evaluator, runner, split=part).rows
    return evaluate.observe(runner, case.part(part), [case.pairs()], case.reference(part))[0]
