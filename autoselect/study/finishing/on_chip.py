"""What the members of a front are on the target's chip: by its compiler, and on the vendor's emulation of it.

Only for a target whose compiler decides what it takes. Members are compiled for real, each is held against its
forecast, and one that does not compile is no member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autoselect.cases import chip_jobs
from autoselect.cases.chip_jobs import ChipReply, Emulated
from autoselect.cases.events import Listener, StageStarted, StepFinished, Warned
from autoselect.cases.settled import Settled
from autoselect.compilers.emulation import emulation_versions, require_emulation
from autoselect.compilers.opening import compiler_of
from autoselect.domain.targets import Target, spilled_bytes
from autoselect.domain.words import counted, listed
from autoselect.errors import AutoselectError, TrialError, UsageError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.files import plain, write_table
from autoselect.runs.records import Scores, TrialRecord

_FIGURES = ("segments", "off_chip", "crossing_bytes", "crossing_tensors", "penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnChip:
    """What was found of models on one chip.

    Attributes:
        chip: Name of the target.
        place: Of the chip among those of the target that have a compiler.
        compiled: What the compiler made of each, by id.
        unlike: Ids of members that are not on the chip what was forecast of them.
        emulated: What each scores on the emulation, by id.
        allowed_drop: In the metric's units: a larger loss against the CPU counts, whether it is shown or not.
        versions: Of the compiler and the emulation.
        messages: What the user should know.
    """

    chip: str
    place: int = 0
    compiled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()
    emulated: Mapping[str, Emulated] = field(default_factory=dict)
    allowed_drop: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()

    @property
    def unlike_cpu(self) -> dict[str, Emulated]:
        """The members that score otherwise on the chip than on the CPU, by id."""
        return {key: reply for key, reply in self.emulated.items() if reply.differs(self.allowed_drop)}

    def summary(self) -> dict[str, Any]:
        """The results as plain values, for ``summary.json``."""
        return {
            "chip": self.chip,
            "members": {
                key: {name: figures[name] for name in ("segments", "host_ops", "left", "ddr_bytes", "moved", "cost")}
                for key, figures in self.compiled.items()
            },
            "unlike_forecast": list(self.unlike),
            "emulated": {key: self._plain(reply) for key, reply in self.emulated.items()},
            "scores_differ": bool(self.unlike_cpu),
            "versions": dict(self.versions),
        }

    def _plain(self, reply: Emulated) -> dict[str, Any]:
        return {**plain(asdict(reply)), "differs": reply.differs(self.allowed_drop)}


def compiled(
    front: Sequence[TrialRecord], chip: int, target: Target, limit: float, root: Path, pool: Workers, listener: Listener
) -> tuple[list[TrialRecord], OnChip]:
    """Compile models for one of the target's chips; each then has the compiler's own figures.

    Args:
        front: The models.
        chip: Place of the chip among those with a compiler.
        target: Of the search.
        limit: Seconds for each.
        root: The case.
        pool: Where they are compiled.
        listener: Is told of each.

    Returns:
        The models that compile, and what was found.
    """
    listener(StageStarted(stage="compile", total=len(front)))
    chip_target, models = target.compilers[chip], {r.id: r for r in front if r.scores}
    running = {
        key: pool.submit(chip_jobs.compile_member, root, _sha(record), chip, timeout_seconds=limit)
        for key, record in models.items()
    }
    replies, messages = dict[str, ChipReply](), list[str]()
    for key, future in running.items():
        try:
            replies[key] = result_of(future)
        except TrialError as exc:
            messages.append(f"{key} does not compile for {chip_target.name}, so nobody is told to ship it there. {exc}")
        listener(StepFinished(stage="compile"))
    unlike = tuple(key for key, reply in replies.items() if _is_unlike(models[key], reply))
    if unlike:
        messages.append(
            f"On {chip_target.name} {counted(len(unlike), 'model')} of the front differ from what was forecast: "
            f"{', '.join(unlike)}. The figures are now the compiler's."
        )
    messages += _spilling({key: reply.compiled for key, reply in replies.items()}, chip_target)
    for message in messages:
        listener(Warned(message=message))
    on_it = OnChip(
        chip=chip_target.name,
        place=chip,
        compiled={key: reply.compiled for key, reply in replies.items()},
        unlike=unlike,
        versions=compiler_of(chip_target).versions(),
        messages=tuple(messages),
    )
    alone = not target.parts
    return [_as_compiled(r, replies[r.id], alone=alone) for r in front if r.id in replies], on_it


def _spilling(compiled: Mapping[str, Mapping[str, Any]], chip: Target) -> list[str]:
    """What to say of models whose values do not all fit into the chip's own memory: only the compiler knows."""
    bytes_of = {key: spilled_bytes(made) for key, made in compiled.items()}
    spilling = {key: count for key, count in bytes_of.items() if count}
    if not spilling:
        return []
    most = max(spilling, key=spilling.__getitem__)
    return [
        f"The memory of {chip.name} is too small for {counted(len(spilling), 'model')} of the front: {most} moves "
        f"{spilling[most]:,} bytes of values out of it and back. Its penalty counts them; no forecast could."
    ]


