"""Lines of text from what ``autoselect.classification_report`` returns, for a page of some width; prints nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.domain.words import clean
from autoselect.report.tables.frames import MISSING, format_size
from autoselect.report.tables.model_tables import Row, aligned, side_by_side

Report = Mapping[str, Any]
"""What ``autoselect.classification_report`` returns."""

_ROWS_SHOWN = 10
_CLASS_FIGURES = {"precision": "prec", "recall": "rec", "f1": "F1", "agreement": "agree"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands below it."""

    title: str
    lines: tuple[str, ...]


def class_sections(report: Report, width: int) -> tuple[Section, ...]:
    """Set a report for reading: long tables are shortened, and the headings say so."""
    names = ran(report)
    return (
        _measure_section(report, names, width),
        _class_section(report, names, width),
        *_confusion_sections(report, names, width),
        *(_disagreement_section(report, name) for name in names if report["reference"] not in (None, name)),
    )


def ran(report: Report) -> tuple[str, ...]:
    """The names of the models that ran, in order."""
    return tuple(model["model"] for model in report["models"] if model["error"] is None)


def frequent_confusions(report: Report, names: Iterable[str], limit: int) -> tuple[tuple[int, int], ...]:
    """The wrong answers that all these models together give most often, as (label, answer); ties in their order."""
    counts: Counter[tuple[int, int]] = Counter()
    for row in of_models(report["confusion"], names):
        if row["label"] != row["answer"]:
            counts[row["label"], row["answer"]] += row["count"]
    return tuple(sorted(counts, key=lambda pair: (-counts[pair], pair))[:limit])


