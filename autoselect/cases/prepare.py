"""Prepares a case: float model, samples, calibration, layer table, float outputs; all before the first trial."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import pickle
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from autoselect._version import __version__
from autoselect.cases import prepare_jobs
from autoselect.cases.compiling import Compiling
from autoselect.cases.events import Listener, StageStarted, StepFinished, Warned, ignore
from autoselect.cases.files import CaseFiles
from autoselect.cases.measuring import Measuring
from autoselect.cases.open_case import Scoring
from autoselect.cases.prepared import PREPARED_FORMAT, Prepared, load_prepared, normalised_graph
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.data.labelled import labelled_samples
from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.data.splits import refuse_overlap, split_by_content
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, MetricError, PreparationError, TrialError, UsageError
from autoselect.isolation.pool import DEFAULT_TIMEOUT_SECONDS, WorkerPool, result_of
from autoselect.quantize.build import BUILDER_VERSION
from autoselect.runs import cache
from autoselect.runs.files import storage_errors, write_bytes, write_json
from autoselect.scoring.evaluate import Evaluator, takes_split
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target, target_hash
from autoselect.sources import loading
from autoselect.sources.sample_sizes import with_sample_sizes
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import Shapes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

PARTS = ("search", "heldout")
_COMPILER_SHARE = 0.8
"""Of a job's time limit: the compiler is stopped first, so that nothing outlives its worker."""
_TENSORFLOW_BUILDS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow")


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
        integer: Bytes of an integer model that another quantizer made of the source; None has it quantized here.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prepared case.

    Attributes:
        files: Where everything lies.
        layers: The layer table.
        counts: Samples by part: ``calibration``, ``search``, ``heldout``.
        hashes: Content hashes of the ingredients, for the manifest.
        has_heldout: False where an evaluator cannot tell the parts apart.
        warnings: What the user should know.
    """

    files: CaseFiles
    layers: LayerTable
    counts: Mapping[str, int]
    hashes: Mapping[str, str]
    has_heldout: bool
    warnings: tuple[str, ...]

    @property
    def graph(self) -> Graph:
        """The float model as candidates are built from it; its ops have the nodes' indices."""
        return normalised_graph(self.files.prepared)


