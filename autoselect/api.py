"""The Python API: the functions behind the commands, with the same names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.data.specs import load_object
from autoselect.domain.recipe import Recipe
from autoselect.errors import MetricError, ModelError, PreparationError, RunFolderError, TrialError, UsageError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.quantize import converter, sources
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import write_bytes
from autoselect.runs.folder import RunFolder, free_folder
from autoselect.runs.run import Run, load_run
from autoselect.scoring.fragmentation import fragmentation
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.penalty_file import penalty_weights
from autoselect.study import case as preparation
from autoselect.study import jobs
from autoselect.study import run as study_run
from autoselect.study.case import Ingredients
from autoselect.study.events import Listener, ignore
from autoselect.study.settings import SearchSettings, make_settings
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.analysis import analyse

Source = Any
"""A path, the bytes of a ``.tflite``, a live Keras model or a ``tf.lite.TFLiteConverter``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedSource:
    model: Path | bytes
    calibration: object | None
    per_channel: bool
    io_type: str | None


def search(
    model: Source,
    *,
    calibration: object = None,
    evaluation: object = None,
    metric: str | Callable[..., float] = "accuracy",
    direction: str | None = None,
    evaluator: str | Callable[..., float] | None = None,
    output_name: str | None = None,
    heldout: object = None,
    heldout_fraction: float = 0.5,
    trials: int = 100,
    seed: int = 0,
    output: str | Path | None = None,
    sampler: str = "tpe",
    search_space: str = "default",
    fallback: str = "drq",
    per_channel: bool = True,
    io_type: str = "float32",
    keep_float: Iterable[str] = (),
    keep_int: Iterable[str] = (),
    max_drop: float | None = None,
    max_size: float | None = None,
    max_penalty: float | None = None,
    workers: int = 2,
    allow_overlap: bool = False,
    debug_samples: int = 50,
    trial_timeout: float = 900.0,
    cache: bool = True,
    command: str | None = None,
    listener: Listener = ignore,
) -> Run:
    """Search which nodes to leave out of full-integer quantization.

    Args:
        model: A float ``.tflite`` (path or bytes), ``.keras``, ``.h5``, a SavedModel folder, a live Keras 3 or tf-keras
            model, or a ``tf.lite.TFLiteConverter``, whose representative dataset and options are respected.
        calibration: What ``TFLiteConverter.representative_dataset`` takes, arrays, an ``.npz`` or ``.npy`` path, or
            ``"package.module:function"``. Not needed where a converter brings it.
        evaluation: Samples to score on: ``(x, y)`` arrays, an ``.npz`` path (inputs by name or ``x``, targets
            ``y``), or ``"package.module:function"`` (or the function) that yields ``(inputs, target)``.
        metric: Name of a metric, ``"package.module:function"`` or a function ``(y_true, y_pred)``.
        direction: ``maximize`` or ``minimize``, for a metric or evaluator of one's own.
        evaluator: Instead of ``metric``: called with a runner over the candidate, returns a number.
        output_name: The output to score; the first by default.
        heldout: Samples kept for the final check; by default a share of ``evaluation``.
        heldout_fraction: That share, 0..1.
        trials: Candidates to try, baselines included.
        seed: Of the sampler and the split.
        output: The run folder; must be new or empty. By default ``autoselect-run``, numbered if that is taken.
        sampler: ``tpe``, ``nsga2`` or ``random``.
        search_space: Name of a bundled search space, or path of a ``.toml``.
        fallback: What denylisted nodes become: ``drq`` (float where there is no hybrid kernel) or ``float``.
        per_channel: One scale per output channel of the weights, or one per tensor.
        io_type: Type of the candidates' inputs and outputs: ``float32``, ``int8`` or ``uint8``.
        keep_float: Nodes (names, globs) or op types that no candidate quantizes to integers.
        keep_int: Nodes (names, globs) or op types that every candidate keeps in integers.
        max_drop: Largest loss of the metric against float, in its units.
        max_size: Largest file, bytes.
        max_penalty: Largest fragmentation penalty.
        workers: Processes that build and score.
        allow_overlap: Accept samples that occur in two of calibration, search and held-out data.
        debug_samples: Calibration samples that layer statistics are measured on.
        trial_timeout: Seconds after which native work on one job (calibrating, building or scoring one candidate)
            counts as hung.
        cache: Keep calibration and float outputs for later runs.
        command: Recorded in the manifest.
        listener: Called with each event of the search.

    Returns:
        The run, read back from its folder. ``status`` says whether it is complete.

    Raises:
        AutoselectError: If an ingredient does not fit; see ``autoselect.errors``.
    """
    loaded = _load_source(model)
    settings = make_settings(
        metric=_metric_name(metric, evaluator),
        direction=direction,
        output_name=output_name,
        heldout_fraction=heldout_fraction,
        trials=trials,
        seed=seed,
        sampler=sampler,
        search_space=search_space,
        fallback=fallback,
        per_channel=per_channel and loaded.per_channel,
        io_type=loaded.io_type if loaded.io_type and io_type == "float32" else io_type,
        keep_float=tuple(keep_float),
        keep_int=tuple(keep_int),
        max_drop=max_drop,
        max_size=max_size,
        max_penalty=max_penalty,
        workers=workers,
        allow_overlap=allow_overlap,
        debug_samples=debug_samples,
        trial_timeout=trial_timeout,
    )
    request = _request(
        loaded,
        settings,
        calibration=calibration,
        evaluation=evaluation,
        heldout=heldout,
        metric=metric,
        evaluator=evaluator,
        sources={
            "model": _describe(model),
            "calibration": _describe(calibration),
            "evaluation": _describe(evaluation),
            "heldout": _describe(heldout),
            "evaluator": _describe(evaluator),
            "metric": None if isinstance(metric, str) else _LIVE,
        },
        command=command,
        cache=cache,
    )
    folder = RunFolder(Path(output) if output is not None else free_folder("autoselect-run"))
    study_run.start(request, folder, listener)
    return _drawn(folder)


