"""Diagnose one model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from autoselect.api.source import Source, calibration_of, describe, load_integer, load_source, read_recipe
from autoselect.api.told import explained
from autoselect.cases.events import Listener, StageStarted, ignore
from autoselect.data.specs import load_object
from autoselect.diagnosis import result
from autoselect.diagnosis.advice import advise
from autoselect.diagnosis.diagnose import diagnose as run
from autoselect.diagnosis.request import Outcome, Request
from autoselect.diagnosis.result import Diagnosis
from autoselect.domain.layers import COLUMNS
from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.quantize.diagnosing.statistics import LayerMetrics
from autoselect.runs.cache import cache_directory
from autoselect.scoring.target_file import read_target
from autoselect.sources.wishes import Shapes

Metrics = Mapping[str, str | Callable[..., float]] | Iterable[str]
"""Metrics by name, as functions or ``"package.module:function"``; or only the latter, named as their functions."""


@explained
def diagnose(
    model: Source,
    *,
    calibration: object = None,
    signature: str | None = None,
    shapes: Shapes | None = None,
    integer: str | Path | bytes | None = None,
    debug_data: object = None,
    output: str | Path | None = None,
    recipe: str | Path | Recipe | None = None,
    per_channel: bool = True,
    layer_debug_metrics: Metrics | None = None,
    layer_direct_compare_metrics: Metrics | None = None,
    model_debug_metrics: Metrics | None = None,
    whole_model: bool = False,
    ablate: int = 0,
    node: str | None = None,
    target: str = "integer-only",
    debug_samples: int | None = None,
    workers: int = 2,
    trial_timeout: float = 900.0,
    cache: bool = True,
    figures: bool = True,
    command: str | None = None,
    listener: Listener = ignore,
) -> Diagnosis:
    """Tell which nodes quantization harms, why, and what to do.

    Args:
        integer: See :func:`search`. Every node is then compared with the float model, its error accumulated.
        debug_data: Samples to measure on, in any form that ``calibration`` has; the calibration samples by default.
        output: Folder for tables and figures; must be new, empty or an older diagnosis. None writes nothing.
        recipe: Diagnose this mixed model instead of the all-integer one: a :class:`Recipe`, or the path of a
            ``.recipe.json``. Hybrid and float nodes are compared with the float model directly.
        per_channel: One scale per output channel of the weights, or one per tensor; a recipe's own counts.
        layer_debug_metrics: By name, functions ``(diff)`` of one node's error on one sample, averaged over samples.
        layer_direct_compare_metrics: By name, functions ``(float, quantized, scale, zero_point)``.
        model_debug_metrics: By name, functions ``(float_outputs, quantized_outputs)`` of lists of arrays.
        whole_model: Also measure how the error travels down the graph.
        ablate: Samples on which every node is also left in alone and left out alone; 0 leaves that out.
        node: Draw the weights of this node: its name, or a part or glob that only one node has.
        target: Name of a bundled target profile, or path of a ``.toml``: what the advice is for.
        debug_samples: Most samples to measure on; all by default.
        figures: Draw the figures, where there is an ``output``.
        command: Recorded in the summary.
        listener: Called with each event.

    Returns:
        The diagnosis.

    Raises:
        AutoselectError: If an ingredient does not fit, or a metric fails; see ``autoselect.errors``.
    """
    chosen = _recipe(recipe, per_channel)
    if output is not None:
        result.check_directory(Path(output))
    if ablate < 0 or (debug_samples is not None and debug_samples < 1) or workers < 1:
        raise UsageError("ablate must be 0 or more, debug_samples and workers 1 or more.")
    profile = read_target(target)  # an unknown target is told before the work
    loaded = load_source(model, signature=signature, shapes=shapes, calibration=calibration)
    if recipe is None and not loaded.per_channel:
        chosen = replace(chosen, per_channel=False)
    given = load_integer(integer, signature=signature, per_channel=chosen.per_channel, repairs=chosen.repairs)
    chosen = replace(chosen, per_channel=given.per_channel)
    request = Request(
        model=loaded.model,
        calibration=calibration_of(loaded, calibration),
        debug_data=debug_data,
        recipe=chosen,
        layer_metrics=LayerMetrics(
            debug=_functions(layer_debug_metrics, "layer_debug_metrics"),
            direct_compare=_functions(layer_direct_compare_metrics, "layer_direct_compare_metrics"),
        ),
        model_metrics=_functions(model_debug_metrics, "model_debug_metrics"),
        whole_model=whole_model,
        ablate=ablate,
        debug_samples=debug_samples,
        target=profile,
        node=node,
        workers=workers,
        timeout_seconds=trial_timeout,
        cache_root=cache_directory() if cache else None,
        notes=(*loaded.notes, *given.notes),
        signature=loaded.signature,
        shapes=loaded.shapes,
        integer=given.content,
    )
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        outcome = run(request, Path(name), listener)
    facts = _facts(outcome, request, model=describe(model), with_recipe=recipe is not None, command=command)
    found = Diagnosis(
        layer_statistics=pd.DataFrame(result.wide_rows(outcome)),
        advice=advise(outcome.findings),
        model_metrics=outcome.model_metrics,
        facts=facts,
        node=outcome.node,
    )
    return found if output is None else _written(found, Path(output), figures=figures, listener=listener)


def _recipe(recipe: str | Path | Recipe | None, per_channel: bool) -> Recipe:
    if recipe is None:
        return Recipe(per_channel=per_channel)
    chosen = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    # Float inputs and outputs: what is compared is what happens inside.
    return replace(chosen, io_type="float32")


def _functions(metrics: Metrics | None, purpose: str) -> dict[str, Callable[..., float]]:
    if metrics is None:
        return {}
    named = metrics.items() if isinstance(metrics, Mapping) else [(spec.rpartition(":")[2], spec) for spec in metrics]
    found: dict[str, Callable[..., float]] = {}
    for name, metric in named:
        function = load_object(metric, purpose=purpose) if isinstance(metric, str) else metric
        if not callable(function):
            raise UsageError(f"{purpose}: {name!r} must be a function, got {type(function).__name__}.")
        if name in COLUMNS or name in found:
            raise UsageError(f"{purpose}: there is a column {name!r} already. Give the metric another name.")
        found[name] = function
    return found


def _facts(
    outcome: Outcome, request: Request, *, model: str | None, with_recipe: bool, command: str | None
) -> dict[str, Any]:
    findings = outcome.findings
    return {
        "model": model,
        "nodes": len(findings.layers),
        "calibration_samples": findings.calibration_samples,
        "debug_samples": findings.debug_samples,
        "debug_data_given": findings.debug_data_given,
        "per_channel": findings.per_channel,
        "recipe": with_recipe,
        "whole_model": request.whole_model,
        "ablate": request.ablate,
        "target": request.target.name,
        "seconds": {stage: round(seconds, 3) for stage, seconds in outcome.seconds.items()},
        "warnings": list(outcome.warnings),
        "command": command,
    }


def _written(found: Diagnosis, directory: Path, *, figures: bool, listener: Listener) -> Diagnosis:
    result.write(found, directory)
    if not figures:
        return replace(found, directory=directory)
    listener(StageStarted(stage="figures"))
    return replace(found, directory=directory, figures=tuple(_drawn(found, directory)))


def _drawn(found: Diagnosis, directory: Path) -> Iterator[Path]:
    from autoselect.report.figures import layer_figures

    table = found.layer_statistics
    yield from layer_figures.draw_layers(table, directory / "layers")
    yield from layer_figures.draw_suspects(table, directory / "suspects")
    if found.facts["whole_model"]:
        yield from layer_figures.draw_travel(table, directory / "error_travel")
    if found.node is not None:
        row = table[table["tensor_name"] == found.node].iloc[0].to_dict()
        yield from layer_figures.draw_node_weights(
            {str(key): value for key, value in row.items()}, directory / "node_weights"
        )
