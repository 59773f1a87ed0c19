"""What a target makes of a model, and what a chip's compiler takes of it, as plain tables of text; computes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from autoselect.domain.words import clean, counted
from autoselect.report.tables.frames import format_size
from autoselect.report.tables.model_tables import aligned

Chip = Mapping[str, Any]
"""What one chip makes of a model, see :func:`autoselect.api.compiling.chip_rows`, or a compiled model."""
Row = tuple[str, ...]

_INDENT = "  "


def cost_rows(assessment: Mapping[str, Any]) -> list[Row]:
    """The verdict, and what the penalty is made of."""
    target = assessment["target"]
    places = Counter(placement["place"] for placement in target["placements"])
    forecast = target.get("forecast")
    expected = f" (forecast {forecast['segments']})" if forecast and forecast["uncompiled"] is None else ""
    placed_by = ", forecast" if expected and _has_several_units(target) else ""
    rows: list[Row] = [
        ("verdict", clean(target["refusal"]) if target["refusal"] else "accepted"),
        ("ops", ", ".join(f"{count} {place}" for place, count in places.items()) + placed_by),
        ("segments", f"{target['segments']}{expected}"),
        ("crossings", f"{counted(target['crossing_tensors'], 'tensor')}, {format_size(target['crossing_bytes'])}"),
        ("activations", f"{format_size(target['arena_bytes'])} at the peak"),
        *_penalty_rows(target),
    ]
    if target["unit"] == "points" or _has_several_units(target):
        return rows
    parts = {"accelerator": "accelerator_cost", "host": "host_cost", "crossings": "crossing_cost"}
    parts |= {"pieces": "piece_cost"} if target["piece_cost"] else {}
    return [*rows, *((f"{_INDENT}{name}", f"{figure(target[key])} {target['unit']}") for name, key in parts.items())]


def _penalty_rows(target: Mapping[str, Any]) -> list[Row]:
    """The penalty, and which of compiler and profile it is of."""
    cost, forecast = f"{figure(target['penalty'])} {target['unit']}", target.get("forecast")
    if _has_several_units(target):
        return each_cost(target)
    if forecast is None:
        return [("penalty", cost)]
    if forecast["uncompiled"] is not None:
        return [("penalty", f"{cost}, forecast. Not compiled: {clean(forecast['uncompiled'])}")]
    left = ", ".join(f"{count} {name}" for name, count in forecast["host_ops"].items()) or "none"
    expected = f"{figure(forecast['penalty'])} {target['unit']}"
    return [("penalty", f"{cost}, compiled"), ("  left", f"to the CPU by the compiler: {left}"), ("forecast", expected)]


def each_cost(target: Mapping[str, Any]) -> list[Row]:
    """A row for each of several chips: what the model costs on it, in the chip's own unit; no rows for one chip."""
    costs, forecast = target["costs"], target["forecast"]
    if not _has_several_units(target):
        return []
    rows: list[Row] = [(clean(chip["name"]), f"{figure(chip['penalty'])} {chip['unit']}") for chip in costs]
    why = forecast and forecast["uncompiled"]
    return [*rows, ("not compiled", clean(why))] if why else rows


def _has_several_units(target: Mapping[str, Any]) -> bool:
    """Whether a finished model is judged for several chips: costs of its parts are then in no unit."""
    return len(target["costs"]) > 1


def placement_rows(inspection: Mapping[str, Any]) -> list[Row]:
    """Each op of the main subgraph: number, type, precision, place, cost on the sole chip, and reason."""
    ops = inspection["subgraphs"][0]["ops"]
    header = ("op", "type", "precision", "place", "cost", "why")
    body = [
        (
            str(i),
            str(op["op_type"]),
            placed["precision"] or "",
            placed["place"],
            figure(placed["cost"]),
            clean(placed["reason"]),
        )
        for i, (op, placed) in enumerate(zip(ops, inspection["target"]["placements"], strict=True))
    ]
    rows: list[Row] = [header, *body]
    return [(*row[:4], *row[5:]) for row in rows] if _has_several_units(inspection["target"]) else rows


def island_rows(inspection: Mapping[str, Any]) -> list[Row]:
    """Each island: number, ops by type, their numbers, and what it costs on the sole chip."""
    ops, unit = inspection["subgraphs"][0]["ops"], inspection["target"]["unit"]
    body = []
    for number, island in enumerate(inspection["target"]["islands"], start=1):
        types = Counter(str(ops[i]["op_type"]) for i in island["ops"])
        type_counts = ", ".join(f"{count} {name}" if count > 1 else name for name, count in types.items())
        body.append((str(number), type_counts, ranges(island["ops"]), figure(island["gain"])))
    if not body:
        return [("none",)]
    rows: list[Row] = [("island", "ops", "numbers", f"costs, {unit}"), *body]
    return [row[:3] for row in rows] if _has_several_units(inspection["target"]) else rows


def advice_lines(inspection: Mapping[str, Any]) -> list[str]:
    """The one island whose removal would help the sole chip most, in a sentence; none if all its ops are int8."""
    target = inspection["target"]
    if target["best_island"] is None or _has_several_units(target):
        return []
    ops = target["islands"][target["best_island"]]["ops"]
    if all(target["placements"][op]["precision"] == "int8" for op in ops):
        return []
    gain, whole = target["islands"][target["best_island"]]["gain"], (target.get("forecast") or target)["penalty"]
    number, saved = target["best_island"] + 1, f"{figure(gain)} of {figure(whole)} {target['unit']}"
    if target.get("chips"):
        return [f"A form of island {number} that the chip takes would help most: as int8 it would save {saved}."]
    begins, ends = (
        ("By the forecast, taking", " Compile the model without this island to be sure.")
        if target["forecast"]
        else ("Taking", "")
    )
    return [f"{begins} island {number} into integers helps most: {saved}.{ends}"]


def figure(value: float | None) -> str:
    """A cost with four digits, and all of them before the point; a dash if there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ranges(numbers: list[int]) -> str:
    """``3-5, 9`` of ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


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
    for key, name in (("sram_bytes", "SRAM"), ("dram_bytes", "DRAM"), ("flash_bytes", "off-chip flash")):
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
    ops_by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for op in left:
        ops_by_reason.setdefault(str(op["reason"]), []).append(op)
    return sorted(ops_by_reason.items(), key=lambda pair: -len(pair[1]))


def types_text(types: Mapping[str, int]) -> str:
    """``2 CONV_2D, ADD``, the most frequent first."""
    ordered = sorted(types.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count} {clean(name)}" if count > 1 else clean(name) for name, count in ordered)


def _cut(name: str) -> str:
    """The first of the names that a converter has fused into one."""
    name_length = 60
    first = name.split(";", maxsplit=1)[0]
    return first if len(first) <= name_length else f"…{first[1 - name_length :]}"
