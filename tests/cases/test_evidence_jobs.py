"""How sure scores are, from kept rows of the embedded model on a few samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoselect.cases import evidence_jobs, score_jobs
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.open_case import OpenCase
from autoselect.cases.prepare import Case, write_scoring
from autoselect.domain.recipe import Recipe
from autoselect.embedded import make_windows
from autoselect.errors import MetricError
from autoselect.scoring.evaluator_parts import EvaluatorMean
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import PairedDrop, samples_needed
from autoselect.scoring.user_metric import UserMetric

COUNT = 200


@pytest.fixture(scope="module")
def made(embedded_case: Callable[..., tuple[Case, str]]) -> tuple[CaseFiles, str]:
    """A case whose all-integer candidate and float model are scored, and rows of two made-up candidates."""
    case, integer = embedded_case(
        evaluation=make_windows(np.random.default_rng(7), COUNT), heldout=make_windows(np.random.default_rng(8), 10)
    )
    for sha in (FLOAT, integer):
        score_jobs.score(case.files.root, sha, "search", False)
    rows = np.load(case.files.rows(FLOAT))
    right = np.flatnonzero(rows[:, 0])
    for name, lost in (("near", right[:4]), ("far", right[:60])):
        changed = rows.copy()
        changed[lost] = 0.0
        np.save(case.files.rows(name), changed)
    return case.files, integer


@pytest.mark.parametrize("metric", ["agreement", "kl_divergence"])
def test_no_candidate_is_closer_to_float_than_float_itself(
    made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    files, integer = made
    monkeypatch.setattr(evidence_jobs, "open_case", OpenCase)  # Another metric than that of the case that is open.
    kept = {path: path.read_bytes() for path in (files.scoring, files.rows(FLOAT), files.rows(integer))}
    try:
        write_scoring(files, make_metric(metric), None)
        best = float(metric == "agreement")
        rows = np.full((COUNT, 1), best)
        np.save(files.rows(FLOAT), rows)
        rows[0] = 0.5
        np.save(files.rows(integer), rows)
        found = evidence_jobs.paired(files.root, integer)
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    assert found is not None
    assert 0.0 == found.low < found.drop < found.high


def test_candidates_are_resampled_alike(made: tuple[CaseFiles, str]) -> None:
    files, integer = made
    found = evidence_jobs.resampled_drops(files.root, ["near", integer, "far", "near"])
    assert found.shape == (100, 4, 3)
    assert np.array_equal(found[:, 0], found[:, 3])
    assert found[:, 2, 0].mean() == pytest.approx(60 / COUNT, abs=0.01)
    assert np.all(found[:, :, 2] > found[:, :, 0])
    assert found[:, 0, 0].std() > 0.0


def test_samples_of_a_group_are_not_independent(
    embedded_case: Callable[..., tuple[Case, str]], made: tuple[CaseFiles, str]
) -> None:
    """The same rows, whose losses are all those of two groups of twenty."""
    windows, labels = make_windows(np.random.default_rng(7), COUNT)
    groups = np.arange(COUNT) // 10
    case, _ = embedded_case(evaluation=(windows, labels, groups), heldout=make_windows(np.random.default_rng(8), 10))
    score_jobs.score(case.files.root, FLOAT, "search", False)
    rows = np.load(case.files.rows(FLOAT))
    rows[:20] = 0.0
    for files in (case.files, made[0]):
        np.save(files.rows("grouped"), rows)
    ours, alone = (evidence_jobs.paired(files.root, "grouped") for files in (case.files, made[0]))
    assert ours is not None
    assert alone is not None
    assert ours.drop == pytest.approx(alone.drop)
    assert ours.bound > alone.bound + 0.02
    spread = [evidence_jobs.resampled_drops(f.root, ["grouped"])[:, 0, 0].std() for f in (case.files, made[0])]
    assert spread[0] > 1.5 * spread[1]
    needed = [evidence_jobs.samples_needed(f.root, "grouped", 0.15, ours.drop) for f in (case.files, made[0])]
    assert needed[0] > 2 * needed[1]


def my_accuracy(labels: np.ndarray, outputs: np.ndarray) -> float:
    return float((outputs.argmax(axis=1) == labels).mean())


def test_a_function_of_the_users_is_resampled_where_its_evidence_is_kept(
    made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, integer = made
    expected = evidence_jobs.resampled_drops(files.root, [integer])
    for jobs in (evidence_jobs, score_jobs):  # Another metric than that of the case that is open.
        monkeypatch.setattr(jobs, "open_case", OpenCase)
    kept = {path: path.read_bytes() for path in (files.scoring, files.rows(FLOAT), files.rows(integer))}
    try:
        write_scoring(files, make_metric(my_accuracy, direction="maximize"), None)
        for sha in (FLOAT, integer):
            np.save(files.rows(sha), score_jobs.observe(files.root, sha, "search"))
        found = evidence_jobs.resampled_drops(files.root, [integer])
        files.rows(integer).unlink()
        too_wide = evidence_jobs.resampled_drops(files.root, [integer])
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    assert found.mean(axis=0) == pytest.approx(expected.mean(axis=0), abs=0.02)
    assert found.std(axis=0) == pytest.approx(expected.std(axis=0), rel=0.4)
    assert too_wide.shape == (0, 1, 3)


@pytest.mark.parametrize(
    ("metric", "known"),
    [(make_metric("f1_macro"), True), (make_metric(my_accuracy, direction="maximize"), False)],
    ids=["no mean", "the user's"],
)
def test_the_noise_of_a_score_is_left_for_later_where_nobody_knows_what_it_costs(
    made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch, metric: Metric, known: bool
) -> None:
    files, integer = made
    for jobs in (evidence_jobs, score_jobs):  # Another metric than that of the case that is open.
        monkeypatch.setattr(jobs, "open_case", OpenCase)
    paths = [files.scoring, *(rows(sha) for sha in (FLOAT, integer) for rows in (files.rows, files.fidelity_rows))]
    kept = {path: path.read_bytes() for path in paths if path.exists()}
    try:
        write_scoring(files, metric, None)
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        score_jobs.score(files.root, FLOAT, "search", False)
        scored = score_jobs.score(files.root, integer, "search", False)
        later = evidence_jobs.paired(files.root, integer)
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    assert later is not None
    assert [scored.noise, scored.bound] == (
        [later.error, later.bound] if known else pytest.approx([math.nan] * 2, nan_ok=True)
    )


def test_how_many_samples_it_takes_goes_by_what_is_expected_not_by_luck(made: tuple[CaseFiles, str]) -> None:
    files, _ = made
    rows, theirs = np.load(files.rows("near")), np.load(files.rows(FLOAT))
    as_seen = evidence_jobs.samples_needed(files.root, "near", 0.05, 4 / COUNT)
    assert as_seen == samples_needed(make_metric("accuracy"), rows, theirs, allowed=0.05)
    unlucky, lucky = (evidence_jobs.samples_needed(files.root, "near", 0.05, drop) for drop in (0.01, 0.04))
    assert unlucky is not None
    assert as_seen is not None
    assert lucky is not None
    assert unlucky < as_seen < lucky
    hopeless = evidence_jobs.samples_needed(files.root, "near", 0.05, 0.06)
    assert hopeless == samples_needed(make_metric("accuracy"), rows, theirs, allowed=0.05, balanced=True)


def test_an_evaluator_that_brings_its_own_samples_has_no_blind_score(monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = SimpleNamespace(metric=None)  # And nothing else: such a case has no samples with targets.
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: SimpleNamespace(scoring=scoring))
    assert evidence_jobs.blind_score(Path()) is None


def test_a_float_model_that_knows_no_more_than_the_commonest_class_is_told_from_one_that_does(
    made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = made
    assert evidence_jobs.blind_score(files.root) is None
    monkeypatch.setattr(evidence_jobs, "open_case", OpenCase)
    kept = np.load(files.rows(FLOAT))
    labels = [label for _, label in zip(*make_windows(np.random.default_rng(7), COUNT), strict=True)]
    commonest = np.bincount(labels).max() / COUNT
    try:
        np.save(files.rows(FLOAT), np.arange(COUNT).reshape(-1, 1) % 8 == 0)
        assert evidence_jobs.blind_score(files.root) == pytest.approx(commonest)
        unknown = PairedDrop(drop=math.nan, error=math.nan, low=math.nan, high=math.nan, bound=math.nan)
        monkeypatch.setattr(evidence_jobs.pairs, "paired_drop", lambda *_, **__: unknown)
        assert evidence_jobs.blind_score(files.root) is None
    finally:
        np.save(files.rows(FLOAT), kept)


@pytest.mark.parametrize(("drop", "is_told"), [(0.3, False), (0.15, True)])
def test_few_samples_tell_float_from_one_answer_by_two_standard_errors(
    drop: float, is_told: bool, made: tuple[CaseFiles, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the interval allows for what no sample shows: by it ten samples of a regression never tell."""
    files, _ = made
    few = PairedDrop(drop=drop, error=0.1, low=-0.4, high=1.0, bound=1.0)
    monkeypatch.setattr(evidence_jobs.pairs, "paired_drop", lambda *_, **__: few)
    assert (evidence_jobs.blind_score(files.root) is not None) == is_told


