"""What worker processes do: convert, calibrate, build, score. Each job may die without harm to the run.

A worker opens a case folder once and keeps the calibrated model, samples and float outputs for its whole life.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from autoselect.cases.compiling import Compiling, compile_report
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.measuring import Measuring, latency_columns
from autoselect.data.samples import SampleStore
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable, table_from_rows
from autoselect.domain.objectives import Objective, losses
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target, judge
from autoselect.errors import AutoselectError, BuildError, MetricError, ScoreError, UsageError
from autoselect.quantize import converter, names, probing, sources
from autoselect.quantize.build import Builder, CalibratedModel
from autoselect.quantize.nodes import find_nodes
from autoselect.quantize.predict import Predictor
from autoselect.quantize.repairs import RepairKit
from autoselect.quantize.statistics import layer_table
from autoselect.runs.files import storage_errors, write_bytes, write_json
from autoselect.scoring import evaluate, intervals, racing
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.target_penalty import on_target, require_accepted
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.latency import Latency, latency_of
from autoselect.tflite.runner import Runner

PREPARED_FORMAT = 5
"""Raised whenever what :func:`prepare` writes changes, so that no older cache entry is read."""

_MAX_KEPT_ROW = 4096
"""Evidence rows wider than this are not kept for the noise of the picks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How candidates of a case are scored; exactly one of metric and evaluator is set.

    ``fidelity`` compares with the float model whatever the metric is: on few samples it tells candidates apart
    that a metric cannot. Candidates that ``target`` refuses are not scored.
    """

    metric: Metric | None
    fidelity: Metric
    evaluator: evaluate.Evaluator | None
    target: Target
    compiling: Compiling | None = None
    measuring: Measuring = field(default_factory=Measuring)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """A built candidate, without its bytes: they lie in the case folder.

    ``compiled`` is what the target's compiler made of it and what was predicted, see
    :func:`autoselect.cases.compiling.compile_report`; empty where nothing was compiled. ``quantities`` is what the
    run's objectives measure, by column.
    """

    sha256: str
    size_bytes: int
    fragmentation: dict[str, Any]
    kinds: dict[str, str]
    fallbacks: dict[str, str]
    seconds: float
    compiled: dict[str, Any] = field(default_factory=dict)
    quantities: dict[str, float] = field(default_factory=dict)

    @property
    def costs(self) -> dict[str, float]:
        """Values of all objectives but the metric, by column; of those that are measured, what was asked for."""
        return {**self.fragmentation, **self.quantities, "size_bytes": self.size_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReply:
    """A score; ``noise`` is the standard error of the difference to float, NaN where it is left for later.

    ``sqnr_db`` says how close the outputs are to the float model's, NaN where those were not at hand.
    """

    value: float
    noise: float
    sqnr_db: float
    low: float
    high: float
    samples: int
    seconds: float
    inference_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceReply:
    """How a candidate's race ended.

    Attributes:
        dropped: True where its loss can be said not to be below its best rival's, from some of the samples.
        samples: How many were run.
        total: How many search samples there are.
        reply: The full score, as :func:`score` gives it; None for a dropped candidate.
        estimate: Of the metric on all search samples; the score itself where all were run.
        sqnr_db: As in :class:`ScoreReply`; for a dropped candidate the stratified mean over the samples run.
        seconds: Of the whole race.
        inference_seconds: Spent in the interpreter.
    """

    dropped: bool
    samples: int
    total: int
    reply: ScoreReply | None
    estimate: float
    sqnr_db: float
    seconds: float
    inference_seconds: float


def load_float_model(source: Path | bytes, out: Path) -> None:
    """Convert or read a source and write the float model."""
    write_bytes(out, sources.float_model(source))


def prepare(root: Path, out: Path, debug_samples: int, per_channel: bool) -> None:
    """Calibrate, find the nodes and measure them, unless on no samples; writes what :func:`load_prepared` reads."""
    files = CaseFiles(root=root)
    store = SampleStore.open(files.samples("calibration"))
    content = files.float_model.read_bytes()
    calibrated = converter.calibrate(content, (list(store.inputs(i).values()) for i in range(len(store))))
    model = fb.parse(calibrated)
    name_map = names.canonicalise(model)
    calibrated_model = CalibratedModel(content=fb.serialise(model), names=name_map)
    nodes = find_nodes(calibrated_model)
    picked = (store.inputs(i) for i in range(min(debug_samples, len(store))))
    table = (
        layer_table(calibrated_model, nodes, picked, per_channel=per_channel)
        if debug_samples
        else LayerTable(nodes=nodes, statistics=(None,) * len(nodes))
    )
    write_bytes(out / "calibrated.tflite", calibrated_model.content)
    write_json(out / "names.json", asdict(name_map))
    write_json(out / "layers.json", table.rows())


def probe(root: Path, recipe_json: str) -> Predictor | None:
    """Learn to predict candidates of this granularity and interface; None for a graph that cannot be predicted."""
    case = open_case(root)
    calibrated, table = case.prepared
    recipe = Recipe.from_json(recipe_json)
    try:
        return probing.probe(
            calibrated,
            table.nodes,
            per_channel=recipe.per_channel,
            io_type=recipe.io_type,
            repairs=recipe.repairs,
            kit=case.kit,
        )
    except BuildError:
        return None


def load_prepared(folder: Path) -> tuple[CalibratedModel, LayerTable]:
    """Read what :func:`prepare` wrote."""
    raw = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    name_map = names.NameMap(
        inputs=tuple(raw["inputs"]),
        outputs=tuple(raw["outputs"]),
        op_outputs=tuple(tuple(outputs) for outputs in raw["op_outputs"]),
        op_inputs=tuple(tuple(inputs) for inputs in raw["op_inputs"]),
    )
    calibrated = CalibratedModel(content=(folder / "calibrated.tflite").read_bytes(), names=name_map)
    return calibrated, table_from_rows(json.loads((folder / "layers.json").read_text(encoding="utf-8")))


class OpenCase:
    """A case as a worker holds it; everything is loaded when first needed and then kept."""

    def __init__(self, root: Path) -> None:
        self.files = CaseFiles(root=root)
        self._parts: dict[str, SampleStore] = {}
        self._references: dict[str, evaluate.ReferenceOutputs] = {}

    @cached_property
    def prepared(self) -> tuple[CalibratedModel, LayerTable]:
        """The calibrated model and the layer table."""
        return load_prepared(self.files.prepared)

    @cached_property
    def builder(self) -> Builder:
        """Builds recipes of the calibrated model."""
        calibrated, table = self.prepared
        return Builder(calibrated, table.nodes, self.kit)

    @cached_property
    def kit(self) -> RepairKit:
        """What repairs need: measured on the calibration samples when first asked for, then kept in the case."""
        calibrated, _ = self.prepared
        store = self.samples("calibration")
        return RepairKit(calibrated, lambda: (store.inputs(i) for i in range(len(store))), self._kept)

    def _kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        path = self.files.evidence / name
        if not path.exists():
            write_bytes(path, make())
        return path.read_bytes()

    @cached_property
    def scoring(self) -> Scoring:
        """How candidates are scored."""
        scoring: Scoring = cloudpickle.loads(self.files.scoring.read_bytes())
        return scoring

    def samples(self, name: str) -> SampleStore:
        """A folder of samples."""
        return SampleStore.open(self.files.samples(name))

    def part(self, part: str) -> SampleStore:
        """Samples of ``search`` or ``heldout``."""
        if part not in self._parts:
            split = json.loads(self.files.split(part).read_text(encoding="utf-8"))
            store = self.samples(split["samples"])
            self._parts[part] = store if split["indices"] is None else store.subset(split["indices"])
        return self._parts[part]

    def reference(self, part: str) -> evaluate.ReferenceOutputs | None:
        """The float model's outputs on a part, where they were kept."""
        if not self.files.reference(part).exists():
            return None
        if part not in self._references:
            self._references[part] = evaluate.ReferenceOutputs(self.files.reference(part))
        return self._references[part]


