"""What workers do to say whom a model harms: which classes lose, and on which samples its outputs leave float's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.scoring import evaluate
from autoselect.scoring.class_metrics import LabelMetric
from autoselect.scoring.classification import Prediction, read_answers
from autoselect.scoring.metric_base import Outputs, Row
from autoselect.tflite import runner

MOST_SAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEffect:
    """One class: how many samples it has, and on how many the float model and another one are right and agree."""

    number: int
    support: int
    float_right: int
    right: int
    agreed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEffect:
    """One sample on which a model leaves the float model.

    Attributes:
        index: Its number, from 0, in the data set that the part was taken from.
        group: Its group; None where samples have none.
        sqnr_db: Power of the float model's outputs over that of what the outputs differ by.
        label: Its class; None where the model is no classifier, as the answers.
        float_answer: The float model's class.
        answer: The model's class.
    """

    index: int
    group: str | None
    sqnr_db: float
    label: int | None
    float_answer: int | None
    answer: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a model does to the classes that have samples, none for other models than classifiers, and to samples.

    The samples are those with the least SQNR, the worst first.
    """

    classes: tuple[ClassEffect, ...]
    samples: tuple[SampleEffect, ...]


class _Pair(Prediction):
    """What a model and the float model answered, side by side."""

    needs_reference = True

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        ours, theirs = super()._observe(outputs, target, None), super()._observe(reference or {}, target, None)
        return np.concatenate([ours, theirs])


def effects(root: Path, sha256: str, part: str) -> Effects | None:
    """:func:`compare` in the case of a folder."""
    return compare(open_case(root), sha256, part)


def compare(case: OpenCase, sha256: str, part: str) -> Effects | None:
    """Compare a candidate with the float model, sample by sample; None with an evaluator, which shows no outputs."""
    if case.scoring.metric is None:
        return None
    decibels, *pairs = _evidence(case, sha256, part)
    worst = np.argsort(decibels[:, 0], kind="stable")[:MOST_SAMPLES].tolist()
    classes: tuple[ClassEffect, ...] = ()
    answers = [(None, None, None)] * len(worst)
    if pairs:
        ours, theirs = (read_answers(rows) for rows in np.hsplit(pairs[0], 2))
        classes = _classes(ours.y_true, theirs.y_pred, ours.y_pred)
        answers = np.stack([ours.y_true, theirs.y_pred, ours.y_pred], axis=1)[worst].tolist()
    numbers, groups = _numbers(case, part), case.part(part).groups
    sample_effects = (
        SampleEffect(
            index=numbers[i] if numbers else i,
            group=groups[i] if groups else None,
            sqnr_db=float(decibels[i, 0]),
            label=label,
            float_answer=float_answer,
            answer=answer,
        )
        for i, (label, float_answer, answer) in zip(worst, answers, strict=True)
    )
    return Effects(classes=classes, samples=tuple(sample_effects))


def _evidence(case: OpenCase, sha256: str, part: str) -> list[np.ndarray]:
    """Decibels of each sample and, of a classifier, answers; neither model runs if its score left all of that."""
    path, metric = case.files.fidelity_rows(sha256, part), case.scoring.metric
    if path.exists() and not isinstance(metric, LabelMetric):
        return [np.load(path)]
    whole, samples = case.runner(FLOAT), case.part(part)

    def reference(numbers: Sequence[int]) -> runner.Outputs:
        return evaluate.stacked([whole(samples.inputs(i)) for i in numbers])

    kept = case.reference("search")
    metrics = [case.scoring.fidelity.informed(kept.groups) if kept else case.scoring.fidelity]
    if isinstance(metric, LabelMetric):
        metrics.append(_Pair(output=metric.output))
    return evaluate.observe(case.runner(sha256), samples, metrics, reference)


def _classes(label: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> tuple[ClassEffect, ...]:
    counts = {
        "support": np.bincount(label),
        "float_right": np.bincount(label[theirs == label], minlength=label.max() + 1),
        "right": np.bincount(label[ours == label], minlength=label.max() + 1),
        "agreed": np.bincount(label[ours == theirs], minlength=label.max() + 1),
    }
    return tuple(
        ClassEffect(number=int(i), **{key: int(values[i]) for key, values in counts.items()})
        for i in np.flatnonzero(counts["support"])
    )


def _numbers(case: OpenCase, part: str) -> list[int] | None:
    """The places of a part's samples in the data set; None if the part is all of it."""
    indices: list[int] | None = json.loads(case.files.split(part).read_text(encoding="utf-8"))["indices"]
    return indices
