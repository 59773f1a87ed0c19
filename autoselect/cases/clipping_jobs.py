"""What workers do to say which values leave the ranges that calibration saw, or fill little of them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.units import moved_from
from autoselect.isolation.worker import kept
from autoselect.runs.files import write_bytes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.operands import FIXED_SCALE_OPS
from autoselect.tflite.ranges import Range, range_of
from autoselect.tflite.runner import Runner

_FAR = 0.05
"""A sample counts if it lies beyond a range by more than this share of it."""

_Judged = list[tuple[str, Range, np.ndarray]]
"""Inputs or outputs: the key, the range that calibration saw, and the ends on each sample, shape (n_samples, 2)."""


@dataclass(frozen=True, slots=True)
class UnlikeRanges:
    """Parts of sentences on inputs and outputs of the float model whose values do not fit their calibrated ranges.

    Attributes:
        clipped: One for each input or output with values beyond its range.
        unfilled: One for each input whose values fill less than a tenth of its range.
    """

    clipped: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()


def unlike_ranges(root: Path) -> UnlikeRanges:
    """Compare the values of inputs and outputs with the ranges that calibration gave them.

    The values are those on search samples or, with an evaluator, those of its runs; before it has run the float model
    nothing is found. Not judged are outputs whose scale their op prescribes, inputs that no integer op can read, and
    outputs if the float model's were not kept.

    Args:
        root: Folder of the case.
    """
    case = open_case(root)
    held_inputs, held_outputs = _held(case.prepared.calibrated.file.model)
    if case.scoring.evaluator is None:
        where, inputs, outputs = "search samples", _ends(case, held_inputs, case.part("search").inputs), _outputs(root)
    elif (path := case.files.evaluator_ends).exists():
        where = "runs of the evaluator"
        inputs, outputs = _kept_ends(path, "input", held_inputs), _kept_ends(path, "output", held_outputs)
    else:
        return UnlikeRanges()
    clipped = (*_told("input", inputs, where), *_told("output", outputs, where))
    return UnlikeRanges(clipped, tuple(_unfilled(inputs, where)))


@contextlib.contextmanager
def ends_kept(runner: Runner, path: Path) -> Iterator[None]:
    """Keep the least and the largest value of each input and output in each run: float32, shape (n_runs, 2)."""
    ends: dict[str, list[tuple[float, float]]] = {}

    def note(inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        for side, values in (("input", inputs), ("output", outputs)):
            for key, value in values.items():
                if not value.size:  # It has no least value.
                    continue
                ends.setdefault(f"{side} {key}", []).append((np.min(value), np.max(value)))

    runner.told = note
    try:
        yield
    finally:
        runner.told = None
    content = io.BytesIO()
    names, rows = list(ends), [np.array(pairs, np.float32) for pairs in ends.values()]
    np.savez(content, *rows, names=np.array(names, dtype=np.str_))
    write_bytes(path, content.getvalue())


def _kept_ends(path: Path, side: str, held: Mapping[str, Range]) -> _Judged:
    with np.load(path) as archive:
        rows = {name: archive[f"arr_{place}"] for place, name in enumerate(archive["names"].tolist())}
    return [(key, limits, rows[f"{side} {key}"]) for key, limits in held.items() if f"{side} {key}" in rows]


def clipped_nodes(root: Path) -> list[str]:
    """The nodes whose values leave their ranges on some search sample; none if no output does.

    Integers of any width cut such values off, which no calibration sample shows. Of a large model the samples are
    watched first on which an output leaves its range, the furthest ones before others.
    """
    case = open_case(root)
    shares = [_beyond(rows, *held) / max(held[1] - held[0], 1e-30) for _, held, rows in _outputs(root)]
    furthest = np.max(shares, axis=0) if shares else np.zeros(1)
    if furthest.max() <= _FAR:
        return []
    model = case.prepared.calibrated.file.model
    ops, tensors = reader.read_graph(model).ops, model.subgraphs[0].tensors
    # Multiply-accumulates that are spent on watching nodes, for which the model runs on plain kernels: a minute or
    # two. Nodes may leave their ranges where no output does. So a quarter of the 1,000 samples of a net with heavy
    # tails was too few: the search recommended penalties of 41 and 61, and with all of them 18 and 20.
    count = max(10**11 // max(sum(op.macs for op in ops), 1), 1)
    chosen = np.argsort(-furthest, kind="stable")[:count].tolist()
    nodes = [node for node in case.prepared.layers.nodes if node.op_type not in FIXED_SCALE_OPS]
    watched = {output: node.name for node in nodes for output in ops[node.index].outputs}
    limits = {index: _with_zero(held) for index in watched if (held := range_of(tensors[index])) is not None}
    runner, samples = Runner(case.prepared.calibrated.content, readable=limits), case.part("search")
    names = set()
    for index, values in runner.watch((samples.inputs(i) for i in chosen), limits, each_fresh=True):
        least, most = limits[index]
        ends = np.array([[values.min(), values.max()]])
        # A value of a node counts as beyond its range if it lies beyond by more than this share of it.
        if _beyond(ends, least, most)[0] > 0.1 * (most - least):
            names.add(watched[index])
    return sorted(names)


def _told(side: str, judged: _Judged, where: str) -> list[str]:
    clipped = []
    for name, (least, most), rows in judged:
        margin = _FAR * (most - least)
        count = int(np.count_nonzero(_beyond(rows, least, most) > margin))
        # A smaller share of the samples is not worth a word.
        if count > 0.01 * len(rows):
            clipped.append(f"{side} {name!r} is beyond on {count} of {len(rows)} {where} ({_both(rows, least, most)})")
    return clipped


def _unfilled(inputs: _Judged, where: str) -> Iterator[str]:
    for name, (least, most), rows in inputs:
        # The range has zero in it, whatever the samples are.
        taken = max(float(rows.max()), 0.0) - min(float(rows.min()), 0.0)
        # Ranges of samples that are prepared alike differ by less than ten times. Fewer than ten samples tell nothing.
        if len(rows) >= 10 and taken < 0.1 * (most - least):
            yield f"input {name!r} on {len(rows)} {where} ({_both(rows, least, most)})"


def _both(rows: np.ndarray, least: float, most: float) -> str:
    return f"it has {rows.min():.3g} to {rows.max():.3g}, calibration {least:.3g} to {most:.3g}"


@kept(1)
def _outputs(root: Path) -> _Judged:
    """Kept, since both jobs ask for them, and all float outputs are read for it."""
    case = open_case(root)
    if (reference := case.reference("search")) is None:
        return []
    _, held = _held(case.prepared.calibrated.file.model)
    return _ends(case, held, lambda number: reference([number]))


def _ends(case: OpenCase, held: Mapping[str, Range], values_of: Callable[[int], Mapping[str, np.ndarray]]) -> _Judged:
    count = len(case.part("search")) if held else 0
    ends = [
        {key: (float(values.min()), float(values.max())) for key, values in values_of(number).items() if key in held}
        for number in range(count)
    ]
    held_ends = [(key, limits, [row[key] for row in ends if key in row]) for key, limits in held.items()]
    return [(key, limits, np.array(rows)) for key, limits, rows in held_ends if rows and len(rows) == count]


def _beyond(ends: np.ndarray, least: float, most: float) -> np.ndarray:
    """How far values of these ends, shape (n, 2), lie beyond a range, shape (n,)."""
    return np.maximum(np.maximum(least - ends[:, 0], ends[:, 1] - most), 0.0)


def _with_zero(held: Range) -> Range:
    return min(held[0], 0.0), max(held[1], 0.0)


def _held(model: fb.Model) -> tuple[dict[str, Range], dict[str, Range]]:
    """The ranges of the inputs and of the outputs of a calibrated model; of 8-bit numbers that of what they become."""
    graph, tensors = reader.read_graph(model), model.subgraphs[0].tensors
    written_by = {tensor: graph.ops[place].op_type for tensor, place in graph.producers().items()}
    read = {tensor for op in graph.ops if op.op_type != "CAST" for tensor in op.inputs}
    casts = (op for op in graph.ops if op.op_type == "CAST" and graph.tensors[op.outputs[0]].dtype == "float32")
    cast = {moved_from(graph, op.inputs[0]): op.outputs[0] for op in casts}
    inputs, outputs = dict[str, Range](), dict[str, Range]()
    for index, spec in zip(graph.inputs, reader.input_specs(model), strict=True):
        is_whole = str(spec.dtype) in ("uint8", "int8")
        source = cast.get(index) if is_whole else index if str(spec.dtype) == "float32" and index in read else None
        if source is not None and (held := range_of(tensors[source])) is not None:
            inputs[spec.key] = _with_zero(held)
    for index, spec in zip(graph.outputs, reader.output_specs(model), strict=True):
        held, op_type = range_of(tensors[index]), written_by.get(moved_from(graph, index))
        if held is not None and op_type not in (None, *FIXED_SCALE_OPS) and str(spec.dtype) == "float32":
            outputs[spec.key] = _with_zero(held)
    return inputs, outputs
