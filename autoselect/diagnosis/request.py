"""What to diagnose, and what was found: plain values between those who ask, measure and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoselect.cases.ingredients import Ingredients
from autoselect.diagnosis import jobs
from autoselect.diagnosis.settings import DiagnosisSettings
from autoselect.domain.findings import Findings
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.quantize.diagnosing.statistics import LayerMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to diagnose."""

    settings: DiagnosisSettings
    ingredients: Ingredients
    recipe: Recipe
    layer_metrics: LayerMetrics
    model_metrics: Mapping[str, jobs.ModelDebugMetric]
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a diagnosis found."""

    findings: Findings
    diagnosed: jobs.Diagnosed
    model_metrics: Mapping[str, float]
    node: str | None
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
