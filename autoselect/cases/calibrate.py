"""Reads model and representative samples, and has the model calibrated, or takes it from the cache."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from autoselect.cases import prepare_jobs
from autoselect.cases.cached import cached_folder
from autoselect.cases.converted import Given, converted_model
from autoselect.cases.events import Listener, StageStarted, ignore
from autoselect.cases.feedback import fed_inputs, feed_back, question_of, with_gaps
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.prepared import PREPARED_FORMAT, Prepared, load_prepared
from autoselect.cases.versions import content_hash, versions
from autoselect.data.fit import OtherInputs
from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.domain.recipe import Quantizer
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, PreparationError, TrialError, preparing
from autoselect.isolation.door import DEFAULT_TIMEOUT_SECONDS, Workers
from autoselect.runs import cache
from autoselect.runs.files import storage_errors, write_bytes
from autoselect.sources import loading
from autoselect.sources.converters.kinds import kind_of
from autoselect.sources.sample_sizes import with_sample_sizes
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import NO_WISHES, FreeSizes, Wishes, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile


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
    ingredients: Ingredients,
    files: CaseFiles,
    pool: Workers,
    cache_root: Path | None,
    *,
    debug_samples: int,
    per_channel: bool,
    exact_rewrites: bool = True,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    listener: Listener = ignore,
) -> Started:
    """Read the model and the representative samples, and start calibration, unless the cache has its result.

    Args:
        ingredients: What the user brings.
        files: Where the case is written.
        pool: Where native code runs.
        cache_root: Folder of the cache; None does without.
        debug_samples: Representative samples to measure the layers on; 0 leaves that out.
        per_channel: One scale per output channel of the weights, or one per tensor.
        exact_rewrites: Whether the model is rewritten for compilers where that changes no output.
        timeout_seconds: After which a worker counts as hung.
        listener: Told of the stages ``model`` and ``data``.

    Raises:
        ModelError, DataError, UsageError: If an ingredient does not fit.
        PreparationError: If native code dies on the model.
    """
    listener(StageStarted(stage="model"))
    integer = ingredients.integer
    loaded = load_float(
        ingredients.model,
        files,
        pool,
        timeout_seconds,
        wishes=ingredients.wishes,
        calibration=ingredients.calibration,
        optional=tuple((ingredients.feedback or {}).values()),
        cache_root=cache_root,
    )
    ends = reader.read_interface(loaded.content)
    inputs = ends.inputs
    listener(StageStarted(stage="data"))
    fed = fed_inputs(ingredients.feedback or {}, ends)
    signature = ingredients.wishes.signature
    try:
        samples = representative_samples(ingredients.calibration, inputs, optional=fed, signature=signature)
        pairs = ((with_gaps(sample, inputs), None) for sample in samples)
        store = SampleStore.write(files.samples("calibration"), pairs, inputs)
    except OtherInputs as exc:  # Whose state is fed back may have left it out, as it should.
        raise DataError(f"{exc} {'' if fed else question_of(ends)}".rstrip()) from exc
    if fed:
        with preparing("Running the float model with its state fed back failed."):
            pool.call(feed_back, files.root, fed, timeout_seconds=timeout_seconds)
        store = SampleStore.open(files.samples("calibration"))
    hashes = {"model": content_hash(loaded.content), "calibration": store.signature}
    if isinstance(integer, bytes):
        write_bytes(files.integer_model, integer)
        hashes["integer"] = content_hash(integer)
    result = _submit_prepare(
        files,
        hashes,
        pool,
        cache_root,
        debug_samples=debug_samples,
        per_channel=per_channel,
        exact_rewrites=exact_rewrites,
        quantizer="tensorflow" if isinstance(integer, bytes) else integer,
        timeout_seconds=timeout_seconds,
    )
    return Started(
        inputs=inputs,
        outputs=ends.outputs,
        calibration=store,
        hashes=hashes,
        notes=(*ingredients.notes, *loaded.notes),
        result=result,
    )


def load_float(
    source: Path | bytes,
    files: CaseFiles,
    pool: Workers,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    *,
    wishes: Wishes = NO_WISHES,
    calibration: object = None,
    optional: Collection[str] = (),
    cache_root: Path | None = None,
) -> FloatModel:
    """Write the float model of a source into the case; what sizes it leaves free, samples decide where there are any.

    Models of other frameworks are converted, and proved on the samples; these may leave ``optional`` inputs out. The
    cache keeps what was converted or run.

    Raises:
        ModelError, UsageError: If the source, or what is wished of it, does not fit.
        PreparationError: If native code dies on it.
    """
    kind = kind_of(source)

    def load(wishes: Wishes) -> FloatModel:
        if kind is not None:
            float_model = converted_model(
                source,
                kind,
                pool,
                wishes=wishes,
                samples=Given(calibration=calibration, optional=optional),
                cache_root=cache_root,
                timeout_seconds=timeout_seconds,
            )
            write_bytes(files.float_model, float_model.content)
            return float_model
        if not loading.needs_worker(source, wishes):
            float_model = loading.float_model(source)
            write_bytes(files.float_model, float_model.content)
            return float_model
        what = {
            # The number is raised whenever what is kept of a source, or how it is made, changes.
            "what": "float model of a source, format 4",
            "source": cache.digest_of(source),
            "wishes": wishes,
            "versions": versions(further=("keras", "tf-keras")),
        }
        with storage_errors(files.root):
            files.root.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(prefix="loaded-", dir=files.root)
        with folder as name:
            out = Path(name)
            arguments = (prepare_jobs.load_float_model, source, out, wishes)
            with preparing("Loading the model failed."):
                cached_folder(out, what, cache_root, lambda: pool.submit(*arguments, timeout_seconds=timeout_seconds))()
            content = (out / "float.tflite").read_bytes()
            notes = json.loads((out / "notes.json").read_text(encoding="utf-8"))
        write_bytes(files.float_model, content)
        return FloatModel(content=content, notes=tuple(notes))

    return with_sample_sizes(load, wishes, calibration)


def load_reference(
    source: Path | bytes,
    files: CaseFiles,
    pool: Workers,
    *,
    beside: tuple[TensorSpec, ...],
    signature: str | None = None,
) -> FloatModel:
    """Load the float model beside a model with these inputs, which has settled what sizes the float model leaves free.

    ``signature`` is the key of the one to take, if it is named.

    Raises:
        ModelError, UsageError: If the source does not fit.
        PreparationError: If native code dies on it.
    """
    try:
        return load_float(source, files, pool, wishes=wishes_of(signature, None))
    except FreeSizes:
        is_converted = kind_of(source) is not None
        sizes = {spec.key: (spec.other_shape if is_converted else None) or spec.shape for spec in beside}
        return load_float(source, files, pool, wishes=wishes_of(signature, sizes))


def _submit_prepare(
    files: CaseFiles,
    hashes: Mapping[str, str],
    pool: Workers,
    cache_root: Path | None,
    *,
    debug_samples: int,
    per_channel: bool,
    exact_rewrites: bool,
    quantizer: Quantizer,
    timeout_seconds: float,
) -> Callable[[], Prepared]:
    """Start calibration, unless the cache has its result; what is returned waits for what is prepared.

    It raises PreparationError if the worker died, with the op and the remedy where they are known.
    """
    what = {
        "what": f"calibrated model and layer table, format {PREPARED_FORMAT}",
        "model": hashes["model"],
        "calibration": hashes["calibration"],
        "integer": hashes.get("integer"),
        "debug_samples": debug_samples,
        "per_channel": per_channel,
        "exact_rewrites": exact_rewrites,
        "quantizer": quantizer,
        "versions": versions(quantizer),
    }

    def submit() -> Future[None]:
        with storage_errors(files.prepared):
            files.prepared.mkdir(parents=True, exist_ok=True)
        how = (debug_samples, per_channel, quantizer, exact_rewrites)
        return pool.submit(prepare_jobs.prepare, files.root, files.prepared, *how, timeout_seconds=timeout_seconds)

    wait = cached_folder(files.prepared, what, cache_root, submit)

    def result() -> Prepared:
        try:
            wait()
        except TrialError as exc:
            raise PreparationError(_why_calibration_died(files.float_model.read_bytes(), str(exc))) from exc
        return load_prepared(files.prepared)

    return result


def _why_calibration_died(content: bytes, how: str) -> str:
    graph = TfliteFile(content).graph
    loops = [op for op in graph.ops if op.op_type in fb.CONTROL_FLOW]
    if not loops:
        return f"Calibrating the model failed. {how}"
    name = graph.tensors[loops[0].outputs[0]].name if loops[0].outputs else "?"
    return (
        f"Calibrating the model failed. {how} The model has a {loops[0].op_type} op ({name!r}), which runs other "
        "subgraphs. If it comes from a recurrent Keras layer, pass the .keras or .h5 file or the live model with the "
        "length of the sequence fixed (--shape): the layer is then unrolled."
    )