def emulated(
    front: Sequence[TrialRecord],
    chip: OnChip,
    allowed_drop: float,
    settings: Settled,
    root: Path,
    pool: Workers,
    listener: Listener,
) -> OnChip:
    """Run compiled models on the emulation of a chip; where there is none, say so."""
    if settings.emulation == "none" or not chip.compiled:
        return chip
    try:
        require_emulation()
    except UsageError as exc:
        message = f"No model was run on an emulation of {chip.chip}. {exc}"
        listener(Warned(message=message))
        return replace(chip, messages=(*chip.messages, message))
    listener(StageStarted(stage="emulate", total=len(front)))
    arguments = (chip.place, settings.emulation_samples, max(len(front), 1))
    running = {
        r.id: pool.submit(chip_jobs.emulate, root, _sha(r), *arguments, timeout_seconds=settings.trial_timeout)
        for r in front
        if r.id in chip.compiled
    }
    replies, messages = dict[str, Emulated](), list(chip.messages)
    for key, future in running.items():
        try:
            replies[key] = result_of(future)
        except AutoselectError as exc:
            messages.append(f"{key} could not be run on the emulation of {chip.chip}. {exc}")
            listener(Warned(message=messages[-1]))
        listener(StepFinished(stage="emulate"))
    versions = {**chip.versions, **emulation_versions()}
    return replace(chip, emulated=replies, allowed_drop=allowed_drop, versions=versions, messages=tuple(messages))


