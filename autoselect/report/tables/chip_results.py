"""What the models of a run are on the chips of its target: read from its summary, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoselect.domain.words import SHARES, asked, counted, label, lost_at_most
from autoselect.report.tables.frames import MISSING, ModelRow, format_size, number, records
from autoselect.report.tables.model_tables import aligned
from autoselect.report.tables.result_lines import scale_of

if TYPE_CHECKING:
    import pandas as pd

NOTE = "Emulated on x86 with search samples, on which the CPU's scores are too. No device was there."
_UNEMULATED = "As the chip's compiler says. No device was there."


@dataclass(frozen=True, slots=True, kw_only=True)
class OnChip:
    """One model on one chip.

    Attributes:
        partitions: Pieces of the chip's work.
        left: For each op that is left to the CPU, by the name of its first output, why.
        left_ops: How many these are.
        ddr_bytes: Bytes that the pieces move to and from memory outside of the chip.
        scores: What it scores on the emulation and on the CPU, by the columns of ``chip.csv``; empty where it was not
            emulated.
    """

    partitions: int
    left: Mapping[str, str]
    left_ops: int
    ddr_bytes: float
    scores: Mapping[str, Any]

    def score(self, name: str) -> float | None:
        """One of the scores; None where it is not known."""
        return number(self.scores.get(name))

    @property
    def ddr_text(self) -> str:
        """The DDR bytes as text; a dash if there are partitions but 0 bytes, since then the compiler tells none."""
        return MISSING if self.partitions and not self.ddr_bytes else format_size(self.ddr_bytes)

    @property
    def differs(self) -> bool:
        """Whether chip and CPU differ by more than noise."""
        return bool(self.scores.get("differs"))

    def breaks(self, allowed_drop: float) -> bool:
        """Whether the model loses more on the emulation than is allowed, with 95 % confidence.

        A lower bound on the loss is taken to lie as far below the measured loss as its upper bound lies above it. False
        if the model was not emulated, or the upper bound is not known.
        """
        drop, bound = self.score("drop"), self.score("bound")
        return drop is not None and bound is not None and 2.0 * drop - bound > allowed_drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One chip of a run's target.

    Attributes:
        name: Of the target.
        models: By id.
        versions: Of the compiler and the emulation.
    """

    name: str
    models: Mapping[str, OnChip]
    versions: Mapping[str, str]

    @property
    def emulated(self) -> bool:
        """Whether any model ran on the emulation."""
        return any(model.scores for model in self.models.values())


def chips_of(summary: Mapping[str, Any]) -> tuple[Chip, ...]:
    """The chips whose compiler has decided in a run; none for other targets, and of a run that was stopped."""
    first = summary.get("compiler") or {}
    if not first.get("members"):
        return ()
    others = (first.get("others") or {}).values()
    return tuple(_chip(compiler, summary) for compiler in (first, *others) if compiler.get("members"))


def most_left(summary: Mapping[str, Any]) -> dict[str, int]:
    """How many ops are left to the CPU, by id; of several chips, the most that any leaves."""
    counts: dict[str, int] = {}
    for chip in chips_of(summary):
        for key, model in chip.models.items():
            counts[key] = max(counts.get(key, 0), model.left_ops)
    return counts


def asks_compiler(summary: Mapping[str, Any]) -> bool:
    """Whether the compiler of a chip decides where ops run; also of a run that was stopped before any was compiled."""
    compiler = summary.get("compiler")
    return compiler is not None and "compiled" not in compiler  # Vela only confirms what the profile says.


def _chip(compiler: Mapping[str, Any], summary: Mapping[str, Any]) -> Chip:
    emulated = compiler.get("emulated") or {}
    return Chip(
        name=str(compiler.get("chip") or summary.get("target")),
        models={key: _on_chip(made, emulated.get(key) or {}) for key, made in compiler["members"].items()},
        versions=compiler.get("versions") or {},
    )


def _on_chip(made: Mapping[str, Any], scores: Mapping[str, Any]) -> OnChip:
    return OnChip(
        partitions=int(made["segments"]),
        left=made.get("left") or {},
        left_ops=sum((made.get("host_ops") or {}).values()),
        ddr_bytes=float(made.get("ddr_bytes") or 0),
        scores=scores,
    )


def broken_limit(chip: Chip, ids: Iterable[str], summary: Mapping[str, Any]) -> str:
    """How many of these models lose more than is allowed on the emulation, and whether the recommended one may.

    Returns:
        Sentences; empty if none loses more, and the recommended one does not, or was not emulated.
    """
    emulated = [model for key in set(ids) if (model := chip.models.get(key)) is not None and model.scores]
    allowed_drop, metric = float(summary["allowed_drop"]), str(summary["metric"])
    count, limit, sentences = (
        sum(model.breaks(allowed_drop) for model in emulated),
        asked(allowed_drop, metric),
        list[str](),
    )
    if count:
        which = f"{count} of the {counted(len(emulated), 'emulated model')}"
        which += f" {'breaks' if count == 1 else 'break'} the limit: {limit}."
        sentences.append(f"On the emulation of {chip.name}, with 95 % confidence, {which}")
    own = chip.models.get(str((summary.get("picks") or {}).get("recommended")))
    bound = None if own is None or own.breaks(allowed_drop) else own.score("bound")
    if bound is not None and bound > allowed_drop:
        sentences.append(
            f"On the emulation of {chip.name} the samples do not show that the recommended model keeps the limit: it "
            f"{lost_at_most(bound, metric)} with 95 % confidence; {asked(allowed_drop, metric, missed_by=bound)}."
        )
    return " ".join(sentences)


def reference_ids(trials: pd.DataFrame) -> dict[str, str]:
    """Ids of the references that were trials, by their keys in a summary."""
    ids = {str(row.get("origin")): row.get("id") for row in reversed(records(trials))}
    return {
        origin.removeprefix("baseline:"): key
        for origin, key in ids.items()
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
    lines, broken = list[str](), list[str]()
    for chip in chips_of(summary):
        keys = [(name, ids.get(row.reference, row.label)) for name, row in rows]
        models = [(name, chip.models[key]) for name, key in keys if key in chip.models]
        if models:
            lines += [*aligned(_cells(chip, models, summary), right=range(1, 6)), ""]
            if note := broken_limit(chip, [key for _, key in keys], summary):
                broken.append(note)
    emulated = any(chip.emulated for chip in chips_of(summary))
    return (*lines[:-1], *broken, NOTE if emulated else _UNEMULATED) if lines else ()


def _cells(chip: Chip, models: Sequence[tuple[str, OnChip]], summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    metric = str(summary["metric"])
    scores = [(model.score("chip"), model.score("cpu")) for _, model in models]
    scale = scale_of(metric, [score for pair in scores for score in pair if score is not None])
    unit = scale.unit if metric in SHARES else f"{label(metric)} {scale.unit}".rstrip()
    scored = (f"emulated {unit}", f"CPU {scale.unit}".rstrip()) if chip.emulated else ()
    rows: list[tuple[str, ...]] = [(f"on {chip.name}", "partitions", "left ops", "DDR", *scored)]
    for (name, model), pair in zip(models, scores, strict=True):
        texts = [MISSING if score is None else scale.text(score) for score in pair] if chip.emulated else []
        rows.append((name, str(model.partitions), str(model.left_ops), model.ddr_text, *texts))
    return rows
