"""What a user said of a search that nothing reads, so that the run can tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from autoselect.cases.settings import SearchSettings
from autoselect.domain.targets import Target


class _Reader(NamedTuple):
    """What some settings take to have an effect."""

    names: Sequence[str]
    reads: Callable[[SearchSettings, Target], bool]
    reason: str


_BESIDE_EVALUATOR = ("evaluation", "heldout", "output_name", "ignore_label", "metric")
_READERS = (
    _Reader(
        ("heldout_fraction", "split_seed"),
        lambda said, _: said.heldout is None or said.evaluator is not None,
        "The samples of heldout are all held out",
    ),
    _Reader(
        ("heldout_fraction", "split_seed"),
        lambda said, _: said.evaluator is None,
        "The evaluator brings its own samples",
    ),
    _Reader(("confidence", "min_gain"), lambda said, _: said.racing, "Without racing no candidate is dropped early"),
    _Reader(("compiling",), lambda _, target: bool(target.compilers), "The target has no compiler"),
    _Reader(
        ("emulation", "emulation_samples"),
        lambda _, target: target.asks_compiler,
        "No vendor of the target's chip has an emulation",
    ),
    _Reader(("int16",), lambda said, _: not said.int16 or said.fallback != "drq", "Left-out nodes are hybrid alone"),
    _Reader(("insecure",), lambda said, _: said.scheduler is not None, "There is no scheduler"),
)


def idle_settings(said: SearchSettings, objectives: Iterable[str], target: Target) -> list[str]:
    """A note for each reason why settings have no effect, with their names; none if all have one.

    Args:
        said: What the user said. A setting of its default value is not told.
        objectives: Those that were chosen, by name.
        target: What the models run on.
    """
    notes = [
        f"{reader.reason}. Nothing reads {', '.join(names)}."
        for reader in _READERS
        if (names := _said(reader.names, said)) and not reader.reads(said, target)
    ]
    if "latency" not in objectives and (names := _said(("latency_threads",), said)):
        notes.append(f"No objective is latency. Nothing reads {', '.join(names)}.")
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
