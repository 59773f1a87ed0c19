"""What the recommended model does to classes, to samples and to weights, as rows.

Whom it harms on held-out samples, and which layers take fewer bits: what that saves, what it adds to the outputs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from autoselect.domain.recipe import ALL_BITS, Recipe, bits_of, levels_of
from autoselect.errors import AutoselectError
from autoselect.report.page.nodes import number_of, read_table
from autoselect.report.tables.frames import format_size
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import Run

Row = dict[str, Any]

_CLASSES = frozenset({"number", "support", "float_right", "right", "agreed"})
_SAMPLES = frozenset({"index", "group", "sqnr_db", "label", "float_answer", "answer"})
_LEVELS = frozenset({"node", "bits", "weights", "packed_bytes", "noise"})


def class_rows(run: Run) -> list[Row]:
    """The classes that lose most, counted in samples; none for other models than classifiers.

    Returns:
        Rows of ``name``, ``support``, ``float`` and ``model`` (right answers), ``change`` (of these, with its sign),
        ``share`` (its size, of the largest of any class, 0..1), ``gains`` and ``changed`` (answers that are not
        float's).
    """
    counts = [
        {key: int(number_of(row[key]) or 0) for key in _CLASSES}
        for row in read_table(RunFolder(run.directory).heldout_classes, _CLASSES)
    ]
    most = max((abs(tally["float_right"] - tally["right"]) for tally in counts), default=0)
    ordered = sorted(counts, key=lambda c: (c["right"] - c["float_right"], c["agreed"] - c["support"], c["number"]))
    return [
        {
            "name": tally["number"],
            "support": tally["support"],
            "float": tally["float_right"],
            "model": tally["right"],
            "change": _signed(tally["right"] - tally["float_right"]),
            "share": abs(tally["right"] - tally["float_right"]) / most if most else 0.0,
            "gains": tally["right"] > tally["float_right"],
            "changed": tally["support"] - tally["agreed"],
        }
        for tally in ordered[:15]
    ]


def _signed(count: int) -> str:
    return f"{count:+d}".replace("-", "−") if count else "0"


def class_count(run: Run) -> int:
    """How many classes have held-out samples."""
    return len(read_table(RunFolder(run.directory).heldout_classes, _CLASSES))


def sample_rows(run: Run) -> list[Row]:
    """The samples on which the outputs are furthest from float's, the furthest first.

    Returns:
        Rows of ``index``, ``group``, ``sqnr`` and, of classifiers, ``label``, ``float`` and ``model`` (answers); empty
        texts for what is not known.
    """
    samples = []
    for row in read_table(RunFolder(run.directory).heldout_samples, _SAMPLES):
        decibels = number_of(row["sqnr_db"])
        if decibels is None or decibels >= 200.0:
            continue
        samples.append(
            {
                "index": row["index"],
                "group": row["group"],
                "sqnr": f"{decibels:.1f} dB".replace("-", "−"),
                "label": row["label"],
                "float": row["float_answer"],
                "model": row["answer"],
            }
        )
    return samples[:15]


def level_rows(run: Run, shorts: Mapping[str, str]) -> list[Row]:
    """The layers with integer weights, those first whose fewest bits save most for the error that they add.

    Args:
        run: With ``weight_levels.csv``; without there are none.
        shorts: Short names of all nodes by their names.

    Returns:
        For each layer ``name``, ``short``, ``weights`` (a count), ``packed`` (what they take in 8 bits), ``bits`` (the
        fewest), ``saved`` (share of all packed weights that these save, 0..1) with ``saved_text``, ``noise`` in words
        and ``chosen``: the bits that the recommended model has, None if that is not known.
    """
    by_node = defaultdict[str, list[Row]](list)
    for row in read_table(RunFolder(run.directory).weight_levels, _LEVELS):
        figures = {key: number_of(row[key]) for key in _LEVELS - {"node"}}
        if None in (figures["bits"], figures["weights"], figures["packed_bytes"]):
            return []
        by_node[row["node"]].append(figures)
    if not by_node:
        return []
    chosen = _recommended_bits(run, [*shorts])
    total = sum(rows[-1]["packed_bytes"] for rows in by_node.values()) or 1.0
    layers = []
    for name, rows in by_node.items():
        fewest, whole = rows[0], rows[-1]
        saved = whole["packed_bytes"] - fewest["packed_bytes"]
        layers.append(
            {
                "name": name,
                "short": shorts.get(name, name),
                "weights": f"{int(whole['weights']):,}",
                "packed": format_size(whole["packed_bytes"]),
                "bits": int(fewest["bits"]),
                "saved": saved / total,
                "saved_text": f"{100.0 * saved / total:.1f} %",
                "noise": "not known" if fewest["noise"] is None else _decibels(fewest["noise"]),
                "worth": 0.0 if fewest["noise"] is None else saved / max(fewest["noise"], 1e-30),
                "chosen": chosen.get(name),
            }
        )
    return sorted(layers, key=lambda row: (-row["worth"], row["name"]))


def _decibels(noise: float) -> str:
    """An error power over the signal power, in words."""
    return f"−{-10.0 * math.log10(noise):.0f} dB" if 0.0 < noise < 1.0 else "none" if noise <= 0.0 else "all of it"


def _recommended_bits(run: Run, names: list[str]) -> dict[str, int]:
    """The bits of each node in the recommended model; empty if its recipe is not there."""
    path = run.directory / "front" / f"{run.picks.get('recommended', '')}.recipe.json"
    try:
        repairs = Recipe.from_json(path.read_text(encoding="utf-8")).repairs
        fewer = levels_of(repairs, names)
    except (OSError, AutoselectError):
        return {}
    return {name: bits_of(fewer[name]) if name in fewer else ALL_BITS for name in names}
