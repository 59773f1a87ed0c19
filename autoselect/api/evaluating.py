"""Finished model files on labelled samples: one score each, or everything there is to say of a classifier."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoselect.api.compiling import on_target_of
from autoselect.api.results import ClassificationReport, Score
from autoselect.api.sizing import in_true_shapes
from autoselect.api.source import ModelFile, file_content, file_name, naming, needs_converter
from autoselect.api.told import explained
from autoselect.cases import build_jobs, calibrate, prepare_jobs, score_jobs, scoring_samples, versions
from autoselect.cases import prepare as preparation
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.data.kinds import Samples
from autoselect.data.labelled import without_targets
from autoselect.domain.objectives import Direction, drop_from
from autoselect.domain.tensors import free_name
from autoselect.errors import MetricError, PreparationError, TrialError, UsageError, preparing
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import open_pool
from autoselect.runs.files import write_bytes
from autoselect.scoring import classification
from autoselect.scoring.classification import Answers, Prediction
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target
from autoselect.sources.sample_sizes import sizes_in_samples
from autoselect.sources.tflite_files import free_inputs, of_signature, signature_keys, unknown
from autoselect.sources.wishes import FreeSizes, Shapes, sizes_of, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

_PART = "heldout"


@explained
def evaluate(
    model: ModelFile,
    *,
    evaluation: Samples,
    metric: str | Callable[..., float] = "accuracy",
    direction: Direction | None = None,
    output_name: str | None = None,
    ignore_label: int | None = None,
    reference: ModelFile | None = None,
    signature: str | None = None,
    target: str | Path | None = None,
) -> Score:
    """Score any ``.tflite``, quantized or not.

    Args:
        model: Path or bytes; another kind of model, also a live one, is converted to float first.
        reference: The float model: the score's drop is told against it. Metrics that compare with it (``agreement``,
            ``sqnr_db``, ``kl_divergence``) need it.
        signature: Key of the signature to score where the model or the reference has several. The size is then that of
            this signature alone.
        target: Name of a bundled target profile, or path of a ``.toml``, that the penalty is of; ``integer-only`` if
            left out. If the target has a compiler, the model is compiled. The score is of LiteRT's CPU kernels.

    Returns:
        The score with its interval, the size and the fragmentation, and what the model is on the target.

    Raises:
        UsageError: If the target's compiler is not installed.
        PreparationError: If the model cannot be run, or the target's compiler hung, died or failed.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> found = autoselect.evaluate(embedded.model_path(), evaluation="autoselect.embedded:search_samples")
        >>> found.metric, found.samples, found.low < found.score < found.high
        ('accuracy', 1000, True)
    """
    profile = None if target is None else read_target(target)  # What is wrong with it is told before the work.
    (score,) = score_models(
        [model],
        evaluation=evaluation,
        metric=metric,
        direction=direction,
        output_name=output_name,
        ignore_label=ignore_label,
        reference=reference,
        signature=signature,
    )
    if profile is None:
        return score
    content, sizes = _sized_content(model, evaluation, signature)
    with naming(model):
        sized = in_true_shapes(content, sizes)
    fragmentation, table = on_target_of(sized.content, profile, file_name(model), notes=sized.notes)
    return replace(score, **_without_off_chip(fragmentation), target=table)


def _without_off_chip(fragmentation: Mapping[str, Any]) -> dict[str, Any]:
    """What a score has of it: the left ops are those of each chip."""
    return {key: value for key, value in fragmentation.items() if key != "off_chip"}


def score_models(
    models: Sequence[ModelFile],
    *,
    evaluation: Samples,
    metric: str | Callable[..., float],
    direction: Direction | None = None,
    output_name: str | None = None,
    ignore_label: int | None = None,
    reference: ModelFile | None = None,
    signature: str | None = None,
) -> list[Score]:
    """Score several models on the same samples, which are read once; see :func:`evaluate`.

    Raises:
        PreparationError: If one of them cannot be run, with its name.
    """
    chosen = make_metric(metric, direction=direction, output=output_name, ignore_label=ignore_label)
    if chosen.needs_reference and reference is None:
        raise UsageError(f"Metric {chosen.name!r} compares with the float model: pass it as reference (--reference).")
    refuse_unknown(signature, [*models, *([] if reference is None else [reference])])
    contents = [_sized_content(model, evaluation, signature)[0] for model in models]
    with _bench(models, contents, reference, signature) as bench:
        _write_samples(bench, evaluation, chosen, signature)
        if reference is not None:
            with preparing("The float model could not be scored."):
                bench.pool.call(prepare_jobs.run_reference, bench.files.root, _PART)
        base = None
        if bench.reference is not None and not chosen.needs_reference:
            base = _scored(bench, chosen, "the float model", bench.reference).score
        return [_scored(bench, chosen, *pair, base) for pair in zip(models, contents, strict=True)]


def _scored(bench: _Bench, metric: Metric, model: ModelFile, content: bytes, base: float | None = None) -> Score:
    """Score one model in the float model's place, where a metric's own failure is told as such."""
    write_bytes(bench.files.float_model, content)
    with preparing(f"The model {file_name(model)} could not be scored."):
        described = bench.pool.call(build_jobs.describe_float, bench.files.root)
        scored = bench.pool.call(score_jobs.score, bench.files.root, FLOAT, _PART, True)
    return Score(
        metric=metric.name,
        direction=metric.direction,
        score=scored.value,
        low=scored.low,
        high=scored.high,
        samples=scored.samples,
        drop=None if base is None else drop_from(base, scored.value, metric.direction),
        size_bytes=described.size_bytes,
        **_without_off_chip(described.fragmentation),
        warnings=list(bench.warnings),
    )


@explained
def classification_report(
    models: ModelFile | Iterable[ModelFile],
    *,
    evaluation: Samples,
    reference: ModelFile | None = None,
    signature: str | None = None,
    output_name: str | None = None,
    output: str | Path | None = None,
) -> ClassificationReport:
    """Report on classifiers: figures with intervals, class by class, and the samples that differ from the float model.

    A model that dies or gives no numbers is left out, and the report says why.

    Args:
        models: One or several ``.tflite``, path or bytes, quantized or not; other kinds as for :func:`evaluate`.
        evaluation: Labelled samples; see :func:`search`. They are given to all models as the float model takes them
            (the first model with float inputs if there is no ``reference``), and quantized for integer inputs.
        reference: The float model; it is reported first, and the others are compared with it.
        signature: As for :func:`evaluate`.
        output: Folder for ``report.json``, ``measures.csv``, ``per_class.csv``, ``confusion.csv``,
            ``disagreements.csv``, and the figures ``measures`` and ``confusion`` as ``.png`` and ``.svg``.

    Returns:
        Counts and tables.

    Raises:
        ModelError: If a file is missing or no TFLite file.
        MetricError: If a model's output is not one score per class, or the models differ in their classes.
        DataError: If there are no labels, or one is out of range.
        PreparationError: If the float model, or every model, cannot be run.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> report = autoselect.classification_report(
        ...     embedded.model_path(), evaluation="autoselect.embedded:search_samples"
        ... )
        >>> report.samples, report.classes
        (1000, 8)
    """
    are_several = isinstance(models, Iterable) and not isinstance(models, (str, Path, bytes))
    chosen = list(models) if are_several else [models]
    if not chosen:
        raise UsageError("Expected at least one model to report on, got none.")
    refuse_unknown(signature, [*chosen, *([] if reference is None else [reference])])
    contents = [_sized_content(model, evaluation, signature)[0] for model in chosen]
    metric = Prediction(output=output_name)
    with _bench(chosen, contents, reference, signature) as bench:
        class_count = _class_count(bench, metric, chosen)
        groups = _write_samples(bench, evaluation, metric, signature)
        entries = _run_all(bench, chosen, contents, reference, groups)
        warnings = list(bench.warnings)
    report = _report(entries, class_count, has_reference=reference is not None, warnings=warnings)
    if output is not None:
        from autoselect.report.figures.class_figures import write_class_report

        write_class_report(report, Path(output))
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One model of a report; exactly one of answers and error is set."""

    name: str
    path: str
    size_bytes: int
    answers: Answers | None
    error: str | None