def test_an_evaluator_is_asked_twice_unless_it_takes_numbers_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count(2)

    def counts(runner: Any) -> float:
        return float(next(calls))

    def by_number(runner: Any, samples: Any = None) -> list[float]:
        raise AssertionError("it was asked about samples already")

    def grows(runner: Any) -> list[float]:
        return [1.0, 2.0]

    metric = EvaluatorMean("maximize")
    case = SimpleNamespace(runner=lambda _: None, rows=lambda *_: np.ones((1, 1)), pairs=lambda _: metric)
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: case)
    case.scoring = SimpleNamespace(evaluator=counts)
    assert evidence_jobs.scores_again(Path()) == (1.0, 2.0, 4.0)
    clock = itertools.count(0, 60)
    monkeypatch.setattr(evidence_jobs.time, "perf_counter", lambda: next(clock))
    assert evidence_jobs.scores_again(Path()) == (1.0, 5.0)
    case.scoring = SimpleNamespace(evaluator=by_number)
    case.rows = lambda *_: np.ones((2, 1))
    assert evidence_jobs.scores_again(Path()) == ()
    case.rows = lambda *_: np.ones((1, 1))  # One number tells nothing of numbers of samples.
    with pytest.raises(MetricError, match="AssertionError"):
        evidence_jobs.scores_again(Path())
    case.rows, case.scoring = lambda *_: None, SimpleNamespace(evaluator=counts)  # Too wide to be kept.
    assert evidence_jobs.scores_again(Path()) == (6.0, 8.0)
    case.rows = lambda *_: np.ones((1, 1))
    case.scoring = SimpleNamespace(evaluator=grows)
    with pytest.raises(MetricError, match=r"\(2, 1\)"):
        evidence_jobs.scores_again(Path())


