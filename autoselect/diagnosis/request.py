"""What to diagnose, and what was found: plain values between those who ask, measure and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoselect.diagnosis import jobs
from autoselect.diagnosis.settings import DiagnosisSettings
from autoselect.domain.findings import Findings
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.quantize.diagnosing.statistics import LayerMetrics
from autoselect.quantize.repairing.built import Shift
from autoselect.sources.wishes import Shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to diagnose.

    Attributes:
        settings: As they were told, checked.
        model: Path or bytes of the source.
        calibration: Anything that ``representative_samples`` takes.
        recipe: The model to diagnose; ``Recipe()`` is the all-integer one.
        layer_metrics: The user's own metrics of layers.
        model_metrics: The user's own metrics of the model's outputs.
        target: What the advice is for.
        notes: What was done to the source already, in sentences.
        signature: Key of the source's signature to take; None for the only one.
        shapes: Sizes of inputs that the source leaves free, by input; None takes them from the samples.
        integer: Bytes of an integer model that another quantizer made of the source; None has it made here.
    """

    settings: DiagnosisSettings
    model: Path | bytes
    calibration: object
    recipe: Recipe
    layer_metrics: LayerMetrics
    model_metrics: Mapping[str, jobs.ModelDebugMetric]
    target: Target
    notes: tuple[str, ...] = ()
    signature: str | None = None
    shapes: Shapes | None = None
    integer: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a diagnosis found.

    Attributes:
        findings: What the advice is given from.
        model_metrics: The user's metrics of the model's outputs.
        kinds: What became of each node, by name.
        node: Full name of the node that was asked for.
        seconds: By stage.
        warnings: What the user was told.
        shifts: What bias correction finds, by node name.
        skipped: Why a repair of the recipe left a node alone: by node name, then by name of the repair.
    """

    findings: Findings
    model_metrics: Mapping[str, float]
    kinds: Mapping[str, str]
    node: str | None
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
    shifts: Mapping[str, Shift]
    skipped: Mapping[str, Mapping[str, str]]
