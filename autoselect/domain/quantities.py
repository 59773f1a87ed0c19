"""What a candidate can be judged by: the words that a user says, their columns and units; measures nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.objectives import Direction, Objective
from autoselect.domain.words import SHARES, did_you_mean
from autoselect.errors import UsageError


class CountsLeft:
    """Has ``segments``, ``float_ops`` and ``off_chip``: ops that the target's compiler leaves, None if none decides."""

    __slots__ = ()

    segments: int
    float_ops: int
    off_chip: int | None

    @property
    def left_ops(self) -> int:
        """Ops that the accelerator does not run: if no compiler decides, those that compute in float."""
        return self.float_ops if self.off_chip is None else self.off_chip

    @property
    def partitions(self) -> int:
        """The segments by the word of compilers."""
        return self.segments


METRIC = "accuracy"
"""Stands for the metric of the run, whatever that is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A cost of a candidate; less is better.

    Attributes:
        column: Its name in tables, in scores and in the study.
        label: For people, with its unit.
        short: The same for the head of a narrow column.
        from_graph: Whether the graph alone gives it, so that it is known of candidates that are not built.
        is_packed: Whether it is a size after packing, which a forecast by the entropy of constants comes near to.
        integers_are_best: Whether no other candidate has less of it than the all-integer model.
        noisy: Whether it differs from one measurement to the next.
    """

    column: str
    label: str
    short: str
    from_graph: bool = True
    is_packed: bool = False
    integers_are_best: bool = True
    noisy: bool = False


QUANTITIES: Mapping[str, Quantity] = {
    "size": Quantity(column="size_bytes", label="file size", short="size"),
    "penalty": Quantity(column="penalty", label="fragmentation penalty", short="penalty"),
    "segments": Quantity(column="segments", label="segments", short="segments"),
    "float_ops": Quantity(column="float_ops", label="float ops", short="float ops"),
    "partitions": Quantity(column="partitions", label="partitions", short="partitions"),
    "left_ops": Quantity(column="left_ops", label="ops off the accelerator", short="left ops"),
    "crossing_bytes": Quantity(column="crossing_bytes", label="crossing bytes", short="crossing"),
    "arena_bytes": Quantity(
        column="arena_bytes", label="peak activation bytes", short="arena", integers_are_best=False
    ),
    "npu_cycles": Quantity(
        column="npu_cycles", label="NPU cycles", short="cycles", from_graph=False, integers_are_best=False
    ),
    "ddr_bytes": Quantity(
        column="ddr_bytes", label="DDR bytes", short="DDR", from_graph=False, integers_are_best=False
    ),
    "flash": Quantity(
        column="flash_bytes",
        label="compiled file",
        short="flash",
        from_graph=False,
        is_packed=True,
        integers_are_best=False,
    ),
    "download": Quantity(
        column="download_bytes",
        label="deflated file",
        short="download",
        from_graph=False,
        is_packed=True,
        integers_are_best=False,
    ),
    "latency": Quantity(
        column="latency_ms",
        label="latency here, ms",
        short="latency",
        from_graph=False,
        integers_are_best=False,
        noisy=True,
    ),
}
"""All quantities, by the word that users have for them."""

BY_COLUMN: Mapping[str, Quantity] = {quantity.column: quantity for quantity in QUANTITIES.values()}

PACKED = tuple(word for word, quantity in QUANTITIES.items() if quantity.is_packed)
"""Words of the sizes after packing, which fewer levels of weights lower; that of the file they do not."""

DEFAULT_OBJECTIVES = (METRIC, "size", "penalty")
DEFAULT_COSTS = ("size_bytes", "penalty")
"""Columns of the default objectives but the metric."""


_UNIT_METRICS = frozenset({*SHARES, "f1_macro", "mean_iou"})
_ERRORS = frozenset({"mse", "mae", "kl_divergence"})


def possible(name: str) -> tuple[float, float]:
    """The least and the most that a metric or the column of a quantity can be; infinite where nobody knows."""
    if name in _UNIT_METRICS:
        return 0.0, 1.0
    return (0.0 if name in _ERRORS or name in BY_COLUMN else -math.inf), math.inf


def chosen_objectives(names: str | Iterable[str], own_names: Collection[str] = ()) -> tuple[str, ...]:
    """Check the objectives of a run.

    Args:
        names: Words of the user, or one text with commas between them.
        own_names: Names of the run's metric, each of which means ``accuracy``.

    Returns:
        ``accuracy`` and the keys of ``QUANTITIES`` that were named, in their order, ``accuracy`` first.

    Raises:
        UsageError: If one is unknown (with the nearest) or named twice, if there are fewer than two or more than four,
            or if the metric is none of them.
    """
    try:
        words = [word.strip() for word in (names.split(",") if isinstance(names, str) else names)]
    except (TypeError, AttributeError) as exc:
        raise UsageError(f"Expected names of objectives such as accuracy,penalty, got {names!r}.") from exc
    chosen = [METRIC if word in own_names and word not in QUANTITIES else word for word in words]
    for word in chosen:
        if word not in (words_known := (METRIC, *QUANTITIES)):
            hint = did_you_mean(word, [*words_known, *own_names], most=2, cutoff=0.5)
            hint = hint or f" Objectives: {', '.join(words_known)}."
            raise UsageError(f"There is no objective {word!r}.{hint}")
    twice = [word for place, word in enumerate(chosen) if word in chosen[:place]]
    if twice:
        raise UsageError(f"Objective {twice[0]!r} is named twice.")
    if not 2 <= len(chosen) <= 4:
        raise UsageError(f"A search has two to four objectives at once, got {len(chosen)}: {', '.join(chosen)}.")
    if METRIC not in chosen:
        raise UsageError(
            f"One of the objectives must be the metric ({METRIC!r}, or its own name), got {', '.join(chosen)}: "
            "without it the best candidate is the one that computes least, even if its answers are wrong."
        )
    return (METRIC, *(word for word in chosen if word != METRIC))


def columns_of(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of checked objectives, in their order, without the metric."""
    return tuple(QUANTITIES[name].column for name in names if name != METRIC)


def stored_bytes(size_bytes: float, quantities: Mapping[str, float]) -> float:
    """What a candidate takes where it is stored: the size after packing that the run asks for, else that of the file.

    Args:
        size_bytes: Of the file.
        quantities: Of the candidate, by column.
    """
    columns = (QUANTITIES[word].column for word in PACKED)
    return next((float(quantities[column]) for column in columns if column in quantities), float(size_bytes))


def objectives_of(names: Sequence[str], metric: str, direction: Direction) -> tuple[Objective, ...]:
    """Checked objectives with their directions, the metric first under its own name."""
    costs = (Objective(name=column, direction="minimize") for column in columns_of(names))
    return (Objective(name=metric, direction=direction), *costs)


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> float:
    """Read a size in bytes: ``49320``, ``48kB`` (1000 bytes), ``1.5 MB``, ``64KiB`` (1024 bytes).

    Raises:
        UsageError: If it is no size.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise UsageError("expected bytes, or a size such as 48kB, 1.5MB or 64KiB")
    return float(match.group(1)) * factor