def summary(chips: Sequence[OnChip], candidates: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What was found on the first chip, as plain values; under ``others`` that of the others, by name.

    Under ``candidates`` are counts of those that were compiled, if all were.
    """
    if not chips:
        return {}
    first, *others = (chip.summary() for chip in chips)
    counted_too = {"candidates": dict(candidates)} if candidates and candidates["compiled"] else {}
    return {**first, "others": {str(other["chip"]): other for other in others}, **counted_too}


def by_chips(front: Sequence[TrialRecord], chips: Sequence[OnChip]) -> list[TrialRecord]:
    """The members; those that score otherwise on a chip than on the CPU with the score of the chip that loses most."""
    unlike = [chip.unlike_cpu for chip in chips]

    def judged(record: TrialRecord) -> TrialRecord:
        seen = [replies[record.id] for replies in unlike if record.id in replies]
        if record.scores is None or not seen:
            return record
        return replace(record, scores=_scored(record.scores, max(seen, key=lambda reply: reply.drop)))

    return [judged(record) for record in front]


def write_chip_table(path: Path, chips: Sequence[OnChip]) -> None:
    """One row for each model and chip: what the compiler made of it, and what it scores on the chip and on the CPU."""
    names = [f.name for f in fields(Emulated)]
    rows = [_row(chip, key) for chip in chips for key in chip.compiled]
    columns = ("chip_name", "id", "partitions", "left_ops", "ddr_bytes", "cost", *names, "differs")
    if rows:
        write_table(path, columns, [{column: row.get(column, "") for column in columns} for row in rows])


def _row(chip: OnChip, key: str) -> dict[str, object]:
    made, scored = chip.compiled[key], chip.emulated.get(key)
    row: dict[str, object] = {
        "chip_name": chip.chip,
        "id": key,
        "partitions": made["segments"],
        "left_ops": sum(made["host_ops"].values()),
        "ddr_bytes": made["ddr_bytes"],
        "cost": made["cost"],
    }
    if scored is not None:
        row |= {name: _cell(value) for name, value in asdict(scored).items()}
        row["differs"] = scored.differs(chip.allowed_drop)
    return row


def _sha(record: TrialRecord) -> str:
    assert record.scores is not None
    return record.scores.sha256


def _is_unlike(record: TrialRecord, reply: ChipReply) -> bool:
    scores = record.scores
    assert scores is not None
    return (scores.segments, scores.off_chip) != tuple(reply.fragmentation[name] for name in ("segments", "off_chip"))


def _as_compiled(record: TrialRecord, reply: ChipReply, *, alone: bool) -> TrialRecord:
    """The record with the compiler's figures; of a chip that is the whole target its cost is the penalty."""
    assert record.scores is not None
    figures = {name: reply.fragmentation[name] for name in _FIGURES}
    if alone:
        figures["penalty"] = reply.compiled["cost"]
    made = {**record.scores.compiled, **reply.compiled}
    return replace(record, scores=replace(record.scores, compiled=made, **figures))


def _scored(scores: Scores, reply: Emulated) -> Scores:
    """A candidate's scores, with what it scored on the chip in the place of what it scored on the CPU.

    The standard error of the loss is left out, and so is the SQNR if the loss has no upper bound: then
    :func:`.certainty.expected_drops` does not move the loss to what candidates of this SQNR lose on the CPU.
    """
    return replace(
        scores,
        metric=reply.chip,
        drop=reply.drop,
        drop_noise=math.nan,
        drop_bound=reply.bound,
        sqnr_db=math.nan if math.isnan(reply.bound) else reply.chip_sqnr_db,
        divergence=math.nan,
    )


def _cell(value: object) -> object:
    return "" if isinstance(value, float) and math.isnan(value) else value


def by_compilers(member: str, chips: Sequence[OnChip]) -> list[str]:
    """A sentence on what a member of the front costs by the compilers of several chips; none if none compiled it.

    Its penalty is a forecast by the profiles of the chips.
    """
    ratios = []
    for chip in chips:
        costs = {key: float(made["cost"]) for key, made in chip.compiled.items()}
        if member in costs and min(costs.values()) > 0.0:
            ratios.append(f"{costs[member] / min(costs.values()):.2f} times the least on {chip.chip}")
    if not ratios:
        return []
    return [f"The penalty for several chips is a forecast. By their compilers the model costs {listed(ratios)}."]


def left_to_host(
    sha256: str, compiled: Mapping[str, Any], model: str, target: Target, root: Path, pool: Workers
) -> list[str]:
    """What is said of chips whose host does most of a model's work, and of ops that a compiler leaves to the host.

    Args:
        sha256: The candidate.
        compiled: What the target's compiler made of it; empty if it was not compiled.
        model: What to call the model.
        target: With the chips.
        root: The case.
        pool: Where the model is read.
    """
    try:
        return pool.call(chip_jobs.host_messages, root, sha256, compiled, target, model)
    except TrialError as exc:
        return [f"What of {model} runs on the host could not be told. {exc}"]
