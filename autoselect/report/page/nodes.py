"""Why a front is what it is, node by node: errors, how often each is left out, islands, what they buy and cost."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from autoselect.domain.layers import HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE
from autoselect.domain.looks import OF_NODES
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import amount
from autoselect.errors import AutoselectError
from autoselect.quantize.diagnosing.cures import SMALL_ACTIVATIONS, SMALL_WEIGHTS, decibels
from autoselect.report.page.models import in_int16, left_out
from autoselect.report.tables.frames import (
    ModelRow,
    Record,
    format_penalty,
    format_size,
    front_rows,
    number,
    records,
    reference_rows,
)
from autoselect.report.tables.layer_tables import ERROR, common_folder, cut_middle, name_of
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import fallbacks_in
from autoselect.runs.run import Run
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

Row = dict[str, Any]

_SENSITIVITY = frozenset({"tensor_name", "unit", "probe", "estimate"})
_CURES = frozenset({"tensor_name", "weights_sqnr_db", "activations_sqnr_db", "broken", "cure", "reason"})
_ISLANDS = frozenset({"id", "nodes", "size_bytes", "penalty", "id_without", "drop_without", "drop_gain"})


def node_rows(run: Run) -> list[Row]:
    """The nodes in graph order.

    Returns:
        For each node ``index``, ``name``, ``short``, ``op_type``, ``error`` (rmse/scale), ``front`` (share of the front
        that leaves it out, 0..1, None for an empty front), ``buys`` (share of the damage that leaving its unit out is
        estimated to take away, 0..1, or None), ``unit`` and ``unit_size``, ``cure`` (None, or ``name``, ``broken`` and
        ``reason`` in words).
    """
    layers = records(run.layer_statistics)
    folder, shares, cures = common_folder(layers), _shares(run), _cures(run)
    chosen = [set(left_out(row)) for row in _front_trials(run)]
    rows = []
    for place, layer in enumerate(layers):
        name = name_of(layer)
        share = shares.get(name, {})
        rows.append(
            {
                "index": int(number(layer.get("index")) or 0) if "index" in layer else place,
                "name": name,
                "short": short_name(name, folder),
                "op_type": str(layer.get("op_name") or ""),
                "error": number(layer.get(ERROR)),
                "accumulated": str(layer.get("verified")) == "False",
                "front": sum(name in nodes for nodes in chosen) / len(chosen) if chosen else None,
                "buys": share.get("buys"),
                "unit": share.get("unit"),
                "unit_size": share.get("unit_size", 1),
                "macs": number(layer.get("macs")),
                "cure": cures.get(name),
            }
        )
    return rows


CURED_BY = {
    "none": "none needed",
    "bias": "corrected bias",
    "rounding": "other rounding",
    "range": "narrower range",
    "16 bit": "16-bit activations",
    "hybrid": "hybrid",
    "float": "float",
}


def _cures(run: Run) -> dict[str, Row]:
    """What is broken of each node in plain 8-bit integers, and the cheapest cure; none for runs that did not ask."""
    cures = {}
    for row in read_table(RunFolder(run.directory).cures, _CURES):
        left = number_of(row[f"{row['broken']}_sqnr_db"]) if row["broken"] in LIMITS else None
        cures[row["tensor_name"]] = {
            "name": CURED_BY.get(row["cure"], row["cure"]),
            "broken": "" if left is None else f"{row['broken']} {left:.1f}\N{NO-BREAK SPACE}dB".replace("-", "−"),
            "reason": row["reason"].replace("-", "−"),
        }
    return cures


def short_name(name: str, folder: str) -> str:
    """A name without the folder that most share and without the names that were fused into it."""
    first = name.split(";", maxsplit=1)[0]
    return cut_middle(first.removeprefix(folder) or first, 38)


def has_estimates(run: Run) -> bool:
    """Whether the surrogate's estimates are there, and not only the probes from before the first trial."""
    return any(
        number_of(row["estimate"]) is not None for row in read_table(RunFolder(run.directory).sensitivity, _SENSITIVITY)
    )


