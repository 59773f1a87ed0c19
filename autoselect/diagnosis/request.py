"""What to diagnose, and what was found: plain values between those who ask, measure and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autoselect.diagnosis import jobs
from autoselect.domain.findings import Findings
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.isolation.pool import DEFAULT_TIMEOUT_SECONDS
from autoselect.quantize.diagnosing.statistics import LayerMetrics
from autoselect.quantize.repairing.built import Shift
from autoselect.sources.wishes import Shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to diagnose.

    Attributes:
        model: Path or bytes of the source.
        calibration: Anything that ``representative_samples`` takes.
        debug_data: Samples to measure on, likewise; None for the calibration samples.
        recipe: The model to diagnose; ``Recipe()`` is the all-integer one.
        layer_metrics: The user's own metrics of layers.
        model_metrics: The user's own metrics of the model's outputs.
        whole_model: Also measure how the error travels.
        ablate: Samples for leaving each node in and out; 0 leaves that out.
        debug_samples: Most samples to measure on; None for all.
        target: What the advice is for.
        node: A node to look at closely, as the user names it.
        workers: Processes.
        timeout_seconds: After which one job counts as hung.
        cache_root: Folder of the cache; None does without.
        notes: What was done to the source already, in sentences.
        signature: Key of the source's signature to take; None for the only one.
        shapes: Sizes of inputs that the source leaves free, by input; None takes them from the samples.
        integer: Bytes of an integer model that another quantizer made of the source; None has it quantized here.
    """

    model: Path | bytes
    calibration: object
    debug_data: object | None
    recipe: Recipe
    layer_metrics: LayerMetrics
    model_metrics: Mapping[str, jobs.ModelDebugMetric]
    whole_model: bool
    ablate: int
    debug_samples: int | None
    target: Target
    node: str | None
    workers: int
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    cache_root: Path | None = None
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