def versions() -> dict[str, str]:
    """Versions of all that affects candidates and scores."""
    found = {"python": platform.python_version(), "autoselect": __version__, "builder": BUILDER_VERSION}
    for name in (*_TENSORFLOW_BUILDS, "ai-edge-litert", "ethos-u-vela", "numpy", "optuna", "scikit-learn"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def prepare_case(
    ingredients: Ingredients,
    settings: SearchSettings,
    *,
    root: Path,
    pool: WorkerPool,
    quantizer: WorkerPool,
    cache_root: Path | None,
    listener: Listener,
) -> Case:
    """Prepare everything before the first trial.

    Args:
        ingredients: What the user brings.
        settings: Of the search.
        root: An empty folder, or one that was prepared before.
        pool: Where models are run.
        quantizer: Where TensorFlow works, which takes long to import.
        cache_root: Folder of the cache; None does without.
        listener: Told of the stages.

    Raises:
        ModelError, DataError, UsageError: If an ingredient does not fit; the message says which and why.
        PreparationError: If native code dies on the model.
    """
    files = CaseFiles(root=root)
    # Calibration runs in a worker while this process reads the samples to score on.
    started = start_calibration(
        ingredients.model,
        ingredients.calibration,
        files,
        quantizer,
        cache_root,
        debug_samples=settings.debug_samples,
        per_channel=settings.per_channel,
        timeout_seconds=settings.trial_timeout,
        signature=ingredients.signature,
        shapes=ingredients.shapes,
        integer=ingredients.integer,
        listener=listener,
    )
    inputs, outputs, store, hashes = started.inputs, started.outputs, started.calibration, started.hashes
    counts, more_hashes, warnings = _prepare_samples(ingredients, settings, files, inputs, outputs, store)
    warnings = [*ingredients.notes, *started.notes, *warnings]
    hashes = {**hashes, **more_hashes, "target": target_hash(settings.target)}
    # The float model runs meanwhile.
    references = _References(files, ingredients.metric, hashes, settings.trial_timeout, pool, cache_root)
    listener(StageStarted(stage="calibrate"))
    prepared = started.result()
    warnings += prepared.remarks
    write_scoring(files, ingredients.metric, ingredients.evaluator, settings, cache_root)
    for message in warnings:
        listener(Warned(message=message))
    case = Case(
        files=files,
        layers=prepared.layers,
        counts={"calibration": len(store), **counts},
        hashes=hashes,
        has_heldout=ingredients.metric is not None or takes_split(ingredients.evaluator or len),
        warnings=tuple(warnings),
    )
    references.wait(listener)
    return case


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A case whose calibration is under way.

    Attributes:
        inputs: Of the float model.
        outputs: Of the float model.
        calibration: The representative samples.
        hashes: Content hashes of ``model`` and ``calibration``, and of ``integer`` where it is given.
        notes: What was done to the source, in sentences, each to be said once.
        result: Waits for what is prepared; raises PreparationError if the worker died.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calibration: SampleStore
    hashes: Mapping[str, str]
    notes: tuple[str, ...]
    result: Callable[[], Prepared]


def start_calibration(
    model: Path | bytes,
    calibration: object,
    files: CaseFiles,
    pool: WorkerPool,
    cache_root: Path | None,
    *,
    debug_samples: int,
    per_channel: bool,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    signature: str | None = None,
    shapes: Shapes | None = None,
    integer: bytes | None = None,
    listener: Listener = ignore,
) -> Started:
    """Read the model and the representative samples, and start calibration, unless the cache has its result.

    Args:
        model: Path or bytes of the source.
        calibration: Anything that ``representative_samples`` takes.
        files: Where the case is written.
        pool: Where native code runs.
        cache_root: Folder of the cache; None does without.
        debug_samples: Representative samples to measure the layers on; 0 leaves that out.
        per_channel: One scale per output channel of the weights, or one per tensor.
        timeout_seconds: After which a worker counts as hung.
        signature: Key of the source's signature to take; None for the only one.
        shapes: Sizes of inputs that the source leaves free, by input; None takes them from the samples.
        integer: Bytes of an integer model to take integer ops from: nothing is then calibrated, the samples only
            measure.
        listener: Told of the stages ``model`` and ``data``.

    Raises:
        ModelError, DataError, UsageError: If an ingredient does not fit.
        PreparationError: If native code dies on the model.
    """
    listener(StageStarted(stage="model"))
    loaded = load_float(
        model, files, pool, timeout_seconds, signature=signature, shapes=shapes, calibration=calibration
    )
    parsed = fb.parse(loaded.content)
    inputs = reader.input_specs(parsed)
    listener(StageStarted(stage="data"))
    pairs = ((sample, None) for sample in representative_samples(calibration, inputs))
    store = SampleStore.write(files.samples("calibration"), pairs, inputs)
    hashes = {"model": content_hash(loaded.content), "calibration": store.signature}
    if integer is not None:
        write_bytes(files.integer_model, integer)
        hashes["integer"] = content_hash(integer)
    preparation = _submit_prepare(
        files,
        hashes,
        pool,
        cache_root,
        debug_samples=debug_samples,
        per_channel=per_channel,
        timeout_seconds=timeout_seconds,
    )
    return Started(
        inputs=inputs,
        outputs=reader.output_specs(parsed),
        calibration=store,
        hashes=hashes,
        notes=loaded.notes,
        result=preparation.result,
    )


def load_float(
    source: Path | bytes,
    files: CaseFiles,
    pool: WorkerPool,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    *,
    signature: str | None = None,
    shapes: Shapes | None = None,
    calibration: object = None,
) -> FloatModel:
    """Write the float model of a source into the case; what sizes it leaves free, samples decide where there are any.

    Raises:
        ModelError, UsageError: If the source, or what is wished of it, does not fit.
        PreparationError: If native code dies on it.
    """

    def load(shapes: Shapes | None) -> FloatModel:
        if not loading.needs_worker(source, signature=signature, shapes=shapes):
            found = loading.float_model(source)
            write_bytes(files.float_model, found.content)
            return found
        job = prepare_jobs.load_float_model
        try:
            notes = pool.call(job, source, files.float_model, signature, shapes, timeout_seconds=timeout_seconds)
        except TrialError as exc:
            raise PreparationError(f"Loading the model failed. {exc}") from exc
        return FloatModel(content=files.float_model.read_bytes(), notes=notes)

    return with_sample_sizes(load, shapes, calibration)


def write_scoring(
    files: CaseFiles,
    metric: Metric | None,
    evaluator: Evaluator | None,
    settings: SearchSettings | None = None,
    cache_root: Path | None = None,
) -> None:
    """Keep how candidates are scored, for the workers; without settings for the default target."""
    chosen = settings or SearchSettings()
    target = read_target(chosen.target)
    compiling = None
    if settings is not None and settings.compiling and target.compiler is not None:
        kept = None if cache_root is None else cache_root / "compiled"
        compiling = Compiling(cache_root=kept, timeout_seconds=_COMPILER_SHARE * settings.trial_timeout)
    fidelity = make_metric("sqnr_db", output=metric.output if metric else None)
    scoring = Scoring(
        metric=metric,
        fidelity=fidelity,
        evaluator=evaluator,
        target=target,
        compiling=compiling,
        measuring=Measuring(columns=frozenset(chosen.cost_columns), latency_threads=chosen.latency_threads),
    )
    try:
        content = cloudpickle.dumps(scoring)
    except (TypeError, AttributeError, pickle.PicklingError) as exc:
        raise MetricError(
            f"The metric or evaluator cannot be sent to a worker process: {exc}. Give it as package.module:function."
        ) from exc
    write_bytes(files.scoring, content)


class _Preparation:
    """A preparation under way: from the cache at once, else from a worker."""

    def __init__(self, files: CaseFiles, future: Future[None] | None, keep: Path | None) -> None:
        self._files, self._future, self._keep = files, future, keep

    def result(self) -> Prepared:
        """Wait for what is prepared.

        Raises:
            PreparationError: If the worker died, with the op and the remedy where they are known.
        """
        if self._future is not None:
            try:
                result_of(self._future)
            except TrialError as exc:
                raise PreparationError(_why_calibration_died(self._files.float_model.read_bytes(), str(exc))) from exc
            if self._keep is not None:
                cache.keep(self._files.prepared, self._keep)
        return load_prepared(self._files.prepared)


def _submit_prepare(
    files: CaseFiles,
    hashes: Mapping[str, str],
    pool: WorkerPool,
    cache_root: Path | None,
    *,
    debug_samples: int,
    per_channel: bool,
    timeout_seconds: float,
) -> _Preparation:
    """Start calibration, unless the cache has its result."""
    key = cache.signature(
        {
            "what": f"calibrated model and layer table, format {PREPARED_FORMAT}",
            "model": hashes["model"],
            "calibration": hashes["calibration"],
            "integer": hashes.get("integer"),
            "debug_samples": debug_samples,
            "per_channel": per_channel,
            "versions": versions(),
        }
    )
    kept = None if cache_root is None else cache_root / key
    if kept is not None and cache.fetch(kept, files.prepared):
        return _Preparation(files, None, None)
    with storage_errors(files.prepared):
        files.prepared.mkdir(parents=True, exist_ok=True)
    job = prepare_jobs.prepare
    future = pool.submit(job, files.root, files.prepared, debug_samples, per_channel, timeout_seconds=timeout_seconds)
    return _Preparation(files, future, kept)


def _why_calibration_died(content: bytes, how: str) -> str:
    graph = reader.read_graph(fb.parse(content))
    loops = [op for op in graph.ops if op.op_type in fb.CONTROL_FLOW]
    if not loops:
        return f"Calibrating the model failed. {how}"
    name = graph.tensors[loops[0].outputs[0]].name if loops[0].outputs else "?"
    return (
        f"Calibrating the model failed. {how} The model has a {loops[0].op_type} op ({name!r}), which runs other "
        "subgraphs. If it comes of a recurrent Keras layer, pass the .keras or .h5 file or the live model with the "
        "length of the sequence fixed (--shape): the layer is then unrolled."
    )


def _prepare_samples(
    ingredients: Ingredients,
    settings: SearchSettings,
    files: CaseFiles,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    calibration: SampleStore,
) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Write and split the samples to score on; returns counts, hashes and warnings."""
    metric = ingredients.metric
    if metric is None:
        return {}, {}, []
    if ingredients.evaluation is None:
        raise UsageError(
            f"Metric {metric.name!r} needs samples to score on: pass --eval (or evaluation=...), "
            "an .npz file or package.module:function."
        )
    store = write_labelled(ingredients.evaluation, files.samples("evaluation"), inputs, outputs, metric)
    hashes = {"evaluation": store.signature}
    if ingredients.heldout is not None:
        heldout = write_labelled(ingredients.heldout, files.samples("heldout"), inputs, outputs, metric)
        hashes["heldout"] = heldout.signature
        _write_split(files, "search", "evaluation", None)
        _write_split(files, "heldout", "heldout", None)
        parts = {"search": store, "heldout": heldout}
    else:
        chosen = split_by_content(store.digests, settings.heldout_fraction, settings.seed)
        for part, indices in zip(PARTS, chosen, strict=True):
            _write_split(files, part, "evaluation", indices)
        parts = {part: store.subset(indices) for part, indices in zip(PARTS, chosen, strict=True)}
    digests = {
        "calibration": calibration.digests,
        "search": parts["search"].digests,
        "held-out": parts["heldout"].digests,
    }
    warnings = refuse_overlap(digests, allow=settings.allow_overlap)
    return {name: len(part) for name, part in parts.items()}, hashes, warnings


def write_labelled(
    source: object,
    folder: Path,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    metric: Metric,
) -> SampleStore:
    """Write scoring samples into a folder and check every target against the metric.

    Raises:
        DataError: If a sample or target does not fit.
    """
    pairs = labelled_samples(source, inputs, targets_required=metric.needs_targets)
    store = SampleStore.write(folder, pairs, inputs)
    shape = scored_shape(outputs, metric)
    for i in range(len(store)) if metric.needs_targets else ():
        try:
            metric.check_target(store.target(i), shape)
        except DataError as exc:
            raise DataError(f"Sample {i}: {exc}") from exc
    return store


def scored_shape(outputs: tuple[TensorSpec, ...], metric: Metric) -> tuple[int, ...]:
    """Shape of the output that the metric scores.

    Raises:
        UsageError: If there is no output of the name that the metric wants.
    """
    if metric.output is None:
        return min(outputs, key=lambda spec: (spec.key != "output_0", outputs.index(spec))).shape
    for spec in outputs:
        if metric.output in (spec.key, spec.name):
            return spec.shape
    raise UsageError(f"The model has no output {metric.output!r}. Its outputs: {', '.join(s.key for s in outputs)}.")


def write_whole_split(files: CaseFiles) -> None:
    """Make every evaluation sample held-out: there is nothing to choose."""
    _write_split(files, "heldout", "evaluation", None)


def content_hash(content: bytes) -> str:
    """SHA-256 of a model, hex."""
    return hashlib.sha256(content).hexdigest()


def _write_split(files: CaseFiles, part: str, samples: str, indices: np.ndarray | None) -> None:
    chosen = None if indices is None else [int(i) for i in indices]
    write_json(files.split(part), {"samples": samples, "indices": chosen})


class _References:
    """Runs of the float model over the search part, and over the held-out part for metrics that compare with it."""

    def __init__(
        self,
        files: CaseFiles,
        metric: Metric | None,
        hashes: Mapping[str, str],
        timeout_seconds: float,
        pool: WorkerPool,
        cache_root: Path | None,
    ) -> None:
        """Start those that the cache does not have."""
        parts = () if metric is None else PARTS if metric.needs_reference else PARTS[:1]
        self._running: list[tuple[Future[None] | None, Path, Path | None]] = []
        for part in parts:
            split = json.loads(files.split(part).read_text(encoding="utf-8"))
            what = {"what": "float outputs", "hashes": dict(hashes), "split": split, "versions": versions()}
            kept = None if cache_root is None else cache_root / cache.signature(what)
            target, future = files.reference(part), None
            if kept is None or not cache.fetch(kept, target):
                job = prepare_jobs.run_reference
                future = pool.submit(job, files.root, part, target, timeout_seconds=timeout_seconds)
            self._running.append((future, target, kept))

    def wait(self, listener: Listener) -> None:
        """Wait for all of them.

        Raises:
            PreparationError: If one failed.
        """
        if self._running:
            listener(StageStarted(stage="reference", total=len(self._running)))
        for future, target, kept in self._running:
            if future is not None:
                try:
                    result_of(future)
                except TrialError as exc:
                    raise PreparationError(f"Running the float model failed. {exc}") from exc
                if kept is not None:
                    cache.keep(target, kept)
            listener(StepFinished(stage="reference"))


def with_limits(settings: SearchSettings, **changes: Any) -> SearchSettings:
    """The settings with some replaced, for a resumed run.

    Raises:
        UsageError: If one is wrong, with its name.
    """
    return make_settings(**dict(settings) | {k: v for k, v in changes.items() if v is not None})
