"""Runs a diagnosis: calibrate, measure, leave in and out, and gather the findings; draws and prints nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from autoselect.cases import cure_jobs
from autoselect.cases.calibrate import Started, start_calibration
from autoselect.cases.divergence import divergence, error_shares
from autoselect.cases.events import Listener, Noted, StageStarted, StepFinished, Warned
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepared import Prepared
from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.diagnosis import jobs
from autoselect.diagnosis.activations import cast_to_integers, input_statistics
from autoselect.diagnosis.request import Outcome, Request
from autoselect.diagnosis.travel import travel
from autoselect.diagnosis.weights import weight_statistics
from autoselect.domain.findings import Ablation, ActivationStatistics, ErrorParts, Findings, GroupCloseness, Travel
from autoselect.domain.layers import LayerTable, Node
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import did_you_mean, listed, some
from autoselect.errors import DataError, ScoreError, TrialError, UsageError, preparing, sentence
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import open_pool, result_of
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.diagnosing.statistics import NO_METRICS, LayerMetrics, table
from autoselect.quantize.diagnosing.verification import Plan
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.tflite.reader import read_interface
from autoselect.tflite.tflite_file import TfliteFile

T = TypeVar("T")

_INT8_LEVELS = (-128, 127)


@dataclass(slots=True)
class _Desk:
    """What the steps share while a diagnosis runs."""

    request: Request
    files: CaseFiles
    pool: Workers
    listener: Listener
    samples: str = "calibration"
    rows: range = range(0)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failing: frozenset[str] = frozenset()
    """Nodes whose integer kernels fail on a sample; they are left out."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[None]:
        self.listener(StageStarted(stage=name, total=total))
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def submit(self, function: object, *args: object) -> Future[T]:
        return self.pool.submit(function, self.files.root, *args, timeout_seconds=self.request.settings.trial_timeout)  # type: ignore[arg-type]

    def warn(self, message: str) -> None:
        self.warnings.append(message)
        self.listener(Warned(message=message))


def diagnose(request: Request, root: Path, listener: Listener) -> Outcome:
    """Diagnose one model.

    Raises:
        ModelError, DataError, RecipeError, UsageError: If an ingredient does not fit.
        MetricError: If a metric of the user's fails, with its name and the node's.
        PreparationError: If native code dies.
    """
    files = CaseFiles(root=root)
    with open_pool(request.settings.processes, log=root / "worker.log", warm_up=converter.import_tensorflow) as pool:
        desk = _Desk(request, files, pool, listener)
        started = start_calibration(
            request.ingredients,
            files,
            pool,
            cache_directory() if request.settings.cache else None,
            debug_samples=0,
            per_channel=request.recipe.per_channel,
            timeout_seconds=request.settings.trial_timeout,
            listener=listener,
        )
        for note in started.notes:
            desk.warn(note)
        _choose_samples(desk, started)
        with desk.stage("calibrate"):
            prepared = started.result()
        nodes = prepared.layers.nodes
        for remark in prepared.remarks:
            desk.warn(remark)
        for note in prepared.notes:
            listener(Noted(message=note))
        node = None if request.settings.node is None else _node_named(request.settings.node, [n.name for n in nodes])
        _say_what_is_left(desk, prepared)
        with preparing("The diagnosis failed."):
            diagnosed, findings, model_metrics = _measured(desk, started, prepared)
            findings = _ablated(desk, findings)
    return Outcome(
        findings=findings,
        diagnosed=diagnosed,
        model_metrics=model_metrics,
        node=node,
        seconds=dict(desk.seconds),
        warnings=tuple(desk.warnings),
    )


