"""Classification reports: against scikit-learn called directly, and against numbers counted by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from autoselect.errors import DataError, MetricError, ScoreError
from autoselect.scoring import classification
from autoselect.scoring.classification import Answers, Prediction, read_answers
from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.metrics import make_metric


def answers(y_true: Any, y_pred: Any, probability: Any = None) -> Answers:
    given = np.ones(len(y_true)) if probability is None else probability
    return Answers(y_true=np.array(y_true), y_pred=np.array(y_pred), probability=np.array(given, dtype=float))


def values(found: Answers) -> dict[str, float]:
    return {measure["metric"]: measure["value"] for measure in classification.measures(found)}


BY_HAND = answers([0, 0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1, 2, 2, 2, 0])
"""Ten samples of three classes; 7 hits: 3 of 4, 2 of 3, 2 of 3. Answers: 4, 3, 3."""


def test_by_hand() -> None:
    found = values(BY_HAND)
    macro = ("precision_macro", "recall_macro", "f1_macro", "balanced_accuracy")
    assert tuple(found) == ("accuracy", *macro, "cohen_kappa")
    assert found["accuracy"] == pytest.approx(0.7)
    assert found["precision_macro"] == pytest.approx((3 / 4 + 2 / 3 + 2 / 3) / 3)
    assert found["recall_macro"] == pytest.approx((3 / 4 + 2 / 3 + 2 / 3) / 3)
    assert found["f1_macro"] == pytest.approx((3 / 4 + 2 / 3 + 2 / 3) / 3)
    assert found["balanced_accuracy"] == pytest.approx((3 / 4 + 2 / 3 + 2 / 3) / 3)
    by_chance = (4 * 4 + 3 * 3 + 3 * 3) / 100
    assert found["cohen_kappa"] == pytest.approx((0.7 - by_chance) / (1 - by_chance))


def test_classes_by_hand() -> None:
    rows = classification.class_rows(BY_HAND, 4)
    assert [(row["number"], row["support"], row["answered"]) for row in rows] == [
        (0, 4, 4),
        (1, 3, 3),
        (2, 3, 3),
        (3, 0, 0),
    ]
    assert [row["recall"] for row in rows[:3]] == pytest.approx([3 / 4, 2 / 3, 2 / 3])
    assert [row["precision"] for row in rows[:3]] == pytest.approx([3 / 4, 2 / 3, 2 / 3])
    assert all(math.isnan(v) for v in (rows[3][name] for name in ("precision", "recall", "f1", "agreement")))


def test_a_class_that_is_only_answered_has_a_precision_and_one_only_labelled_a_recall() -> None:
    first, second = classification.class_rows(answers([1, 1], [0, 0]), 2)
    assert (first["precision"], first["support"], first["answered"]) == (0.0, 0, 2)
    assert math.isnan(first["recall"])
    assert (second["recall"], second["support"], second["answered"]) == (0.0, 2, 0)
    assert math.isnan(second["precision"])


def test_confusion_by_hand() -> None:
    cells = {(cell["label"], cell["answer"]): cell["count"] for cell in classification.confusion(BY_HAND)}
    assert cells == {(0, 0): 3, (0, 1): 1, (1, 1): 2, (1, 2): 1, (2, 0): 1, (2, 2): 2}


@pytest.mark.parametrize(
    ("y_true", "y_pred", "expected"),
    [
        pytest.param([0, 0], [0, 0], (1, 1, 1, 1, 1, 1), id="one class, always right"),
        pytest.param([0, 0], [1, 1], (0, 0, 0, 0, 0, 0), id="one class, never right"),
        pytest.param([3], [3], (1, 1, 1, 1, 1, 1), id="one sample"),
        # Class 2 is never a label: recall counts it as 0, balanced accuracy leaves it out.
        pytest.param([0, 1], [0, 2], (1 / 2, 1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 3), id="an answer that is no label"),
    ],
)
def test_edge_cases(y_true: list[int], y_pred: list[int], expected: tuple[float, ...]) -> None:
    assert tuple(values(answers(y_true, y_pred)).values()) == pytest.approx(expected)


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_the_figures_are_scikit_learns(drawn: list[tuple[int, int]]) -> None:
    rows = np.array(drawn, dtype=np.float64)
    y_true, y_pred = rows.astype(int).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = {
            "precision_macro": sk.precision_score(y_true, y_pred, average="macro", zero_division=0),
            "recall_macro": sk.recall_score(y_true, y_pred, average="macro", zero_division=0),
            "f1_macro": sk.f1_score(y_true, y_pred, average="macro", zero_division=0),
            "balanced_accuracy": sk.balanced_accuracy_score(y_true, y_pred),
            "cohen_kappa": sk.cohen_kappa_score(y_true, y_pred) if len({*y_true, *y_pred}) > 1 else 1.0,
        }
    for kind in classification._MACRO:
        assert kind().summarise(rows) == pytest.approx(reference.pop(kind.name), abs=1e-12), kind.name
    assert not reference


@pytest.fixture(scope="module")
def many() -> tuple[Answers, Answers]:
    """Labels of five classes and two models, 80 % and 70 % right."""
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=300)
    first, second = (np.where(rng.random(300) < share, labels, rng.integers(5, size=300)) for share in (0.75, 0.6))
    return answers(labels, first, rng.random(300)), answers(labels, second, rng.random(300))


def test_figures_and_classes_are_scikit_learns(many: tuple[Answers, Answers]) -> None:
    found, rows = many[0], classification.class_rows(many[0], 5)
    report = sk.classification_report(found.y_true, found.y_pred, output_dict=True)
    assert values(found)["accuracy"] == pytest.approx(report["accuracy"])
    for ours, theirs in (("precision_macro", "precision"), ("recall_macro", "recall"), ("f1_macro", "f1-score")):
        assert values(found)[ours] == pytest.approx(report["macro avg"][theirs])
    for row in rows:
        theirs = report[str(row["number"])]
        expected = (theirs["precision"], theirs["recall"], theirs["f1-score"], theirs["support"])
        assert tuple(row[name] for name in ("precision", "recall", "f1", "support")) == pytest.approx(expected)
    matrix = sk.confusion_matrix(found.y_true, found.y_pred)
    cells = {(cell["label"], cell["answer"]): cell["count"] for cell in classification.confusion(found)}
    assert cells == {(int(i), int(j)): matrix[i, j] for i, j in np.argwhere(matrix)}


@pytest.mark.parametrize("name", ["accuracy", "f1_macro"])
def test_intervals_are_those_of_evaluate(many: tuple[Answers, Answers], name: str) -> None:
    """One metric of ``evaluate`` and the report never tell two intervals for the same answers."""
    measure = next(m for m in classification.measures(many[0]) if m["metric"] == name)
    metric, one_hot = make_metric(name), np.eye(5)
    rows = [
        metric.observe({"y": one_hot[pred]}, label, None)
        for label, pred in zip(many[0].y_true, many[0].y_pred, strict=True)
    ]
    assert (measure["low"], measure["high"]) == pytest.approx(confidence_interval(metric, rows))
    assert measure["low"] < measure["value"] < measure["high"]


def test_one_sample_has_no_interval() -> None:
    assert all(math.isnan(m["low"]) and math.isnan(m["high"]) for m in classification.measures(answers([0], [1])))


# ------------------------------------------------------------------------------------------ against float


def test_agreement_and_disagreements_by_hand() -> None:
    ours = answers([0, 0, 1, 1], [0, 1, 1, 0], [0.9, 0.6, 0.8, 0.7])
    float_model = answers([0, 0, 1, 1], [0, 0, 1, 1], [1.0, 0.55, 0.95, 0.5])
    agreed = classification.agreement(ours, float_model)
    assert (agreed["metric"], agreed["value"]) == ("agreement", 0.5)
    assert [row["agreement"] for row in classification.class_rows(ours, 3, float_model)[:2]] == [0.5, 0.5]
    assert math.isnan(classification.class_rows(ours, 3, float_model)[2]["agreement"])
    first, second = classification.disagreements(ours, float_model)
    assert (first["index"], first["label"], first["float_answer"], first["answer"]) == (1, 0, 0, 1)
    assert (first["float_probability"], first["probability"]) == (0.55, 0.6)
    assert (second["index"], second["label"], second["float_answer"], second["answer"]) == (3, 1, 1, 0)


def test_disagreements_are_all_that_is_not_agreed(many: tuple[Answers, Answers]) -> None:
    listed = classification.disagreements(*many)
    assert [row["index"] for row in listed] == np.flatnonzero(many[0].y_pred != many[1].y_pred).tolist()
    assert len(listed) == round(300 * (1 - classification.agreement(*many)["value"]))
    assert classification.disagreements(many[0], many[0]) == []


# ------------------------------------------------------------------------------------- from a model's outputs

LABELS = {
    "probabilities": ([[0.1, 0.7, 0.2]], 1, 0.7),
    "an axis more": ([[[[0.1, 0.7, 0.2]]]], 1, 0.7),
    "equal scores": ([[0.4, 0.4, 0.2]], 0, 0.4),
    "rounded above 1": ([[1.0005, 0.0]], 0, 1.0),
    "logits": ([[0.0, math.log(3.0), -5000.0]], 1, 0.75),
    "one unit, above": ([[0.8]], 1, 0.8),
    "one unit, below": ([[0.2]], 0, 0.8),
    "one unit, at a half": ([[0.5]], 0, 0.5),
}


@pytest.mark.parametrize(("output", "answer", "probability"), LABELS.values(), ids=LABELS)
def test_answers_are_read_from_outputs(output: Any, answer: int, probability: float) -> None:
    row = Prediction().observe({"y": np.array(output)}, 1, None)
    found = read_answers(row[np.newaxis])
    assert (found.y_true.tolist(), found.y_pred.tolist()) == ([1], [answer])
    assert found.probability == pytest.approx([probability])


def test_one_sample_with_logits_makes_all_of_the_model_logits() -> None:
    rows = [Prediction().observe({"y": np.array([scores])}, 0, None) for scores in ([0.5, 0.5], [4.0, 0.0])]
    assert read_answers(np.array(rows)).probability == pytest.approx([0.5, 1 / (1 + math.exp(-4))])


REFUSED = {
    "label too large": ([[0.1, 0.9]], 2, DataError, "labels from 0 to 1, got 2"),
    "label below 0": ([[0.1, 0.9]], -1, DataError, "labels from 0 to 1, got -1"),
    "half a label": ([[0.1, 0.9]], 0.5, DataError, "whole numbers as labels"),
    "no label": ([[0.1, 0.9]], None, DataError, "expected a target"),
    "one-hot label": ([[0.1, 0.9]], [0, 1], DataError, r"numpy\.argmax"),
    "an image": (np.zeros((1, 4, 4, 3)), 0, MetricError, r"one score per class, got shape \(1, 4, 4, 3\)"),
    "not a number": ([[np.nan, 0.9]], 0, ScoreError, "finite outputs"),
}


@pytest.mark.parametrize(("output", "label", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_answer_is_refused(output: Any, label: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Prediction().observe({"y": np.array(output)}, label, None)


@pytest.mark.parametrize(("shape", "count"), [((1, 6), 6), ((1, 1, 1, 1000), 1000), ((1, 1), 2), ((1,), 2)])
def test_class_count(shape: tuple[int, ...], count: int) -> None:
    assert Prediction().class_count(shape) == count


def test_a_picture_has_no_class_count() -> None:
    with pytest.raises(MetricError, match="per class"):
        Prediction().class_count((1, 8, 8, 3))