def _class_count(bench: _Bench, metric: Prediction, models: Sequence[ModelFile]) -> int:
    """The number of classes of all models.

    Raises:
        MetricError: If one is no classifier, or they differ.
    """
    names = [*(["the reference"] if len(bench.parsed) > len(models) else []), *map(file_name, models)]
    counts: dict[str, int] = {}
    for name, parsed in zip(names, bench.parsed, strict=True):
        shape = scoring_samples.scored_shape(reader.output_specs(parsed), metric)
        try:
            counts[name] = metric.class_count(shape)
        except MetricError as exc:
            raise MetricError(
                f"{name}: {exc} This report is for classifiers; evaluate with such a metric scores other models."
            ) from exc
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise MetricError(
            f"Expected models that tell the same classes apart, got {listing} classes. "
            "Report on each kind of model by itself, or choose the output to compare (--output-name)."
        )
    return next(iter(counts.values()))


def _run_all(
    bench: _Bench,
    models: Sequence[ModelFile],
    contents: Sequence[bytes],
    reference: ModelFile | None,
    groups: Sequence[str] | None,
) -> list[_Entry]:
    names = unique_names([file_name(model) for model in models], taken=("float",) if reference is not None else ())
    entries = []
    if reference is not None:
        entries.append(_run(bench, FLOAT, groups, name="float", path=file_name(reference)))
        if entries[0].error is not None:
            raise PreparationError(f"The float model could not be run. {entries[0].error}")
    for name, model, content in zip(names, models, contents, strict=True):
        sha256 = versions.content_hash(content)
        write_bytes(bench.files.candidate(sha256), content)
        entries.append(_run(bench, sha256, groups, name=name, path=file_name(model)))
    if all(entry.error is not None for entry in entries):
        raise PreparationError(f"No model could be run. {entries[-1].path}: {entries[-1].error}")
    return entries


