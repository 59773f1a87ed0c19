"""What the functions on model files return; it refuses to know how that is found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.domain.objectives import Constraints, Direction, drop_from, refuse_per_cent
from autoselect.domain.quantities import parse_size
from autoselect.domain.result import Result
from autoselect.errors import UsageError

Rows = list[dict[str, Any]]
"""A table: ``pandas.DataFrame`` takes it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Score(Result):
    """One model on labelled samples.

    Attributes:
        metric: Its name.
        direction: Whether more or less of it is better.
        score: On all samples.
        low: Lower end of its 95 % interval; None where the metric has none.
        high: Upper end.
        samples: How many there were.
        drop: How much worse than the reference the model is on the same samples, in the metric's units; None without a
            reference, and for metrics that compare with it themselves.
        size_bytes: Of the file.
        penalty: Fragmentation penalty, or that of the target; None for several chips, each of which has its own in
            ``target``. What follows belongs to it.
        segments: Runs of integer ops; of a target the pieces that its accelerator runs.
        float_ops: Ops that compute in float.
        crossing_tensors: Tensors between accelerator and host; for ``integer-only`` between integer and float.
        crossing_bytes: Their bytes.
        float_macs_share: Share of the multiplications that are done in float.
        warnings: What was done to the reference before it was run, in sentences.
        target: As :attr:`Inspection.target`; None if none was named.
    """

    metric: str
    direction: Direction
    score: float
    low: float | None
    high: float | None
    samples: int
    drop: float | None
    size_bytes: int
    penalty: float | None
    segments: int
    float_ops: int
    crossing_tensors: int
    crossing_bytes: int
    float_macs_share: float
    warnings: list[str]
    target: Mapping[str, Any] | None = None

    def unmet(
        self, *, max_drop: float | None = None, min_score: float | None = None, max_size: float | str | None = None
    ) -> tuple[str, ...]:
        """The limits that the model misses, as sentences.

        Args:
            max_drop: Largest drop against the reference.
            min_score: What it must score; at most, where the metric is minimized.
            max_size: Largest file: bytes, or a text such as ``48kB``.

        Raises:
            UsageError: If there is a limit to the drop but no drop, or one is no number or above all drops.
        """
        for name, limit in (("max_drop", max_drop), ("min_score", min_score), ("max_size", max_size)):
            if isinstance(limit, float) and not math.isfinite(limit):
                raise UsageError(f"{name}: expected a finite number, got {limit}.")
        if max_drop is not None and self.drop is None:
            raise UsageError(
                "max_drop: there is no drop. Pass the float model as reference (--reference), or, for a metric that "
                f"compares with it itself, limit the score ({self.metric}) by min_score (--min-score)."
            )
        refuse_per_cent(self.metric, max_drop)
        size = parse_size(max_size) if isinstance(max_size, str) else max_size
        limits = Constraints(max_drop=max_drop, max_size_bytes=size)
        passed = limits.violations(drop=self.drop or 0.0, size_bytes=self.size_bytes, penalty=0.0)
        sentences = []
        if passed["max_drop"] > 0:
            sentences.append(f"The drop in {self.metric} is {self.drop:.4g}, and at most {max_drop:.4g} is allowed.")
        if min_score is not None and drop_from(min_score, self.score, self.direction) > 0:
            bound = "at least" if self.direction == "maximize" else "at most"
            sentences.append(f"The {self.metric} is {self.score:.4g}, and {bound} {min_score:.4g} is asked for.")
        if passed["max_size"] > 0:
            sentences.append(f"The file has {self.size_bytes} bytes, and at most {size:.0f} are allowed.")
        return tuple(sentences)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Built(Result):
    """A model that was built from a recipe.

    Attributes:
        path: The file.
        sha256: Of its bytes, hex.
        size_bytes: Of the file.
        kinds: By node: integer, int16, hybrid or float.
        fallbacks: By node: why it is not what the recipe says.
        warnings: What was done to the source, and what of it cannot be quantized or proved.
    """

    path: str
    sha256: str
    size_bytes: int
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, str]
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompiledModel(Result):
    """What a chip's compiler made of a model.

    Attributes:
        target: Name of the chip's profile.
        path: The file.
        sha256: Of its bytes, hex.
        size_bytes: Of the file.
        ops: How many the model has.
        partitions: Pieces of work for the chip.
        left_ops: Ops that are left to the CPU.
        pieces: For each piece ``ops`` (their numbers in the model), ``ops_by_type``, and ``input_bytes``,
            ``output_bytes`` and ``constant_bytes``.
        left: For each op that is left ``op`` (its number), ``op_type``, ``precision`` (None for shapes and indices),
            ``name`` (of its first output) and ``reason``.
        crossing_bytes: Of the tensors between the chip and the CPU.
        ddr_bytes: Bytes that the pieces move to and from memory outside of the chip; 0 where the compiler does not say.
        moved: The same by kind, in the compiler's words.
        sram_bytes: Memory that the compiler allotted in SRAM; 0 where it does not say.
        dram_bytes: Memory that it allotted in DRAM, of values and weights; likewise.
        flash_bytes: Read-only memory of what the chip runs; likewise.
        cycles: The compiler's estimate for the chip alone; likewise.
        cost: What the compiler estimates of these, and the profile's cost of all else.
        unit: Of the cost.
        versions: Of the compiler and its libraries.
        licence: What is to know of the licence of these; empty where nothing is.
        warnings: In sentences.
    """

    target: str
    path: str
    sha256: str
    size_bytes: int
    ops: int
    partitions: int
    left_ops: int
    pieces: Rows
    left: Rows
    crossing_bytes: int
    ddr_bytes: int
    moved: Mapping[str, int]
    sram_bytes: int
    dram_bytes: int
    flash_bytes: int
    cycles: int
    cost: float
    unit: str
    versions: Mapping[str, str]
    licence: str
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compilation(Result):
    """A model that was compiled for one or several chips.

    Attributes:
        path: The model, or a mark of bytes.
        size_bytes: Of the model.
        models: What became of it, for each chip.
        failed: By chip, why there is no file for it.
    """

    path: str
    size_bytes: int
    models: list[CompiledModel]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Picked(Result):
    """A member of the front that was copied out of a run folder; also reads like its row of ``front.csv``.

    Attributes:
        path: The file.
        card: Its model card, a Markdown file beside it.
        id: Of the member.
        sha256: Of the file, hex.
        row: All of its row of ``front.csv``.
        compiled: The files beside it that are compiled for chips.
        warnings: What is to know of a run that met no limits or was stopped; why one of these is missing, and the
            command that writes it.
    """

    path: str
    card: str
    id: str
    sha256: str
    row: Mapping[str, Any]
    compiled: list[CompiledModel]
    warnings: list[str]

    def _items(self) -> dict[str, Any]:
        added = {"path": self.path, "card": self.card, "compiled": self.compiled, "warnings": self.warnings}
        return {**self.row, **added}

    def __repr__(self) -> str:
        return f"Picked(path={self.path!r}, card={self.card!r}, id={self.id!r})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inspection(Result):
    """What a model file holds; the values are plain.

    Attributes:
        path: The file, or a mark of bytes.
        size_bytes: Of the file.
        sizes: Bytes by part of the file.
        buffers: Counts and bytes of its buffers.
        tensors_by_dtype: Counts.
        ops_by_type: Counts.
        ops_by_kind: Counts.
        subgraphs: With their ops and tensors, see :func:`autoselect.tflite.analysis.analyse`.
        signatures: With their inputs and outputs.
        metadata: Names and sizes.
        fragmentation: Of the main subgraph.
        target: See :func:`autoselect.scoring.target_penalty.island_table`; and ``chips``, what each chip makes of the
            model whose compiler decides, see :func:`autoselect.api.compiling.chip_rows`.
        score: ``metric``, ``value``, ``low``, ``high``, ``samples``, ``warnings``; None without samples to score on.
        compare: The same of each further model.
    """

    path: str
    size_bytes: int
    sizes: Mapping[str, int]
    buffers: Mapping[str, Any]
    tensors_by_dtype: Mapping[str, int]
    ops_by_type: Mapping[str, int]
    ops_by_kind: Mapping[str, int]
    subgraphs: Sequence[Mapping[str, Any]]
    signatures: Sequence[Mapping[str, Any]]
    metadata: Sequence[Mapping[str, Any]]
    fragmentation: Mapping[str, Any]
    target: Mapping[str, Any]
    score: Mapping[str, Any] | None
    compare: list[Inspection]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClassificationReport(Result):
    """How classifiers answer; the tables name the ``model`` in their first column.

    Attributes:
        samples: Count.
        classes: Count.
        reference: Name of the float model; None without one.
        models: ``path``, ``size_bytes``, ``error`` (None if it ran).
        measures: ``metric``, ``value``, ``low``, ``high`` (95 % interval); with a reference, also ``agreement``.
        per_class: See :func:`autoselect.scoring.classification.class_rows`.
        confusion: ``label``, ``answer``, ``count``, for the cells that are not 0.
        disagreements: See :func:`autoselect.scoring.classification.disagreements`; empty without a reference.
        warnings: What was done to the reference, in sentences.
    """

    samples: int
    classes: int
    reference: str | None
    models: Rows
    measures: Rows
    per_class: Rows
    confusion: Rows
    disagreements: Rows
    warnings: list[str]
