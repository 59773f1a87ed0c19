"""What a search goes by: what the user said, put together with what the model, the target and the machine say.

:class:`~autoselect.cases.settings.SearchSettings` is what was said, and is never changed. What is found out later is a
fact. :func:`settle` makes one of both, in which nothing is left open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from autoselect.cases.settings import Emulation, Fallback, Sampler, SearchSettings, make_settings
from autoselect.domain.objectives import Constraints, Direction
from autoselect.domain.quantities import columns_of
from autoselect.domain.recipe import IoType, Quantizer, Recipe
from autoselect.domain.repair_sets import Repairs, corrected_at_once, with_sequences
from autoselect.domain.runtimes import Runtime, read_runtime
from autoselect.domain.states import states_of
from autoselect.isolation.machine import default_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChoice:
    """The repairs that candidates may have.

    Attributes:
        common: Those of the recipe that all candidates share: all that helped any of them.
        sets: What the search chooses between: ``none``, and what helped ``integer`` and ``int16`` nodes. If weights may
            have fewer than 8 bits, also the sets with fewer levels: ``weights 1`` and so on, each with less than the
            one before. Empty if all candidates have :attr:`common`.
        added_noise: What fewer levels add to the error of outputs, as power over signal power, by the name of a set.
    """

    common: Repairs = ()
    sets: Mapping[str, Repairs] = field(default_factory=dict)
    added_noise: Mapping[str, float] = field(default_factory=dict)

    @property
    def alternatives(self) -> tuple[Repairs, ...]:
        """The sets that a candidate may have, the common one first."""
        chosen = with_sequences([self.common, *sorted(self.sets.values())])
        return chosen if self.sets else chosen[:1]

    @property
    def noise_of_alternatives(self) -> tuple[float, ...]:
        """What the levels of each of :attr:`alternatives` add to the error of outputs."""
        noise = {repairs: self.added_noise.get(name, 0.0) for name, repairs in self.sets.items()}
        return tuple(noise.get(repairs, noise.get(corrected_at_once(repairs), 0.0)) for repairs in self.alternatives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the model, the target, the machine and the search itself say; there are more of them as a search goes on.

    Attributes:
        fallback: What left-out nodes become on the target, unless the user says.
        int16: Whether units have 16-bit activations on the target. It counts if the user does not say, and left-out
            nodes do not become hybrid.
        io_type: Of inputs and outputs, unless the user says: that of a converter or the target.
        per_channel: Whether integer ops have one scale per channel, by the file or converter that they come from; None
            if the user's word is enough.
        takes_repairs: False if integer ops are those of a file of another quantizer.
        workers: Processes that the machine has room for.
        makes_int16: Whether the model has ops that can have 16-bit activations.
        repairs: What candidates may have, once repairs were tried or a manifest names them; else None.
        models: If the search only scores a fixed list of models, their number; None if it proposes candidates.
    """

    fallback: Fallback = "drq"
    int16: bool = False
    io_type: IoType = "float32"
    per_channel: bool | None = None
    takes_repairs: bool = True
    workers: int = field(default_factory=default_workers)
    makes_int16: bool = True
    repairs: RepairChoice | None = None
    models: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A search in which nothing is left open; what is not explained here is as in ``SearchSettings``.

    Attributes:
        direction: Of the numbers of an evaluator.
        has_evaluator: Whether a function of the user's runs the candidates.
        runtime: The oldest that must load the models; None for the one that is installed.
        int16: Whether units may have 16-bit activations, if the fallback leaves room for them.
        states: What a node that is not in integers of 8 bits may be.
        processes: That build and score.
        tries_repairs: Whether the search still has to find out which repairs help.
        repairs: Those that candidates may have.
        constraints: The user's limits; None for what has no limit.
        min_score: The least score that is asked for; None if none is.
        timeout: Seconds after which no candidate is begun; None for no limit.
        emulation_samples: None for as many as half a minute allows.
    """

    objectives: tuple[str, ...]
    direction: Direction
    has_evaluator: bool
    latency_threads: int
    heldout_fraction: float
    split_seed: int
    allow_overlap: bool
    trials: int
    timeout: float | None
    seed: int
    sampler: Sampler
    racing: bool
    confidence: float
    min_gain: float
    break_price: float
    early_exit: bool
    front_spacing: float
    search_space: str
    debug_samples: int
    target: str
    runtime: Runtime | None
    compiling: bool
    exact_rewrites: bool
    emulation: Emulation
    emulation_samples: int | None
    fallback: Fallback
    int16: bool
    states: tuple[str, ...]
    per_channel: bool
    tries_repairs: bool
    repairs: RepairChoice
    weights: int
    io_type: IoType
    keep_float: tuple[str, ...]
    keep_int: tuple[str, ...]
    constraints: Constraints
    min_score: float | None
    feedback: Mapping[str, str]
    quantizer: Quantizer
    processes: int
    trial_timeout: float
    cache: bool

    @property
    def cost_columns(self) -> tuple[str, ...]:
        """Columns of the objectives but the metric."""
        return columns_of(self.objectives)

    @property
    def template(self) -> Recipe:
        """The recipe that all candidates share but for their nodes and repairs; none of these while they are tried.

        If the search chooses between hybrid and float, a recipe lists what is float.
        """
        return Recipe(
            fallback="float" if self.fallback == "float" else "drq",
            per_channel=self.per_channel,
            io_type=self.io_type,
            repairs=self.repairs.common,
        )


_AS_SAID = frozenset(Settled.__slots__) & frozenset(SearchSettings.model_fields)
"""Fields of both: what is not decided anew has the value that was said."""


def settle(settings: SearchSettings, facts: Facts) -> Settled:
    """Decide each setting of a search: the user's value if there is one, else the fact.

    These facts win over the user's value: ``models``, ``per_channel`` and ``repairs`` that are not None, and
    ``takes_repairs`` and ``makes_int16`` that are False.
    """
    fallback = facts.fallback if settings.fallback is None else settings.fallback
    int16 = _has_int16(settings, facts, fallback)
    choice = RepairChoice(common=settings.named_repairs if facts.takes_repairs else ())
    decided: dict[str, Any] = {
        "objectives": tuple(settings.objectives),
        "direction": "maximize" if settings.direction is None else settings.direction,
        "has_evaluator": settings.evaluator is not None,
        "trials": settings.trials if facts.models is None else facts.models,
        "runtime": None if settings.runtime is None else read_runtime(settings.runtime),
        "fallback": fallback,
        "int16": int16,
        "states": states_of(fallback, int16=int16),
        "per_channel": settings.per_channel if facts.per_channel is None else facts.per_channel,
        "tries_repairs": settings.repairs is True and facts.takes_repairs and facts.repairs is None,
        "repairs": choice if facts.repairs is None else facts.repairs,
        "io_type": facts.io_type if settings.io_type is None else settings.io_type,
        "constraints": Constraints(
            max_drop=settings.max_drop,
            max_size_bytes=cast("float | None", settings.max_size),
            max_penalty=settings.max_penalty,
        ),
        "feedback": {} if settings.feedback is None else settings.feedback,
        "processes": facts.workers if settings.workers is None else settings.workers,
    }
    return Settled(**{name: getattr(settings, name) for name in _AS_SAID} | decided)


def _has_int16(settings: SearchSettings, facts: Facts, fallback: Fallback) -> bool:
    """Whether units may have 16-bit activations; beside hybrid ops alone there are none unless the user says so."""
    wanted = (facts.int16 and fallback != "drq") if settings.int16 is None else settings.int16
    return wanted and facts.makes_int16


def kept_of(settings: SearchSettings, facts: Facts) -> dict[str, Any]:
    """The settings for the manifest: the user's values, replaced by what :func:`settle` decided instead."""
    settled, choice = settle(settings, facts), facts.repairs
    repairs = settings.repairs if choice is None else choice.common
    decided = {
        "trials": settled.trials,
        "fallback": settled.fallback,
        "int16": settled.int16,
        "per_channel": settled.per_channel,
        "io_type": settled.io_type,
        "workers": settled.processes,
        "repairs": repairs if facts.takes_repairs or choice is not None else False,
        "repair_sets": dict(settled.repairs.sets),
        "added_noise": dict(settled.repairs.added_noise),
    }
    return settings.model_dump() | decided


def kept_search(manifest: Mapping[str, Any], **changes: object) -> tuple[SearchSettings, Facts]:
    """What was said of a run and what is known of it, as its manifest has them.

    What earlier versions did not have is as they did without it.

    Args:
        manifest: Of the run folder.
        changes: Settings that are said now.

    Raises:
        UsageError: If a setting is wrong, with its name.
    """
    values = {"repairs": (), "int16": False, **manifest["settings"], **changes}
    values.pop("refining", None)  # What earlier versions had in place of sets of repairs.
    sets, noise = (values.pop(name, {}) for name in ("repair_sets", "added_noise"))
    settings = make_settings(**values)
    if settings.repairs is True or settings.repairs is False:
        return settings, Facts()  # The search was stopped before repairs were tried.
    repairs = {name: tuple(names) for name, names in sets.items()}
    return settings, Facts(repairs=RepairChoice(common=settings.named_repairs, sets=repairs, added_noise=noise))


def settled_of(manifest: Mapping[str, Any]) -> Settled:
    """What a run went by, as its manifest has it.

    Raises:
        UsageError: If a setting is wrong, with its name.
    """
    return settle(*kept_search(manifest))
