"""What a chip's compiler takes of a model and what it leaves, as plain tables of text; computes no figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from autoselect.domain.words import counted
from autoselect.report.tables.frames import format_size
from autoselect.report.tables.model_tables import aligned, clean
from autoselect.report.tables.target_tables import figure, ranges

Chip = Mapping[str, Any]
"""What one chip makes of a model, see :func:`autoselect.api.compiling.chip_rows`, or a compiled model."""
Row = tuple[str, ...]

_INDENT = "  "


def verdict_rows(chip: Chip, refusal: str | None) -> list[Row]:
    """The verdict in figures, and what the penalty is made of."""
    unit = chip["unit"]
    rows: list[Row] = [
        ("verdict", clean(refusal) if refusal else "accepted"),
        ("partitions", str(chip["partitions"])),
        ("ops left on the CPU", str(chip["left_ops"])),
        ("crossings", f"{counted(chip['crossing_tensors'], 'tensor')}, {format_size(chip['crossing_bytes'])}"),
        ("DDR bytes", _ddr_text(chip)),
        ("penalty", f"{figure(chip['penalty'])} {unit}"),
    ]
    parts = {
        chip["accelerator"]: "accelerator_cost",
        "the CPU": "host_cost",
        "crossings": "crossing_cost",
        "calls and DDR": "piece_cost",
    }
    return [*rows, *((f"{_INDENT}{name}", f"{figure(chip[key])} {unit}") for name, key in parts.items())]


def compiled_rows(model: Chip) -> list[Row]:
    """A compiled model: file, pieces, what the compiler says it costs, and what it was compiled with."""
    rows: list[Row] = [
        ("written", clean(str(model["path"]))),
        ("size", format_size(model["size_bytes"])),
        ("partitions", str(model["partitions"])),
        ("ops left on the CPU", f"{model['left_ops']} of {model['ops']}"),
        ("crossing bytes", format_size(model["crossing_bytes"])),
    ]
    if model["ddr_bytes"]:
        rows.append(("DDR bytes", _ddr_text(model)))
    for key, name in (("sram_bytes", "SRAM"), ("flash_bytes", "flash")):
        rows += [(name, format_size(model[key]))] if model[key] else []
    if model["cycles"]:
        rows.append(("NPU cycles", f"{model['cycles']:,}"))
    rows.append(("cost", f"{figure(model['cost'])} {model['unit']}, estimated"))
    rows += [("compiled with", "; ".join(version_texts(model["versions"])))]
    return rows


def _ddr_text(model: Chip) -> str:
    """Bytes that the pieces move by the compiler, by kind; of a model that was not compiled the estimate, and why."""
    moved = [f"{name.removesuffix('_total')} {format_size(count)}" for name, count in model["moved"].items() if count]
    if why := model.get("uncompiled"):
        return f"{format_size(model['ddr_bytes'])}, estimated: {clean(why)}"
    return f"{format_size(model['ddr_bytes'])} ({', '.join(moved)})" if moved else format_size(model["ddr_bytes"])


def version_texts(versions: Mapping[str, str]) -> list[str]:
    """``LiteRT 2.3.0``, ``libraries: onnxruntime_qnn 2.7.0, ...``."""
    return [f"{name}{' ' if version[:1].isdigit() else ': '}{version}" for name, version in versions.items()]


def piece_rows(chip: Chip) -> list[Row]:
    """Each piece that the chip runs: number, count and numbers of its ops, bytes in and out, types."""
    body = [
        (
            str(number),
            str(len(piece["ops"])),
            ranges(piece["ops"]),
            format_size(piece["input_bytes"]),
            format_size(piece["output_bytes"]),
            format_size(piece["constant_bytes"]),
            types_text(piece["ops_by_type"]),
        )
        for number, piece in enumerate(chip["pieces"], start=1)
    ]
    return [("piece", "ops", "numbers", "in", "out", "weights", "types"), *body] if body else [("none",)]


def left_lines(chip: Chip) -> list[str]:
    """The ops that are left to the CPU, those with one reason together: number, type, precision, name."""
    lines = list[str]()
    for reason, ops in by_reason(chip["left"]):
        lines += [f"{counted(len(ops), 'op')}: {clean(reason)}"]
        cells = [(str(op["op"]), clean(op["op_type"]), op["precision"] or "", _cut(clean(op["name"]))) for op in ops]
        lines += [f"{_INDENT}{line}" for line in aligned(cells, right=(0,))]
    return lines or ["none"]


def left_rows(chip: Chip) -> list[Row]:
    """How many ops of each type and precision are left, for each reason."""
    rows: list[Row] = []
    for reason, ops in by_reason(chip["left"]):
        types = Counter(" ".join(filter(None, (op["precision"], clean(op["op_type"])))) for op in ops)
        rows.append((str(len(ops)), types_text(types), clean(reason)))
    return rows or [("none",)]


def by_reason(left: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Left ops by reason, the most frequent reason first; ties by their first op."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for op in left:
        found.setdefault(str(op["reason"]), []).append(op)
    return sorted(found.items(), key=lambda pair: -len(pair[1]))


def types_text(types: Mapping[str, int]) -> str:
    """``2 CONV_2D, ADD``, the most frequent first."""
    ordered = sorted(types.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count} {clean(name)}" if count > 1 else clean(name) for name, count in ordered)


def _cut(name: str) -> str:
    """The first of the names that a converter has fused into one."""
    name_length = 60
    first = name.split(";", maxsplit=1)[0]
    return first if len(first) <= name_length else f"…{first[1 - name_length :]}"