@lru_cache(maxsize=2)
def open_case(root: Path) -> OpenCase:
    """The case in a folder, opened once in a process."""
    return OpenCase(root)


def run_reference(root: Path, part: str, out: Path) -> None:
    """Run the float model over a part and keep its outputs."""
    case = open_case(root)
    runner = Runner(case.files.float_model.read_bytes())
    samples = case.part(part)
    with storage_errors(out):
        evaluate.ReferenceOutputs.write(out, (runner(samples.inputs(i)) for i in range(len(samples))))


def build(root: Path, recipe_json: str) -> BuildReply:
    """Build one recipe, keep its file, and compile it where the case says so.

    Raises:
        BuildError: If it cannot be built.
        TargetRefusal: If the target or its compiler refuses it.
        ScoreError: If its latency is asked for and the interpreter refuses it.
        WorkerDied: If the compiler hung or was killed.
    """
    case = open_case(root)
    start = time.perf_counter()
    candidate = case.builder.build(Recipe.from_json(recipe_json))
    target, how = case.scoring.target, case.scoring.compiling
    verdict = judge(candidate.graph, target)
    require_accepted(candidate.graph, target, verdict)
    path = case.files.candidate(candidate.sha256)
    if not path.exists():
        write_bytes(path, candidate.content)
    cut, compiled = asdict(on_target(candidate.graph, target, verdict)), {}
    if how is not None:
        compiled = compile_report(candidate.content, target, verdict, how)
        cut |= {"penalty": compiled["cost"], "segments": compiled["segments"]}
        cut["crossing_bytes"] = compiled["crossing_bytes"]
    return BuildReply(
        sha256=candidate.sha256,
        size_bytes=len(candidate.content),
        fragmentation=cut,
        kinds=dict(candidate.kinds),
        fallbacks=dict(candidate.fallbacks),
        seconds=time.perf_counter() - start,
        compiled=compiled,
        quantities=_quantities(case, candidate.content, candidate.graph, compiled),
    )