def _run(bench: _Bench, sha256: str, groups: Sequence[str] | None, *, name: str, path: str) -> _Entry:
    size_bytes = bench.files.candidate(sha256).stat().st_size
    try:
        rows = bench.pool.call(score_jobs.observe, bench.files.root, sha256, _PART)
    except TrialError as exc:
        return _Entry(name=name, path=path, size_bytes=size_bytes, answers=None, error=str(exc))
    answers = classification.read_answers(rows, groups)
    return _Entry(name=name, path=path, size_bytes=size_bytes, answers=answers, error=None)


def _report(
    entries: Sequence[_Entry], class_count: int, *, has_reference: bool, warnings: list[str]
) -> ClassificationReport:
    base = entries[0].answers if has_reference else None
    rows_by_table: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("measures", "per_class", "confusion", "disagreements")
    }
    samples = 0
    for entry in entries:
        if entry.answers is None:
            continue
        samples, other = len(entry.answers.y_true), None if entry is entries[0] else base
        tables: dict[str, Iterable[Any]] = {
            "measures": [
                *classification.measures(entry.answers),
                *([classification.agreement(entry.answers, other)] if other else []),
            ],
            "per_class": classification.class_rows(entry.answers, class_count, other),
            "confusion": classification.confusion(entry.answers),
            "disagreements": classification.disagreements(entry.answers, other) if other else [],
        }
        for table, rows in tables.items():
            rows_by_table[table] += [{"model": entry.name, **row} for row in rows]
    models = [{"model": e.name, "path": e.path, "size_bytes": e.size_bytes, "error": e.error} for e in entries]
    reference = entries[0].name if has_reference else None
    return ClassificationReport(
        samples=samples, classes=class_count, reference=reference, models=models, warnings=warnings, **rows_by_table
    )


def refuse_unknown(signature: str | None, models: Sequence[ModelFile]) -> None:
    """Refuse the key of a signature that no model has; a model to convert is refused as it is converted."""
    if signature is None or any(map(needs_converter, models)):
        return
    files = (TfliteFile(file_content(model)).model for model in models)
    keys = {key: None for file in files for key in signature_keys(file)}
    if signature not in keys:
        raise UsageError(unknown(signature, tuple(keys)))


