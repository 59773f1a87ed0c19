"""The graphs of the picks, op by op, as the page lays them out and colours them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoselect.compilers.litert_plugin import name_of
from autoselect.domain.graph import Graph
from autoselect.errors import AutoselectError
from autoselect.report.tables.chip_results import OnChip, chips_of
from autoselect.report.tables.frames import front_rows, pick_order
from autoselect.runs.run import Run
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

Row = dict[str, Any]


def graphs(run: Run, places: Mapping[str, int]) -> list[Row]:
    """One graph for each model that is picked and whose file can be read, what is recommended first.

    Returns:
        Rows of ``id``, ``picks``, ``ops``, which are lists of type, kind, name of the output (the number of the
        node's row where it is one), dtype and shape of the output, multiply-accumulates, bytes of constants, and the
        numbers of the ops that it reads from; and ``chips``: for each chip whose compiler decides ``name``, ``pieces``
        (of each op the number of the piece that runs it, from 1; 0 on the CPU), and ``reasons`` with ``why``, by op.
    """
    chips = chips_of(run.summary)
    picked = [row for row in front_rows(run.front, run.summary) if row.picks]
    rows = []
    for row in sorted(picked, key=lambda row: pick_order(row.picks[0])):
        try:
            graph = TfliteFile(fb.read_model_file(run.directory / "front" / f"{row.label}.tflite")).graph
        except AutoselectError:
            continue
        made = [(chip.name, chip.models[row.label]) for chip in chips if row.label in chip.models]
        sides = [_sides(graph, name, model) for name, model in made if len(model.left) == model.left_ops]
        rows.append({"id": row.label, "picks": list(row.picks), "ops": op_rows(graph, places), "chips": sides})
    return rows


def _sides(graph: Graph, name: str, model: OnChip) -> Row:
    """Who runs each op: the chip's pieces are runs of its ops in the order of the file."""
    pieces, piece, why, before = list[int](), 0, dict[int, str](), False
    for i in range(len(graph.ops)):
        reason = model.left.get(name_of(graph, i))
        taken = reason is None
        piece += taken and not before
        pieces.append(piece if taken else 0)
        if reason is not None:
            why[i] = reason
        before = taken
    reasons = list(dict.fromkeys(why.values()))
    return {"name": name, "pieces": pieces, "reasons": reasons, "why": {i: reasons.index(w) for i, w in why.items()}}


def op_rows(graph: Graph, places: Mapping[str, int]) -> list[list[Any]]:
    """The ops of a graph, a row each, see :func:`graphs`; ``places`` are the numbers of the nodes' rows, by name."""
    producers = graph.producers()
    rows: list[list[Any]] = []
    for op in graph.ops:
        output = graph.tensors[op.outputs[0]] if op.outputs else None
        name = output.name if output else ""
        shape = f"{output.dtype} {'×'.join(map(str, output.shape)) or 'scalar'}" if output else ""
        sources = sorted({producers[i] for i in op.inputs if i in producers})
        rows.append([op.op_type, op.kind.value, places.get(name, name), shape, op.macs, op.constant_bytes, sources])
    return rows
