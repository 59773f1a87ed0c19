"""Rows of text from the analyses that ``autoselect.inspect`` returns, one model or several side by side.

The ops of a model are also a strip of characters, one an op, so that float islands are seen at a glance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from autoselect.domain.looks import LOOKS
from autoselect.domain.words import clean, label
from autoselect.report.tables.frames import format_penalty, format_score, largest

Analysis = Mapping[str, Any]
"""One model, as ``autoselect.inspect`` returns it."""
Row = tuple[str, ...]

_GAP = "  "
_FRAGMENTATION = {
    "segments": "integer segments",
    "float_ops": "float ops",
    "crossing_tensors": "crossings",
    "crossing_bytes": "crossing bytes",
}
_ON_CHIP = {
    "segments": "partitions",
    "off_chip": "ops left on the CPU",
    "float_ops": "float ops",
    "crossing_tensors": "crossings",
    "crossing_bytes": "crossing bytes",
}
"""Names of the columns of costs if a chip's compiler decides them."""
_PARTS = {
    "weights_bytes": "weights",
    "metadata_bytes": "metadata",
    "unused_bytes": "unused buffers",
    "rest_bytes": "rest",
}


def size_rows(model: Analysis) -> tuple[Row, ...]:
    """The file and its four parts: name, bytes, share of the file."""
    whole = model["size_bytes"]
    parts = [(f"  {label}", model["sizes"][key]) for key, label in _PARTS.items()]
    return tuple((label, f"{size}", f"{100 * size / whole:.1f} %") for label, size in (("file", whole), *parts))


def fact_rows(model: Analysis) -> tuple[Row, ...]:
    """Counts of the model and its buffers: name, value."""
    buffers = model["buffers"]
    unused, zero = len(buffers["unused"]), len(buffers["zero"])
    held = f"{unused} unused ({model['sizes']['unused_bytes']} bytes), {zero} all zero ({buffers['zero_bytes']} bytes)"
    return (
        ("subgraphs", str(len(model["subgraphs"]))),
        ("ops", str(sum(model["ops_by_type"].values()))),
        ("tensors", str(sum(model["tensors_by_dtype"].values()))),
        ("buffers", f"{buffers['count']}, of these {held}"),
    )


def fragmentation_rows(*models: Analysis) -> tuple[Row, ...]:
    """What an accelerator meets in the main subgraph: name, value of each model."""
    cuts = [model["fragmentation"] for model in models]
    names = _FRAGMENTATION if any(cut.get("off_chip") is None for cut in cuts) else _ON_CHIP
    rows = tuple((label, *(str(cut[key]) for cut in cuts)) for key, label in names.items())
    if any(len((model.get("target") or {}).get("costs", ())) > 1 for model in models):
        return rows  # Costs of several chips have several units.
    scale = largest(cut["penalty"] for cut in cuts)
    return (*rows, ("penalty", *(format_penalty(cut["penalty"], scale=scale) for cut in cuts)))


def dtype_rows(model: Analysis) -> tuple[Row, ...]:
    """Tensors by dtype: dtype, tensors, how many of them are constants."""
    constants = Counter(t["dtype"] for graph in model["subgraphs"] for t in graph["tensors"] if t["is_constant"])
    return tuple(
        (dtype, str(count), f"{constants[dtype]} constant") for dtype, count in model["tensors_by_dtype"].items()
    )


def op_type_rows(model: Analysis) -> tuple[Row, ...]:
    """Ops by type: type, ops, how many of them compute in which way."""
    kinds: dict[str, Counter[str]] = {}
    for graph in model["subgraphs"]:
        for op in graph["ops"]:
            kinds.setdefault(op["op_type"], Counter())[op["kind"]] += 1
    return tuple(
        (clean(name), str(count), ", ".join(f"{n} {kind}" for kind, n in kinds[name].most_common()))
        for name, count in model["ops_by_type"].items()
    )


def signature_lines(model: Analysis) -> tuple[str, ...]:
    """Signatures with the names, dtypes and shapes of their inputs and outputs."""
    lines = []
    for signature in model["signatures"]:
        tensors = model["subgraphs"][signature["subgraph"]]["tensors"]
        lines.append(f"{clean(signature['key'])} (subgraph {signature['subgraph']})")
        for side in ("inputs", "outputs"):
            for name, index in signature[side].items():
                lines.append(f"  {side[:-1]:<6}  {clean(name)}: T{index} {_type(tensors[index])}")
    return tuple(lines)


def op_rows(subgraph: Analysis) -> tuple[Row, ...]:
    """The ops: number, type, kind, multiply-accumulates, tensors (``*`` marks constants), first output."""
    tensors = subgraph["tensors"]
    heading = ("op", "type", "kind", "MACs", "tensors", "output")
    rows = [
        (
            str(op["index"]),
            clean(op["op_type"]),
            op["kind"],
            str(op["macs"]),
            f"{_operands(op['inputs'], tensors)} -> {_operands(op['outputs'], tensors)}",
            _type(tensors[op["outputs"][0]]) if op["outputs"] else "",
        )
        for op in subgraph["ops"]
    ]
    return (heading, *rows)


def tensor_rows(subgraph: Analysis) -> tuple[Row, ...]:
    """The tensors: number, dtype, shape, bytes, buffer of a constant, quantization, name."""
    heading = ("tensor", "dtype", "shape", "bytes", "data", "quantization", "name")
    rows = [
        (
            f"T{tensor['index']}",
            tensor["dtype"],
            _shape(tensor),
            str(tensor["size_bytes"]),
            f"buffer {tensor['buffer']}" if tensor["is_constant"] else "variable" if tensor["is_variable"] else "",
            _quantization(tensor["quantization"]),
            clean(tensor["name"]),
        )
        for tensor in subgraph["tensors"]
    ]
    return (heading, *rows)