def of_models(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> tuple[Mapping[str, Any], ...]:
    """The rows of these models."""
    wanted = frozenset(names)
    return tuple(row for row in rows if row["model"] in wanted)


def short_name(name: str, limit: int = 19) -> str:
    """A model's name in at most so many printable characters, at least 3; the middle goes first."""
    name, head = clean(name), (limit - 1) // 2
    return name if len(name) <= limit else f"{name[:head]}…{name[head + 1 - limit :]}"


def metric_words(name: str) -> str:
    """A metric as a reader sees it: ``f1_macro`` is ``F1, macro``."""
    words = name.replace("_macro", ", macro").replace("_", " ")
    return words.replace("f1", "F1").replace("cohen", "Cohen's").replace("agreement", "agreement with float")


def interval_note(report: Report) -> str:
    """Why an interval does not hold its own figure, where that is so: resamples lack classes; else empty."""
    if not any(row["value"] < row["low"] or row["value"] > row["high"] for row in report["measures"]):
        return ""
    share = report["samples"] / report["classes"]
    return f"Some intervals miss their figure: {share:.3g} samples a class are too few."


def _measure_section(report: Report, names: Sequence[str], width: int) -> Section:
    cells = {(row["model"], row["metric"]): row for row in report["measures"]}
    metrics = dict.fromkeys(row["metric"] for row in report["measures"])
    sizes = {model["model"]: model["size_bytes"] for model in report["models"]}
    rows: list[Row] = [("", *map(short_name, names)), ("size", *(format_size(sizes[name]) for name in names))]
    rows += [(metric_words(metric), *(_measure(cells.get((name, metric))) for name in names)) for metric in metrics]
    lines = _blocks(rows, width)
    note = interval_note(report)
    lines += (note,) if note else ()
    return Section(title=f"{report['samples']} samples, {report['classes']} classes (95 % intervals)", lines=lines)


def _measure(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return MISSING
    if not math.isfinite(row["low"]):
        return _share(row["value"])
    return f"{_share(row['value'])} ({_share(row['low'])}–{_share(row['high'])})"


def _share(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else MISSING


def _class_section(report: Report, names: Sequence[str], width: int) -> Section:
    by_class: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in report["per_class"]:
        by_class.setdefault(row["number"], {})[row["model"]] = row
    shown, title = _shown_classes(report, by_class)
    figures = [key for key in _CLASS_FIGURES if key != "agreement" or report["reference"] is not None]
    heading = "  ".join(f"{_CLASS_FIGURES[key]:>5}" for key in figures)
    rows: list[Row] = [("", *map(short_name, names)), ("class  support", *[heading] * len(names))]
    for number in shown:
        rows_by_model = by_class[number]
        cells = ("  ".join(f"{_share(rows_by_model[name][key]):>5}" for key in figures) for name in names)
        rows.append((f"{number:>5}  {rows_by_model[names[0]]['support']:>7}", *cells))
    return Section(title=title, lines=_blocks(rows, width))


def _shown_classes(report: Report, by_class: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> tuple[list[int], str]:
    """All classes where there is room for them, else those that fare worst."""
    classes_shown = 20
    if len(by_class) <= classes_shown:
        return sorted(by_class), "By class"
    key = "agreement" if report["reference"] is not None else "f1"

    def mean(number: int) -> float:
        values = [row[key] for row in by_class[number].values() if math.isfinite(row[key])]
        return sum(values) / len(values) if values else math.inf

    support = {number: next(iter(rows.values()))["support"] for number, rows in by_class.items()}
    supported = [number for number, count in support.items() if count]
    worst = sorted(supported, key=lambda number: (mean(number), -support[number], number))[:classes_shown]
    least = "agreement with float" if key == "agreement" else "F1"
    return worst, f"By class: {len(worst)} of {len(by_class)}, those with the least {least}"


def _confusion_sections(report: Report, names: Sequence[str], width: int) -> list[Section]:
    if report["classes"] <= 10:
        return [_matrix_section(report, name) for name in names]
    pairs = frequent_confusions(report, names, _ROWS_SHOWN)
    counts = {(row["model"], row["label"], row["answer"]): row["count"] for row in report["confusion"]}
    rows: list[Row] = [("label -> answer", *map(short_name, names))]
    rows += [(f"{a} -> {b}", *(str(counts.get((name, a, b), 0)) for name in names)) for a, b in pairs]
    lines = _blocks(rows, width) if pairs else ("none",)
    return [Section(title="Most frequent wrong answers, in samples", lines=lines)]


def _matrix_section(report: Report, name: str) -> Section:
    counts = {(row["label"], row["answer"]): row["count"] for row in of_models(report["confusion"], [name])}
    classes = range(report["classes"])
    rows: list[Row] = [("", *map(str, classes))]
    rows += [(str(a), *(str(counts[a, b]) if (a, b) in counts else "." for b in classes)) for a in classes]
    title = f"Confusion matrix of {clean(name)}: labels in rows, answers in columns"
    return Section(title=title, lines=aligned(rows, right=range(len(rows))))


def _disagreement_section(report: Report, name: str) -> Section:
    samples = of_models(report["disagreements"], [name])
    ours = sum(row["answer"] == row["label"] for row in samples)
    theirs = sum(row["float_answer"] == row["label"] for row in samples)
    lines = [
        f"{len(samples)} of {report['samples']} samples; float is right on {theirs} of them, {clean(name)} on {ours}."
    ]
    surest = sorted(samples, key=lambda row: (-row["float_probability"], row["index"]))[:_ROWS_SHOWN]
    if surest:
        rows: list[Row] = [("sample", "label", "float", "prob.", short_name(name), "prob.")]
        rows += [
            (
                *(str(row[key]) for key in ("index", "label", "float_answer")),
                _share(row["float_probability"]),
                str(row["answer"]),
                _share(row["probability"]),
            )
            for row in surest
        ]
        lines += aligned(rows, right=range(6))
    some = f", the {len(surest)} of which float is surest" if len(surest) < len(samples) else ""
    return Section(title=f"Where {clean(name)} leaves float{some}", lines=tuple(lines))


def _blocks(rows: Sequence[Row], width: int) -> tuple[str, ...]:
    lines: tuple[str, ...] = ()
    for block in side_by_side(rows, width):
        lines += ("", *block) if lines else block
    return lines