def _quantities(case: OpenCase, content: bytes, graph: Graph, compiled: dict[str, Any]) -> dict[str, float]:
    return case.scoring.measuring.of_model(graph, compiled, lambda threads: _latency(case, content, threads))


def _latency(case: OpenCase, content: bytes, threads: int) -> Latency:
    """On the first calibration sample: values hardly matter for the time, but indices must be real ones."""
    return latency_of(content, case.samples("calibration").inputs(0), threads=threads)


def latency(root: Path, sha256: str) -> dict[str, float]:
    """Time a candidate (or the float model) again; columns of the tables.

    Raises:
        ScoreError: If the interpreter cannot run it.
    """
    case = open_case(root)
    with _score_errors(sha256):
        content = case.files.candidate(sha256).read_bytes()
        return latency_columns(_latency(case, content, case.scoring.measuring.latency_threads))


def describe_float(root: Path) -> BuildReply:
    """Size and fragmentation of the float model."""
    case = open_case(root)
    content = case.files.float_model.read_bytes()
    graph = reader.read_graph(fb.parse(content))
    return BuildReply(
        sha256=FLOAT,
        size_bytes=len(content),
        fragmentation=asdict(on_target(graph, case.scoring.target)),
        kinds={},
        fallbacks={},
        seconds=0.0,
        quantities=_quantities(case, content, graph, {}),
    )


def score(root: Path, sha256: str, part: str, interval: bool) -> ScoreReply:
    """Score a candidate (or the float model) on a part; with an interval where asked.

    Raises:
        ScoreError: If the interpreter cannot run the candidate.
        MetricError: If the metric or evaluator fails on the float model; on a candidate that is a ScoreError.
    """
    case = open_case(root)
    start = time.perf_counter()
    with _score_errors(sha256):
        runner = Runner(case.files.candidate(sha256).read_bytes())
        if case.scoring.evaluator is not None:
            value = evaluate.call_evaluator(case.scoring.evaluator, runner, split=part)
            return _reply(start, runner, value=value)
        return _score_metric(case, runner, sha256, part, interval, start)


@contextlib.contextmanager
def _score_errors(sha256: str) -> Iterator[None]:
    """Tell what is wrong with one candidate from what is wrong with all."""
    try:
        yield
    except MetricError as exc:
        if sha256 == FLOAT:
            raise
        raise ScoreError(f"The metric has no value for this candidate. {exc}") from exc
    except AutoselectError:
        raise
    except (ValueError, RuntimeError, MemoryError) as exc:
        raise ScoreError(f"The candidate could not be scored: {type(exc).__name__}: {exc}") from exc


def observe(root: Path, sha256: str, part: str) -> np.ndarray:
    """The metric's evidence of a candidate (or the float model) on a part.

    Returns:
        Float64 of shape (n_samples, row_length).

    Raises:
        ScoreError: If the interpreter cannot run the candidate, or an output is not a number.
        MetricError: If the metric does not suit the candidate's outputs.
    """
    case = open_case(root)
    if case.scoring.metric is None:
        raise ScoreError("The case has no metric to observe.")
    try:
        runner = Runner(case.files.candidate(sha256).read_bytes())
        return evaluate.observe(runner, case.part(part), [case.scoring.metric], case.reference(part))[0]
    except (ValueError, RuntimeError, MemoryError) as exc:
        raise ScoreError(f"The model could not be run: {type(exc).__name__}: {exc}") from exc


