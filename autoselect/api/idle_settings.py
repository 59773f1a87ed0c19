"""Finds settings that have no effect in a search, since another setting or the target makes them idle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from autoselect.cases.settings import SearchSettings
from autoselect.domain.targets import Target


class _Reader(NamedTuple):
    """Settings that have an effect only under a condition.

    Attributes:
        names: The settings.
        reads: The condition, given all settings, the chosen objectives and the target.
        reason: Why they have no effect otherwise.
    """

    names: Sequence[str]
    reads: Callable[[SearchSettings, Collection[str], Target], bool]
    reason: str


_BESIDE_EVALUATOR = ("evaluation", "heldout", "output_name", "ignore_label", "metric")
_READERS = (
    _Reader(
        ("heldout_fraction", "split_seed"),
        lambda said, *_: said.heldout is None or said.evaluator is not None,
        "The samples of heldout are all held out",
    ),
    _Reader(
        ("heldout_fraction", "split_seed"),
        lambda said, *_: said.evaluator is None,
        "The evaluator brings its own samples",
    ),
    _Reader(("latency_threads",), lambda _said, objectives, _: "latency" in objectives, "No objective is latency"),
    _Reader(("confidence", "min_gain"), lambda said, *_: said.racing, "Without racing no candidate is dropped early"),
    _Reader(("compiling",), lambda _said, _objectives, target: bool(target.compilers), "The target has no compiler"),
    _Reader(
        ("emulation", "emulation_samples"),
        lambda _said, _objectives, target: target.asks_compiler,
        "No vendor of the target's chip has an emulation",
    ),
    _Reader(("int16",), lambda said, *_: not said.int16 or said.fallback != "drq", "Left-out nodes are hybrid alone"),
    _Reader(("insecure",), lambda said, *_: said.scheduler is not None, "There is no scheduler"),
)


def idle_settings(said: SearchSettings, objectives: Collection[str], target: Target) -> list[str]:
    """Sentences that name the settings without effect, one for each reason; none if all settings have an effect.

    Args:
        said: What the user said. A setting of its default value is not told.
        objectives: Those that were chosen, by name.
        target: What the models run on.
    """
    notes = [
        f"{reader.reason}. Nothing reads {', '.join(names)}."
        for reader in _READERS
        if (names := _said(reader.names, said)) and not reader.reads(said, objectives, target)
    ]
    if said.evaluator is not None and (names := _said(_BESIDE_EVALUATOR, said)):
        notes.append(
            f"The evaluator brings its own samples and makes the score. Nothing else reads {', '.join(names)}: leave "
            "the evaluator out to have a metric on these samples."
        )
    return notes


def _said(names: Sequence[str], said: SearchSettings) -> list[str]:
    return [name for name in names if not _is_default(getattr(said, name), name)]


def _is_default(value: object, name: str) -> bool:
    default = SearchSettings.model_fields[name].get_default()
    return value is default or (isinstance(value, str | int | float) and value == default)
