"""What the members of a front are on the chips of their run's target, read from its summary; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoselect.report.tables.frames import number


@dataclass(frozen=True, slots=True, kw_only=True)
class OnChip:
    """One model on one chip.

    Attributes:
        partitions: Pieces of the chip's work.
        left: For each op that is left to the CPU, by the name of its first output, why.
        left_ops: How many these are.
        ddr_bytes: Bytes that the pieces move to and from memory outside of the chip.
        cost: What the compiler estimates, and the profile's cost of all else.
        scores: What it scores on the emulation and on the CPU, by the columns of ``chip.csv``; empty where it was not
            emulated.
    """

    partitions: int
    left: Mapping[str, str]
    left_ops: int
    ddr_bytes: float
    cost: float
    scores: Mapping[str, Any]

    def score(self, name: str) -> float | None:
        """One of the scores; None where it is not known."""
        return number(self.scores.get(name))

    @property
    def differs(self) -> bool:
        """Whether chip and CPU differ by more than noise."""
        return bool(self.scores.get("differs"))


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
    return tuple(_chip(found, summary) for found in (first, *others) if found.get("members"))


def most_left(summary: Mapping[str, Any]) -> dict[str, int]:
    """How many ops are left to the CPU, by id; of several chips, the most that any leaves."""
    found: dict[str, int] = {}
    for chip in chips_of(summary):
        for key, model in chip.models.items():
            found[key] = max(found.get(key, 0), model.left_ops)
    return found


def asks_compiler(summary: Mapping[str, Any]) -> bool:
    """Whether the compiler of a chip decides where ops run; also of a run that was stopped before any was compiled."""
    found = summary.get("compiler")
    return found is not None and "compiled" not in found  # Vela only confirms what the profile says.


def _chip(found: Mapping[str, Any], summary: Mapping[str, Any]) -> Chip:
    emulated = found.get("emulated") or {}
    return Chip(
        name=str(found.get("chip") or summary.get("target")),
        models={key: _on_chip(made, emulated.get(key) or {}) for key, made in found["members"].items()},
        versions=found.get("versions") or {},
    )


def _on_chip(made: Mapping[str, Any], scores: Mapping[str, Any]) -> OnChip:
    return OnChip(
        partitions=int(made["segments"]),
        left=made.get("left") or {},
        left_ops=sum((made.get("host_ops") or {}).values()),
        ddr_bytes=float(made.get("ddr_bytes") or 0),
        cost=float(made.get("cost") or 0.0),
        scores=scores,
    )
