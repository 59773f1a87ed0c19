"""What is kept of each trial, and the tables made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from autoselect.domain.graph import OpKind
from autoselect.domain.quantities import CountsLeft, stored_bytes
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Standing
from autoselect.errors import ErrorKind

MEASURED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "arena_bytes": ("arena_bytes",),
    "npu_cycles": ("npu_cycles",),
    "partitions": ("partitions",),
    "left_ops": ("left_ops",),
    "ddr_bytes": ("ddr_bytes",),
    "flash_bytes": ("flash_bytes",),
    "download_bytes": ("download_bytes",),
    "latency_ms": ("latency_ms", "latency_low", "latency_high"),
}
"""Columns that tables have only where an objective asks for them, by that objective's column."""

_COST_COLUMNS = ("size_bytes", "penalty", "segments", "partitions", "float_ops", "left_ops", "crossing_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What is measured of a candidate, on all samples or on part of them.

    Attributes:
        sha256: Of the candidate's bytes.
        samples: How many were run; 0 for an evaluator of the user's.
        sqnr_db: How close the outputs are to the float model's, a mean of decibels; NaN where that is unknown.
        size_bytes: Of the file.
        penalty: Fragmentation penalty.
        build_seconds: Spent building.
        score_seconds: Spent scoring.
        inference_seconds: Of that, in the interpreter.
        quantities: What some objectives measure, by column: ``arena_bytes``, ``npu_cycles``, ``flash_bytes``,
            ``download_bytes``, ``latency_ms`` with ``latency_low`` and ``latency_high``; only what the run's
            objectives ask for.
        divergence: Mean over the samples of the outputs' error power over signal power; NaN where unknown, and in
            records of earlier versions.
    """

    sha256: str
    samples: int
    sqnr_db: float
    size_bytes: int
    penalty: float
    build_seconds: float
    score_seconds: float
    inference_seconds: float
    quantities: dict[str, float] = field(default_factory=dict)
    divergence: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores(_Measured, CountsLeft):
    """Everything measured of one distinct candidate.

    Attributes:
        metric: Score on the search samples.
        drop: Loss against the float model, in the metric's units.
        drop_noise: Standard error of ``drop``, from paired samples; NaN where it is measured for the front alone,
            with a function of the user's.
        float_macs_share: 0..1.
        fallbacks: For denylisted nodes that are not what the recipe's fallback says, why.
        compiled: What the target's compiler made of it, and what was predicted; empty where nothing was compiled.
        off_chip: Ops that the target's compiler leaves to the host; None where no compiler decides, and in records of
            earlier versions.
        drop_bound: What ``drop`` is at most on other samples, with a confidence of 95 %, from paired samples; NaN like
            ``drop_noise``, with an evaluator that returns one number, and in records of earlier versions.
        needs: The oldest runtimes that load it, see :func:`autoselect.domain.runtimes.needs_of`; empty in records
            of earlier versions.
    """

    metric: float
    drop: float
    drop_noise: float
    segments: int
    float_ops: int
    crossing_tensors: int
    crossing_bytes: int
    float_macs_share: float
    fallbacks: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, Any] = field(default_factory=dict)
    off_chip: int | None = None
    drop_bound: float = math.nan
    needs: dict[str, str] = field(default_factory=dict)

    @property
    def standing(self) -> Standing:
        """What the rule of the recommendation looks at, by the candidate's own samples alone."""
        is_bounded = math.isfinite(self.drop_bound)
        return Standing(
            id=self.sha256[:10],
            drop=self.drop,
            bound=self.drop_bound if is_bounded else math.inf,
            fidelity=math.inf if math.isnan(self.sqnr_db) else self.sqnr_db,
            size_bytes=stored_bytes(self.size_bytes, self.quantities),
            penalty=self.penalty,
            left_ops=self.left_ops,
            is_bounded=is_bounded,
        )

    @property
    def costs(self) -> dict[str, float]:
        """Values of all objectives but the metric, by column; of those that are measured, what was asked for."""
        figures: dict[str, float] = {column: float(getattr(self, column)) for column in _COST_COLUMNS}
        return {**figures, **self.quantities}


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial(_Measured):
    """What is known, from part of the samples, of a candidate that was dropped: it adds too little to the front.

    Attributes:
        total: How many samples there are; means over them are estimates.
        estimate: Of the metric over all samples; never a score.
        drop: Loss against float that the estimate stands for; NaN in records of earlier versions.
    """

    total: int
    estimate: float
    drop: float = math.nan


BY_HAND = "user"
"""Origin of a trial whose recipe a user made; it is none of the search's budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One trial of the study.

    Attributes:
        number: Of the trial.
        origin: ``baseline:…``, the sampler's name, or ``user``.
        recipe: Resolved; None where the trial failed before it had one.
        scores: None for a failed or dropped trial.
        reused: True where the score was known already.
        violations: How far each constraint is passed, by name; at most 0 where it is met.
        error: Why it failed, for people.
        error_kind: The kind of that; None for what did not fail, and in records of earlier versions.
        error_nodes: Where an op could not be run, its node first, then the nodes that compute what it fails at.
        partial: What is known of a dropped trial; None for all others.
        forecast_error: How the file is unlike what was forecast of it; empty where it is alike.
    """

    number: int
    origin: str
    recipe: Recipe | None
    scores: Scores | None = None
    reused: bool = False
    violations: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    error_kind: ErrorKind | None = None
    error_nodes: tuple[str, ...] = ()
    partial: Partial | None = None
    forecast_error: str = ""

    @property
    def feasible(self) -> bool:
        """Whether it is scored and breaks no constraint."""
        return self.scores is not None and max(self.violations.values(), default=0.0) <= 0.0

    @property
    def id(self) -> str:
        """Name of the candidate: the first ten digits of its bytes' hash; empty for a failed trial."""
        measurement = self.scores or self.partial
        return measurement.sha256[:10] if measurement else ""

    def known_scores(self, nodes: Sequence[str]) -> Scores | None:
        """The trial's scores, None if it has none; an all-float candidate's have the bound of :func:`with_float_known`.

        A candidate is all-float if its recipe has all of ``nodes`` in float, and its outputs are more than 100 dB close
        to the float model's, which leaves room for rounding alone.
        """
        scores, recipe = self.scores, self.recipe
        # Rounding of float32 leaves outputs 130 dB or more from each other's.
        if scores is None or recipe is None or not nodes or recipe.io_type != "float32" or not scores.sqnr_db > 100.0:
            return scores
        if any(recipe.kind_of(node, scores.fallbacks.get(node)) is not OpKind.FLOAT for node in nodes):
            return scores
        return replace(scores, drop_noise=1e-9 * abs(scores.metric) or 1e-9, drop_bound=scores.drop)

    @property
    def samples(self) -> int:
        """How many search samples were run for it."""
        measurement = self.scores or self.partial
        return measurement.samples if measurement and not self.reused else 0


def distinct(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The first record of each distinct candidate that was scored."""
    first: dict[str, TrialRecord] = {}
    for record in records:
        if record.scores is not None:
            first.setdefault(record.scores.sha256, record)
    return list(first.values())


def with_float_known(records: Iterable[TrialRecord], nodes: Sequence[str]) -> list[TrialRecord]:
    """The records in their order; the bound on the drop of an all-float candidate is its drop on these samples.

    Such a candidate computes what the float model computes, so that other samples bring no further loss. By the samples
    alone it could lose as much as a quantized model that was not seen to differ from float.

    Args:
        records: Trials of a search.
        nodes: Names of all nodes of the model. If there are none, no candidate counts as all-float.
    """
    return [replace(record, scores=record.known_scores(nodes)) for record in records]


def own_trials(records: Iterable[TrialRecord]) -> int:
    """Count the trials of the search's budget."""
    return sum(record.origin != BY_HAND for record in records)


def scores_of(records: Iterable[TrialRecord]) -> list[Scores]:
    """The scores of those that were scored."""
    return [r.scores for r in records if r.scores is not None]


_SCORE_COLUMNS = (
    "drop",
    "sqnr_db",
    "size_bytes",
    "penalty",
    "segments",
    "float_ops",
    "crossing_tensors",
    "crossing_bytes",
    "float_macs_share",
)


_EXPECTED_COLUMNS = ("expected_drop", "expected_drop_bound")
_LAST_COLUMNS = ("fallbacks", "compiled", "forecast_error", "recipe")
TEXT_COLUMNS = frozenset({"id", "state", "origin", "fingerprint", "sha256", "error", *_LAST_COLUMNS, "pick", "file"})
"""Columns of ``trials.csv`` and ``front.csv`` that hold words; all others hold numbers and truth values."""

_TIME_COLUMNS = ("build_seconds", "score_seconds", "inference_seconds")


def measured_columns(costs: Sequence[str]) -> tuple[str, ...]:
    """Columns that tables have beside the usual ones, for the objectives of a run."""
    return tuple(name for column in costs for name in MEASURED_COLUMNS.get(column, ()))


def trial_columns(metric: str, costs: Sequence[str] = ()) -> tuple[str, ...]:
    """Columns of ``trials.csv``, for the columns of a run's objectives."""
    head = ("number", "id", "state", "origin", "reused", metric, *_SCORE_COLUMNS, *measured_columns(costs), "samples")
    tail = ("feasible", "on_front", "fingerprint", "sha256", *_TIME_COLUMNS, "error", *_LAST_COLUMNS)
    return tuple(dict.fromkeys(head + tail))


def trial_row(record: TrialRecord, metric: str, front: Collection[str], costs: Sequence[str] = ()) -> dict[str, object]:
    """One row of ``trials.csv``."""
    scores, recipe = record.scores, record.recipe
    row: dict[str, object] = dict.fromkeys(trial_columns(metric, costs), "")
    row |= {
        "number": record.number,
        "id": record.id,
        "state": "complete" if scores else "dropped" if record.partial else "failed",
        "origin": record.origin,
        "reused": record.reused,
        "feasible": record.feasible if scores else "",
        "on_front": record.id in front,
        "error": record.error or "",
        "forecast_error": record.forecast_error,
        "fingerprint": recipe.fingerprint if recipe else "",
        "recipe": " ".join(recipe.to_json().split()) if recipe else "",
    }
    if measurement := scores or record.partial:
        columns = ("sqnr_db", "size_bytes", "penalty", "samples", "sha256", *_TIME_COLUMNS)
        row |= {**_measured(measurement, costs), **{column: getattr(measurement, column) for column in columns}}
    if scores:
        row |= {metric: scores.metric, **{column: getattr(scores, column) for column in _SCORE_COLUMNS}}
        row["fallbacks"] = json.dumps(scores.fallbacks, sort_keys=True)
        row["compiled"] = json.dumps(scores.compiled, sort_keys=True) if scores.compiled else ""
    return row


def fallbacks_in(row: Mapping[Any, Any]) -> dict[str, str]:
    """Read why nodes did not become what the recipe says, from a candidate's row of ``trials.csv``.

    Returns:
        The reason by the node's name; empty if all nodes became what the recipe says.

    Raises:
        ValueError: If the cell is damaged.
    """
    cell = row.get("fallbacks")
    return json.loads(cell) if isinstance(cell, str) else {}


def _measured(measurement: _Measured, costs: Sequence[str]) -> dict[str, object]:
    figures = measurement.costs if isinstance(measurement, Scores) else measurement.quantities
    return {column: figures.get(column, "") for column in measured_columns(costs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heldout:
    """What a model reaches on samples that chose nothing; None where that is unknown.

    Attributes:
        score: In the metric's units.
        low: 95 % interval of the score.
        high: Likewise.
        drop: Loss against the float model on the same samples, in the metric's units.
        drop_low: 95 % interval of the drop: of the recommended model its own, of all others one that holds for them
            together.
        drop_high: Likewise.
    """

    score: float | None = None
    low: float | None = None
    high: float | None = None
    drop: float | None = None
    drop_low: float | None = None
    drop_high: float | None = None

    def cells(self, name: str) -> dict[str, float | None]:
        """As cells of a table; the column of the score is called ``name``."""
        return {name if f.name == "score" else f"heldout_{f.name}": getattr(self, f.name) for f in fields(self)}


NOT_HELD_OUT = Heldout()


def front_columns(metric: str, costs: Sequence[str] = ()) -> tuple[str, ...]:
    """Columns of ``front.csv``, for the columns of a run's objectives."""
    heldout = NOT_HELD_OUT.cells(f"heldout_{metric}")
    scored = ("id", metric, *_SCORE_COLUMNS, "drop_bound", *_EXPECTED_COLUMNS, *measured_columns(costs), *heldout)
    columns = (*scored, "sha256", "pick", "origin", "file")
    return tuple(dict.fromkeys(columns))


def metric_column(name: str) -> str:
    """What the tables call a metric: its name, with ``metric_`` before it where other columns have that already."""
    others = {*trial_columns("", tuple(MEASURED_COLUMNS)), *front_columns("", tuple(MEASURED_COLUMNS)), "heldout"}
    return f"metric_{name}" if others & {name, f"heldout_{name}"} else name


def front_row(
    record: TrialRecord,
    metric: str,
    heldout: Heldout | None,
    picks: Sequence[str],
    expected: Standing,
    costs: Sequence[str] = (),
) -> dict[str, object]:
    """One row of ``front.csv``; held-out cells are empty where the member was not re-scored."""
    scores = record.scores
    if scores is None:
        raise ValueError("a failed trial is on no front")
    row: dict[str, object] = {column: getattr(scores, column) for column in (*_SCORE_COLUMNS, "drop_bound")}
    bound = expected.bound if math.isfinite(expected.bound) else math.nan
    row |= dict(zip(_EXPECTED_COLUMNS, (expected.drop, bound), strict=True))
    row |= {"id": record.id, metric: scores.metric, "sha256": scores.sha256, "origin": record.origin}
    cells = (heldout or NOT_HELD_OUT).cells(f"heldout_{metric}")
    row |= {column: "" if value is None else value for column, value in cells.items()}
    row |= {"pick": ",".join(picks), "file": f"front/{record.id}.tflite", **_measured(scores, costs)}
    return {column: row[column] for column in front_columns(metric, costs)}