def _sized_content(model: ModelFile, evaluation: object, signature: str | None) -> tuple[bytes, Shapes]:
    """The bytes of a model, or of one signature of it; sizes that it leaves free are those of the samples.

    The batch may stay free.

    Returns:
        The bytes, and the sizes of inputs that the file itself leaves free.
    """
    try:
        content = file_content(model, wishes_of(signature, None))
    except FreeSizes as free:
        return file_content(model, wishes_of(signature, _sizes(evaluation, free, signature))), {}
    with naming(model):
        file = of_signature(TfliteFile(content), signature)
        content, inputs = file.content, free_inputs(file.model)
    if not any(tensor.is_open for tensor in inputs):
        return content, {}
    with contextlib.suppress(FreeSizes):  # Samples that tell no sizes have to fit those in the file.
        sizes = sizes_of(inputs, tuple(_sizes(evaluation, FreeSizes(inputs), signature).items()))
        return fb.with_input_shapes(content, [sizes[tensor.key] for tensor in inputs]), sizes
    return content, {}


def _sizes(evaluation: object, free: FreeSizes, signature: str | None) -> dict[str, tuple[int, ...]]:
    inputs = without_targets(evaluation, [tensor.key for tensor in free.inputs])
    return sizes_in_samples(inputs, free, chosen={}, signature=signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Where models are run; the float model is written, if there is one.

    ``parsed`` holds the reference, if there is one, then the models. ``reference`` holds its bytes, and ``warnings``
    say what was done to it.
    """

    files: CaseFiles
    pool: Workers
    parsed: tuple[fb.Model, ...]
    warnings: tuple[str, ...]
    reference: bytes | None


@contextlib.contextmanager
def _bench(
    models: Sequence[ModelFile], contents: Sequence[bytes], reference: ModelFile | None, signature: str | None
) -> Iterator[_Bench]:
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = CaseFiles(root=Path(name))
        with open_pool(1, log=files.root / "worker.log") as pool:
            parsed = list[fb.Model]()
            for model, content in zip(models, contents, strict=True):
                with naming(model):
                    parsed.append(TfliteFile(content).model)
            warnings: tuple[str, ...] = ()
            float_content: bytes | None = None
            if reference is not None:
                source, key = _reference_source(reference, signature)
                beside = reader.input_specs(parsed[0])
                loaded = calibrate.load_reference(source, files, pool, beside=beside, signature=key)
                parsed.insert(0, TfliteFile(loaded.content).model)
                warnings, float_content = loaded.notes, loaded.content
            yield _Bench(files=files, pool=pool, parsed=tuple(parsed), warnings=warnings, reference=float_content)


def _reference_source(reference: ModelFile, signature: str | None) -> tuple[Path | bytes, str | None]:
    """The float model as a case takes it, and the key of the signature that its conversion still has to choose."""
    if not needs_converter(reference):
        with naming(reference):
            return of_signature(TfliteFile(file_content(reference)), signature).content, None
    return Path(reference) if isinstance(reference, (str, Path)) else file_content(reference), signature


def _write_samples(bench: _Bench, evaluation: object, metric: Metric, signature: str | None) -> tuple[str, ...] | None:
    """Write the samples as the first model with float inputs takes them; integer inputs are quantized from these.

    Returns:
        The group of each; None where they have none.
    """
    specs = [reader.input_specs(model) for model in bench.parsed]
    inputs = next((spec for spec in specs if all(tensor.dtype.kind == "f" for tensor in spec)), specs[0])
    outputs = reader.output_specs(bench.parsed[-1])
    folder = bench.files.samples("evaluation")
    store = scoring_samples.write_labelled(evaluation, folder, inputs, outputs, metric, signature)
    scoring_samples.write_split(bench.files, "heldout", "evaluation")  # There is nothing to choose.
    preparation.write_scoring(bench.files, metric, None)
    return store.groups


def unique_names(paths: Sequence[str], *, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Short names for model files: without folder and ending, numbered where that is not enough to tell them apart."""
    seen = {*taken}
    return tuple(free_name(Path(path).stem, seen, mark="-") for path in paths)