def _shares(run: Run) -> dict[str, Row]:
    """The unit of each node, and the unit's share of the sum of all units' damage."""
    rows = read_table(RunFolder(run.directory).sensitivity, _SENSITIVITY)
    column = "estimate" if has_estimates(run) else "probe"
    damage = {row["unit"]: number_of(row[column]) or 0.0 for row in rows}
    total = sum(damage.values())
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row["unit"]] = sizes.get(row["unit"], 0) + 1
    return {
        row["tensor_name"]: {
            "buys": damage[row["unit"]] / total if total > 0 else None,
            "unit": row["unit"],
            "unit_size": sizes[row["unit"]],
        }
        for row in rows
    }


def _front_trials(run: Run) -> list[Record]:
    """The first complete trial of each member of the front, in the order of ``front.csv``."""
    first: dict[str, Record] = {}
    for row in records(run.trials):
        if row.get("state") == "complete":
            first.setdefault(str(row.get("id")), row)
    return [first[str(row.get("id"))] for row in records(run.front) if str(row.get("id")) in first]


def strips(run: Run, nodes: Sequence[Row]) -> list[Row]:
    """The nodes of each member of the front as runs of one kind, in graph order.

    Returns:
        For each member ``id``, ``picks``, ``runs`` (``kind``, ``start``, ``length``, ``height``, ``text``) and
        ``text``, which says the same in words.
    """
    rows = []
    picks = {str(row["id"]): str(row["pick"]) for row in records(run.front)}
    for trial in _front_trials(run):
        kinds = _kinds(run, trial, nodes)
        runs = list(_runs(kinds, nodes))
        name = str(trial["id"])
        rows.append({"id": name, "picks": picks.get(name, ""), "runs": runs, "text": _in_words(runs)})
    return rows


def shown(rows: Sequence[Row]) -> list[Row]:
    """The strips of the picks, and of as many other members as a page can have: each is hundreds of elements."""
    first = sorted(range(len(rows)), key=lambda place: not rows[place]["picks"])
    return [rows[place] for place in sorted(first[:40])]


def _kinds(run: Run, trial: Record, nodes: Sequence[Row]) -> list[str]:
    """What each node is, from the model's file where it is there, else from recipe and fallbacks."""
    path = run.directory / "front" / f"{trial['id']}.tflite"
    built = _kinds_built(path)
    recipe_kinds = {} if all(node["name"] in built for node in nodes) else _kinds_told(trial)
    return [built.get(node["name"]) or recipe_kinds.get(node["name"], "integer") for node in nodes]


def _kinds_built(path: Path) -> dict[str, str]:
    try:
        graph = TfliteFile(fb.read_model_file(path)).graph
    except AutoselectError:
        return {}
    return {
        graph.tensors[op.outputs[0]].name: op.kind.value for op in graph.ops if op.outputs and op.kind.value in OF_NODES
    }


def _kinds_told(trial: Record) -> dict[str, str]:
    """The kinds of the nodes that the recipe names; all others are integer."""
    names = {*left_out(trial), *in_int16(trial)}
    reasons = fallbacks_in(trial)
    recipe = Recipe.from_json(str(trial.get("recipe"))) if names else Recipe()
    return {name: str(recipe.kind_of(name, reasons.get(name)).value) for name in names}


def _runs(kinds: Sequence[str], nodes: Sequence[Row]) -> Iterator[Row]:
    start = 0
    for kind, group in groupby(kinds):
        length = len(list(group))
        look = OF_NODES[kind]
        text = f"{look.node_word}, {_where(nodes[start : start + length])}"
        yield {"kind": kind, "start": start, "length": length, "height": look.height, "text": text}
        start += length


def _in_words(runs: Sequence[Row]) -> str:
    islands = [run for run in runs if run["kind"] != "integer"]
    if not islands:
        return "all nodes int8"
    return "; ".join(run["text"] for run in islands) + "; everything else int8"


