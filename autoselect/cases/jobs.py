"""What worker processes do: convert, calibrate, build, score. Each job may die without harm to the run.

A worker opens a case folder once and keeps the calibrated model, samples and float outputs for its whole life.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.data.samples import SampleStore
from autoselect.domain.layers import LayerTable, table_from_rows
from autoselect.domain.recipe import Recipe
from autoselect.errors import AutoselectError, MetricError, ScoreError
from autoselect.quantize import converter, names, sources
from autoselect.quantize.build import Builder, CalibratedModel
from autoselect.quantize.nodes import find_nodes
from autoselect.quantize.statistics import layer_table
from autoselect.runs.files import storage_errors, write_bytes, write_json
from autoselect.scoring import evaluate, intervals
from autoselect.scoring.fragmentation import PenaltyWeights, fragmentation
from autoselect.scoring.metric_base import Metric
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

PREPARED_FORMAT = 3
"""Raised whenever what :func:`prepare` writes changes, so that no older cache entry is read."""

_MAX_KEPT_ROW = 4096
"""Evidence rows wider than this are not kept for the noise of the picks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How candidates of a case are scored; exactly one of metric and evaluator is set.

    ``fidelity`` compares with the float model whatever the metric is: on few samples it tells candidates apart
    that a metric cannot.
    """

    metric: Metric | None
    fidelity: Metric
    evaluator: evaluate.Evaluator | None
    weights: PenaltyWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """A built candidate, without its bytes: they lie in the case folder."""

    sha256: str
    size_bytes: int
    fragmentation: dict[str, Any]
    kinds: dict[str, str]
    fallbacks: dict[str, str]
    seconds: float


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


def load_float_model(source: Path | bytes, out: Path) -> None:
    """Convert or read a source and write the float model."""
    write_bytes(out, sources.float_model(source))


def prepare(root: Path, out: Path, debug_samples: int, per_channel: bool) -> None:
    """Calibrate, find the nodes and measure them; writes what :func:`load_prepared` reads."""
    files = CaseFiles(root=root)
    store = SampleStore.open(files.samples("calibration"))
    content = files.float_model.read_bytes()
    calibrated = converter.calibrate(content, (list(store.inputs(i).values()) for i in range(len(store))))
    model = fb.parse(calibrated)
    name_map = names.canonicalise(model)
    calibrated_model = CalibratedModel(content=fb.serialise(model), names=name_map)
    nodes = find_nodes(calibrated_model)
    picked = (store.inputs(i) for i in range(min(debug_samples, len(store))))
    table = layer_table(calibrated_model, nodes, picked, per_channel=per_channel)
    write_bytes(out / "calibrated.tflite", calibrated_model.content)
    write_json(out / "names.json", asdict(name_map))
    write_json(out / "layers.json", table.rows())


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


class _OpenCase:
    """A case as a worker holds it; everything is loaded when first needed and then kept."""

    def __init__(self, root: Path) -> None:
        self.files = CaseFiles(root=root)
        self._parts: dict[str, SampleStore] = {}
        self._references: dict[str, evaluate.ReferenceOutputs] = {}

    @cached_property
    def builder(self) -> Builder:
        calibrated, table = load_prepared(self.files.prepared)
        return Builder(calibrated, table.nodes)

    @cached_property
    def scoring(self) -> Scoring:
        scoring: Scoring = cloudpickle.loads(self.files.scoring.read_bytes())
        return scoring

    def part(self, part: str) -> SampleStore:
        if part not in self._parts:
            split = json.loads(self.files.split(part).read_text(encoding="utf-8"))
            store = SampleStore.open(self.files.samples(split["samples"]))
            self._parts[part] = store if split["indices"] is None else store.subset(split["indices"])
        return self._parts[part]

    def reference(self, part: str) -> evaluate.ReferenceOutputs | None:
        if not self.files.reference(part).exists():
            return None
        if part not in self._references:
            self._references[part] = evaluate.ReferenceOutputs(self.files.reference(part))
        return self._references[part]


@lru_cache(maxsize=2)
def _open(root: Path) -> _OpenCase:
    return _OpenCase(root)


def run_reference(root: Path, part: str, out: Path) -> None:
    """Run the float model over a part and keep its outputs."""
    case = _open(root)
    runner = Runner(case.files.float_model.read_bytes())
    samples = case.part(part)
    with storage_errors(out):
        evaluate.ReferenceOutputs.write(out, (runner(samples.inputs(i)) for i in range(len(samples))))


def build(root: Path, recipe_json: str) -> BuildReply:
    """Build one recipe and keep its file."""
    case = _open(root)
    start = time.perf_counter()
    candidate = case.builder.build(Recipe.from_json(recipe_json))
    path = case.files.candidate(candidate.sha256)
    if not path.exists():
        write_bytes(path, candidate.content)
    return BuildReply(
        sha256=candidate.sha256,
        size_bytes=len(candidate.content),
        fragmentation=asdict(fragmentation(candidate.graph, case.scoring.weights)),
        kinds=dict(candidate.kinds),
        fallbacks=dict(candidate.fallbacks),
        seconds=time.perf_counter() - start,
    )


def describe_float(root: Path) -> BuildReply:
    """Size and fragmentation of the float model."""
    case = _open(root)
    content = case.files.float_model.read_bytes()
    graph = reader.read_graph(fb.parse(content))
    return BuildReply(
        sha256=FLOAT,
        size_bytes=len(content),
        fragmentation=asdict(fragmentation(graph, case.scoring.weights)),
        kinds={},
        fallbacks={},
        seconds=0.0,
    )


def score(root: Path, sha256: str, part: str, interval: bool) -> ScoreReply:
    """Score a candidate (or the float model) on a part; with an interval where asked.

    Raises:
        ScoreError: If the interpreter cannot run the candidate.
        MetricError: If the metric or evaluator fails on the float model; on a candidate that is a ScoreError.
    """
    case = _open(root)
    start = time.perf_counter()
    try:
        runner = Runner(case.files.candidate(sha256).read_bytes())
        if case.scoring.evaluator is not None:
            value = evaluate.call_evaluator(case.scoring.evaluator, runner, split=part)
            return _reply(start, runner, value=value)
        return _score_metric(case, runner, sha256, part, interval, start)
    except MetricError as exc:
        if sha256 == FLOAT:
            raise
        raise ScoreError(f"The metric has no value for this candidate. {exc}") from exc
    except AutoselectError:
        raise
    except (ValueError, RuntimeError, MemoryError) as exc:
        raise ScoreError(f"The candidate could not be scored: {type(exc).__name__}: {exc}") from exc


def _score_metric(case: _OpenCase, runner: Runner, sha256: str, part: str, interval: bool, start: float) -> ScoreReply:
    metric, fidelity = case.scoring.metric, case.scoring.fidelity
    if metric is None:
        raise ScoreError("The case has neither a metric nor an evaluator.")
    reference = case.reference(part)
    metrics = [metric] if reference is None else [metric, fidelity]
    rows, *closeness = evaluate.observe(runner, case.part(part), metrics, reference)
    seconds = time.perf_counter() - start
    value = metric.summarise(rows)
    if part == "search" and rows.shape[1] <= _MAX_KEPT_ROW:
        with storage_errors(case.files.rows(sha256)):
            case.files.rows(sha256).parent.mkdir(parents=True, exist_ok=True)
            np.save(case.files.rows(sha256), rows)
    low, high = intervals.confidence_interval(metric, rows) if interval else (np.nan, np.nan)
    noise = _noise(case, metric, rows) if metric.is_mean and part == "search" else np.nan
    return ScoreReply(
        value=value,
        noise=noise,
        sqnr_db=fidelity.summarise(closeness[0]) if closeness else np.nan,
        low=low,
        high=high,
        samples=len(rows),
        seconds=seconds,
        inference_seconds=runner.inference_seconds,
    )


def noise(root: Path, sha256: str) -> float:
    """Standard error of a scored candidate's difference to float on the search samples; 0 where unknown."""
    case = _open(root)
    metric = case.scoring.metric
    if metric is None:
        return 0.0
    path = case.files.rows(sha256)
    rows = np.load(path) if path.exists() else _search_rows(case, metric, sha256)
    return _noise(case, metric, rows)


def _search_rows(case: _OpenCase, metric: Metric, sha256: str) -> np.ndarray:
    runner = Runner(case.files.candidate(sha256).read_bytes())
    return evaluate.observe(runner, case.part("search"), [metric], case.reference("search"))[0]


def _noise(case: _OpenCase, metric: Metric, rows: np.ndarray) -> float:
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
