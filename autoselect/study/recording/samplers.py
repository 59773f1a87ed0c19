"""The samplers that a search may use: the project's own proposers and Optuna's, as one kind of thing."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs, label
from autoselect.domain.search_space import ALTERNATIVE, BoundSpace, Toggle
from autoselect.errors import UsageError
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Reader, Seen, of_losses, with_divergences
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Proposer, random_masks
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.recording.packing import Packing
from autoselect.study.recording.trials import record_of

PROPOSERS: dict[str, Callable[[Problem, int, int | None], Proposer]] = {
    "surrogate": SurrogateProposer,
    "random": lambda problem, seed, _: random_masks(problem, seed),
}
"""The project's own proposers, by name; experiments add theirs."""

_OPTUNAS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
}

SAMPLERS: tuple[str, ...] = (*PROPOSERS, *_OPTUNAS)

REPAIRS = "repairs"
"""A parameter of the study if candidates may have one of several sets of repairs."""


def repair_values(sets: Sequence[Repairs]) -> dict[str, list[str]]:
    """The parameter for sets of repairs with its values; none where there is nothing to choose."""
    return {REPAIRS: [label(repairs) for repairs in sets]} if len(sets) > 1 else {}


def check_sampler(name: str) -> None:
    """Refuse a name that no sampler has.

    Raises:
        UsageError: If there is none.
    """
    if name not in {**PROPOSERS, **_OPTUNAS}:
        raise UsageError(f"There is no sampler {name!r}. Samplers: {', '.join(SAMPLERS)}.")


def make_sampler(
    name: str,
    *,
    seed: int,
    problem: Problem | None,
    space: BoundSpace,
    template: Recipe,
    budget: int | None,
) -> optuna.samplers.BaseSampler:
    """Make a sampler by name.

    Args:
        name: One of ``SAMPLERS``.
        seed: Of all chance.
        problem: What is known before any score; None takes ``tpe`` instead of the project's own.
        space: The dimensions of the study.
        template: What the search's recipes have in common; others are no news to the project's own.
        budget: Candidates in all.

    Raises:
        UsageError: If there is none of that name.
    """
    check_sampler(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name in PROPOSERS and problem is not None:
            proposer = PROPOSERS[name](problem, seed, budget)
            return ProposerSampler(proposer, problem, space, template)
        return _OPTUNAS[name if name in _OPTUNAS else "tpe"](seed)


class ProposerSampler(optuna.samplers.BaseSampler):
    """A proposer as an Optuna sampler, for the search's own study and for anyone's.

    The study's objectives are the metric and the problem's costs, in their order; its parameters are the space's
    dimensions. Trials that the search has told carry more (user attributes ``scores`` or ``partial``), which is used
    where it is there.
    """

    def __init__(self, proposer: Proposer, problem: Problem, space: BoundSpace, template: Recipe | None = None) -> None:
        """Wrap a proposer; without a ``template`` trials of any recipes count."""
        self._proposer, self._problem, self._space = proposer, problem, space
        self.packing = Packing.of(space)
        self._reader = Reader(problem=problem, template=template)
        self._finished: dict[str, dict[int, Seen | None]] = {}  # by study
        self._independent = optuna.samplers.RandomSampler(seed=0)
        self._next: Mask | None = None

    def prepare(self, study: optuna.Study) -> bool:
        """Choose the next candidate; False if nothing is left to try."""
        self._next = self._proposer.propose(*self._known(study))
        return self._next is not None

    def think_ahead(self, study: optuna.Study) -> None:
        """Use the time until a candidate is scored; changes nothing that is proposed."""
        if isinstance(self._proposer, SurrogateProposer):
            self._proposer.think_ahead(*self._known(study))

    def rules_out(self, study: optuna.Study, recipe: Recipe) -> bool:
        """Whether a candidate has what others could not be run for."""
        return Failures(self._problem, self._known(study)[0]).is_known(self._reader.mask(recipe))

    def _known(self, study: optuna.Study) -> tuple[list[Seen], list[Mask]]:
        """What is scored, and what is under way."""
        trials = study.get_trials(deepcopy=False)
        finished = self._finished.setdefault(study.study_name, {})
        for trial in trials:  # Each is read once: what is finished never changes.
            if trial.state.is_finished() and trial.number not in finished:
                finished[trial.number] = self._seen(trial)
        seen = [s for _, s in sorted(finished.items()) if s is not None]
        pending = [self._mask(t) for t in trials if t.state == TrialState.RUNNING and t.params]
        return with_divergences(seen), pending

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions of the space."""
        found: dict[str, BaseDistribution] = {}
        if self._space.alternatives:
            found[ALTERNATIVE] = CategoricalDistribution([name for name, _ in self._space.alternatives])
        found |= {name: IntDistribution(0, most) for name, most in self.packing.bounds.items()}
        further = itertools.chain(*self._space.further_toggles.values())
        for dimension in (d for d in (*self._space.dimensions, *further) if d.name not in self.packing.names):
            if isinstance(dimension, Toggle):
                found[dimension.name] = CategoricalDistribution([False, True])
            else:
                found[dimension.name] = IntDistribution(0, dimension.at_most)
        return found | {name: CategoricalDistribution(values) for name, values in repair_values(self._sets).items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The setting that means the next candidate; none where nothing is left, so that chance decides."""
        if self._next is None and not self.prepare(study):
            return {}
        assert self._next is not None
        mask, self._next = self._next, None
        nodes = self._problem.nodes_of(mask)
        setting = self._space.encode(nodes)
        if setting is None:
            return {}
        states = self._space.encode_further(nodes, self._problem.further_of(mask))
        repairs = {name: values[mask.repairs] for name, values in repair_values(self._sets).items()}
        return {**self.packing.pack({**setting, **states}), **repairs}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters that are none of the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    @property
    def _sets(self) -> tuple[Repairs, ...]:
        return self._problem.repair_sets

    def _mask(self, trial: FrozenTrial) -> Mask:
        setting, chosen = self.packing.unpack(trial.params), trial.params.get(REPAIRS)
        repairs = next((names for names in self._sets if label(names) == chosen), self._sets[0])
        return self._problem.mask_of(self._space.decode(setting), self._space.decode_further(setting), repairs)

    def _seen(self, trial: FrozenTrial) -> Seen | None:
        record = record_of(trial)
        if record is not None:
            return self._reader.seen(record)
        if trial.values is None:
            return None
        loss, *costs = trial.values
        return of_losses(self._mask(trial), loss, dict(zip(self._problem.costs, costs, strict=True)), self._problem)