def island_rows(run: Run, nodes: Sequence[Row]) -> list[Row]:
    """What each float island of a pick buys and costs, in words; empty where the search did not work it out."""
    places = {node["name"]: node for node in nodes}
    wholes = {f"baseline:{row.reference}": row for row in reference_rows(run.summary)}
    members = {str(row["id"]): wholes[str(row["origin"])] for row in records(run.trials) if row.get("origin") in wholes}
    members |= {row.label: row for row in front_rows(run.front, run.summary)}
    searched = {str(row["id"]): number(row.get("drop")) for row in records(run.front)}
    rows = []
    for row in read_table(RunFolder(run.directory).islands, _ISLANDS):
        island = [places[name] for name in json.loads(row["nodes"]) if name in places]
        if not island or row["id"] not in members:
            continue
        island.sort(key=lambda node: int(node["index"]))
        buys, source = _buys(row, members, searched.get(row["id"]), str(run.summary["metric"]))
        is_forecast = bool(run.summary.get("compiler")) and not row["id_without"]
        penalty = _signed(number_of(row["penalty"]) or 0.0, format_penalty)
        rows.append(
            {
                "id": row["id"],
                "picks": ", ".join(members[row["id"]].picks),
                "where": _where(island),
                "names": [node["name"] for node in island],
                "count": len(island),
                "buys": buys,
                "source": source,
                "size": _signed(number_of(row["size_bytes"]), format_size),
                "penalty": f"about {penalty}" if is_forecast else penalty,
                "is_forecast": is_forecast,
            }
        )
    return rows


def _where(members: Sequence[Row]) -> str:
    first, last = members[0], members[-1]
    if len(members) == 1:
        return f"{first['index']}: {first['short']}"
    return f"{first['index']} to {last['index']}: {first['short']} … {last['short']}"


def _buys(
    row: Mapping[str, str], members: Mapping[str, ModelRow], searched: float | None, metric: str
) -> tuple[str, str]:
    """What a pick has of an island, against itself without it: in words, and on which samples that was measured."""
    whole, rest = members.get(row["id"]), members.get(row["id_without"])
    if whole and rest and None not in (whole.heldout, rest.heldout, whole.drop, rest.drop):
        gain, source = (rest.drop or 0.0) - (whole.drop or 0.0), "held-out samples"
    elif (without := number_of(row["drop_without"])) is not None and searched is not None:
        gain, source = without - searched, "search samples"
    else:
        expected = number_of(row["drop_gain"])
        return ("unknown", "") if expected is None else (f"about {amount(max(expected, 0.0), metric)}", "estimate")
    return f"{'−' if gain < 0 else ''}{amount(gain, metric)}", source


def _signed(change: float | None, words: Callable[[float], str]) -> str:
    return "" if change is None else f"{'−' if change < 0 else '+'}{words(abs(change))}"


def read_table(path: Path, columns: frozenset[str]) -> list[dict[str, str]]:
    """The rows of a CSV file of the run folder; none where it is missing, damaged or without one of the columns."""
    # A cell may list the names of all nodes; Python's own limit of 131,072 characters is met by some hundreds.
    csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        return []
    return [row for row in rows if columns <= row.keys() and None not in row and None not in row.values()]


def number_of(text: str) -> float | None:
    """A cell of a CSV file as a finite number, None where it is none."""
    try:
        return number(float(text))
    except ValueError:
        return None


THRESHOLDS = {"healthy": HEALTHY_RMSE_PER_SCALE, "suspicious": SUSPICIOUS_RMSE_PER_SCALE}
"""Marks on the bars of rmse/scale."""

LIMITS = {"weights": round(decibels(SMALL_WEIGHTS)), "activations": round(decibels(SMALL_ACTIVATIONS))}
"""Decibels below which a part of a node's error needs a cure."""