def comparison_rows(models: Sequence[Analysis]) -> tuple[Row, ...]:
    """Several models side by side.

    Returns:
        A heading with the models' names, then rows of a measure's name and its value for each model: sizes, tensors by
        dtype, ops by type, ops by kind, fragmentation, and the score with its interval where the models were scored.
        What only some models have is 0 for the others.
    """
    rows: list[Row] = [("", *labels([str(model["path"]) for model in models]))]
    rows += [_values("file bytes", models, lambda m: m["size_bytes"])]
    rows += [_values("weights bytes", models, lambda m: m["sizes"]["weights_bytes"])]
    for key, words in (("tensors_by_dtype", "tensors"), ("ops_by_type", "ops"), ("ops_by_kind", "kind")):
        rows += _histogram_rows(models, key, words)
    return (*rows, *fragmentation_rows(*models), *_score_rows(models))


def labels(paths: Sequence[str]) -> tuple[str, ...]:
    """The files' names without their ending, or the paths as they are where two names are equal."""
    names = [clean(PurePath(path).stem) for path in paths]
    return tuple(names) if len(set(names)) == len(names) else tuple(clean(path) for path in paths)


def aligned(rows: Iterable[Row], *, right: Iterable[int] = ()) -> tuple[str, ...]:
    """Set rows in columns.

    Returns:
        One line a row, without trailing blanks.
    """
    rows, to_right = list(rows), frozenset(right)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        placed = [cell.rjust(w) if i in to_right else cell.ljust(w) for i, (cell, w) in enumerate(cells)]
        lines.append(_GAP.join(placed).rstrip())
    return tuple(lines)


def side_by_side(rows: Sequence[Row], width: int) -> tuple[tuple[str, ...], ...]:
    """Set a comparison in blocks that fit the page, each with as many models as there is room for, at least one."""
    first, *widths = [max(map(len, column)) + len(_GAP) for column in zip(*rows, strict=True)]
    blocks: list[list[int]] = []
    room = 0
    for column, needed in enumerate(widths, start=1):
        if not blocks or needed > room:
            blocks.append([0])
            room = width + len(_GAP) - first
        blocks[-1].append(column)
        room -= needed
    return tuple(
        aligned([tuple(row[i] for i in block) for row in rows], right=range(1, len(block))) for block in blocks
    )


def _values(label: str, models: Sequence[Analysis], value: Callable[[Analysis], object]) -> Row:
    return (label, *(str(value(model)) for model in models))


def _score_rows(models: Sequence[Analysis]) -> tuple[Row, ...]:
    scores = [model.get("score") for model in models]
    measured_scores = [score for score in scores if score is not None]
    if len(measured_scores) < len(models):
        return ()
    scale = largest(score["value"] for score in measured_scores)
    ends = {label(str(measured_scores[0]["metric"])): "value", "  95 % from": "low", "  95 % to": "high"}
    return tuple((label, *(_score(score[end], scale) for score in measured_scores)) for label, end in ends.items())


def _score(value: float, scale: float | None) -> str:
    return format_score(value if math.isfinite(value) else None, scale=scale)


def _histogram_rows(models: Sequence[Analysis], key: str, words: str) -> list[Row]:
    total: Counter[str] = Counter()
    for model in models:
        total.update(model[key])
    names = sorted(total, key=lambda name: (-total[name], name))
    return [(f"{words} {clean(name)}", *(str(model[key].get(name, 0)) for model in models)) for name in names]


def _operands(indices: Iterable[int], tensors: Sequence[Analysis]) -> str:
    """``T3 T7*``; ``*`` marks a constant, ``-`` an optional operand that is absent."""
    return " ".join("-" if i < 0 else f"T{i}{'*' if tensors[i]['is_constant'] else ''}" for i in indices)


def _type(tensor: Analysis) -> str:
    return f"{tensor['dtype']} {_shape(tensor)}"


def _shape(tensor: Analysis) -> str:
    """``1x8x8x3``, ``?`` for a free dimension, ``scalar`` for none."""
    shape = tensor["shape_signature"] or tensor["shape"]
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _quantization(quantization: Analysis | None) -> str:
    if quantization is None:
        return ""
    first = f"{quantization['scale']:.6g}, zero {quantization['zero_point']}"
    if quantization["scale_count"] == 1:
        return first
    return f"{first} ({quantization['scale_count']} scales, axis {quantization['axis']})"


def strip_rows(kinds: Sequence[str], width: int) -> tuple[str, ...]:
    """Draw the ops in their order.

    Args:
        kinds: The kind of each op (values of ``OpKind``).
        width: Columns of the page. Rows hold a round number of ops where there is room for ten.

    Returns:
        Rows of at most ``width`` characters (more only where not even one op fits), each with the number of its
        first op in front; none for no ops.
    """
    tens = 10
    digits = len(str(max(len(kinds) - 1, 0)))
    room = max(width - digits - 1, 1)
    step = room - room % tens if room >= tens else room
    marks = "".join(LOOKS[kind].mark for kind in kinds)
    return tuple(f"{start:>{digits}} {marks[start : start + step]}" for start in range(0, len(marks), step))


def strip_legend(kinds: Sequence[str]) -> str:
    """Say what the characters mean and how many there are of each; kinds that do not occur are left out."""
    counts = Counter(kinds)
    return "   ".join(f"{look.mark} {counts[kind]} {look.word}" for kind, look in LOOKS.items() if counts[kind])
