"""Search, resume, demo."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autoselect.api.source import (
    LIVE,
    LoadedInteger,
    LoadedSource,
    Source,
    calibration_of,
    describe,
    load_integer,
    load_source,
)
from autoselect.cases import prepare as preparation
from autoselect.cases.events import Listener, ignore
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.settings import SearchSettings, make_settings
from autoselect.data.bundled import lasting
from autoselect.data.specs import load_object
from autoselect.domain.quantities import DEFAULT_OBJECTIVES, chosen_objectives
from autoselect.errors import MetricError, RunFolderError
from autoselect.report.run import Run, load_run
from autoselect.runs.folder import RunFolder, free_folder
from autoselect.runs.records import metric_column
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target
from autoselect.sources.wishes import Shapes
from autoselect.study import request
from autoselect.study import run as study_run


def search(
    model: Source,
    *,
    calibration: object = None,
    signature: str | None = None,
    shapes: Shapes | None = None,
    integer: str | Path | bytes | None = None,
    evaluation: object = None,
    metric: str | Callable[..., float] = "accuracy",
    direction: str | None = None,
    evaluator: str | Callable[..., float] | None = None,
    output_name: str | None = None,
    objectives: str | Iterable[str] = DEFAULT_OBJECTIVES,
    latency_threads: int = 1,
    heldout: object = None,
    heldout_fraction: float = 0.5,
    trials: int = 100,
    seed: int = 0,
    output: str | Path | None = None,
    sampler: str = "surrogate",
    racing: bool = True,
    confidence: float = 0.9,
    min_gain: float = 0.0003,
    early_exit: bool = True,
    search_space: str = "default",
    target: str = "integer-only",
    compiling: bool = True,
    fallback: str | None = None,
    per_channel: bool = True,
    io_type: str | None = None,
    repairs: bool | Iterable[str] = True,
    keep_float: Iterable[str] = (),
    keep_int: Iterable[str] = (),
    min_score: float | None = None,
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
        signature: Key of the signature to take, for a ``.tflite`` or SavedModel with several.
        shapes: Sizes of inputs that the model leaves free, by input name, the batch's 1 included:
            ``{"audio": (1, 16000)}``. By default those of the calibration samples, where all agree.
        integer: An integer ``.tflite`` (path or bytes) that another quantizer, or quantization-aware training, made of
            this float model: candidates take their integer ops from it as they are. Nothing is calibrated or repaired
            then, and ``per_channel`` is the file's own; the calibration samples measure the layers.
        evaluation: Samples to score on: ``(x, y)`` arrays, an ``.npz`` path (inputs by name or ``x``, targets
            ``y``), or ``"package.module:function"`` (or the function) that yields ``(inputs, target)``.
        metric: Name of a metric, ``"package.module:function"`` or a function ``(y_true, y_pred)``.
        direction: ``maximize`` or ``minimize``, for a metric or evaluator of one's own.
        evaluator: Instead of ``metric``: called with a runner over the candidate, returns a number.
        output_name: The output to score; the first by default.
        objectives: Two to four of ``accuracy`` (the metric, whatever it is called; its own name will do), ``size``,
            ``penalty``, ``segments``, ``float_ops``, ``crossing_bytes``, ``arena_bytes``, ``npu_cycles`` and
            ``latency``, the metric among them; or one text with commas. With ``latency`` no two runs are the same.
        latency_threads: Threads of the interpreter that ``latency`` is measured with.
        heldout: Samples kept for the final check; by default a share of ``evaluation``.
        heldout_fraction: That share, 0..1.
        trials: Candidates to try, baselines included.
        seed: Of the sampler and the split.
        output: The run folder; must be new or empty. By default ``autoselect-run``, numbered if that is taken.
        sampler: ``surrogate``; or, to compare with, ``tpe``, ``nsga2``, ``random``, ``prefix``, ``greedy``,
            ``heuristic``, ``exhaustive``.
        racing: Drop candidates that are not worth it after part of the samples; for metrics that are means.
        confidence: With which a candidate that is worth its full score is not dropped, 0..1.
        min_gain: Share of the front's hypervolume that a candidate must add to be worth it, 0..1; 0 keeps all that
            enter the front.
        early_exit: End where the all-integer model is within ``max_drop``, or else as good as float.
        search_space: Name of a bundled search space, or path of a ``.toml``.
        target: Name of a bundled target profile, or path of a ``.toml``: what the candidates will run on. It decides
            the penalty, refuses candidates, and gives the defaults of ``fallback`` and ``io_type``.
        compiling: Compile each candidate where the target has a compiler; its cycles then make the penalty.
        fallback: What denylisted nodes become: ``drq`` (float where there is no hybrid kernel) or ``float``. By default
            ``drq`` where the target runs hybrid ops.
        per_channel: One scale per output channel of the weights, or one per tensor.
        io_type: Type of the candidates' inputs and outputs: ``float32``, ``int8`` or ``uint8``. By default the
            converter's own, else what the target expects, else ``float32``.
        repairs: What is done to every candidate at no float op: True lets the search try on the all-integer model what
            helps, False gives plain candidates, and names are taken as they are (``bias``, ``bias-sequential``,
            ``equalization``, ``weights-mse``, and one of ``ranges-mse``, ``ranges-observed``, ``ranges-percentile``,
            ``ranges-moving-average``; ranges of single nodes as ``ranges-mse:NODE``).
        keep_float: Nodes (names, globs) or op types that no candidate quantizes to integers.
        keep_int: Nodes (names, globs) or op types that every candidate keeps in integers.
        min_score: What a candidate must score, in the metric's units: at most, where it is minimized. A search whose
            float model falls short of it is refused.
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
    loaded = load_source(model, signature=signature, shapes=shapes, calibration=calibration)
    profile = read_target(target)
    given = load_integer(
        integer,
        signature=signature,
        per_channel=per_channel and loaded.per_channel and profile.per_channel,
        repairs=() if isinstance(repairs, bool) else (repairs := tuple(repairs)),
    )
    settings = make_settings(
        metric=_metric_name(metric, evaluator),
        direction=direction,
        output_name=output_name,
        signature=signature,
        shapes=None if shapes is None else dict(shapes),
        objectives=chosen_objectives(objectives, _own_names(metric, evaluator)),
        latency_threads=latency_threads,
        heldout_fraction=heldout_fraction,
        trials=trials,
        seed=seed,
        sampler=sampler,
        racing=racing,
        confidence=confidence,
        min_gain=min_gain,
        early_exit=early_exit,
        search_space=lasting(search_space),
        target=lasting(target),
        compiling=compiling,
        fallback=fallback or ("drq" if profile.runs_hybrid else "float"),
        per_channel=given.per_channel,
        io_type=io_type or loaded.io_type or profile.io_type or "float32",
        repairs=(repairs if isinstance(repairs, bool) else tuple(repairs)) if given.content is None else False,
        keep_float=tuple(keep_float),
        keep_int=tuple(keep_int),
        min_score=min_score,
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
        given,
        settings,
        calibration=calibration,
        evaluation=evaluation,
        heldout=heldout,
        metric=metric,
        evaluator=evaluator,
        sources={
            "model": describe(model),
            "integer": describe(integer),
            "calibration": describe(calibration),
            "evaluation": describe(evaluation),
            "heldout": describe(heldout),
            "evaluator": describe(evaluator),
            "metric": None if isinstance(metric, str) else LIVE,
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
    integer: str | Path | bytes | None = None,
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
        integer: See :func:`search`.
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
        "integer": integer,
        "calibration": calibration,
        "evaluation": evaluation,
        "heldout": heldout,
        "evaluator": evaluator,
    }
    for name, value in given.items():
        if value is None and known.get(name) == LIVE:
            raise RunFolderError(
                f"The run in {folder.root} was started with a live {name}. Pass it again: resume(..., {name}=...)."
            )
    chosen: dict[str, Any] = {name: value if value is not None else known.get(name) for name, value in given.items()}
    kept = {"repairs": (), **manifest["settings"]}  # a run from before there were repairs goes on without
    settings = preparation.with_limits(make_settings(**kept), trials=trials, workers=workers)
    if metric is None and known.get("metric") == LIVE:
        raise RunFolderError(
            f"The run in {folder.root} was started with a live metric. Pass it: resume(..., metric=...)."
        )
    loaded = load_source(
        chosen["model"], signature=settings.signature, shapes=settings.shapes, calibration=chosen["calibration"]
    )
    given_integer = load_integer(chosen["integer"], signature=settings.signature, per_channel=settings.per_channel)
    request = _request(
        loaded,
        given_integer,
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


def _metric_name(metric: str | Callable[..., float], evaluator: str | Callable[..., float] | None) -> str:
    if evaluator is not None:
        return "evaluator"
    return metric if isinstance(metric, str) else f"{getattr(metric, '__name__', 'metric')}:live"


def _own_names(metric: str | Callable[..., float], evaluator: str | Callable[..., float] | None) -> set[str]:
    """What a user may call the metric among the objectives."""
    chosen = metric if evaluator is None else evaluator
    name = chosen if isinstance(chosen, str) else getattr(chosen, "__name__", "metric")
    return {name, name.rpartition(":")[2]}


def _request(
    loaded: LoadedSource,
    given: LoadedInteger,
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
) -> request.Request:
    calibration = calibration_of(loaded, calibration)
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
    return request.Request(
        ingredients=Ingredients(
            model=loaded.model,
            calibration=calibration,
            evaluation=evaluation,
            heldout=heldout,
            metric=chosen,
            evaluator=run,
            notes=(*loaded.notes, *given.notes),
            signature=loaded.signature,
            shapes=loaded.shapes,
            integer=given.content,
        ),
        settings=settings,
        sources=sources,
        metric_name=metric_column(name),
        direction=direction,
        command=command,
        use_cache=cache,
    )


def _drawn(folder: RunFolder) -> Run:
    from autoselect.report.page import write_page
    from autoselect.report.pareto import draw_pareto

    run = load_run(folder.root)
    draw_pareto(run.trials, run.front, run.summary, folder.picture)
    write_page(run, folder.report)
    return run
