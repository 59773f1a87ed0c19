"""One model at a time: build a recipe, score, inspect, copy out of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoselect.api.source import LIVE, Source, calibration_of, load_source
from autoselect.cases import jobs
from autoselect.cases import prepare as preparation
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.settings import make_settings
from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.domain.recipe import Recipe
from autoselect.errors import ModelError, PreparationError, TrialError, UsageError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.quantize import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import write_bytes
from autoselect.runs.run import load_run
from autoselect.scoring.fragmentation import fragmentation
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.penalty_file import penalty_weights
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.analysis import analyse


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
    loaded = load_source(model)
    calibration = calibration_of(loaded, calibration)
    settings = make_settings(per_channel=chosen.per_channel)
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = CaseFiles(root=Path(name))
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


def _read_recipe(path: Path) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"The recipe {path} cannot be read: {exc.strerror}.") from exc
    return Recipe.from_json(text)


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
        files = CaseFiles(root=Path(name))
        with WorkerPool(1, log=files.root / "worker.log") as pool:
            return _evaluate(files, pool, content, evaluation, chosen, reference)


def _evaluate(
    files: CaseFiles,
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
        scored = result_of(pool.submit(jobs.score, files.root, FLOAT, "heldout", True))
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
    name = LIVE if isinstance(model, bytes) else str(model)
    content = model if isinstance(model, bytes) else fb.read_model_file(Path(model))
    try:
        parsed = fb.parse(content)
        found = analyse(parsed, len(content)).as_dict()
    except ModelError as exc:
        raise ModelError(f"{name}: {exc}") from exc
    cut = fragmentation(reader.read_graph(parsed), penalty_weights())
    return {"path": name, **found, "fragmentation": asdict(cut)}