def resume(
    directory: str | Path,
    *,
    trials: int | None = None,
    model: Source = None,
    calibration: object = None,
    evaluation: object = None,
    heldout: object = None,
    evaluator: str | Callable[..., float] | None = None,
    metric: str | Callable[..., float] | None = None,
    workers: int | None = None,
    cache: bool = True,
    listener: Listener = ignore,
) -> Run:
    """Continue a run that was stopped, or give a finished one more trials.

    Args:
        directory: The run folder.
        trials: New total; the old one by default.
        model: Only where the run was started with a live object; likewise the ingredients that follow.
        calibration: See :func:`search`.
        evaluation: See :func:`search`.
        heldout: See :func:`search`.
        evaluator: See :func:`search`.
        metric: See :func:`search`.
        workers: Processes; as before by default.
        cache: See :func:`search`.
        listener: Called with each event of the search.

    Raises:
        RunFolderError: If the folder holds no run, or one made of other ingredients.
    """
    folder = RunFolder(Path(directory))
    manifest = folder.read_manifest()
    known = dict(manifest["sources"])
    given = {
        "model": model,
        "calibration": calibration,
        "evaluation": evaluation,
        "heldout": heldout,
        "evaluator": evaluator,
    }
    for name, value in given.items():
        if value is None and known.get(name) == _LIVE:
            raise RunFolderError(
                f"The run in {folder.root} was started with a live {name}. Pass it again: resume(..., {name}=...)."
            )
    chosen: dict[str, Any] = {name: value if value is not None else known.get(name) for name, value in given.items()}
    settings = preparation.with_limits(make_settings(**manifest["settings"]), trials=trials, workers=workers)
    if metric is None and known.get("metric") == _LIVE:
        raise RunFolderError(
            f"The run in {folder.root} was started with a live metric. Pass it: resume(..., metric=...)."
        )
    loaded = _load_source(chosen["model"])
    request = _request(
        loaded,
        settings,
        calibration=chosen["calibration"],
        evaluation=chosen["evaluation"],
        heldout=chosen["heldout"],
        metric=metric or settings.metric,
        evaluator=chosen["evaluator"],
        sources=known,
        command=manifest.get("command"),
        cache=cache,
    )
    study_run.resume(request, folder, listener)
    return _drawn(folder)


def build(
    recipe: str | Path | Recipe,
    *,
    model: Source,
    calibration: object = None,
    output: str | Path,
    cache: bool = True,
) -> dict[str, Any]:
    """Build one recipe: the same ingredients and versions give the same bytes as in a run.

    Args:
        recipe: A :class:`Recipe`, or the path of a ``.recipe.json``.
        model: See :func:`search`.
        calibration: See :func:`search`.
        output: File to write.
        cache: See :func:`search`.

    Returns:
        ``path``, ``sha256``, ``size_bytes``, ``kinds`` (by node: integer, hybrid or float) and ``fallbacks`` (by
        node: why it is not what the recipe's fallback says).
    """
    chosen = recipe if isinstance(recipe, Recipe) else _read_recipe(Path(recipe))
    loaded = _load_source(model)
    calibration = _calibration_of(loaded, calibration)
    settings = make_settings(per_channel=chosen.per_channel)
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = jobs.CaseFiles(root=Path(name))
        with WorkerPool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            content = preparation.load_float(loaded.model, files, pool)
            inputs = reader.input_specs(fb.parse(content))
            pairs = ((sample, None) for sample in representative_samples(calibration, inputs))
            store = SampleStore.write(files.samples("calibration"), pairs, inputs)
            hashes = {"model": preparation.content_hash(content), "calibration": store.signature}
            root = cache_directory() if cache else None
            preparation.submit_prepare(files, hashes, settings, pool, root).layers(content)
            preparation.write_scoring(files, None, None)
            try:
                reply = pool.call(jobs.build, files.root, chosen.to_json())
            except TrialError as exc:
                raise PreparationError(f"The recipe could not be built. {exc}") from exc
        write_bytes(Path(output), files.candidate(reply.sha256).read_bytes())
    return {
        "path": str(output),
        "sha256": reply.sha256,
        "size_bytes": reply.size_bytes,
        "kinds": reply.kinds,
        "fallbacks": reply.fallbacks,
    }