def _score_metric(case: OpenCase, runner: Runner, sha256: str, part: str, interval: bool, start: float) -> ScoreReply:
    metric = case.scoring.metric
    if metric is None:
        raise ScoreError("The case has neither a metric nor an evaluator.")
    evidence = evaluate.observe(runner, case.part(part), _metrics(case, metric, part), case.reference(part))
    return _summary(
        case,
        metric,
        sha256,
        part,
        evidence,
        interval=interval,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )


def _metrics(case: OpenCase, metric: Metric, part: str) -> list[Metric]:
    """The metric, and fidelity where there are float outputs to compare with."""
    return [metric] if case.reference(part) is None else [metric, case.scoring.fidelity]


def _summary(
    case: OpenCase,
    metric: Metric,
    sha256: str,
    part: str,
    evidence: Sequence[np.ndarray],
    *,
    interval: bool,
    seconds: float,
    inference_seconds: float,
) -> ScoreReply:
    """The score from the evidence of the metric and, where there is any, of fidelity; keeps that of the search."""
    rows, *closeness = evidence
    value = metric.summarise(rows)
    if part == "search":
        _keep_rows(case.files, sha256, rows, closeness)
    low, high = intervals.confidence_interval(metric, rows) if interval else (np.nan, np.nan)
    noise = _noise(case, metric, rows) if metric.is_mean and part == "search" else np.nan
    return ScoreReply(
        value=value,
        noise=noise,
        sqnr_db=case.scoring.fidelity.summarise(closeness[0]) if closeness else np.nan,
        low=low,
        high=high,
        samples=len(rows),
        seconds=seconds,
        inference_seconds=inference_seconds,
    )


def _keep_rows(files: CaseFiles, sha256: str, rows: np.ndarray, closeness: Sequence[np.ndarray]) -> None:
    if rows.shape[1] <= _MAX_KEPT_ROW:
        _write_array(files.rows(sha256), rows)
    for fidelity_rows in closeness:
        _write_array(files.fidelity_rows(sha256), fidelity_rows)


def _write_array(path: Path, array: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, array)
    write_bytes(path, content.getvalue())


def keep_schedule(root: Path, sha256: str, seed: int) -> racing.Schedule:
    """Keep in which order candidates see the search samples when they race.

    Args:
        root: The case.
        sha256: A candidate scored on the search samples, at best the all-integer one; a sample is hard where its
            outputs are far from the float model's.
        seed: Of the order.

    Returns:
        What was kept for :func:`race`.

    Raises:
        UsageError: If the candidate is not scored, or the case has no float outputs.
        StorageError: If it cannot be written.
    """
    files = open_case(root).files
    path = files.fidelity_rows(sha256)
    if not path.exists():
        raise UsageError(
            f"expected a candidate scored against float outputs, got {sha256!r} without {path}. Score it first."
        )
    made = racing.schedule(-np.load(path)[:, 0], seed)
    content = io.BytesIO()
    np.savez(content, order=made.order, strata=made.strata, looks=np.array(made.looks))
    write_bytes(files.schedule, content.getvalue())
    return made


def _schedule(files: CaseFiles) -> racing.Schedule:
    if not files.schedule.exists():
        raise UsageError(f"expected a schedule to race by, got none at {files.schedule}. Call keep_schedule first.")
    with np.load(files.schedule) as kept:
        return racing.Schedule(order=kept["order"], strata=kept["strata"], looks=tuple(kept["looks"].tolist()))


