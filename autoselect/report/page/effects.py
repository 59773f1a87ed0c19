"""Whom the recommended model harms on held-out samples: its classes and the samples furthest from float, as rows."""

from __future__ import annotations

from typing import Any

from autoselect.report.page.nodes import number_of, read_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import Run

Row = dict[str, Any]

_CLASSES = frozenset({"number", "support", "float_right", "right", "agreed"})
_SAMPLES = frozenset({"index", "group", "sqnr_db", "label", "float_answer", "answer"})


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
    most = max((abs(one["float_right"] - one["right"]) for one in counts), default=0)
    ordered = sorted(counts, key=lambda c: (c["right"] - c["float_right"], c["agreed"] - c["support"], c["number"]))
    return [
        {
            "name": one["number"],
            "support": one["support"],
            "float": one["float_right"],
            "model": one["right"],
            "change": _signed(one["right"] - one["float_right"]),
            "share": abs(one["right"] - one["float_right"]) / most if most else 0.0,
            "gains": one["right"] > one["float_right"],
            "changed": one["support"] - one["agreed"],
        }
        for one in ordered[:15]
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
    found = []
    for row in read_table(RunFolder(run.directory).heldout_samples, _SAMPLES):
        decibels = number_of(row["sqnr_db"])
        if decibels is None or decibels >= 200.0:
            continue
        found.append(
            {
                "index": row["index"],
                "group": row["group"],
                "sqnr": f"{decibels:.1f} dB".replace("-", "−"),
                "label": row["label"],
                "float": row["float_answer"],
                "model": row["answer"],
            }
        )
    return found[:15]
