"""What a user brings, before anything of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoselect.data.sources import refuse_missing_file
from autoselect.data.specs import load_object
from autoselect.domain.recipe import Quantizer
from autoselect.errors import MetricError, UsageError
from autoselect.scoring.evaluate import Evaluator
from autoselect.scoring.metric_base import Metric
from autoselect.sources.wishes import NO_WISHES, Feedback, Wishes

LIVE = "(live object)"
"""Stands in a manifest for an object that only its process has."""


def loaded_evaluator(evaluator: object) -> Evaluator:
    """The evaluator itself, also if it is given as ``package.module:function``.

    Raises:
        UsageError: If there is no such module or name.
        MetricError: If the module raises while it is imported, or the evaluator is no function.
    """
    if isinstance(evaluator, str):
        evaluator = load_object(evaluator, purpose="evaluator", broken=MetricError)
    if not callable(evaluator):
        raise MetricError(f"The evaluator must be a function, got {type(evaluator).__name__}.")
    return evaluator


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What the user brings.

    Attributes:
        model: Path or bytes of the source.
        calibration: Anything that ``representative_samples`` takes.
        evaluation: Anything that ``labelled_samples`` takes; None where nothing is scored, or an evaluator does it.
        heldout: As ``evaluation``; None to split it off.
        metric: None with an evaluator, and where nothing is scored.
        evaluator: None with a metric, likewise.
        notes: What was done to the source already, in sentences.
        wishes: Which signature of the source to take, and sizes that it leaves free; others come from the samples.
        feedback: Outputs that are fed back as inputs: samples of ``calibration`` are then consecutive steps.
        integer: Who makes the integer model; or its bytes: nothing is then calibrated, the samples only measure.
    """

    model: Path | bytes
    calibration: object
    evaluation: object | None = None
    heldout: object | None = None
    metric: Metric | None = None
    evaluator: Evaluator | None = None
    notes: tuple[str, ...] = ()
    wishes: Wishes = NO_WISHES
    feedback: Feedback | None = None
    integer: bytes | Quantizer = "tensorflow"

    def __post_init__(self) -> None:
        """Refuse what is missing, before anything is read.

        Raises:
            UsageError: If there is a metric and nothing to score on.
            DataError: If there is no file of a name that is given.
        """
        if self.metric is not None and self.evaluation is None:
            raise UsageError(
                f"Metric {self.metric.name!r} needs samples to score on: pass --evaluation (or evaluation=...), "
                "an .npz file or package.module:function."
            )
        for source in (self.calibration, self.evaluation, self.heldout):
            refuse_missing_file(source)