def evaluate(
    model: str | Path | bytes,
    *,
    evaluation: object,
    metric: str | Callable[..., float] = "accuracy",
    direction: str | None = None,
    output_name: str | None = None,
    reference: str | Path | bytes | None = None,
) -> dict[str, Any]:
    """Score any ``.tflite``, quantized or not.

    Args:
        model: Path or bytes.
        evaluation: See :func:`search`.
        metric: See :func:`search`.
        direction: See :func:`search`.
        output_name: See :func:`search`.
        reference: The float model, for metrics that compare with it (``agreement``, ``sqnr_db``, ``kl_divergence``).

    Returns:
        ``metric``, ``score``, ``low`` and ``high`` (95 % interval), ``samples``, ``size_bytes``, and the
        fragmentation: ``penalty``, ``segments``, ``float_ops``, ``crossing_tensors``, ``crossing_bytes`` and
        ``float_macs_share``.
    """
    chosen = make_metric(metric, direction=direction, output=output_name)
    if chosen.needs_reference and reference is None:
        raise UsageError(f"Metric {chosen.name!r} compares with the float model: pass it as reference (--reference).")
    content = model if isinstance(model, bytes) else fb.read_model_file(Path(model))
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = jobs.CaseFiles(root=Path(name))
        with WorkerPool(1, log=files.root / "worker.log") as pool:
            return _evaluate(files, pool, content, evaluation, chosen, reference)


def _evaluate(
    files: jobs.CaseFiles,
    pool: WorkerPool,
    content: bytes,
    evaluation: object,
    metric: Metric,
    reference: str | Path | bytes | None,
) -> dict[str, Any]:
    parsed = fb.parse(content)
    inputs, outputs = reader.input_specs(parsed), reader.output_specs(parsed)
    preparation.write_labelled(evaluation, files.samples("evaluation"), inputs, outputs, metric)
    preparation.write_whole_split(files)
    preparation.write_scoring(files, metric, None)
    try:
        if reference is not None:
            source = reference if isinstance(reference, bytes) else Path(reference)
            preparation.load_float(source, files, pool)
            pool.call(jobs.run_reference, files.root, "heldout", files.reference("heldout"))
        write_bytes(files.float_model, content)
        described = pool.call(jobs.describe_float, files.root)
        scored = result_of(pool.submit(jobs.score, files.root, jobs.FLOAT, "heldout", True))
    except TrialError as exc:
        raise PreparationError(f"The model could not be scored. {exc}") from exc
    return {
        "metric": metric.name,
        "score": scored.value,
        "low": scored.low,
        "high": scored.high,
        "samples": scored.samples,
        "size_bytes": described.size_bytes,
        **described.fragmentation,
    }


def pick(directory: str | Path, *, name: str, output: str | Path) -> dict[str, Any]:
    """Copy a front member out of a run folder.

    Args:
        directory: The run folder.
        name: A pick (``accurate``, ``balanced``, ``compact``, ``integer``) or an id of the front.
        output: File to write.

    Returns:
        The member's row of ``front.csv`` and ``path``.

    Raises:
        RunFolderError: If the folder holds no run, or its front no such member.
    """
    run = load_run(directory)
    source = run.model_path(name)
    write_bytes(Path(output), source.read_bytes())
    row = run.front[run.front["id"] == source.stem].iloc[0].to_dict()
    return {**{str(key): value for key, value in row.items()}, "path": str(output)}


def inspect(model: str | Path | bytes, *, compare: Iterable[str | Path | bytes] = ()) -> dict[str, Any]:
    """Tell what a ``.tflite`` file holds, without running it.

    Args:
        model: Path or bytes; float, dynamic-range, full-integer or mixed.
        compare: Further models to analyse in the same way.

    Returns:
        ``path``, what :class:`autoselect.tflite.analysis.ModelAnalysis` holds (sizes, buffers, counts, ``subgraphs``
        with their ops and tensors, signatures, metadata) as plain values, ``fragmentation`` of the main subgraph, and
        ``compare``: the same of each further model.

    Raises:
        ModelError: If a file is missing or no whole TFLite file.
    """
    first, *others = [_inspect_one(source) for source in (model, *compare)]
    return {**first, "compare": others}