def _node_named(wanted: str, names: Sequence[str]) -> str:
    """The full name of a node: the exact name, else the only one that a glob or a part of a name fits.

    Raises:
        UsageError: If it fits no node, with the nearest names, or several, with these.
    """
    if wanted in names:
        return wanted
    matches = [name for name in names if fnmatchcase(name, wanted)] or [name for name in names if wanted in name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listing = some(matches, 8, "; ")
        raise UsageError(f"--node {wanted!r} fits {len(matches)} nodes: {listing}. Give one whole name.")
    hint = did_you_mean(wanted, names, cutoff=0.3)
    raise UsageError(f"--node {wanted!r} fits none of the model's {len(names)} nodes.{hint}")


def _choose_samples(desk: _Desk, started: Started) -> None:
    store = started.calibration
    settings, signature = desk.request.settings, desk.request.ingredients.wishes.signature
    if settings.debug_data is not None:
        try:
            samples = representative_samples(settings.debug_data, started.inputs, signature=signature)
            pairs = ((sample, None) for sample in samples)
            store = SampleStore.write(desk.files.samples("debug"), pairs, started.inputs)
        except DataError as exc:
            raise DataError(f"The data for debugging do not fit the model: {exc}") from exc
        desk.samples = "debug"
    limit = settings.debug_samples
    desk.rows = range(len(store) if limit is None else min(limit, len(store)))


def _say_what_is_left(desk: _Desk, prepared: Prepared) -> None:
    nodes = prepared.layers.nodes
    if len(left_out(desk.request.recipe, nodes, prepared.graph).nodes) == len(nodes):
        desk.warn(
            f"The recipe denylists all {len(nodes)} nodes, so nothing of this model is quantized to integers. The "
            "figures compare each node's output with the float model's; leave some nodes out of the denylist to see "
            "errors of integer nodes."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """The model under diagnosis, and the files of the plans to measure its layers and its whole by."""

    diagnosed: jobs.Diagnosed
    by_layer: Path
    whole: Path | None


def _measured(
    desk: _Desk, started: Started, prepared: Prepared
) -> tuple[jobs.Diagnosed, Findings, Mapping[str, float]]:
    """Build and measure; nodes whose kernels fail are left out of integers, so that the others have figures."""
    while True:
        with desk.stage("build"):
            built = _build(desk)
        try:
            with desk.stage("measure"):
                return (built.diagnosed, *_measure(desk, started, prepared, built))
        except ScoreError:
            if not _leave_out_failing(desk, built.diagnosed):
                raise


def _leave_out_failing(desk: _Desk, diagnosed: jobs.Diagnosed) -> bool:
    """Take the node whose kernel fails into the denylist, and say so; False if that is not what failed."""
    failure: tuple[list[str], str] = result_of(desk.submit(jobs.failing_nodes, diagnosed, desk.samples, desk.rows))
    names, error = failure
    recipe = desk.request.recipe
    if recipe.denylisted_nodes.issuperset(names):
        return False
    desk.failing |= {*names}
    desk.request = replace(desk.request, recipe=replace(recipe, denylisted_nodes=recipe.denylisted_nodes | {*names}))
    divisor = f" The divisor comes from {listed([repr(name) for name in names[1:]])}." if names[1:] else ""
    them = "these nodes" if names[1:] else "this node"
    desk.warn(
        f"Node {names[0]!r} cannot be integer. {sentence(error)}{divisor} All figures are those of the model with "
        f"{them} left out of integers. Leave {'them' if names[1:] else 'it'} out of a search, too: "
        f"{' '.join(f'--keep-float {name!r}' for name in names)}."
    )
    return True


def _build(desk: _Desk) -> _Built:
    recipe_json = desk.request.recipe.to_json()
    building: Future[jobs.Diagnosed] = desk.submit(jobs.build, recipe_json)
    modes = (False, True) if desk.request.settings.whole_model else (False,)
    planning: list[Future[Path]] = [desk.submit(jobs.plan, recipe_json, whole) for whole in modes]
    by_layer, *whole = [result_of(future) for future in planning]
    return _Built(diagnosed=result_of(building), by_layer=by_layer, whole=whole[0] if whole else None)


def _measure(desk: _Desk, started: Started, prepared: Prepared, built: _Built) -> tuple[Findings, Mapping[str, float]]:
    """All that is found but by leaving nodes in and out, and the user's metrics of the outputs."""
    request, nodes, diagnosed = desk.request, prepared.layers.nodes, built.diagnosed
    describing: Future[Mapping[str, ActivationStatistics]] = desk.submit(
        jobs.activations, desk.samples, desk.rows, _limits(jobs.read_plan(built.by_layer))
    )
    scoring: Future[Mapping[str, float]] | None = None
    if request.model_metrics:
        scoring = desk.submit(
            jobs.model_metrics, diagnosed.content, desk.samples, desk.rows, dict(request.model_metrics)
        )
    running = _submit_measuring(desk, built.by_layer, request.layer_metrics)
    parting: Future[Mapping[str, ErrorParts]] = desk.submit(
        cure_jobs.parts,
        diagnosed.content,
        dict(diagnosed.places),
        desk.samples,
        desk.rows[: cure_jobs.MOST_SAMPLES],
    )
    forming: Future[Mapping[int, Mapping[str, str | None]]] = desk.submit(
        partial(cure_jobs.forms, target=request.target), request.recipe.to_json()
    )
    grouping: Future[Sequence[GroupCloseness]] = desk.submit(jobs.groups, diagnosed.content, desk.samples, desk.rows)
    in_whole = [] if built.whole is None else _submit_measuring(desk, built.whole, NO_METRICS)
    layers = _layer_table(nodes, built.by_layer, running, request.layer_metrics)
    travelling: Mapping[str, Travel] = {}
    if built.whole is not None:
        travelling = travel(prepared.graph, _layer_table(nodes, built.whole, in_whole, NO_METRICS))
    store = SampleStore.open(desk.files.samples(desk.samples))
    whole = cast_to_integers(prepared.graph)
    findings = Findings(
        layers=layers,
        graph=prepared.graph,
        kinds=diagnosed.kinds,
        weights=weight_statistics(prepared.normalised, TfliteFile(diagnosed.content), diagnosed.places, nodes),
        activations=result_of(describing),
        inputs=input_statistics(map(store.inputs, desk.rows), [i for i in started.inputs if i.name not in whole]),
        calibration_samples=len(started.calibration),
        debug_samples=len(desk.rows),
        debug_data_given=request.settings.debug_data is not None,
        per_channel=request.recipe.per_channel,
        target=request.target,
        travel=travelling,
        parts=result_of(parting),
        forms=result_of(forming),
        failing=desk.failing,
        groups=result_of(grouping),
    )
    return findings, {} if scoring is None else result_of(scoring)


def _submit_measuring(desk: _Desk, path: Path, metrics: LayerMetrics) -> list[Future[np.ndarray]]:
    """Share the samples out among the workers, in smaller parts where one of several begins with something else."""
    workers = desk.request.settings.processes
    # Samples of one measuring job, at least: below that, handing them out costs more than it gains.
    count = min(workers + (workers > 1), max(len(desk.rows) // 8, 1))
    if read_interface(desk.files.float_model.read_bytes()).has_resources:  # Its samples may be steps.
        count = 1
    parts = [part.tolist() for part in np.array_split(np.asarray(desk.rows), count)]
    return [desk.submit(jobs.measure_part, path, desk.samples, part, metrics) for part in parts]


def _layer_table(
    nodes: Sequence[Node], path: Path, measuring: Sequence[Future[np.ndarray]], metrics: LayerMetrics
) -> LayerTable:
    figures = np.concatenate([result_of(future) for future in measuring])
    return table(jobs.read_plan(path), nodes, figures, metrics)


def _limits(plan: Plan) -> dict[str, tuple[float, float]]:
    """What each quantized output can hold."""
    limits = {}
    for place in (*plan.verified, *plan.compared):
        if not math.isnan(place.scale):
            low, high = ((level - place.zero_point) * place.scale for level in _INT8_LEVELS)
            limits[place.name] = (low, high)
    return limits


def _ablated(desk: _Desk, findings: Findings) -> Findings:
    """What is found with every node left in and out; one whose job dies has no figures."""
    if not desk.request.settings.ablate:
        return findings
    ablations: dict[str, Ablation] = {}
    plain = Recipe(denylisted_nodes=desk.failing, fallback="float", per_channel=desk.request.recipe.per_channel)
    recipe, arguments = plain.to_json(), (desk.samples, list(desk.rows[: desk.request.settings.ablate]))
    nodes = findings.layers.nodes
    with desk.stage("ablation", len(nodes) - len(desk.failing)):
        whole: Future[list[float]] = desk.submit(error_shares, recipe, *arguments)
        running: list[tuple[str, Future[Ablation]]] = [
            (n.name, desk.submit(jobs.ablate, recipe, n.name, *arguments)) for n in nodes if n.name not in desk.failing
        ]
        for name, future in running:
            try:
                ablations[name] = result_of(future)
            except TrialError as exc:
                desk.warn(f"Leaving {name!r} in and out failed: {exc}")
            desk.listener(StepFinished(stage="ablation"))
        return replace(findings, ablations=ablations, divergence=divergence(result_of(whole)))
