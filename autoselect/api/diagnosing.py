"""Diagnose one model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from autoselect.api.progress import told_to
from autoselect.api.source import describe, ingredients_of, load_integer, load_source, read_recipe
from autoselect.api.told import takes
from autoselect.cases.events import StageStarted
from autoselect.cases.shared_settings import checked_settings
from autoselect.data.specs import load_object
from autoselect.diagnosis import result
from autoselect.diagnosis.advice import advise
from autoselect.diagnosis.diagnose import diagnose as run
from autoselect.diagnosis.request import Outcome, Request
from autoselect.diagnosis.result import Diagnosis
from autoselect.diagnosis.settings import DiagnosisSettings, Metrics
from autoselect.domain.layers import COLUMNS
from autoselect.domain.recipe import Recipe
from autoselect.errors import MetricError, UsageError
from autoselect.quantize.diagnosing.statistics import LayerMetrics
from autoselect.runs.typed_command import TYPED
from autoselect.scoring.target_file import read_target
from autoselect.sources.wishes import wishes_of


@takes(DiagnosisSettings)
def diagnose(wishes: DiagnosisSettings) -> Diagnosis:
    """Tell which nodes quantization harms, why, and what to do.

    Args:
        integer: See :func:`search`. Every node is then compared with the float model, and its error is accumulated.

    Returns:
        The diagnosis.

    Raises:
        AutoselectError: If an ingredient does not fit, or a metric fails; see ``autoselect.errors``.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> found = autoselect.diagnose(
        ...     embedded.model_path(),
        ...     calibration="autoselect.embedded:calibration",
        ...     debug_samples=10,
        ...     output="pump-diagnosis",
        ...     figures=False,
        ... )
        >>> found
        Diagnosis('...pump_monitor.tflite', 22 nodes, ... of advice)
        >>> worst = found.layer_statistics.nlargest(1, "rmse/scale")
    """
    settings = checked_settings(DiagnosisSettings, dict(wishes))
    chosen = _recipe(settings)
    if settings.output is not None:
        result.check_directory(Path(settings.output))
    profile = read_target(settings.target)  # an unknown target is told before the work
    signature, calibration = settings.signature, settings.calibration
    loaded = load_source(
        settings.model, wishes_of(signature, settings.shapes, settings.converter_python), calibration=calibration
    )
    if settings.recipe is None and not loaded.per_channel:
        chosen = replace(chosen, per_channel=False)
    given = load_integer(
        settings.integer,
        signature=signature,
        per_channel=chosen.per_channel,
        quantizer=settings.quantizer,
        repairs=chosen.repairs,
    )
    request = Request(
        settings=settings,
        ingredients=ingredients_of(loaded, given, calibration, feedback=settings.feedback),
        recipe=replace(chosen, per_channel=given.per_channel),
        layer_metrics=LayerMetrics(
            debug=_functions(settings.layer_debug_metrics, "layer_debug_metrics"),
            direct_compare=_functions(settings.layer_direct_compare_metrics, "layer_direct_compare_metrics"),
        ),
        model_metrics=_functions(settings.model_debug_metrics, "model_debug_metrics"),
        target=profile,
    )
    with (
        tempfile.TemporaryDirectory(prefix="autoselect-") as name,
        told_to(settings.listener, settings.progress) as listener,
    ):
        outcome = run(request, Path(name), listener)
    diagnosis = Diagnosis(
        layer_statistics=pd.DataFrame(result.wide_rows(outcome)),
        advice=advise(outcome.findings),
        model_metrics=outcome.model_metrics,
        facts=_facts(outcome, settings),
        node=outcome.node,
    )
    return diagnosis if settings.output is None else _written(diagnosis, Path(settings.output), settings)


def _recipe(settings: DiagnosisSettings) -> Recipe:
    recipe = settings.recipe
    if recipe is None:
        return Recipe(per_channel=settings.per_channel)
    chosen = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    # Float inputs and outputs: what is compared is what happens inside.
    return replace(chosen, io_type="float32")


def _functions(metrics: Metrics | None, purpose: str) -> dict[str, Callable[..., float]]:
    if metrics is None:
        return {}
    named = metrics.items() if isinstance(metrics, Mapping) else [(spec.rpartition(":")[2], spec) for spec in metrics]
    functions: dict[str, Callable[..., float]] = {}
    for name, metric in named:
        function = load_object(metric, purpose=purpose, broken=MetricError) if isinstance(metric, str) else metric
        if not callable(function):
            raise UsageError(f"{purpose}: {name!r} must be a function, got {type(function).__name__}.")
        if name in COLUMNS or name in functions:
            raise UsageError(f"{purpose}: there is a column {name!r} already. Give the metric another name.")
        functions[name] = function
    return functions


def _facts(outcome: Outcome, settings: DiagnosisSettings) -> dict[str, Any]:
    findings = outcome.findings
    return {
        "model": describe(settings.model),
        "nodes": len(findings.layers),
        "calibration_samples": findings.calibration_samples,
        "debug_samples": findings.debug_samples,
        "debug_data_given": findings.debug_data_given,
        "per_channel": findings.per_channel,
        "recipe": settings.recipe is not None,
        "whole_model": settings.whole_model,
        "ablate": settings.ablate,
        "target": findings.target.name,
        "seconds": {stage: round(seconds, 3) for stage, seconds in outcome.seconds.items()},
        "warnings": list(outcome.warnings),
        "command": TYPED.get(),
    }


def _written(diagnosis: Diagnosis, directory: Path, settings: DiagnosisSettings) -> Diagnosis:
    result.write(diagnosis, directory)
    if not settings.figures:
        return replace(diagnosis, directory=directory)
    settings.listener(StageStarted(stage="figures"))
    return replace(diagnosis, directory=directory, figures=tuple(_drawn(diagnosis, directory)))


def _drawn(diagnosis: Diagnosis, directory: Path) -> Iterator[Path]:
    from autoselect.report.figures.drawing import save
    from autoselect.report.figures.layer_figures import layers_figure, travel_figure
    from autoselect.report.figures.suspects import suspects_figure, weights_figure

    table = diagnosis.layer_statistics
    yield from save(layers_figure(table), directory / "layers")
    yield from save(suspects_figure(table), directory / "suspects")
    if diagnosis.facts["whole_model"]:
        yield from save(travel_figure(table), directory / "error_travel")
    if diagnosis.node is not None:
        row = table[table["tensor_name"] == diagnosis.node].iloc[0].to_dict()
        yield from save(weights_figure({str(key): value for key, value in row.items()}), directory / "node_weights")
