"""What a user brings to a search, before anything of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoselect.data.sources import refuse_missing_file
from autoselect.errors import UsageError
from autoselect.scoring.evaluate import Evaluator
from autoselect.scoring.metric_base import Metric
from autoselect.sources.wishes import Shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What the user brings.

    Attributes:
        model: Path or bytes of the source.
        calibration: Anything that ``representative_samples`` takes.
        evaluation: Anything that ``labelled_samples`` takes; None with an evaluator of one's own.
        heldout: As ``evaluation``; None to split it off.
        metric: None with an evaluator.
        evaluator: None with a metric.
        notes: What was done to the source already, in sentences.
        signature: Key of the source's signature to take; None for the only one.
        shapes: Sizes of inputs that the source leaves free, by input; None takes them from the samples.
        integer: Bytes of an integer model that another quantizer made of the source; None has it made here.
    """

    model: Path | bytes
    calibration: object
    evaluation: object | None
    heldout: object | None
    metric: Metric | None
    evaluator: Evaluator | None
    notes: tuple[str, ...] = ()
    signature: str | None = None
    shapes: Shapes | None = None
    integer: bytes | None = None

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