@pytest.mark.parametrize(("answers", "is_blind"), [([1, 1, 1], True), ([1, 1, 0], False)])
def test_agreement_tells_nothing_if_float_answers_alike_to_all_samples(
    answers: list[int], is_blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = np.eye(2, dtype=np.float32)[answers][:, np.newaxis]
    case = SimpleNamespace(
        scoring=SimpleNamespace(metric=make_metric("agreement")),
        part=lambda _: answers,
        reference=lambda _: lambda numbers: {"y": outputs[numbers]},
    )
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: case)
    assert (evidence_jobs.blind_score(Path()) == 1.0) is is_blind


def test_groups_of_an_evaluators_samples_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = SimpleNamespace(scoring=SimpleNamespace(evaluator=None), groups=lambda _: ("a", "b", "a"))
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: case)
    assert evidence_jobs.group_count(Path()) is None
    case.scoring.evaluator = print
    assert evidence_jobs.group_count(Path()) == 2
    case.groups = lambda _: None
    assert evidence_jobs.group_count(Path()) is None


def running_mean() -> Any:
    """A metric that goes on from what it was given before, as those of Keras do if nobody resets them."""
    seen: list[bool] = []

    def score(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        seen.extend(y_pred.argmax(axis=-1) == y_true)
        return float(np.mean(seen))

    return score


def test_a_metric_that_goes_on_from_other_outputs_gives_other_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = UserMetric(running_mean(), direction="maximize")
    answers = np.eye(4, dtype=np.float32)
    rows = np.stack([metric.observe({"y": answers[[i]]}, np.array(i), None) for i in range(4)])
    assert [np.argmax(row[-4:]) for row in metric.mismatched(rows)] == [3, 0, 1, 2]
    case = SimpleNamespace(rows=lambda *_: rows, scoring=SimpleNamespace(evaluator=None, metric=metric))
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: case)
    before, after = evidence_jobs.scores_again(Path())
    assert (before, after) == (1.0, 2 / 3)


def test_an_evaluator_that_goes_on_from_other_outputs_gives_other_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def evaluator(runner: Any) -> float:
        seen.extend(runner({})["y"])
        seen.extend(runner.step({})["y"])
        return float(np.mean(seen))

    class Ones:
        def __call__(self, inputs: Any) -> Any:
            return {"y": np.ones(2)}

        step = __call__

    case = SimpleNamespace(
        runner=lambda _: Ones(),
        rows=lambda *_: np.ones((1, 1)),
        pairs=lambda _: EvaluatorMean("maximize"),
        scoring=SimpleNamespace(evaluator=evaluator),
    )
    monkeypatch.setattr(evidence_jobs, "open_case", lambda root: case)
    assert evidence_jobs.scores_again(Path()) == (1.0, 1.0, 2 / 3)

    def waiting(runner: Any) -> float:
        while not runner({})["y"].any():
            pass
        return 1.0

    case.scoring.evaluator = waiting
    assert evidence_jobs.scores_again(Path()) == (1.0, 1.0, 1.0)


def test_eight_bits_at_the_inputs_alone_cost_what_float_loses_with_them(made: tuple[CaseFiles, str]) -> None:
    files, _ = made
    value = float(np.load(files.rows(FLOAT)).mean())
    plain, lost_by_plain = evidence_jobs.score_types(files.root, Recipe().to_json(), value)
    coarse, lost = evidence_jobs.score_types(files.root, Recipe(io_type="int8").to_json(), value)
    assert plain == value
    assert lost_by_plain is not None
    assert lost is not None
    assert lost_by_plain[0] <= 0.0 < 0.1 < lost[0] < value - coarse < lost[1]
