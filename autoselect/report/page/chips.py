"""What the models of a run are on the chips of its target, as the page shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from autoselect.domain.words import difference
from autoselect.report.page.models import spoken
from autoselect.report.tables.chip_results import Chip, OnChip, broken_limit, chips_of, reference_ids
from autoselect.report.tables.frames import MISSING, front_rows, reference_rows
from autoselect.report.tables.target_tables import version_texts
from autoselect.runs.run import Run

Row = dict[str, Any]


def sections(run: Run) -> list[Row]:
    """A table for each chip whose compiler decides; all cells are texts.

    Returns:
        For each chip ``name``, ``emulated`` (whether any model ran on the emulation), ``samples``, ``agreement``
        (whether any shared classes are known), ``closeness`` (the same of SQNR), ``versions``, ``broken``
        (how many models break the limit there, as a sentence), ``rows``, and ``reasons``: why ops are left to the CPU,
        with the ops of each model. A row has ``id``, ``label``, ``partitions``, ``left_ops``, ``ddr``, ``chip``,
        ``cpu``, ``between``, ``loses``, ``gains``, ``chip_db``, ``cpu_db`` and ``agreement``.
    """
    return [_section(run, chip) for chip in chips_of(run.summary)]


def _section(run: Run, chip: Chip) -> Row:
    ids = reference_ids(run.trials)
    shown: dict[str, str] = {}
    for row in (*front_rows(run.front, run.summary), *reference_rows(run.summary)):
        key = ids.get(row.reference, row.label)
        if key in chip.models:
            name = ", ".join(row.picks) or (row.label if row.reference else "")
            shown[key] = ", ".join(filter(None, (shown.get(key), name)))
    rows = [_row(run, key, text, chip.models[key]) for key, text in shown.items()]
    samples = {model.score("samples") for model in chip.models.values()} - {None, 0.0}
    return {
        "name": chip.name,
        "emulated": chip.emulated,
        "samples": f"{round(max(filter(None, samples))):,}" if samples else "",
        "agreement": any(row["agreement"] != MISSING for row in rows),
        "closeness": any(row["chip_db"] != MISSING for row in rows),
        "versions": version_texts(chip.versions),
        "broken": broken_limit(chip, shown, run.summary),
        "rows": rows,
        "reasons": _reasons(shown, chip.models),
    }


def _row(run: Run, key: str, label: str, model: OnChip) -> Row:
    low, high, agreement = (model.score(name) for name in ("low", "high", "agreement"))
    scale = max((abs(score) for score in (model.score("chip"), model.score("cpu")) if score is not None), default=None)

    def score(name: str) -> str:
        value = model.score(name)
        return MISSING if value is None else spoken(value, run.summary, scale)

    def decibels(name: str) -> str:
        value = model.score(name)
        return MISSING if value is None else f"{value:.1f} dB"

    return {
        "id": key,
        "label": label,
        "partitions": model.partitions,
        "left_ops": model.left_ops,
        "ddr": model.ddr_text,
        "chip": score("chip"),
        "cpu": score("cpu"),
        "between": MISSING if low is None or high is None else difference(low, high, str(run.summary["metric"])),
        "loses": model.differs and low is not None and low > 0.0,
        "gains": model.differs and high is not None and high < 0.0,
        "chip_db": decibels("chip_sqnr_db"),
        "cpu_db": decibels("cpu_sqnr_db"),
        "agreement": MISSING if agreement is None else f"{100 * agreement:.0f} %",
    }


def _reasons(shown: Mapping[str, str], models: Mapping[str, OnChip]) -> list[Row]:
    """Why ops are left, the most frequent reason first: ``why``, and ``models`` with how many of their ops."""
    counts: dict[str, dict[str, int]] = {}
    for key, label in shown.items():
        for why, count in Counter(models[key].left.values()).items():
            counts.setdefault(why, {})[label or key] = count
    ordered = sorted(counts.items(), key=lambda pair: -sum(pair[1].values()))
    return [
        {"why": why, "models": "; ".join(f"{count} of {name}" for name, count in tally.items())}
        for why, tally in ordered
    ]