def race(root: Path, sha256: str, rivals: Sequence[str], confidence: float) -> RaceReply:
    """Score a candidate on the search samples, look by look, until it is sure not to be better than its rivals.

    Args:
        root: A case with a schedule, see :func:`keep_schedule`.
        sha256: The candidate.
        rivals: Scored candidates (or the float model) that it must beat. The one with the least loss decides; those
            without kept rows do not take part, and without any the candidate gets its full score.
        confidence: With which a candidate that would beat them is not dropped, above 0 and below 1.

    Raises:
        ScoreError, MetricError: As :func:`score`.
        UsageError: If there is no schedule, or the metric is not a mean over samples.
    """
    case = open_case(root)
    start = time.perf_counter()
    metric = case.scoring.metric
    if metric is None or not metric.is_mean:
        raise UsageError(
            "expected a metric that is a mean over samples to race by, got another. Score in full instead."
        )
    with _score_errors(sha256):
        runner = Runner(case.files.candidate(sha256).read_bytes())
        return _race(case, metric, runner, sha256, _best_rows(case.files, metric, rivals), confidence, start)


def _best_rows(files: CaseFiles, metric: Metric, rivals: Sequence[str]) -> np.ndarray | None:
    """Rows of the rival with the least loss; None if none has rows."""
    kept = [np.load(files.rows(rival)) for rival in rivals if files.rows(rival).exists()]
    if not kept:
        return None
    scores = np.array([[metric.summarise(rows)] for rows in kept])
    best = np.argmin(losses(scores, [Objective(name=metric.name, direction=metric.direction)]))
    rows: np.ndarray = kept[int(best)]
    return rows


def _race(
    case: OpenCase,
    metric: Metric,
    runner: Runner,
    sha256: str,
    rival: np.ndarray | None,
    confidence: float,
    start: float,
) -> RaceReply:
    schedule = _schedule(case.files)
    last = len(schedule.looks) - 1
    for look, evidence in enumerate(_evidence_by_look(case, metric, runner, schedule)):
        if look == last or rival is None:
            continue
        if racing.verdict(evidence[0], rival, schedule, look, metric.direction, confidence):
            estimates = [racing.stratified_mean(rows, schedule, look) for rows in evidence]
            return _race_reply(runner, schedule, look, start, estimates)
    reply = _summary(
        case,
        metric,
        sha256,
        "search",
        evidence,
        interval=False,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )
    return _race_reply(runner, schedule, last, start, [reply.value, reply.sqnr_db], reply)


def _evidence_by_look(
    case: OpenCase, metric: Metric, runner: Runner, schedule: racing.Schedule
) -> Iterator[list[np.ndarray]]:
    """What is known at each look, in sample order and NaN where nothing is; the same arrays, filled up."""
    samples, metrics = case.part("search"), _metrics(case, metric, "search")
    evidence = [np.full((len(samples), 1), np.nan) for _ in metrics]
    for look in range(len(schedule.looks)):
        block = schedule.block(look)
        observed = evaluate.observe(runner, samples, metrics, case.reference("search"), block.tolist())
        for rows, new in zip(evidence, observed, strict=True):
            rows[block] = new
        yield evidence


def _race_reply(
    runner: Runner,
    schedule: racing.Schedule,
    look: int,
    start: float,
    estimates: Sequence[float],
    reply: ScoreReply | None = None,
) -> RaceReply:
    estimate, *closeness = estimates
    return RaceReply(
        dropped=reply is None,
        samples=schedule.looks[look],
        total=len(schedule.order),
        reply=reply,
        estimate=estimate,
        sqnr_db=closeness[0] if closeness else np.nan,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )


def noise(root: Path, sha256: str) -> float:
    """Standard error of a scored candidate's difference to float on the search samples; 0 where unknown."""
    case = open_case(root)
    metric = case.scoring.metric
    if metric is None:
        return 0.0
    path = case.files.rows(sha256)
    rows = np.load(path) if path.exists() else _search_rows(case, metric, sha256)
    return _noise(case, metric, rows)


def _search_rows(case: OpenCase, metric: Metric, sha256: str) -> np.ndarray:
    runner = Runner(case.files.candidate(sha256).read_bytes())
    return evaluate.observe(runner, case.part("search"), [metric], case.reference("search"))[0]


def _noise(case: OpenCase, metric: Metric, rows: np.ndarray) -> float:
    reference = case.files.rows(FLOAT)
    if not reference.exists():
        return 0.0
    value = intervals.paired_standard_error(metric, rows, np.load(reference))
    return float(value) if np.isfinite(value) else 0.0


def _reply(start: float, runner: Runner, *, value: float) -> ScoreReply:
    return ScoreReply(
        value=value,
        noise=0.0,
        sqnr_db=np.nan,
        low=np.nan,
        high=np.nan,
        samples=0,
        seconds=time.perf_counter() - start,
        inference_seconds=runner.inference_seconds,
    )
