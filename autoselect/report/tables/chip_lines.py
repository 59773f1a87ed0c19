"""What the models of a run are on the chips of its target, as lines of text; knows no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoselect.domain.words import SHARES, label
from autoselect.report.tables.chip_results import Chip, OnChip, chips_of
from autoselect.report.tables.frames import MISSING, ModelRow, format_size
from autoselect.report.tables.model_tables import aligned
from autoselect.report.tables.result_lines import Scale, scale_of

if TYPE_CHECKING:
    import pandas as pd

NOTE = "Emulated on x86 with search samples, on which the CPU's scores are too. No device was there."
_UNEMULATED = "As the chip's compiler says. No device was there."


def reference_ids(trials: pd.DataFrame) -> dict[str, str]:
    """Ids of the references that were trials, by their keys in a summary."""
    rows: list[dict[Any, Any]] = trials.to_dict("records")
    found = {str(row.get("origin")): row.get("id") for row in reversed(rows)}
    return {
        origin.removeprefix("baseline:"): key
        for origin, key in found.items()
        if origin.startswith("baseline:") and isinstance(key, str)
    }


def chip_lines(
    rows: Sequence[tuple[str, ModelRow]], summary: Mapping[str, Any], ids: Mapping[str, str]
) -> tuple[str, ...]:
    """A table for each chip whose compiler decides, and what was done for it; nothing for other targets.

    Args:
        rows: Names and models; those that no compiler saw are left out.
        summary: Of the run.
        ids: See :func:`reference_ids`.
    """
    lines: list[str] = []
    for chip in chips_of(summary):
        known = [(name, chip.models.get(ids.get(row.reference, row.label))) for name, row in rows]
        found = [(name, model) for name, model in known if model is not None]
        if found:
            lines += [*aligned(_cells(chip, found, summary), right=range(1, 6)), ""]
    emulated = any(chip.emulated for chip in chips_of(summary))
    return (*lines[:-1], NOTE if emulated else _UNEMULATED) if lines else ()


def _cells(chip: Chip, models: Sequence[tuple[str, OnChip]], summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    metric = str(summary["metric"])
    scores = [(model.score("chip"), model.score("cpu")) for _, model in models]
    scale = scale_of(metric, [score for pair in scores for score in pair if score is not None])
    unit = scale.unit if metric in SHARES else f"{label(metric)} {scale.unit}".rstrip()
    scored = (f"emulated {unit}", f"CPU {scale.unit}".rstrip()) if chip.emulated else ()
    found: list[tuple[str, ...]] = [(f"on {chip.name}", "partitions", "left ops", "DDR", *scored)]
    for (name, model), pair in zip(models, scores, strict=True):
        texts = [_text(score, scale) for score in pair] if chip.emulated else []
        found.append((name, str(model.partitions), str(model.left_ops), format_size(model.ddr_bytes), *texts))
    return found


def _text(score: float | None, scale: Scale) -> str:
    return MISSING if score is None else scale.text(score)