def _inspect_one(model: str | Path | bytes) -> dict[str, Any]:
    name = _LIVE if isinstance(model, bytes) else str(model)
    content = model if isinstance(model, bytes) else fb.read_model_file(Path(model))
    try:
        parsed = fb.parse(content)
        found = analyse(parsed, len(content)).as_dict()
    except ModelError as exc:
        raise ModelError(f"{name}: {exc}") from exc
    cut = fragmentation(reader.read_graph(parsed), penalty_weights())
    return {"path": name, **found, "fragmentation": asdict(cut)}


def demo(
    *,
    trials: int = 60,
    seed: int = 0,
    output: str | Path | None = None,
    workers: int = 2,
    command: str | None = None,
    listener: Listener = ignore,
) -> Run:
    """Search the embedded case: a small pump monitor whose inputs are raw physical units."""
    from autoselect.embedded import model_path

    return search(
        model_path(),
        calibration="autoselect.embedded:calibration",
        evaluation="autoselect.embedded:search_samples",
        heldout="autoselect.embedded:heldout_samples",
        metric="accuracy",
        trials=trials,
        seed=seed,
        output=output if output is not None else free_folder("autoselect-demo"),
        workers=workers,
        command=command,
        listener=listener,
    )


_LIVE = "(live object)"


def _describe(source: object) -> str | None:
    """An ingredient in words: enough to load it again, or the mark of a live object."""
    if source is None:
        return None
    if isinstance(source, Path):
        return str(source.absolute())
    if isinstance(source, str):
        return source if ":" in source and not Path(source).exists() else str(Path(source).absolute())
    return _LIVE


def _metric_name(metric: str | Callable[..., float], evaluator: str | Callable[..., float] | None) -> str:
    if evaluator is not None:
        return "evaluator"
    return metric if isinstance(metric, str) else f"{getattr(metric, '__name__', 'metric')}:live"


def _load_source(source: Source) -> _LoadedSource:
    if isinstance(source, bytes):
        return _LoadedSource(model=source, calibration=None, per_channel=True, io_type=None)
    if isinstance(source, (str, Path)):
        path = Path(source).absolute()
        return _LoadedSource(model=path, calibration=None, per_channel=True, io_type=None)
    if sources.is_keras_model(source):
        content = sources.as_float_model(sources.convert_keras(source))
        return _LoadedSource(model=content, calibration=None, per_channel=True, io_type=None)
    if sources.is_converter(source):
        content, options = sources.from_converter(source)
        return _LoadedSource(
            model=content,
            calibration=options.representative_dataset,
            per_channel=options.per_channel,
            io_type=options.io_type,
        )
    raise UsageError(
        f"Expected a path, the bytes of a .tflite, a Keras model or a TFLiteConverter, got {type(source).__name__}."
    )


def _calibration_of(loaded: _LoadedSource, given: object) -> object:
    calibration = given if given is not None else loaded.calibration
    if calibration is None:
        raise UsageError(
            "Full-integer quantization needs representative data: pass --calibration (or calibration=...), "
            "an .npz or .npy file, or package.module:function."
        )
    return calibration


def _request(
    loaded: _LoadedSource,
    settings: SearchSettings,
    *,
    calibration: object,
    evaluation: object,
    heldout: object,
    metric: str | Callable[..., float],
    evaluator: str | Callable[..., float] | None,
    sources: dict[str, str | None],
    command: str | None,
    cache: bool,
) -> study_run.Request:
    calibration = _calibration_of(loaded, calibration)
    chosen: Metric | None = None
    run: Callable[..., float] | None = None
    if evaluator is not None:
        run = load_object(evaluator, purpose="evaluator") if isinstance(evaluator, str) else evaluator
        if not callable(run):
            raise MetricError(f"The evaluator must be a function, got {type(run).__name__}.")
        name, direction = getattr(run, "__name__", "evaluator"), settings.direction or "maximize"
    else:
        chosen = make_metric(metric, direction=settings.direction, output=settings.output_name)
        name, direction = chosen.name, chosen.direction
    return study_run.Request(
        ingredients=Ingredients(
            model=loaded.model,
            calibration=calibration,
            evaluation=evaluation,
            heldout=heldout,
            metric=chosen,
            evaluator=run,
        ),
        settings=settings,
        sources=sources,
        metric_name=name,
        direction=direction,
        command=command,
        use_cache=cache,
    )


def _read_recipe(path: Path) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"The recipe {path} cannot be read: {exc.strerror}.") from exc
    return Recipe.from_json(text)


def _drawn(folder: RunFolder) -> Run:
    from autoselect.report.pareto import draw_pareto

    run = load_run(folder.root)
    draw_pareto(run.trials, run.front, run.summary, folder.picture)
    return run
