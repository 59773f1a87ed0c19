"""Prepares a case, all before the first trial: its calibration, its samples, its float outputs, how it is scored."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from autoselect.cases.calibrate import start_calibration
from autoselect.cases.compiling import Compiling
from autoselect.cases.events import Listener, Noted, StageStarted, Warned
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.open_case import Scoring
from autoselect.cases.references import References
from autoselect.cases.scoring_samples import prepare_samples, refuse_untouched
from autoselect.cases.settings import SearchSettings
from autoselect.cases.settled import Facts, Settled, settle
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.errors import MetricError
from autoselect.isolation.door import Workers
from autoselect.runs.files import write_bytes
from autoselect.scoring.evaluate import Evaluator, takes
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target, target_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prepared case.

    Attributes:
        files: Where everything lies.
        graph: The float model as candidates are built from it; its ops have the nodes' indices.
        layers: The layer table.
        counts: Samples by part: ``calibration``, ``search``, ``heldout``.
        hashes: Content hashes of the ingredients, for the manifest.
        references: The float model's outputs, of which those on the search part are under way.
        has_heldout: False where an evaluator cannot tell the parts apart.
        warnings: What the user should know.
        notes: What is good to know and makes nothing worse.
    """

    files: CaseFiles
    graph: Graph
    layers: LayerTable
    counts: Mapping[str, int]
    hashes: Mapping[str, str]
    references: References
    has_heldout: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def prepare_case(
    ingredients: Ingredients,
    settings: Settled,
    *,
    root: Path,
    pool: Workers,
    quantizer: Workers,
    cache_root: Path | None,
    listener: Listener,
) -> Case:
    """Prepare everything before the first trial but the float model's outputs, which are then under way.

    Raises:
        ModelError, DataError, UsageError: If an ingredient does not fit; the message says which and why.
        PreparationError: If native code dies on the model.
    """
    files = CaseFiles(root=root)
    # Calibration runs in a worker while this process reads the samples to score on.
    started = start_calibration(
        ingredients,
        files,
        quantizer,
        cache_root,
        debug_samples=settings.debug_samples,
        per_channel=settings.per_channel,
        exact_rewrites=settings.exact_rewrites,
        timeout_seconds=settings.trial_timeout,
        listener=listener,
    )
    inputs, outputs, store, hashes = started.inputs, started.outputs, started.calibration, started.hashes
    counts, more_hashes, warnings = prepare_samples(ingredients, settings, files, inputs, outputs, store)
    warnings = [*started.notes, *warnings]
    hashes = {**hashes, **more_hashes, "target": target_hash(settings.target)}
    references = References(files, ingredients.metric, hashes, settings.trial_timeout, cache_root)
    references.start("search", pool)  # The float model runs meanwhile.
    listener(StageStarted(stage="calibrate"))
    prepared = started.result()
    if ingredients.metric is not None:
        refuse_untouched(prepared.graph, outputs, ingredients.metric)
    warnings += prepared.remarks
    write_scoring(files, ingredients.metric, ingredients.evaluator, settings, cache_root)
    for message in warnings:
        listener(Warned(message=message))
    for message in prepared.notes:
        listener(Noted(message=message))
    evaluator = ingredients.evaluator
    return Case(
        files=files,
        graph=prepared.graph,
        layers=prepared.layers,
        counts={"calibration": len(store), **counts},
        hashes=hashes,
        references=references,
        has_heldout=evaluator is None or takes(evaluator, "split"),
        warnings=tuple(warnings),
        notes=prepared.notes,
    )


def write_scoring(
    files: CaseFiles,
    metric: Metric | None,
    evaluator: Evaluator | None,
    settings: Settled | None = None,
    cache_root: Path | None = None,
) -> None:
    """Keep how candidates are scored, for the workers; without settings for the default target."""
    chosen = settle(SearchSettings(), Facts()) if settings is None else settings
    target = read_target(chosen.target)
    compiling = None
    if target.asks_compiler or (chosen.compiling and target.compilers):
        compiling = Compiling(
            cache_root=None if cache_root is None else cache_root / "compiled",
            # Share of a job's time limit that each compiler has. It is stopped first, so that the trial says what took
            # too long.
            timeout_seconds=0.8 * chosen.trial_timeout / len(target.compilers),
            each=not target.asks_compiler or "ddr_bytes" in chosen.cost_columns,
        )
    fidelity = make_metric("sqnr_db", output=metric.output if metric else None)
    scoring = Scoring(
        metric=metric,
        fidelity=fidelity,
        evaluator=evaluator,
        target=target,
        compiling=compiling,
        costs=frozenset(chosen.cost_columns),
        latency_threads=chosen.latency_threads,
        direction=chosen.direction,
        exact_rewrites=chosen.exact_rewrites,
        emulates=target.asks_compiler and chosen.emulation == "all",
        runtime=chosen.runtime,
    )
    try:
        content = cloudpickle.dumps(scoring)
    except (TypeError, AttributeError, pickle.PicklingError) as exc:
        raise MetricError(
            f"The metric or evaluator cannot be sent to a worker process: {exc}. Give it as package.module:function."
        ) from exc
    write_bytes(files.scoring, content)
